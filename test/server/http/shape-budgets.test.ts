/** Budgets of statements: set by administrators, shown with whether they are exceeded, and counted, in all threads and instances. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
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
const databaseUrl = await createLibrary(server, 'budgets');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const reader = await makeCaller(sql, 'reader', [{ permissions: [{ collection: 'tags', action: 'read' }] }]);
const service = await startTestService({ databaseUrl, WORKERS: '2' });
const other = await startTestService({ databaseUrl, WORKERS: '1' });

interface Shape {
  readonly id: string;
  readonly digest: string;
  readonly text: string;
  readonly budget: number | null;
  readonly exceeded: boolean;
}

const PATH = '/items/tags?fields=name&sort=name&limit=3';

async function shapeOf(of: { readonly url: string }): Promise<Shape | undefined> {
  const { json } = await get(of, '/server/shapes?limit=1000');
  const { data } = json as { data: Shape[] };
  return data.find(({ text }) => text.includes('"tags"'));
}

function patch(id: string, body: unknown, token?: string): ReturnType<typeof request> {
  return request(service, 'PATCH', `/server/shapes/${id}`, {
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
    ...(token === undefined ? {} : { token }),
  });
}

async function exceeded(of: { readonly url: string }, digest: string): Promise<number> {
  const { text } = await get(of, '/server/metrics');
  return Number(new RegExp(`^lateral_shape_budget_exceeded_total\\{shape="${digest}"\\} (\\d+)$`, 'm').exec(text)?.[1]);
}

t.test('a budget is shown, counted and removed', async (t) => {
  for (const each of [service, service, other]) await get(each, PATH);
  const shape = await shapeOf(service);
  if (!shape) throw new Error('the shape is not listed');
  t.match(shape, { budget: null, exceeded: false });
  t.match(await patch(shape.id, { budget: 0.0001 }), {
    status: 200,
    json: { data: { digest: shape.digest, budget: 0.0001 } },
  });
  t.match(await shapeOf(service), { budget: 0.0001, exceeded: true });
  t.equal(await exceeded(service, shape.digest), 0, 'only later statements are counted');
  for (let count = 0; count < 10; count++) await get(service, PATH);
  t.equal(await exceeded(service, shape.digest), 10, 'in all threads');
  await waitFor(async () => (await shapeOf(other))?.budget === 0.0001, 5_000);
  t.match(await get(service, `/server/shapes/${shape.id}`), { json: { data: { budget: 0.0001, exceeded: true } } });
  t.match(await patch(shape.digest, { budget: 60_000 }), { status: 200 }, 'by its digest');
  t.match(await shapeOf(service), { budget: 60_000, exceeded: false });
  await get(service, PATH);
  t.equal(await exceeded(service, shape.digest), 10);
  const restarted = await startTestService({ databaseUrl, WORKERS: '1' });
  await get(restarted, PATH);
  t.match(await shapeOf(restarted), { budget: 60_000 }, 'after a restart');
  t.match(await patch(shape.id, { budget: null }), { status: 200, json: { data: { budget: null } } });
  t.match(await shapeOf(service), { budget: null, exceeded: false });
  await waitFor(async () => (await shapeOf(other))?.budget === null, 5_000);
});

t.test('bad budgets and other callers are refused', async (t) => {
  const id = 'abcdefghijklmnop';
  for (const budget of [0, -1, 'x', true, [1], 1e12])
    t.match(await patch(id, { budget }), { status: 400, text: /"budget\\" must be/ });
  t.match(await patch(id, {}), { status: 400 });
  t.match(await patch(id, { budget: 1, other: 2 }), { status: 400 });
  t.match(await patch('short', { budget: 1 }), { status: 400, text: /not the id or the digest/ });
  t.match(await patch(id, { budget: 1 }, reader.token), { status: 403 });
  const [row] = await sql`select count(*)::int from service_shape_budgets`;
  t.equal(row?.['count'], 0, 'nothing was stored');
});
