/** The SDK of the family, unmodified: its realtime client speaks to /websocket. */
import { createDirectus, realtime, staticToken } from '@directus/sdk';
import t from 'tap';
import { WebSocket } from 'ws';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

// A new slot of the log waits for the open transactions of all databases, so also for those of other test files.
const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'sdk');
const sql = connectSql(url);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl: url, WORKERS: '1' });

interface Tag {
  readonly id: number;
  readonly name: string;
}

interface Library {
  readonly tags: Tag[];
}

const connect = () =>
  createDirectus<Library>(service.url, { globals: { WebSocket: WebSocket as never } })
    .with(staticToken(ADMIN_TOKEN))
    .with(realtime({ reconnect: { delay: 100, retries: 5 } }));

t.test('connect, subscribe with a query, and the events of all kinds of changes arrive', async (t) => {
  const client = connect();
  await client.connect();
  const query = { fields: ['id', 'name'], filter: { id: { _gt: 1_000 } } } as const;
  const { subscription, unsubscribe } = await client.subscribe('tags', { query, uid: 'tags' });
  const created: number[] = [];
  const deleted: string[] = [];
  const kinds: string[] = [];
  const reading = (async () => {
    for await (const message of subscription) {
      const { event, data } = message as { event: string; data: readonly unknown[] };
      kinds.push(event);
      if (event === 'create') created.push(...(data as readonly Tag[]).map(({ id }) => id));
      if (event === 'delete') deleted.push(...(data as readonly string[]));
    }
  })();
  await waitFor(async () => kinds.length > 0, 5_000);
  await sql`insert into tags (id, name) select 1000 + number, 'together' from generate_series(1, 50) number`;
  // The SDK misses a message that it finds beside another: on a machine that is busy no distance is large enough.
  await waitFor(async () => created.length === 50, 10_000);
  await sql`insert into tags (id, name) values (1051, 'alone')`;
  await waitFor(async () => created.length === 51, 10_000);
  await sql`update tags set name = 'x' where id = 1050`;
  await waitFor(async () => kinds.includes('update'), 10_000);
  await sql`delete from tags where id in (1001, 1002)`;
  await waitFor(async () => deleted.length === 2, 10_000);
  t.strictSame(
    created.sort((one, other) => one - other),
    Array.from({ length: 51 }, (_, index) => 1_001 + index),
  );
  t.strictSame(kinds[0], 'init');
  t.strictSame(deleted, ['1001', '1002']);
  unsubscribe();
  client.disconnect();
  await reading;
});

t.test('messages by hand: items, and pings are answered', async (t) => {
  const client = connect();
  await client.connect();
  const messages: Record<string, unknown>[] = [];
  client.onWebSocket('message', (message) => messages.push(message));
  client.sendMessage({
    type: 'items',
    collection: 'tags',
    action: 'create',
    data: { id: 2_000, name: 'by hand' },
    uid: 'c',
  });
  await waitFor(async () => messages.some(({ uid }) => uid === 'c'), 5_000);
  t.match(messages[0], { type: 'items', data: { id: 2_000, name: 'by hand' } });
  client.disconnect();
});
