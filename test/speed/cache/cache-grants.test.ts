/** Grants change without a change of rows: answers of a database role must leave the memory when it loses a privilege. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

t.setTimeout(120_000);
const TAG = '/items/tags/1?fields=id,name';

/** How each role may read the table, and what ends that. */
const ROLES = {
  of_table: ['grant select on tags to of_table', 'revoke select on tags from of_table'],
  of_columns: ['grant select (id, name) on tags to of_columns', 'revoke select (name) on tags from of_columns'],
  of_members: ['grant select on tags to viewers; grant viewers to of_members', 'revoke viewers from of_members'],
  of_schema: ['grant select on tags to of_schema', 'revoke usage on schema public from of_schema'],
  of_name: [
    'grant select on tags to of_name; create role outsiders; grant outsiders to app; grant usage on schema public to outsiders',
    'alter role of_name rename to former; alter role outsiders rename to of_name',
  ],
} as const;

const server = await startDatabase({ settings: { wal_level: 'logical' } });
const sql = connectSql(await createDatabase(server, 'grants'));
t.teardown(() => sql.end({ timeout: 1 }));
await sql.unsafe(`create role app login password 'app' replication; create role viewers;
  grant create on database grants to app; grant create, usage on schema public to app; revoke usage on schema public from public;
  set role app; create table tags (id int primary key, name text); insert into tags values (1, 'one'); reset role`);
for (const [role, [grant]] of Object.entries(ROLES))
  await sql.unsafe(`create role ${role}; grant ${role} to app; grant usage on schema public to ${role}; ${grant}`);
const options = {
  databaseUrl: databaseUrl(server, 'grants', { user: 'app', password: 'app' }),
  LIVE: 'logical',
  WORKERS: '1',
  DATABASE_CALLER: 'role',
  // A login like this has no event trigger, and the model is not read again: the cache has to notice by itself.
  SCHEMA_POLL_INTERVAL: '1h',
} as const;
await (await startTestService(options)).stop();
const tokens = new Map<string, string>();
for (const role of Object.keys(ROLES)) {
  const { token } = await makeCaller(sql, role, [{ permissions: [{ collection: 'tags', action: 'read' }] }]);
  await sql`update service_roles set database_role = ${role} where name = ${role}`;
  tokens.set(role, token);
}
const service = await startTestService({ ...options, READ_CACHE_SIZE: '16mb', SERVER_TIMING: 'true' });

for (const [role, [, revoke]] of Object.entries(ROLES))
  t.test(`${role}: ${revoke}`, async (t) => {
    const token = tokens.get(role) ?? null;
    let last = '';
    const isHit = async (): Promise<boolean> => {
      const { status, text, headers } = await get(service, TAG, { token });
      last = `${status} ${text}`;
      return headers['cache-status'] === 'lateral; hit';
    };
    await waitFor(isHit, 4_000).catch(() => t.fail(`not from memory: ${last}`));
    await sql.unsafe(revoke);
    const isRefused = async (): Promise<boolean> => (await get(service, TAG, { token })).status === 403;
    await waitFor(isRefused, 4_000).catch(() => t.fail('the answer is still there'));
    t.ok(await isRefused());
  });
