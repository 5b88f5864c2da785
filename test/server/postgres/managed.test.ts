/**
 * Connection strings as providers of PostgreSQL print them, each with a server that is set up alike. The service starts, or ends with one
 * line that says what to change.
 */
import { chmod, chown, copyFile, stat, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { StartError } from '../../../src/base/errors.js';
import { Authority } from '../../support/authority.js';
import { pgBouncerVersion, startPooler } from '../../support/pooler.js';
import { findProgram } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  get,
  makeFolder,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

/** No superuser comes from outside, and nobody without TLS, except through the proxy of Cloud SQL. */
const HBA = `
local all all trust
host all lateral all scram-sha-256
hostssl all certified all scram-sha-256 clientcert=verify-ca
host all proxied all scram-sha-256
hostssl all all all scram-sha-256
`;
const SETUP = `
create role app login replication password 'secret';
create role "postgres.abcdefgh" login password 'secret' in role app;
create role certified login password 'secret' in role app;
create role proxied login password 'secret' in role app;
create role bare login password 'secret';`;
const TABLES = `
create table goods (id int primary key generated always as identity, name text);
insert into goods (name) values ('a lamp');
grant create, usage on schema public to app;
grant create on database shop to app;
alter table goods owner to app;
grant select on goods to bare;`;

type Asserts = Pick<typeof t, 'ok' | 'match' | 'notMatch' | 'strictSame'>;

// Its poolers are its own.
delete process.env['TEST_POOLER'];
const openssl = await findProgram('openssl');
const pooler = await pgBouncerVersion();
if (openssl === null) t.plan(0, 'openssl is not installed: it makes the certificates');
else await testProviders();

async function testProviders(): Promise<void> {
  const folder = await makeFolder();
  const authority = await Authority.found(folder);
  const server = await startDatabase({ own: true, settings: { wal_level: 'logical' } });
  const { port } = new URL(server.url);
  const shop = new URL(server.url);
  shop.pathname = '/shop';
  const owner = shop.href;

  const data = await withSql(server.url, async (sql) =>
    String((await sql`show data_directory`)[0]?.['data_directory']),
  );
  const { uid, gid } = await stat(data);
  const own = await authority.issue('localhost', { names: 'DNS:localhost' });
  for (const [from, to] of [
    [own.certificate, 'server.crt'],
    [own.key, 'server.key'],
    [authority.certificate, 'ca.crt'],
  ] as const) {
    await copyFile(from, join(data, to));
    await chown(join(data, to), uid, gid);
  }
  await writeFile(join(data, 'pg_hba.conf'), HBA);
  await withSql(server.url, async (sql) => {
    await sql.unsafe(SETUP);
    await sql.unsafe('create database shop');
    await sql.unsafe(`alter system set ssl_ca_file = 'ca.crt'`);
    await sql.unsafe('alter system set ssl = on');
    await sql`select pg_reload_conf()`;
  });
  await waitFor(() => withSql(owner, async (sql) => (await sql`show ssl`)[0]?.['ssl'] === 'on'), 10_000);
  await withSql(owner, (sql) => sql.unsafe(TABLES));

  const ca = `sslrootcert=${authority.certificate}`;
  const at = (login: string, query = ''): string => `postgresql://${login}:secret@localhost:${port}/shop${query}`;

  /** Whether all connections of the login use TLS. */
  async function isEncrypted(login: string): Promise<boolean> {
    const rows = await withSql(
      owner,
      (sql) => sql`select ssl from pg_stat_activity join pg_stat_ssl using (pid) where usename = ${login}`,
    );
    return rows.length > 0 && rows.every(({ ssl }) => ssl === true);
  }

  async function serves(t: Asserts, name: string, url: string, login: string | null): Promise<void> {
    const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
    const answer = await get(service, '/items/goods?fields=name');
    t.strictSame([answer.status, answer.json], [200, { data: [{ name: 'a lamp' }] }], name);
    if (login !== null) t.ok(await isEncrypted(login), `${name}: every connection uses TLS`);
    await service.stop();
  }

  async function refuses(t: Asserts, name: string, url: string, reason: RegExp): Promise<void> {
    const outcome = await startTestService({ databaseUrl: url, WORKERS: '1', DATABASE_START_TIMEOUT: '2s' }).then(
      async (service) => service.stop(),
      (error: unknown) => error,
    );
    t.ok(outcome instanceof StartError, `${name}: ${outcome instanceof Error ? outcome.message : 'it started'}`);
    t.match(outcome, { message: reason }, name);
    t.notMatch(outcome, { message: /\n/ }, `${name}: one line`);
  }

  t.test('Amazon RDS', async (t) => {
    await serves(t, 'verify-full and the bundle', at('app', `?sslmode=verify-full&${ca}`), 'app');
    await serves(t, 'as the console prints it, with rds.force_ssl', at('app'), 'app');
    await refuses(t, 'verify-full without the bundle', at('app', '?sslmode=verify-full'), /sslrootcert/);
    await refuses(
      t,
      'no TLS',
      at('app', '?sslmode=disable'),
      /no encryption .*If it accepts only TLS, set sslmode=require/,
    );
    await refuses(t, 'a login without create', at('bare'), /grant create on schema/);
  });

  t.test('Google Cloud SQL', async (t) => {
    const sockets = await makeFolder();
    const proxy = createServer((client) => {
      const behind = connect(Number(port), '127.0.0.1');
      for (const socket of [client, behind]) socket.on('error', () => client.destroy());
      client.pipe(behind).pipe(client);
    }).listen(join(sockets, '.s.PGSQL.5432'));
    t.teardown(() => proxy.close());
    await serves(t, 'the Auth Proxy', `postgresql://proxied:secret@/shop?host=${sockets}`, null);
    const { certificate, key } = await authority.issue('client');
    const files = `sslcert=${certificate}&sslkey=${key}`;
    await serves(t, 'client certificates', at('certified', `?sslmode=verify-ca&${ca}&${files}`), 'certified');
    await refuses(
      t,
      'no certificate',
      at('certified', `?sslmode=verify-ca&${ca}`),
      /client certificate .*set sslcert and sslkey/,
    );
  });

  t.test('Neon', async (t) => {
    const neon = '?sslmode=require&channel_binding=require';
    const service = await startTestService({ databaseUrl: at('app', neon), WORKERS: '1', LIVE: 'logical' });
    const leaving = new AbortController();
    const headers = { accept: 'text/event-stream', authorization: `Bearer ${ADMIN_TOKEN}` };
    const stream = await fetch(`${service.url}/items/goods`, { headers, signal: leaving.signal });
    t.equal(stream.status, 200);
    await waitFor(async () => {
      const [row] = await withSql(
        owner,
        (sql) => sql`select count(*)::int as count from pg_stat_activity where backend_type = 'walsender'`,
      );
      return row?.['count'] === 1;
    }, 10_000);
    t.ok(await isEncrypted('app'), 'the log stream and LISTEN use TLS too');
    leaving.abort();
    await service.stop();
    await refuses(t, 'without TLS', at('proxied', '?sslmode=disable&channel_binding=require'), /no TLS/);
  });

  t.test('Azure and Crunchy Bridge', async (t) => {
    const pairs = `host=localhost port=${port} dbname=shop user=app password=secret sslmode=require`;
    await serves(t, 'the pairs of Azure', pairs, 'app');
    await serves(t, 'the authority of a team', at('app', `?sslmode=verify-ca&${ca}`), 'app');
  });

  t.test('Supabase and other poolers', { skip: pooler === null && 'pgbouncer is not installed' }, async (t) => {
    for (const file of [own.key, own.certificate]) await chmod(file, 0o644);
    const settings = [
      'client_tls_sslmode = require',
      `client_tls_key_file = ${own.key}`,
      `client_tls_cert_file = ${own.certificate}`,
      'server_tls_sslmode = require',
      'ignore_startup_parameters = extra_float_digits',
    ];
    const direct = at('postgres.abcdefgh', '?sslmode=require').replace('localhost', '127.0.0.1');
    const session = await startPooler(direct, { mode: 'session', settings });
    await serves(t, 'session mode', session, 'postgres.abcdefgh');
    const tracking = (pooler ?? 0) >= 1.21 ? ['max_prepared_statements = 200'] : [];
    const transaction = await startPooler(direct, { mode: 'transaction', settings: [...settings, ...tracking] });
    const prisma = `${transaction}&pgbouncer=true&connection_limit=1`;
    if (tracking.length > 0) await serves(t, 'transaction mode', prisma, 'postgres.abcdefgh');
    else await refuses(t, 'transaction mode', prisma, /use PgBouncer 1.21 or newer/);
    await refuses(t, 'channel binding', `${session}&channel_binding=require`, /channel_binding=require cannot be kept/);
  });
}
