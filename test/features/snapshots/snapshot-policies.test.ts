/** Policies in snapshots: taken, compared and applied by name, in one transaction, without secrets. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'policies_here');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl, WORKERS: '1' });

type Json = Readonly<Record<string, unknown>>;

async function send(method: string, path: string, body?: unknown, token?: string | null) {
  const headers = { 'content-type': 'application/json' };
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  return request(service, method, path, { headers, ...sent, ...(token === undefined ? {} : { token }) });
}

const RULE = { status: { _eq: 'published' } };
await send('POST', '/roles', { name: 'Editors' });
await send('POST', '/users', {
  email: 'Mara@example.com',
  password: 'a-secret-password',
  token: 'a-secret-token-of-mara',
});
const [{ role } = {}] = await sql`select id as role from service_roles where name = 'Editors'`;
const [{ user } = {}] = await sql`select id as "user" from service_users where email = 'Mara@example.com'`;
await send('POST', '/policies', {
  name: 'Writing',
  ip_access: ['10.0.0.0/8'],
  permissions: [
    { collection: 'articles', action: 'read', fields: ['id', 'title'], permissions: RULE },
    {
      collection: 'tags',
      action: 'create',
      fields: ['*'],
      presets: { name: 'new' },
      validation: { name: { _nempty: true } },
    },
  ],
  roles: [{ role }],
  users: [{ user }],
});
const taken = await send('GET', '/schema/snapshot?policies=only');
const document = (taken.json as { data: Json & { policies: Json[] } }).data;
const writing = document.policies.find(({ name }) => name === 'Writing') as Json;

t.test('a snapshot has policies if it is asked for, and no secret', async (t) => {
  t.match(writing, {
    admin_access: false,
    ip_access: ['10.0.0.0/8'],
    public: false,
    roles: ['Editors'],
    users: ['mara@example.com'],
    permissions: [
      { collection: 'articles', action: 'read', fields: ['id', 'title'], permissions: RULE, presets: null },
      { collection: 'tags', action: 'create', fields: ['*'], presets: { name: 'new' } },
    ],
  });
  t.match(document, { version: 2, collections: [], fields: [], relations: [] });
  t.notMatch(taken.text, /secret|argon2|[0-9a-f]{64}/, 'no password, token or digest');
  const plain = (await send('GET', '/schema/snapshot')).json as { data: Json };
  t.equal('policies' in plain.data, false, 'not by default');
  const whole = (await send('GET', '/schema/snapshot?policies=true')).json as { data: { policies: Json[] } };
  t.equal(whole.data.policies.length, document.policies.length);
  t.match(await send('GET', '/schema/snapshot?policies=maybe'), { status: 400 });
  t.match(await send('GET', '/schema/snapshot?policies=only', undefined, null), { status: 403 });
  t.equal((await send('POST', '/schema/diff', document)).status, 204, 'nothing differs');
});

const others = document.policies.filter(({ name }) => name !== 'Writing');
const withPolicies = (...policies: readonly Json[]): Json => ({ ...document, policies: [...others, ...policies] });
const compare = async (wanted: Json, query = ''): Promise<{ hash: string; diff: { policies?: Json[] } }> =>
  ((await send('POST', `/schema/diff${query}`, wanted)).json as { data: { hash: string; diff: object } }).data;

t.test('the difference is shown before it is applied, and applied in one transaction', async (t) => {
  const [first, second] = writing['permissions'] as Json[];
  const changed = {
    ...writing,
    app_access: true,
    public: true,
    users: [],
    permissions: [{ ...first, fields: ['*'] }, second],
  };
  const added = { name: 'New', permissions: [{ collection: 'tags', action: 'read', fields: ['*'] }] };
  const difference = await compare(withPolicies(changed, added));
  t.match(difference.diff, { collections: [], fields: [], relations: [], functions: [] });
  t.strictSame(difference.diff.policies?.map(({ name }) => name).sort(), ['New', 'Writing']);
  const ids = await sql`select id from service_policies where name = 'Writing'`;
  const other = await send('POST', '/schema/apply', { ...difference, hash: 'another' });
  t.match(other, { status: 400, text: /Provided hash does not match the current instance's schema hash/ });
  const applied = await send('POST', '/schema/apply', difference);
  t.equal(applied.status, 204, applied.text);
  t.equal((await send('POST', '/schema/diff', withPolicies(changed, added))).status, 204, 'applied');
  const rows =
    await sql`select policy.id, app_access, ip_access, collection, action, fields, permissions from service_policies policy
    join service_permissions permission on permission.policy = policy.id where name = 'Writing' order by collection`;
  t.match(
    [...rows],
    [
      {
        id: ids[0]?.['id'],
        app_access: true,
        ip_access: '10.0.0.0/8',
        collection: 'articles',
        fields: '*',
        permissions: RULE,
      },
      { collection: 'tags', action: 'create' },
    ],
  );
  const links = await sql`select role, "user" from service_access join service_policies policy on policy.id = policy
    where policy.name = 'Writing' order by role nulls last`;
  t.match(
    [...links],
    [
      { role, user: null },
      { role: null, user: null },
    ],
  );
  t.equal((await send('POST', '/schema/diff?mode=merge', withPolicies())).status, 204, 'merge deletes nothing');
  const removal = await compare(withPolicies(changed));
  t.match(removal.diff.policies, [{ name: 'New', diff: [{ kind: 'D' }] }]);
  t.equal((await send('POST', '/schema/apply', removal)).status, 204);
  t.equal((await sql`select 1 from service_policies where name = 'New'`).length, 0);
});

t.test('a policy that cannot be applied is refused and changes nothing', async (t) => {
  const before = await sql`select json_agg(policy order by id)::text from service_policies policy`;
  const refused: readonly (readonly [Json, RegExp])[] = [
    [{ ...writing, roles: ['Nobody'] }, /no role .+Nobody/],
    [{ ...writing, users: ['nobody@example.com'] }, /no user .+nobody@example.com/],
    [{ ...writing, permissions: [{ collection: 'nothing', action: 'read' }] }, /nothing/],
    [{ ...writing, permissions: [{ collection: 'tags', action: 'read', permissions: { nope: { _eq: 1 } } }] }, /tags/],
    [{ ...writing, permissions: [{ collection: 'tags', action: 'fly' }] }, /action/],
    [{ ...writing, permissions: [{ collection: 'tags', action: 'read', fields: 'id' }] }, /fields/],
    [{ ...writing, ip_access: ['somewhere'] }, /somewhere/],
    [{ ...writing, token: 'x' }, /token/],
    [{ ...writing, name: '' }, /name/],
    [{ ...writing, admin_access: 'yes' }, /admin_access/],
  ];
  for (const [policy, message] of refused) {
    const answer = await send('POST', '/schema/diff', withPolicies(policy));
    t.equal(answer.status, 400, String(message));
    t.match(answer.text, message);
  }
  t.equal((await send('POST', '/schema/diff', withPolicies(writing, writing))).status, 400, 'twice');
  const none = await compare({ ...document, policies: [] });
  t.match(await send('POST', '/schema/apply', none), { status: 422, text: /last admin/ }, 'an administrator stays');
  const after = await sql`select json_agg(policy order by id)::text from service_policies policy`;
  t.strictSame([...after], [...before]);
  await sql`insert into service_policies (name) values ('Writing')`;
  t.match(await send('GET', '/schema/snapshot?policies=only'), { status: 422, text: /Two policies/ });
  await sql`delete from service_policies where name = 'Writing' and not exists (select from service_permissions where policy = service_policies.id)`;
});

t.test('the command line: snapshot --policies, diff and apply', async (t) => {
  const target = await createLibrary(server, 'policies_there');
  const there = connectSql(target);
  t.teardown(() => there.end());
  const file = join(await makeFolder(), 'policies.json');
  const options = (url: string) => ({ DATABASE_URL: url });
  const written = await runCommand(['schema', 'snapshot', file, '--policies'], options(databaseUrl));
  t.equal(written.code, 0, written.complaints);
  const without = await runCommand(['schema', 'diff', file], options(target));
  t.equal(without.code, 1, 'the role is missing there');
  t.match(without.complaints, /no role "Editors"/);
  await there`insert into service_roles (name) values ('Editors')`;
  const diff = await runCommand(['schema', 'diff', file], options(target));
  t.equal(diff.code, 2, diff.complaints);
  t.match(diff.output, /\+ policy Writing/);
  const applied = await runCommand(['schema', 'apply', file], options(target));
  t.equal(applied.code, 0, applied.complaints);
  t.equal(
    (
      await there`select 1 from service_permissions join service_policies policy on policy.id = policy where name = 'Writing'`
    ).length,
    2,
  );
  t.equal((await runCommand(['schema', 'diff', file], options(target))).code, 0);
  await writeFile(
    file,
    JSON.stringify({ ...document, policies: [...others, { ...writing, users: [], permissions: [] }] }),
  );
  const less = await runCommand(['schema', 'diff', file], options(target));
  t.match(less.output, /- permissions: \{"collection":"articles"/);
});
