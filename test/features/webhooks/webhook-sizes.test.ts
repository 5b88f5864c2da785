/** Webhooks and the values of items: large ones, those that PostgreSQL cannot read, and those that no webhook needs. */
import t, { type Test } from 'tap';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';
import { startReceiver } from '../../support/webhook-receiver.js';

t.setTimeout(120_000);
const server = await startDatabase();
const url = await createLibrary(server, 'webhook_sizes');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create type color as enum ('red', 'green');
  create domain prose as text;
  create table pages (id int primary key, title text, body text, notes prose, extra jsonb, shade color);
  create table parted_pages (id int, part int, body text, primary key (id, part)) partition by list (part);
  create table parted_pages_1 partition of parted_pages for values in (1);
  create table raw (id int primary key, v json, n int);
  create table "q r" (id int primary key, q text, r text)`);

const options = {
  databaseUrl: url,
  WORKERS: '1',
  WEBHOOKS_ALLOW_LOCAL: 'true',
  WEBHOOK_RETRY_DELAYS: '50ms,50ms,50ms',
  WEBHOOK_MAX_PAYLOAD: '100kb',
};
const service = await startTestService(options);
const receiver = await startReceiver();

function send(method: string, path: string, body?: object): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { token: ADMIN_TOKEN, headers, ...(body && { body: JSON.stringify(body) }) });
}

async function create(t: Test, webhook: object): Promise<string> {
  const answer = await send('POST', '/webhooks', { name: t.name, url: `${receiver.url}/hook`, ...webhook });
  t.equal(answer.status, 200, answer.text);
  receiver.received.length = 0;
  receiver.answer = (_, response) => void response.writeHead(204).end();
  const { id } = (answer.json as { data: { id: string } }).data;
  t.teardown(() => send('DELETE', `/webhooks/${id}`));
  return id;
}

/** Arrived deliveries as event, key, data and why the item is missing, in the order of their keys. */
async function arrived(count: number): Promise<unknown[][]> {
  const received = await receiver.count(count);
  return received
    .map(({ json: { event, key, data, omitted } }) => [event, key, data, omitted ?? null])
    .sort((one, other) => String(one[1]).localeCompare(String(other[1])));
}

/** Text that PostgreSQL cannot compress. */
const LONG = sql`(select string_agg(md5(n::text), '') from generate_series(1, 6000) n)`;

t.test('an item above WEBHOOK_MAX_PAYLOAD is sent as its key, whether its values are recorded or not', async (t) => {
  await create(t, { collections: ['pages'], fields: ['id', 'title', 'body', 'notes', 'extra', 'shade'] });
  await sql`insert into pages (id, title, body, notes, extra, shade) values
    (1, 'short', 'b', 'n', '{"a": 1}', 'red'),
    (2, 'long', repeat('z', 8000000), null, null, null),
    (3, 'long domain', null, ${LONG}, null, 'green'),
    (4, 'long json', null, null, to_jsonb(${LONG}), null),
    (5, 'escaped', repeat(chr(1), 60000), null, null, null)`;
  t.strictSame(await arrived(5), [
    ['create', '1', { id: 1, title: 'short', body: 'b', notes: 'n', extra: { a: 1 }, shade: 'red' }, null],
    ['create', '2', null, 'too_large'],
    ['create', '3', null, 'too_large'],
    ['create', '4', null, 'too_large'],
    ['create', '5', null, 'too_large'],
  ]);
  receiver.received.length = 0;
  await sql`update pages set title = 'changed' where id in (1, 2)`;
  await sql`update pages set body = 'short now' where id = 2`;
  await sql`delete from pages`;
  await receiver.count(8);
  const brief = (key: string) =>
    receiver.received
      .filter(({ json }) => json.key === key)
      .map(({ json: { event, data, previous, omitted } }) => [
        event,
        data?.['title'] ?? null,
        previous?.['title'] ?? null,
        omitted ?? null,
      ]);
  t.strictSame(brief('1'), [
    ['update', 'changed', 'short', null],
    ['delete', 'changed', null, null],
  ]);
  t.strictSame(brief('2'), [
    ['update', null, null, 'too_large'],
    ['update', null, null, 'too_large'],
    ['delete', 'changed', null, null],
  ]);
  t.strictSame(brief('3'), [['delete', null, null, 'too_large']]);
});

t.test('columns that no webhook needs are not recorded; a filter finds long values', async (t) => {
  const id = await create(t, { collections: ['pages'], fields: ['title'], filter: { body: { _ends_with: 'end' } } });
  await send('POST', `/webhooks/${id}/pause`);
  await sql`insert into pages (id, title, body, notes, shade) values (10, 'found', repeat('z', 500000) || 'end', ${LONG}, 'red'),
    (11, 'other', repeat('z', 500000), 'n', 'red')`;
  await sql`update pages set title = title || '!', notes = 'x' where id >= 10`;
  await sql`delete from pages where id >= 10`;
  const recorded = await sql<{ names: string | null; omitted: string[] | null }[]>`
    select (select string_agg(name, ',') from json_object_keys(image) name) as names, omitted from service_webhook_changes`;
  for (const { names, omitted } of recorded) {
    t.equal(names, 'id,title,body');
    t.strictSame(omitted, ['notes', 'extra', 'shade']);
  }
  await send('POST', `/webhooks/${id}/resume`);
  t.strictSame(await arrived(3), [
    ['create', '10', { title: 'found' }, null],
    ['update', '10', { title: 'found!' }, null],
    ['delete', '10', { title: 'found!' }, null],
  ]);
  t.match(receiver.received[1]?.json.previous, { title: 'found' });
});

t.test('a webhook that gets another field sends no change without it as if the item had none', async (t) => {
  const id = await create(t, { collections: ['pages'], fields: ['title'] });
  await send('POST', `/webhooks/${id}/pause`);
  // The lock of the worker: changes that it reads before the webhook has both fields are sent with one.
  await withSql(url, (locker) =>
    locker.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('lateral webhook changes public', 0))`;
      await sql`insert into pages (id, title, body) values (20, 'before', ${LONG})`;
      await sql`update pages set body = 'short' where id = 20`;
      await send('PATCH', `/webhooks/${id}`, { fields: ['title', 'body'], status: 'active' });
    }),
  );
  await sql`update pages set title = 'after' where id = 20`;
  await receiver.count(3);
  t.strictSame(
    receiver.received.map(({ json: { data, omitted } }) => [data, omitted ?? null]),
    [
      [null, 'not_recorded'],
      [null, 'not_recorded'],
      [{ title: 'after', body: 'short' }, null],
    ],
  );
  await sql`delete from pages`;
});

