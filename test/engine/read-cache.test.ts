/** Reads from memory: they are kept until a commit changes them, and each caller gets their own. */
import t from 'tap';
import { makeCaller } from '../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../support/service.js';

const JSON_HEADERS = { 'content-type': 'application/json' };
const server = await startDatabase({ settings: { wal_level: 'logical' } });

const isHit = ({ headers }: Answer): boolean => headers['cache-status'] === 'lateral; hit';

for (const LIVE of ['logical', 'triggers'] as const)
  t.test(`with ${LIVE}`, async (t) => {
    const databaseUrl = await createLibrary(server, `cache_${LIVE}`);
    const sql = connectSql(databaseUrl);
    t.teardown(() => sql.end());
    const service = await startTestService({ databaseUrl, LIVE, READ_CACHE_SIZE: '16mb' });
    const read = (path: string, options = {}): Promise<Answer> => get(service, path, options);
    /** Asks until the answer comes from memory. */
    const warm = async (path: string, options = {}): Promise<Answer> => {
      let answer = await read(path, options);
      await waitFor(async () => {
        answer = await read(path, options);
        return isHit(answer);
      }, 10_000);
      return answer;
    };

    t.test('a read is served from memory until a commit changes it', async (t) => {
      const path = '/items/articles/1?fields=id,title';
      const first = await read(path);
      t.notOk(isHit(first), 'the first read goes to PostgreSQL');
      const hit = await warm(path);
      t.equal(hit.text, first.text);
      t.equal(hit.headers['etag'], first.headers['etag']);
      await sql`update articles set title = 'by plain SQL' where id = 1`;
      await waitFor(async () => (await read(path)).text.includes('by plain SQL'), 5_000);
      t.match((await warm(path)).text, /by plain SQL/);
    });

    t.test('a caller sees their own writes at once', async (t) => {
      const path = '/items/articles/2?fields=id,title';
      const list = '/items/articles?fields=id,title&sort=id&limit=3';
      for (let turn = 0; turn < 30; turn++) {
        await warm(path);
        await warm(list);
        const title = `turn ${turn}`;
        await request(service, 'PATCH', '/items/articles/2', {
          headers: JSON_HEADERS,
          body: JSON.stringify({ title }),
        });
        t.match((await read(path)).text, title);
        t.match((await read(list)).text, title);
      }
    });

    t.test('rows of another caller are not shown', async (t) => {
      const rule = {
        collection: 'articles',
        action: 'read',
        fields: ['id', 'title'],
        permissions: { id: { _lte: 2 } },
      } as const;
      const caller = await makeCaller(sql, 'reader', [{ permissions: [rule] }]);
      const path = '/items/articles?sort=id&fields=*';
      const all = await warm(path);
      await waitFor(async () => (await read(path, { token: caller.token })).status === 200, 5_000);
      const some = await warm(path, { token: caller.token });
      t.ok(JSON.parse(all.text).data.length > 2);
      t.strictSame(
        JSON.parse(some.text).data.map((item: object) => Object.keys(item)),
        [
          ['id', 'title'],
          ['id', 'title'],
        ],
      );
    });

    t.test('requests that want the database itself get it', async (t) => {
      const path = '/items/articles/3?fields=id,title';
      await warm(path);
      for (const headers of [{ prefer: 'consistency=strong' }, { 'cache-control': 'no-cache' }])
        t.notOk(isHit(await read(path, { headers })), JSON.stringify(headers));
      t.ok(isHit(await read(path)));
    });
  });
