/**
 * Rows of ten megabytes and statements of a million rows reach webhooks, live queries and change events of a process with 512 MB of heap.
 * Nothing is lost, and the service answers `ping` within a second.
 */
import t from 'tap';
import { EventStream } from '../../support/event-stream.js';
import { MessageSocket } from '../../support/message-socket.js';
import { ADMIN_TOKEN, connectSql, createDatabase, request, startDatabase, waitFor } from '../../support/service.js';
import { startSmallHeap } from '../../support/small-heap.js';
import { startReceiver } from '../../support/webhook-receiver.js';

const ROWS = 50;
const BYTES = 10_000_000;
const MANY = 1_000_000;
const WITHIN = 240_000;

t.setTimeout(900_000);
const server = await startDatabase({ own: true });
const databaseUrl = await createDatabase(server, 'large_rows');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql
  .unsafe(`
    create table large (id integer primary key, title text, body text);
    create table small (id integer primary key, amount integer);`)
  .simple();
const service = await startSmallHeap({ databaseUrl, WEBHOOKS_ALLOW_LOCAL: 'true', DATABASE_STATEMENT_TIMEOUT: '2m' });
const receiver = await startReceiver();
async function follow(collection: string, fields: readonly string[]): Promise<MessageSocket> {
  const socket = await new MessageSocket(service).opened();
  t.teardown(() => socket.close());
  await socket.signIn(ADMIN_TOKEN);
  const query = { fields, limit: -1 };
  t.match(await socket.ask({ type: 'subscribe', collection, query }), { event: 'init' });
  return socket;
}

/** The bytes of the last result. */
function watchQuery(path: string): { readonly latest: () => string } {
  let latest = '';
  const stream = new EventStream(service, path, {
    onEvent: ({ data }) => {
      latest = data;
    },
  });
  t.teardown(() => stream.close());
  return { latest: () => latest };
}

t.test('webhooks follow both tables', async (t) => {
  for (const collection of ['large', 'small']) {
    const answer = await request(service, 'POST', '/webhooks', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: collection, url: receiver.url, collections: [collection] }),
    });
    t.equal(answer.status, 200, answer.text);
  }
});

t.test('fifty new and changed rows of ten megabytes', async (t) => {
  const list = watchQuery('/items/large?fields=id,title&limit=-1&sort=id');
  const some = watchQuery('/items/large?filter[id][_lte]=3&sort=id');
  const brief = await follow('large', ['id', 'title']);
  const whole = await follow('large', ['*']);
  const told = (socket: MessageSocket, event: string): Set<unknown> =>
    new Set(
      socket.messages.flatMap((message) =>
        message['event'] === event && Array.isArray(message['data']) ? message['data'].map(({ id }) => id) : [],
      ),
    );
  await waitFor(async () => list.latest() !== '' && some.latest() !== '', WITHIN);
  const watched = service.watch();
  await sql`insert into large select n, 'first', repeat('z', ${BYTES}) from generate_series(1, ${ROWS}) n`;
  await sql`update large set title = 'second'`;
  await waitFor(async () => list.latest().split('second').length > ROWS, WITHIN);
  await waitFor(async () => some.latest().length > 3 * BYTES && some.latest().includes('second'), WITHIN);
  await waitFor(async () => told(brief, 'update').size + told(brief, 'create').size >= ROWS, WITHIN);
  await receiver.count(2 * ROWS, WITHIN);
  const keys = new Set(receiver.received.map(({ json: { event, key } }) => `${event} ${key}`));
  t.equal(keys.size, 2 * ROWS, 'each change is delivered');
  await waitFor(async () => new Set([...told(whole, 'create'), ...told(whole, 'update')]).size === ROWS, WITHIN);
  await watched.end(t, 'large rows');
  brief.close();
  whole.close();
});

t.test('statements of a million rows', async (t) => {
  receiver.received.length = 0;
  const count = watchQuery('/items/small?aggregate[count]=*');
  const first = watchQuery('/items/small?fields=id,amount&limit=2&sort=id');
  const socket = await follow('small', ['id']);
  socket.messages.length = 0;
  const watched = service.watch();
  await waitFor(async () => count.latest() !== '' && first.latest() !== '', WITHIN);
  await sql`insert into small select n, 0 from generate_series(1, ${MANY}) n`;
  await waitFor(async () => count.latest().includes(String(MANY)), WITHIN);
  await sql`update small set amount = 7`;
  await waitFor(async () => first.latest().includes('"amount":7'), WITHIN);
  await sql`delete from small where id > 10`;
  await waitFor(async () => /:"?10\b/.test(count.latest()), WITHIN);
  await waitFor(async () => receiver.received.some(({ json }) => json.event === 'resync'), WITHIN);
  await waitFor(
    async () =>
      socket.messages.some(({ resync, data }) => resync === true && Array.isArray(data) && data.length === 10),
    WITHIN,
  );
  await watched.end(t, 'a million rows');
});
