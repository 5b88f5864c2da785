/** DATABASE_SETTINGS: policies find the facts about the caller under names of their own, on every path, and no caller gets those of another. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import type { Service } from '../../../src/app/start.js';
import { inForce, makeCaller } from '../../support/callers.js';
import { EventStream } from '../../support/event-stream.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

t.setTimeout(120_000);

const keys = await generateKeyPair('RS256', { extractable: true });
const published = { ...(await exportJWK(keys.publicKey)), kid: 'one', alg: 'RS256', use: 'sig' };
const issuer = createServer((_, response) => {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ keys: [published] }));
});
await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve));
t.teardown(() => issuer.close());
const ISSUER = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`;

const server = await startDatabase({
  own: true,
  settings: { wal_level: 'logical', shared_preload_libraries: 'auto_explain' },
});
const sql = connectSql(await createDatabase(server, 'settings'));
t.teardown(() => sql.end());
await sql.unsafe(`
  create role app login password 'app' replication;
  create role member;
  grant member to app;
  grant create on database settings to app;
  grant create, usage on schema public to app;
  set role app;
  create table notes (
    id serial primary key, tenant text not null default current_setting('app.tenant'),
    author text default current_setting('session.user'), body text);
  alter table notes enable row level security;
  alter table notes force row level security;
  create policy own on notes using (tenant = current_setting('app.tenant'));
  create function facts() returns json language sql stable as $$
    select json_object_agg(name, current_setting(name)) from unnest(array['app.tenant', 'session.user', 'app.role', 'app.sub',
      'app.deep', 'app.list', 'app.level', 'app.hasura', 'app.stage', 'app.missing']) name $$;
  create function claims() returns json language sql stable as $$ select current_setting('request.jwt.claims')::json $$;
  grant select, insert, update, delete on notes to member;
  grant usage on sequence notes_id_seq to member;
  reset role`);

const OPTIONS = {
  databaseUrl: databaseUrl(server, 'settings', { user: 'app', password: 'app' }),
  WORKERS: '1',
  READ_CACHE_SIZE: '16mb',
  DATABASE_CALLER: 'claims',
  DATABASE_CLAIMS: 'level',
  DATABASE_SETTINGS: [
    'app.tenant=claim:tenant',
    'session.user=user',
    'app.role=role',
    'app.sub = claim:sub',
    'app.deep=claim:org.unit.name',
    'app.list=claim:tags',
    'app.level=claim:level',
    'app.hasura=claim:"https://hasura.io/jwt/claims"."x-hasura-tenant"',
    'app.stage=text:"production, main"',
    'app.missing=claim:nothing.here',
  ].join(),
  JWT_ISSUERS: JSON.stringify([
    { issuer: ISSUER, jwks_url: `${ISSUER}/keys`, audience: 'lateral', user: 'email', trust_email: true },
  ]),
};
const service = await startTestService(OPTIONS);
await sql`insert into service_functions (name) values ('facts'), ('claims')`;
const permissions = [
  ...(['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection: 'notes', action })),
  ...['facts', 'claims'].map((collection) => ({ collection, action: 'execute' as const })),
];
const person = await makeCaller(sql, 'ann', [{ permissions }]);
await sql`update service_roles set database_role = 'member' where id = ${person.role}`;
await inForce(service, person, '/rpc/facts');

/** Tokens of the same user: only their claims differ. */
function sign(claims: Readonly<Record<string, unknown>>): Promise<string> {
  return new SignJWT({ email: 'ann@example.com', email_verified: true, ...claims })
    .setProtectedHeader({ alg: 'RS256', kid: 'one' })
    .setIssuer(ISSUER)
    .setSubject('subject-of-ann')
    .setAudience('lateral')
    .setExpirationTime('1h')
    .sign(keys.privateKey);
}

const TENANTS = ['north', 'south'] as const;
const tokens = await Promise.all(TENANTS.map((tenant) => sign({ tenant })));
const tokenOf = (tenant: number): string => tokens[tenant] as string;
for (const tenant of TENANTS)
  await sql`insert into notes (tenant, author, body) select ${tenant}, '', ${tenant} || ' ' || i from generate_series(1, 20) i`;

