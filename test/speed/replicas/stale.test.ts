/** Statements that meet a change of the schema which nobody has told the service of yet: they are sent again, on what there is now. */
import t from 'tap';
import { Network } from '../../support/network-proxy.js';
import {
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'stale');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create sequence moves;
  create function move() returns text language plpgsql volatile as $$
  begin
    if nextval('moves') % 4 <> 0 then
      raise exception 'could not open relation with OID 16399' using errcode = 'XX000';
    end if;
    return '';
  end $$;
  create view moving as select id, name || move() as name from tags;
  insert into service_collections (collection, primary_key) values ('moving', 'id');
  create function move_before() returns trigger language plpgsql as $$ begin perform move(); return new; end $$;
  create table moved (id int primary key, value text);
  create trigger moving before insert on moved for each row execute function move_before();
  create table shifting (id serial primary key, value text, other text, document json);
`);

t.test('a table that was replaced on the way to it is looked for again', async (t) => {
  const service = await startTestService({ databaseUrl });
  for (let count = 0; count < 3; count++)
    t.match(await get(service, '/items/moving/1'), { status: 200, json: { data: { id: 1 } } });
  const headers = { 'content-type': 'application/json' };
  for (let id = 1; id <= 3; id++) {
    const answer = await request(service, 'POST', '/items/moved', {
      headers,
      body: JSON.stringify({ id, value: 'x' }),
    });
    t.match(answer, { status: 200, json: { data: { id } } });
  }
  const mutation = JSON.stringify({ query: 'mutation { create_moved_item(data: { id: 4 }) { id } }' });
  const answer = await request(service, 'POST', '/graphql', { headers, body: mutation });
  t.match(answer, { status: 200, json: { data: { create_moved_item: { id: '4' } } } });
});

t.test('a type that has changed meanwhile is found out, however soon after another change', async (t) => {
  const network = await new Network(databaseUrl).open();
  const service = await startTestService({ databaseUrl: network.url, MAX_STALENESS: '3s' });
  const headers = { 'content-type': 'application/json' };
  const post = (body: object) => request(service, 'POST', '/items/shifting', { headers, body: JSON.stringify(body) });
  t.equal((await post({ value: '1' })).status, 200);
  // From now on nobody tells the service of anything.
  network.muted = /pg_listening_channels/;
  await waitFor(async () => (await get(service, '/server/health')).text.includes('degraded'), 10_000);
  const byDocument = '/items/shifting?filter[document][_eq]={"a":1}';
  t.match(await get(service, byDocument), { status: 200, json: { data: [] } });
  for (const [type, using] of [
    ['int', 'value::int'],
    ['text', 'value::text'],
    ['int', 'value::int'],
  ]) {
    await sql.unsafe(`alter table shifting alter value type ${type} using ${using}`);
    t.match(await post({ value: '2' }), { status: 200, json: { data: { id: Number } } }, `${type}`);
    t.match(await get(service, '/items/shifting?filter[value][_eq]=2&limit=1'), { status: 200 });
  }
  // The statement casts the document to jsonb, which no UUID can be.
  await sql`alter table shifting alter document type uuid using null`;
  t.match(await get(service, byDocument), {
    status: 400,
    json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] },
  });
});
