/** What the database refuses to the service's own role, and views that were never filled: who learns of it, and how often the log. */
import t from 'tap';
import type { Event } from '../../src/base/observe.js';
import { readConfig } from '../../src/config/config.js';
import { startService } from '../../src/service/start.js';
import { makeCaller } from '../support/callers.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  startDatabase,
} from '../support/service.js';

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
  grant select on totals to clerk`);
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
const everything = ['vault', 'desk', 'totals'].flatMap((collection) =>
  (['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection, action })),
);
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