const dataOf = ({ json }: Answer): unknown => (json as { data?: unknown }).data;
const send = (to: Service, token: string, method: string, path: string, body: unknown): Promise<Answer> =>
  request(to, method, path, { token, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

t.test('each source gives its value', async (t) => {
  const token = await sign({
    tenant: 'north',
    org: { unit: { name: 'sales' } },
    tags: ['a', 1],
    level: 7,
    'https://hasura.io/jwt/claims': { 'x-hasura-tenant': 't1' },
  });
  const expected = {
    'app.tenant': 'north',
    'session.user': person.user,
    'app.role': person.role,
    'app.sub': 'subject-of-ann',
    'app.deep': 'sales',
    'app.list': '["a",1]',
    'app.level': '7',
    'app.hasura': 't1',
    'app.stage': 'production, main',
    'app.missing': '',
  };
  t.strictSame(dataOf(await get(service, '/rpc/facts', { token })), expected);
  const empty = { 'app.tenant': '', 'app.deep': '', 'app.list': '', 'app.level': '', 'app.hasura': '' };
  const own = { ...expected, ...empty, 'app.sub': person.user };
  t.strictSame(dataOf(await get(service, '/rpc/facts', { token: person.token })), own, 'a token of the service');
  const claims = { sub: person.user, role: 'member', email: 'ann@example.com', level: 7 };
  t.strictSame(dataOf(await get(service, '/rpc/claims', { token })), claims, 'request.jwt.claims has no more claims');
  t.match(await get(service, '/rpc/facts', { token: await sign({ tenant: 'a\0b' }) }), { status: 403 });
});

t.test('callers whose settings differ share no response', async (t) => {
  const roles = await startTestService({ ...OPTIONS, DATABASE_CALLER: 'role' });
  for (const to of [service, roles]) {
    await inForce(to, person, '/items/notes?limit=1');
    const answers = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const { text, status } = await get(to, '/items/notes?fields=body&limit=5', { token: tokenOf(index % 2) });
        return { index, status, text };
      }),
    );
    for (const { index, status, text } of answers) {
      t.equal(status, 200, text);
      t.equal(text.includes(`${TENANTS[index % 2]} 1`), true);
      t.equal(text.includes(`${TENANTS[(index + 1) % 2]}`), false);
    }
  }
});

t.test('writes and transactions have the settings', async (t) => {
  for (const [index, tenant] of TENANTS.entries()) {
    const made = await send(service, tokenOf(index), 'POST', '/items/notes', { body: `${tenant} made` });
    t.match(dataOf(made), { tenant, author: person.user }, made.text);
    const other = await send(
      service,
      tokenOf(1 - index),
      'PATCH',
      `/items/notes/${(dataOf(made) as { id: number }).id}`,
      {
        body: 'stolen',
      },
    );
    t.equal(other.status, 403);
    const operations = ['step', 'other step'].map((body) => ({
      method: 'POST',
      path: '/items/notes?fields=tenant,body',
      body: { body: `${tenant} ${body}` },
    }));
    const steps = await send(service, tokenOf(index), 'POST', '/transactions', { operations });
    t.equal(steps.status, 200, steps.text);
    t.equal(steps.text.split(`"tenant":"${tenant}"`).length, 3, steps.text);
  }
});

t.test('live queries have the settings', async (t) => {
  const streams = tokens.map(
    (token) => new EventStream(service, '/items/notes?fields=body&sort=-id&limit=1', { token }),
  );
  t.teardown(() => {
    for (const stream of streams) stream.close();
  });
  for (const stream of streams) await stream.count(1);
  for (const [index, tenant] of TENANTS.entries()) {
    await send(service, tokenOf(index), 'POST', '/items/notes', { body: `${tenant} live` });
    await waitFor(async () => JSON.stringify(streams[index]?.last).includes(`${tenant} live`), 10_000);
  }
  for (const [index, tenant] of TENANTS.entries())
    t.equal(
      streams[index]?.events.some(({ data }) => data.includes(TENANTS[1 - index] as string)),
      false,
      tenant,
    );
});

t.test('options that cannot work stop the start', async (t) => {
  const wrong: [string, RegExp][] = [
    ['app.tenant', /must look like app\.tenant=claim:tenant,app\.user=user, not "app\.tenant"/],
    ['app.tenant=', /must look like/],
    ['app.tenant=tenant', /"tenant" of app\.tenant must be claim:NAME, user, role or text:VALUE/],
    ['app.tenant=claim:', /claim:NAME/],
    ['app.tenant=claim:a..b', /claim:NAME/],
    ['app.tenant=claim:"a', /must look like/],
    ['tenant=user', /"tenant" must have a dot in it, such as app\.tenant/],
    ['search_path=text:x', /must have a dot/],
    ["app.te'nant=user", /"app\.te'nant" must be names of letters, digits and "_" with dots in between/],
    ['request.jwt.claims=user', /request\.jwt\.claims is set by the service/],
    ['plpgsql.user=user', /plpgsql\.user is reserved/],
    ['lateral.user=user', /lateral\.user is set by the service/],
    ['app.a=user,APP.A=role', /APP\.A is set twice/],
  ];
  for (const [value, message] of wrong)
    t.throws(() => readConfig({ DATABASE_SETTINGS: value, DATABASE_CALLER: 'claims' }), { message }, value);
  t.throws(() => readConfig({ DATABASE_SETTINGS: 'app.user=user' }), {
    message: 'DATABASE_SETTINGS: needs DATABASE_CALLER=claims or role',
  });
  await t.rejects(startTestService({ ...OPTIONS, DATABASE_SETTINGS: 'auto_explain.tenant=claim:tenant' }), {
    message: /^DATABASE_SETTINGS: PostgreSQL refuses auto_explain\.tenant: .*auto_explain/,
  });
});
