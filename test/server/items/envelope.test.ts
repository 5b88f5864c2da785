/** `envelope=false`: the data alone, as clients of other servers expect it. */
import t from 'tap';
import {
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'envelope');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create function twice(n integer) returns table (a integer, b integer) stable language sql as 'select n, n * 2';
  create function half(n integer) returns integer volatile language sql as 'select n / 2';
  insert into service_functions (name) values ('twice'), ('half');
`);
const service = await startTestService({ databaseUrl });

/** The path without and with the envelope. */
async function both(method: string, path: string, body?: string): Promise<readonly [unknown, unknown]> {
  const options: RequestOptions = body === undefined ? {} : { body, headers: { 'Content-Type': 'application/json' } };
  const url = (envelope: string): string => `${path}${path.includes('?') ? '&' : '?'}envelope=${envelope}`;
  const bare = await request(service, method, url('false'), options);
  const whole = await request(service, method, url('true'), options);
  t.strictSame([bare.status, whole.status], [200, 200], `${method} ${path}: ${bare.text} ${whole.text}`);
  return [bare.json, whole.json];
}

const READS: readonly (readonly [method: string, path: string, body?: string])[] = [
  ['GET', '/items/tags?fields=id,name&sort=id'],
  ['GET', '/items/tags?filter[id][_eq]=-1'],
  ['GET', '/items/tags/1'],
  ['GET', '/items/tags?aggregate[count]=*'],
  ['GET', '/items/tags?limit=-1&sort=id'],
  ['GET', '/items/tags?limit=-1&filter[id][_eq]=-1'],
  ['SEARCH', '/items/tags', '{"query":{"fields":["name"]}}'],
  ['SEARCH', '/items/tags', '{}'],
  ['GET', '/rpc/twice?n=3'],
  ['POST', '/rpc/twice', '{"n":3}'],
  ['SEARCH', '/rpc/twice', '{"arguments":{"n":3}}'],
  ['POST', '/rpc/half', '{"n":6}'],
  ['PATCH', '/items/tags/1', '{"name":"plain"}'],
  ['PATCH', '/items/tags?fields=id,name', '{"keys":[1,2],"data":{"name":"plain"}}'],
  ['GET', '/users/me?fields=email'],
  ['GET', '/roles?fields=name'],
];

for (const [method, path, body] of READS)
  t.test(`${method} ${path}`, async (t) => {
    const [bare, whole] = await both(method, path, body);
    t.strictSame({ data: bare }, whole);
  });

t.test('a streamed list has no envelope either', async (t) => {
  await sql`insert into tags (name) select 'tag ' || n from generate_series(1, 3000) n`;
  const [bare, whole] = await both('GET', '/items/tags?limit=-1&sort=id&fields=id,name');
  t.strictSame({ data: bare }, whole);
  t.ok(Array.isArray(bare) && bare.length > 3000);
});

t.test('the entity tag is that of the bytes', async (t) => {
  const path = '/items/tags/1?envelope=false';
  const { headers } = await get(service, path);
  t.equal((await get(service, path, { headers: { 'If-None-Match': String(headers.etag) } })).status, 304);
});

t.test('it is refused where the envelope has more than the data', async (t) => {
  for (const path of ['/items/tags?meta=*&envelope=false', '/items/tags?cursor=&envelope=false'])
    t.match(await get(service, path), { status: 400, text: /must be true if/ });
  const live = await get(service, '/items/tags?envelope=false', { headers: { Accept: 'text/event-stream' } });
  t.match(live, { status: 400, text: /must be true for live queries/ });
});
