/** What the database refuses to the service's own role, and what fails in the database by no fault of the request: who learns of it, and how often the log. */
import t, { type Test } from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  startDatabase,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
await createDatabase(server, 'refusals');
const sql = connectSql(databaseUrl(server, 'refusals'));
t.teardown(() => sql.end());
await sql.unsafe(`
  create role clerk login password 'clerk';
  grant create, usage on schema public to clerk;
  create table vault (id serial primary key, content text);
  create table desk (id serial primary key, content text);
  grant all on desk to clerk;
  grant usage on sequence desk_id_seq to clerk;
  create materialized view totals as select id, content from desk with no data;
  grant select on totals to clerk;
  create table texts (content text);
  insert into texts values ('nobody');
  create type part as (size int);
  create table typed (id serial primary key, net inet, parts part[]);
  create function failing() returns trigger language plpgsql as $$
  begin
    case tg_argv[0]
      when 'mark' then perform current_setting('app.mark');
      when 'raise' then raise '%', 'refused' using errcode = '22P02';
      when 'digits' then perform new.content::int;
      when 'dated' then perform ('2024-' || new.content || '-01')::date;
      else perform tg_argv[0]::int;
    end case;
    return new;
  end $$;
  ${[
    'unset',
    'marked',
    'miscast',
    'miscast_by_trigger',
    'deferred',
    'empty',
    'claimed',
    'digits',
    'dated',
    'refusing',
    'endless',
  ]
    .map(
      (name) =>
        `create table ${name} (id serial primary key, content text); insert into ${name} (content) values ('x');`,
    )
    .join('\n')}
  ${Object.entries({
    marked: 'mark',
    miscast_by_trigger: 'no number',
    digits: 'digits',
    dated: 'dated',
    refusing: 'raise',
  })
    .map(
      ([name, how]) =>
        `create trigger failing before insert on ${name} for each row execute function failing('${how}');`,
    )
    .join('\n')}
  create constraint trigger failing after insert on deferred deferrable initially deferred
    for each row execute function failing('too late');
  ${Object.entries({
    unset: "content = current_setting('app.user')",
    miscast: 'id = (select content::int from texts)',
    empty: 'id = (select repeat(content, 0) from texts)::int',
    claimed: "id = ((select repeat(content, 0) from texts)::json ->> 'id')::int",
    endless: 'exists (select from endless other where other.id = endless.id)',
  })
    .map(
      ([name, using]) =>
        `alter table ${name} enable row level security; create policy mine on ${name} using (${using});`,
    )
    .join('\n')}
  grant all on all tables in schema public to clerk;
  revoke all on vault from clerk;
  grant usage on all sequences in schema public to clerk`);
