/** Reads from memory: they are kept until a commit changes them, and each caller gets their own. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

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

    const hits = async (): Promise<number> =>
      Number(/^lateral_read_cache_hits_total (\d+)$/m.exec((await read('/server/metrics')).text)?.[1]);
    /** Whether the answer to the caller comes from memory, which only a metric says. */
    const isKept = async (path: string, token: string): Promise<boolean> => {
      const before = await hits();
      await read(path, { token });
      return (await hits()) > before;
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
      await waitFor(() => isKept(path, caller.token), 10_000);
      const some = await read(path, { token: caller.token });
      t.notOk(isHit(some), 'only administrators learn what comes from memory');
      t.ok(JSON.parse(all.text).data.length > 2);
      t.strictSame(
        JSON.parse(some.text).data.map((item: object) => Object.keys(item)),
        [
          ['id', 'title'],
          ['id', 'title'],
        ],
      );
    });

    t.test('changes of hidden rows cannot be noticed', async (t) => {
      const fields = ['id', 'title'];
      const rule = { collection: 'articles', action: 'read', fields, permissions: { id: { _lte: 2 } } } as const;
      const { token } = await makeCaller(sql, 'prober', [{ permissions: [rule] }]);
      const seen = '/items/articles?fields=id&filter[id][_eq]=1';
      const byGraphql = (id: number): string =>
        `/graphql?query=${encodeURIComponent(`{ __typename articles(filter: { id: { _eq: ${id} } }) { id } }`)}`;
      const hidden = [3, 99].flatMap((id) => [`/items/articles?fields=id&filter[id][_eq]=${id}`, byGraphql(id)]);
      await waitFor(async () => (await read(seen, { token })).status === 200, 5_000);
      for (const path of [seen, ...hidden]) await waitFor(() => isKept(path, token), 10_000);
      await warm('/items/articles/3?fields=title');
      await sql`update articles set title = 'hidden' where id = 3`;
      await waitFor(async () => (await read('/items/articles/3?fields=title')).text.includes('hidden'), 5_000);
      for (const path of hidden) t.equal(await isKept(path, token), false, `${path} says nothing of hidden rows`);
      t.equal(await isKept(seen, token), true, 'an answer with its row depends on that row alone');
    });

    t.test('requests that want the database itself get it', async (t) => {
      const path = '/items/articles/3?fields=id,title';
      await warm(path);
      for (const headers of [{ prefer: 'consistency=strong' }, { 'cache-control': 'no-cache' }])
        t.notOk(isHit(await read(path, { headers })), JSON.stringify(headers));
      t.ok(isHit(await read(path)));
    });

    t.test('headers change an answer from memory as they change any other', async (t) => {
      const path = '/items/articles?fields=id,title&sort=id&limit=2';
      const known = (await warm(path)).headers['etag'] ?? '';
      const others: Record<string, string>[] = [
        { 'if-none-match': known },
        { 'if-none-match': '"another"' },
        { accept: 'text/html' },
        { accept: 'application/json' },
        { 'accept-encoding': 'gzip' },
        { origin: 'https://example.com' },
        { cookie: 'service_session_token=wrong' },
        { prefer: 'handling=strict' },
        { 'lateral-view-as': 'public' },
        { 'lateral-position': 'wrong!' },
        { 'x-request-id': 'an-id-of-the-client' },
        { range: 'bytes=0-1' },
        { connection: 'close' },
        { authorization: 'Bearer wrong' },
        { authorization: 'Basic eDp5' },
      ];
      for (const headers of others) {
        const options = { headers, ...('authorization' in headers ? { token: null } : {}) };
        const expected = await read(path, { ...options, headers: { ...headers, 'cache-control': 'no-cache' } });
        for (let turn = 0; turn < 4; turn++) {
          await warm(path);
          const answer = await read(path, options);
          const said = `${JSON.stringify(headers)} ${turn}`;
          t.equal(answer.status, expected.status, said);
          t.equal(answer.text, expected.text, said);
          t.strictSame(withoutVolatile(answer), withoutVolatile(expected), said);
          if (headers['x-request-id']) t.equal(answer.headers['x-request-id'], headers['x-request-id']);
        }
      }
    });

    t.test('SEARCH and GraphQL are served from memory too', async (t) => {
      const post = (method: string, path: string, body: object): Promise<Answer> =>
        request(service, method, path, { headers: JSON_HEADERS, body: JSON.stringify(body) });
      const query = '{ articles(sort: ["id"], limit: 2) { id title comments { id } } }';
      const asked: (() => Promise<Answer>)[] = [
        () => post('SEARCH', '/items/articles', { query: { fields: ['id', 'title'], limit: 2 } }),
        () => post('POST', '/graphql', { query }),
        () => read(`/graphql?query=${encodeURIComponent(query)}`),
        () => read('/items/articles?aggregate[count]=*'),
      ];
      for (const [index, ask] of asked.entries()) {
        const first = await ask();
        t.equal(first.status, 200, `${index}`);
        await waitFor(async () => isHit(await ask()), 10_000);
        t.equal((await ask()).text, first.text);
        await sql`insert into articles (title) values ('one more')`;
        await sql`update articles set title = title || '!' where id in (select id from articles order by id limit 2)`;
        await waitFor(async () => (await ask()).text !== first.text, 5_000);
      }
    });

    t.test('a suspended user and a changed policy end hits', async (t) => {
      const rule = { collection: 'articles', action: 'read', fields: ['id', 'title'] } as const;
      const caller = await makeCaller(sql, 'suspended', [{ permissions: [rule] }]);
      const path = '/items/articles/1?fields=id,title';
      const options = { token: caller.token };
      await waitFor(async () => (await read(path, options)).status === 200, 5_000);
      await waitFor(() => isKept(path, caller.token), 10_000);
      await sql`update service_permissions set fields = 'id' where policy = ${caller.policies[0] ?? ''}`;
      await waitFor(async () => (await read(path, options)).status === 403, 1_000);
      const shown = '/items/articles/1?fields=id';
      await waitFor(() => isKept(shown, caller.token), 10_000);
      await sql`update service_users set status = 'suspended' where id = ${caller.user}`;
      await waitFor(async () => (await read(shown, options)).status === 401, 1_000);
      t.equal((await read(shown, options)).status, 401);
    });

    t.test('the reason why an answer is not kept is explained', async (t) => {
      const explain = async (path: string): Promise<unknown> =>
        JSON.parse((await read(path, { headers: { prefer: 'explain' } })).text).data.cache;
      t.strictSame(await explain('/items/articles/1'), { kept: true, reason: null });
      await request(service, 'PATCH', '/collections/articles', {
        headers: JSON_HEADERS,
        body: JSON.stringify({ meta: { cache: 'off' } }),
      });
      const off = { kept: false, reason: 'the collection "articles" has "cache": "off"' };
      await waitFor(async () => JSON.stringify(await explain('/items/articles/1')) === JSON.stringify(off), 5_000);
    });
  });

t.test('without a source of changes the service does not start', async (t) => {
  const databaseUrl = await createLibrary(server, 'cache_refused');
  await t.rejects(startTestService({ databaseUrl, LIVE: 'off', READ_CACHE_SIZE: '16mb' }), {
    message: 'READ_CACHE_SIZE needs live queries: LIVE is off',
  });
});

/** The headers without those that differ between equal answers. */
function withoutVolatile({ headers }: Answer): object {
  const { date, 'cache-status': _, 'x-request-id': __, 'server-timing': ___, ...others } = headers;
  return others;
}
