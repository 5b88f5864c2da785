/** The SQL of reads and writes by keys of several columns, as files to be read by people: columns are compared, never joined texts. */
import t from 'tap';
import { makeCaller } from '../support/callers.js';
import { compareGolden, type GoldenRequest, goldenNames, recordRequest } from '../support/golden.js';
import {
  createDatabase,
  get,
  KNOWS_CALLERS,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../support/service.js';
import { StatementRecorder } from '../support/statement-recorder.js';

const REQUESTS: Readonly<Record<string, GoldenRequest>> = {
  'by-key': { method: 'GET', path: '/items/order_lines/1~42?fields=quantity' },
  'by-keys': {
    method: 'SEARCH',
    path: '/items/order_lines',
    body: { keys: ['1~11', '2~11'], query: { fields: ['note'] } },
  },
  'list-of-keys': { method: 'GET', path: '/items/orders/1?fields=customer,lines' },
  'cursor-next': { method: 'GET', path: '/items/order_lines?fields=note&limit=2&cursor=WyIxIiwgIjExIl0' },
  create: { method: 'POST', path: '/items/order_lines?fields=quantity', body: { order_id: 3, product_id: 11 } },
  'create-nested': {
    method: 'POST',
    path: '/items/orders?fields=id',
    body: { customer: 'Di', lines: [{ product_id: 42 }, { product_id: { id: 99, name: 'tape' } }] },
  },
  update: { method: 'PATCH', path: '/items/order_lines/1~42?fields=note', body: { note: 'two' } },
  'replace-links': {
    method: 'PATCH',
    path: '/items/films/1?fields=actors',
    body: { actors: [{ actor_id: 1 }, { actor_id: 3 }] },
  },
  delete: { method: 'DELETE', path: '/items/order_lines', body: ['1~72', '2~11'] },
};

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'golden_keys', ['keys.sql']);
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({ databaseUrl: recorder.url, WORKERS: '1', ...KNOWS_CALLERS });
const { token } = await withSql(databaseUrl, async (sql) => {
  await sql`
    insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field, one_deselect_action)
    values ('order_lines', 'order_id', 'orders', 'lines', null, 'delete'), ('film_actor', 'film_id', 'films', 'actors', 'actor_id', 'delete')`;
  return makeCaller(sql, 'administrator', [{ admin_access: true }], { user: '00000000-0000-0000-0000-000000000001' });
});
await waitFor(async () => (await get(service, '/items/films?fields=actors.actor_id', { token })).status === 200, 5_000);
await waitFor(async () => (await get(service, '/items/orders?fields=lines.note', { token })).status === 200, 5_000);

for (const [name, golden] of Object.entries(REQUESTS)) {
  t.test(name, async (t) => {
    await compareGolden(t, 'keys', name, await recordRequest(t, { service, recorder }, golden, token));
  });
}

t.test('each golden file has its request', async (t) => {
  t.strictSame(await goldenNames('keys'), Object.keys(REQUESTS).sort());
});