const events: Event[] = [];
const config = readConfig({
  DATABASE_URL: databaseUrl(server, 'refusals', { user: 'clerk', password: 'clerk' }),
  PORT: '0',
  ADMIN_TOKEN,
});
const service = await startService(
  config,
  (event) => events.push(event),
  () => {},
);
t.teardown(() => service.stop());
const everything = [
  ...[
    'vault',
    'desk',
    'totals',
    'typed',
    'unset',
    'marked',
    'miscast',
    'miscast_by_trigger',
    'deferred',
    'empty',
    'claimed',
  ],
  ...['digits', 'dated', 'refusing', 'endless'],
].flatMap((collection) => (['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection, action })));
await sql`insert into service_collections (collection, primary_key) values ('totals', 'id')`;
const { token } = await makeCaller(sql, 'visitor', [{ permissions: everything }]);

const headers = { 'content-type': 'application/json' };
const told = (): string[] => events.flatMap((event) => (event.kind === 'database-refused' ? [event.detail] : []));

t.test('a right that the role of the service lacks', async (t) => {
  const denied = 'permission denied for table vault';
  for (const attempt of [1, 2]) {
    t.match(await get(service, '/items/vault'), {
      status: 403,
      json: { errors: [{ message: new RegExp(denied), extensions: { code: 'FORBIDDEN', detail: denied } }] },
    });
    const other = await get(service, '/items/vault', { token });
    t.match(other, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } });
    t.notMatch(other.text, /denied|vault/, 'others learn nothing');
    t.strictSame(told(), [denied], `logged once, also after ${attempt * 2} requests`);
  }
  const body = JSON.stringify({ content: 'x' });
  t.match(await request(service, 'POST', '/items/vault', { headers, body }), {
    status: 403,
    json: { errors: [{ extensions: { detail: /permission denied/ } }] },
  });
  const other = await request(service, 'POST', '/items/vault', { headers, body, token });
  t.equal(other.status, 403);
  t.notMatch(other.text, /denied/);
  const query = 'mutation { create_vault_item(data: { content: "x" }) { id } }';
  const mutation = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  t.match(mutation.text, /permission denied for/);
  const field = { field: 'more', type: 'string' };
  const change = await request(service, 'POST', '/fields/vault', { headers, body: JSON.stringify(field) });
  t.match(change, { status: 403, json: { errors: [{ message: /must be owner of table vault/ }] } });
});

t.test('a materialized view that was never filled', async (t) => {
  const unfilled = {
    status: 503,
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', service: 'database' } }] },
  };
  const answer = await get(service, '/items/totals');
  t.match(answer, unfilled);
  t.match(answer.text, /has no data yet.*materialized view .{0,2}totals.{0,2} has not been populated/);
  const other = await get(service, '/items/totals', { token });
  t.match(other, unfilled);
  t.notMatch(other.text, /populated/);
  await sql`refresh materialized view totals`;
  t.match(await get(service, '/items/totals', { token }), { status: 200, json: { data: [] } });
});

/** A response of 503 whose reason only administrators and the log get. */
async function isFaultOfDatabase(t: Test, ask: (token: string) => Promise<Answer>, reason: RegExp): Promise<void> {
  const fault = {
    status: 503,
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', service: 'database' } }] },
  };
  const shown = await ask(ADMIN_TOKEN);
  t.match(shown, fault, shown.text);
  t.match((shown.json as { errors: { extensions: { detail?: string } }[] }).errors[0]?.extensions.detail, reason);
  const other = await ask(token);
  t.match(other, fault, other.text);
  t.notMatch(other.text, /syntax|parameter|recursion/);
  t.equal(told().filter((detail) => reason.test(detail)).length, 1, 'logged once');
}

t.test('a policy or trigger that fails on a value of its own is not the fault of the request', async (t) => {
  const send = (method: string, path: string, body: unknown) => (token: string) =>
    request(service, method, path, { headers, body: JSON.stringify(body), token });
  const read = (path: string) => (token: string) => get(service, path, { token });
  await t.test('a setting that is not set', async (t) => {
    const reason = /unrecognized configuration parameter .{0,2}app\.user/;
    await isFaultOfDatabase(t, read('/items/unset'), reason);
    await isFaultOfDatabase(t, read('/items/unset/1'), reason);
    await isFaultOfDatabase(t, read('/items/unset?filter[content]=app.use'), reason);
    await isFaultOfDatabase(t, send('POST', '/items/unset', { content: 'x' }), reason);
    await isFaultOfDatabase(t, send('PATCH', '/items/unset/1', { content: 'x' }), reason);
    const query = '{ unset { id } }';
    t.match((await send('POST', '/graphql', { query })(token)).text, /SERVICE_UNAVAILABLE/);
    await isFaultOfDatabase(t, send('POST', '/items/marked', { content: 'x' }), /parameter .{0,2}app\.mark/);
  });
  await t.test('a failed cast', async (t) => {
    const reason = /invalid input syntax for type integer: "nobody"/;
    await isFaultOfDatabase(t, read('/items/miscast'), reason);
    await isFaultOfDatabase(t, read('/items/miscast/1'), reason);
    await isFaultOfDatabase(t, send('PATCH', '/items/miscast/1', { content: 'x' }), reason);
    await isFaultOfDatabase(
      t,
      send('POST', '/items/miscast_by_trigger', { content: 'x' }),
      /type integer: "no number"/,
    );
    await isFaultOfDatabase(t, send('POST', '/items/deferred', { content: 'x' }), /type integer: "too late"/);
    await isFaultOfDatabase(t, read('/items/empty'), /invalid input syntax for type integer: ""/);
    await isFaultOfDatabase(t, read('/items/claimed'), /invalid input syntax for type json/);
  });
  await t.test('values of the request stay its own fault', async (t) => {
    for (const [path, body] of [
      ['/items/digits', { content: 'abc' }],
      ['/items/digits', { content: '1.50' }],
      ['/items/digits', { content: '' }],
      ['/items/digits', { content: 'a "quoted" \\ text' }],
      ['/items/dated', { content: '99' }],
      ['/items/refusing', { content: 'x' }],
      ['/items/typed', { net: 'nowhere' }],
      ['/items/typed', { parts: [{ size: 'wide' }] }],
      ['/items/typed', { parts: [{ size: [1, 2] }] }],
    ] as const) {
      const answer = await send('POST', path, body)(token);
      t.equal(answer.status, 400, `${JSON.stringify(body)}: ${answer.text}`);
    }
    for (const path of [
      '/items/typed?filter[net]=nowhere',
      '/items/typed?filter[parts]=x',
      '/items/unset?filter[id]=x',
    ])
      t.equal((await read(path)(token)).status, 400, path);
  });
});

t.test('a policy that reads its own table is a fault of the database', async (t) => {
  const reason = /infinite recursion detected in policy for relation .{0,2}endless/;
  await isFaultOfDatabase(t, (token) => get(service, '/items/endless', { token }), reason);
  const body = JSON.stringify({ content: 'x' });
  await isFaultOfDatabase(
    t,
    (token) => request(service, 'PATCH', '/items/endless/1', { headers, body, token }),
    reason,
  );
});
