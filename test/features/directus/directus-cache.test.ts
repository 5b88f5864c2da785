/** CACHE_ENABLED and CACHE_STATUS_HEADER: the cache of reads by the names of Directus. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const databaseUrl = await createLibrary(await startDatabase(), 'directus_cache');
const service = await startTestService({
  databaseUrl,
  WORKERS: '1',
  LIVE: 'triggers',
  DIRECTUS_COMPATIBILITY: 'true',
  CACHE_ENABLED: 'true',
  CACHE_STATUS_HEADER: 'x-cache-status',
});
const TAG = '/items/tags/1?fields=id,name';
const statusOf = ({ headers }: Answer): unknown => headers['x-cache-status'];
const change = (name: string): Promise<Answer> => {
  const headers = { 'content-type': 'application/json' };
  return request(service, 'PATCH', '/items/tags/1', { headers, body: JSON.stringify({ name }) });
};

/** Reads until the answer comes from memory. */
async function warm(): Promise<void> {
  await waitFor(async () => statusOf(await get(service, TAG)) === 'HIT', 10_000);
}

t.test('administrators see whether an answer came from memory', async (t) => {
  const first = await get(service, TAG);
  t.equal(statusOf(first), 'MISS');
  await warm();
  const hit = await get(service, TAG);
  t.match(hit, { status: 200, text: first.text });
  t.equal(statusOf(hit), 'HIT');
  t.equal(hit.headers['cache-status'], 'lateral; hit', 'the standard header is sent as well');
});

t.test('a change and a cleared cache are misses', async (t) => {
  await warm();
  const changed = await change('changed');
  t.equal(changed.status, 200, changed.text);
  t.equal(statusOf(changed), undefined, 'a write is not answered from memory');
  const after = await get(service, TAG);
  t.match(after.json, { data: { name: 'changed' } });
  t.equal(statusOf(after), 'MISS');
  await warm();
  t.match(await request(service, 'POST', '/utils/cache/clear'), { status: 200 });
  t.equal(statusOf(await get(service, TAG)), 'MISS');
});

t.test('other callers do not learn what is in memory', async (t) => {
  const policies = [{ permissions: [{ collection: 'tags', action: 'read' as const }] }];
  const { token } = await withSql(databaseUrl, (sql) => makeCaller(sql, 'reader', policies));
  for (let turn = 0; turn < 5; turn++) {
    const { status, headers } = await get(service, TAG, { token });
    t.equal(status, 200);
    t.equal(headers['x-cache-status'], undefined);
  }
});