t.test('large rows of partitions, and columns with the names of aliases', async (t) => {
  await create(t, { collections: ['parted_pages', 'q r'] });
  await sql`insert into parted_pages values (1, 1, repeat('z', 2000000)), (2, 1, 'short')`;
  await sql`update parted_pages_1 set body = 'x' where id = 2`;
  await sql`insert into "q r" values (3, 'a', 'b')`;
  await sql`update "q r" set q = repeat('z', 2000000)`;
  await sql`update "q r" set q = 'c'`;
  await sql`update "q r" set q = 'd'`;
  t.strictSame(await arrived(7), [
    ['create', '1~1', null, 'too_large'],
    ['create', '2~1', { id: 2, part: 1, body: 'short' }, null],
    ['update', '2~1', { id: 2, part: 1, body: 'x' }, null],
    ['create', '3', { id: 3, q: 'a', r: 'b' }, null],
    ['update', '3', null, 'too_large'],
    ['update', '3', null, 'too_large'],
    ['update', '3', { id: 3, q: 'd', r: 'b' }, null],
  ]);
});

t.test('many deliveries that are large together arrive, each once', async (t) => {
  await create(t, { collections: ['pages'], fields: ['body'] });
  await sql`insert into pages (id, body) select n, repeat('z', 90000) from generate_series(1000, 1199) n`;
  const received = await receiver.count(200);
  t.equal(new Set(received.map(({ json: { key } }) => key)).size, 200);
  t.ok(received.every(({ json: { data } }) => String(data?.['body']).length === 90_000));
  await sql`delete from pages`;
});

t.test('JSON that PostgreSQL cannot read is sent as the key', async (t) => {
  const id = await create(t, { collections: ['raw'] });
  await sql.unsafe(`insert into raw values (1, '{"a": "\\u0000"}', 1), (2, '{}', 1)`);
  await sql`update raw set n = 2`;
  await sql`update raw set v = '{}'`;
  await sql`delete from raw`;
  t.strictSame(await arrived(8), [
    ['create', '1', null, 'unreadable'],
    ['update', '1', null, 'unreadable'],
    ['update', '1', null, 'unreadable'],
    ['delete', '1', { id: 1, v: {}, n: 2 }, null],
    ['create', '2', { id: 2, v: {}, n: 1 }, null],
    ['update', '2', { id: 2, v: {}, n: 2 }, null],
    ['update', '2', { id: 2, v: {}, n: 2 }, null],
    ['delete', '2', { id: 2, v: {}, n: 2 }, null],
  ]);
  const { json } = await get(service, `/webhooks/${id}?fields=incomplete_reason`, { token: ADMIN_TOKEN });
  t.match(json, { data: { incomplete_reason: null } });
});
