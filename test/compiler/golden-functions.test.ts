/** The SQL of representative calls: a function stands where a table would; a volatile one is called before its items are read. */
import t from 'tap';
import { makeCaller } from '../support/callers.js';
import { compareGolden, type GoldenRequest, goldenNames, recordRequest } from '../support/golden.js';
import {
  createLibrary,
  KNOWS_CALLERS,
  loadSchemas,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../support/service.js';
import { StatementRecorder } from '../support/statement-recorder.js';

const CALLS: Readonly<Record<string, GoldenRequest>> = {
  value: { method: 'POST', path: '/rpc/add', body: { a: 1, b: 2 } },
  variadic: { method: 'POST', path: '/rpc/joined_words', body: { glue: '-', words: ['a', 'b'] } },
  composite: { method: 'POST', path: '/rpc/grow', body: { given: { name: 'x', size: 1 } } },
  record: { method: 'POST', path: '/rpc/spread', body: { values_of: [1, 2] } },
  nothing: { method: 'POST', path: '/rpc/nothing', body: {} },
  'list-of-values': { method: 'POST', path: '/rpc/numbers', body: { up_to: 3 } },
  item: { method: 'POST', path: '/rpc/article_titled?fields=id,author.name', body: { title: 'Zebra' } },
  items: {
    method: 'POST',
    path: '/rpc/articles_of?fields=id,comments.body&filter[status]=published&sort=-views&limit=5',
    body: { writer: 1 },
  },
  'items-in-order': { method: 'POST', path: '/rpc/most_read?fields=id&filter[author][name][_nnull]=true', body: {} },
  'items-counted': { method: 'POST', path: '/rpc/articles_of?fields=id&meta=*&limit=1', body: { writer: 1 } },
  'items-aggregated': {
    method: 'POST',
    path: '/rpc/articles_of?aggregate[max]=views&groupBy=status',
    body: { writer: 1 },
  },
  'computed-field': {
    method: 'SEARCH',
    path: '/items/authors',
    body: { query: { fields: ['id', 'loud'], filter: { loud: { _starts_with: 'A' } }, sort: ['-loud'], limit: 5 } },
  },
  'computed-field-of-related': {
    method: 'SEARCH',
    path: '/items/articles',
    body: { query: { fields: ['id', 'author.loud'], sort: ['author.loud'], limit: 5 } },
  },
  'volatile-value': { method: 'POST', path: '/rpc/count_up', body: {} },
  'volatile-items': {
    method: 'POST',
    path: '/rpc/write_article?fields=title,comments.body',
    body: { title: 'New', writer: 1 },
  },
  'volatile-once': { method: 'POST', path: '/rpc/count_up', body: {}, headers: { 'idempotency-key': 'once' } },
};

const RESTRICTED: Readonly<Record<string, GoldenRequest>> = {
  restricted: { method: 'POST', path: '/rpc/articles_of?sort=-views', body: { writer: 1 } },
};

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'golden_functions');
await loadSchemas(databaseUrl, ['functions.sql']);
const { administrator, reader } = await withSql(databaseUrl, async (sql) => ({
  administrator: await makeCaller(sql, 'administrator', [{ admin_access: true }], {
    user: '00000000-0000-0000-0000-000000000001',
  }),
  reader: await makeCaller(sql, 'reader', [
    {
      permissions: [
        { collection: 'articles_of', action: 'execute' },
        {
          collection: 'articles',
          action: 'read',
          permissions: { status: { _eq: 'published' } },
          fields: ['id', 'title'],
        },
        { collection: 'articles', action: 'read', permissions: { id: { _eq: 1 } }, fields: ['views'] },
      ],
    },
  ]),
}));
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({
  databaseUrl: recorder.url,
  WORKERS: '1',
  ...KNOWS_CALLERS,
  READ_BATCHING: 'false',
});

// The first request of a caller asks PostgreSQL who that is.
for (const { token } of [administrator, reader]) await request(service, 'GET', '/items/articles', { token });

for (const [name, call] of Object.entries({ ...CALLS, ...RESTRICTED })) {
  t.test(name, async (t) => {
    const { token } = name in RESTRICTED ? reader : administrator;
    await compareGolden(t, 'functions', name, await recordRequest(t, { service, recorder }, call, token));
  });
}

t.test('no file is left over', async (t) => {
  t.strictSame(await goldenNames('functions'), Object.keys({ ...CALLS, ...RESTRICTED }).sort());
});
