/** Many deliveries, and receivers that hang for a minute: they delay no others, and claims stay fast. */
import t from 'tap';
import { connectSql, createLibrary, request, startDatabase, startTestService, waitFor } from '../../support/service.js';
import { type Receiver, startReceiver } from '../../support/webhook-receiver.js';

const MINUTE_MS = 60_000;
t.setTimeout(10 * MINUTE_MS);
const server = await startDatabase();
const url = await createLibrary(server, 'webhook_slow');
const sql = connectSql(url);
t.teardown(() => sql.end());
const options = { WORKERS: '1', WEBHOOKS_ALLOW_LOCAL: 'true', WEBHOOK_TIMEOUT: '2m', WEBHOOK_MAX_BACKLOG: '1000000' };
const service = await startTestService({ databaseUrl: url, ...options });

async function create(t: { equal: typeof import('tap').default.equal }, name: string, to: Receiver): Promise<string> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name, url: to.url, collections: ['tags'] });
  const answer = await request(service, 'POST', '/webhooks', { headers, body });
  t.equal(answer.status, 200, answer.text);
  return (answer.json as { data: { id: string } }).data.id;
}

t.test('40 receivers that hang for a minute delay no other', async (t) => {
  const hung = await startReceiver();
  hung.answer = (_, response) => void setTimeout(() => response.writeHead(204).end(), MINUTE_MS).unref();
  const receiver = await startReceiver();
  for (let number = 0; number < 40; number++) await create(t, `hung ${number}`, hung);
  await sql`insert into tags (id, name) select n, 'x' from generate_series(3000, 3049) n`;
  await waitFor(async () => hung.received.length >= 256, MINUTE_MS);
  await create(t, 'quick', receiver);
  const start = Date.now();
  await sql`insert into tags (id, name) select n, 'x' from generate_series(4000, 4019) n`;
  await receiver.count(20, 45_000);
  t.ok(Date.now() - start < 45_000, `${Date.now() - start} ms, while ${hung.received.length} requests hang`);
  await sql`delete from service_webhooks`;
});

for (const items of [1, 100_000])
  t.test(`100,000 pending changes of ${items} items: deliveries go on`, async (t) => {
    const receiver = await startReceiver();
    const id = await create(t, `many ${items}`, receiver);
    await request(service, 'POST', `/webhooks/${id}/pause`);
    await sql`insert into service_webhook_deliveries (webhook, sequence, collection, event, item, payload, waits)
      select ${id}, n, 'tags', 'update', (n % ${items})::text, json_build_object('n', n), n > ${items}::int
      from generate_series(1, 100000) n`;
    await request(service, 'POST', `/webhooks/${id}/resume`);
    const wanted = items === 1 ? 50 : 2_000;
    const start = Date.now();
    await receiver.count(wanted, 2 * MINUTE_MS);
    t.comment(`${Math.round((wanted / (Date.now() - start)) * 1_000)} deliveries per second`);
    const numbers = receiver.received.slice(0, wanted).map(({ body }) => Number(JSON.parse(body).n));
    if (items === 1)
      t.strictSame(
        numbers,
        [...numbers].sort((a, b) => a - b),
        'in order',
      );
    t.equal(new Set(numbers).size, wanted, 'each once');
    await sql`delete from service_webhooks`;
  });
