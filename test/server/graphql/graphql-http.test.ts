/** GraphQL over HTTP: the audit of graphql-http, methods, media types, persisted queries and limits. */
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { auditServer } from 'graphql-http';
import t from 'tap';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  makeFolder,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

t.setTimeout(180_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'transport');
const service = await startTestService({ databaseUrl });
const JSON_BODY = { 'content-type': 'application/json' };
const RESPONSE = 'application/graphql-response+json';

t.test('the audit of graphql-http is passed in full', async (t) => {
  for (const path of ['/graphql', '/graphql/system']) {
    const results = await auditServer({
      url: `${service.url}${path}`,
      fetchFn: (url: string, init: RequestInit = {}) =>
        fetch(url, { ...init, headers: { ...(init.headers as object), authorization: `Bearer ${ADMIN_TOKEN}` } }),
    });
    t.ok(results.length > 50, `${results.length} audits`);
    t.strictSame(
      results.filter((each) => each.status !== 'ok').map(({ id, name, status }) => `${status} ${id} ${name}`),
      [],
      path,
    );
    // A public caller is audited too: its schema is nearly empty.
    const open = await auditServer({ url: `${service.url}${path}`, fetchFn: fetch });
    t.strictSame(
      open.filter((each) => each.status !== 'ok').map(({ id, name }) => `${id} ${name}`),
      [],
    );
  }
});

t.test('methods: GET reads, POST does both, all others are named', async (t) => {
  const url = (query: string): string => `/graphql?query=${encodeURIComponent(query)}`;
  t.match((await request(service, 'GET', url('{ tags(limit: 1) { id } }'))).json, { data: { tags: [{ id: '1' }] } });
  const variables = encodeURIComponent('{"id": 2}');
  const named = `${url('query A($id: ID!) { tags_by_id(id: $id) { id } } mutation B { delete_tags_item(id: 1) { id } }')}&operationName=`;
  t.match((await request(service, 'GET', `${named}A&variables=${variables}`)).json, {
    data: { tags_by_id: { id: '2' } },
  });
  const refused = await request(service, 'GET', `${named}B`);
  t.match(refused, { status: 405, headers: { allow: 'POST' } });
  t.match(refused.json, { errors: [{ extensions: { code: 'METHOD_NOT_ALLOWED' } }] });
  t.match((await request(service, 'GET', url('{ tags_by_id(id: 1) { id } }'))).json, {
    data: { tags_by_id: { id: '1' } },
  });
  for (const method of ['PUT', 'PATCH', 'DELETE', 'SEARCH']) {
    t.match(await request(service, method, '/graphql'), { status: 405, headers: { allow: 'GET, POST' } }, method);
  }
  t.match(await request(service, 'GET', `/graphql?query={__typename}&variables=nope`), { status: 400 });
});

t.test('media types', async (t) => {
  const ask = (accept: string, query: string): Promise<Answer> => send(service, { query }, { accept });
  const cases: readonly (readonly [accept: string, query: string, status: number, type: string])[] = [
    ['*/*', '{ __typename }', 200, 'application/json; charset=utf-8'],
    ['*/*', '{ nope }', 400, 'application/json; charset=utf-8'],
    ['application/json', '{ nope }', 200, 'application/json; charset=utf-8'],
    [RESPONSE, '{ nope }', 400, `${RESPONSE}; charset=utf-8`],
    [`${RESPONSE}, application/json;q=0.9`, '{ nope }', 400, `${RESPONSE}; charset=utf-8`],
    [`application/json, ${RESPONSE};q=0.5`, '{ nope }', 200, 'application/json; charset=utf-8'],
    [RESPONSE, '{ articles(sort: ["nope"]) { id } }', 200, `${RESPONSE}; charset=utf-8`],
  ];
  for (const [accept, query, status, type] of cases) {
    t.match(await ask(accept, query), { status, headers: { 'content-type': type } }, `${accept} ${query}`);
  }
  const form = await request(service, 'POST', '/graphql', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'query={__typename}',
  });
  t.match(form, { status: 415, json: { errors: [{ extensions: { code: 'UNSUPPORTED_MEDIA_TYPE' } }] } });
});

t.test('requests that are no operation', async (t) => {
  const wrong: readonly (readonly [body: unknown, code: string])[] = [
    [[{ query: '{ __typename }' }], 'INVALID_PAYLOAD'],
    ['text', 'INVALID_PAYLOAD'],
    [null, 'INVALID_PAYLOAD'],
    [{}, 'INVALID_PAYLOAD'],
    [{ query: '' }, 'INVALID_PAYLOAD'],
    [{ query: 7 }, 'INVALID_PAYLOAD'],
    [{ query: '{ __typename }', variables: [] }, 'INVALID_PAYLOAD'],
    [{ query: '{ __typename }', operationName: 'Nope' }, 'INVALID_QUERY'],
    [{ query: 'query A { __typename } query B { __typename }' }, 'INVALID_QUERY'],
    [{ query: 'fragment F on tags { id }' }, 'INVALID_QUERY'],
    [{ query: 'subscription { tags { id } }' }, 'INVALID_QUERY'],
    [{ query: '{' }, 'INVALID_QUERY'],
    [{ query: 'query ($id: ID!) { tags_by_id(id: $id) { id } }' }, 'INVALID_QUERY'],
    [{ query: 'query ($id: ID!) { tags_by_id(id: $id) { id } }', variables: { id: { a: 1 } } }, 'INVALID_QUERY'],
    [{ query: '{ ...F } fragment F on Query { ...F }' }, 'INVALID_QUERY'],
    [{ query: `{ tags(filter: { _and: ${'['.repeat(2_000)}${']'.repeat(2_000)} }) { id } }` }, 'INVALID_QUERY'],
    [{ query: '{ a: tags { id } a: articles { id } }' }, 'INVALID_QUERY'],
    [
      {
        query:
          '{ __type(name: "tags") { fields { type { fields { type { fields { type { fields { name } } } } } } } } }',
      },
      'INVALID_QUERY',
    ],
    [
      { query: 'query ($f: tags_filter) { tags(filter: $f) { id } }', variables: { f: { constructor: {} } } },
      'INVALID_QUERY',
    ],
  ];
  for (const [body, code] of wrong) {
    const answer = await send(service, body);
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code } }] } }, JSON.stringify(body));
    t.notOk('data' in (answer.json as object), 'there is no data where nothing was carried out');
  }
});

t.test('persisted queries', async (t) => {
  const query = '{ tags(limit: 1) { id name } }';
  const sha256Hash = createHash('sha256').update(query).digest('hex');
  const extensions = { persistedQuery: { version: 1, sha256Hash } };
  t.match(await send(service, { extensions }), {
    status: 200,
    json: { errors: [{ message: 'PersistedQueryNotFound' }] },
  });
  const wrong = { persistedQuery: { version: 1, sha256Hash: sha256Hash.replace(/^./, 'x') } };
  t.match(await send(service, { query, extensions: wrong }), { status: 400 });
  const other = { persistedQuery: { version: 1, sha256Hash: '0'.repeat(64) } };
  t.match(await send(service, { query, extensions: other }), { status: 400 });
  t.match((await send(service, { query, extensions })).json, { data: { tags: [{ id: '1' }] } });
  t.match((await send(service, { extensions })).json, { data: { tags: [{ id: '1' }] } });
  const url = `/graphql?extensions=${encodeURIComponent(JSON.stringify(extensions))}`;
  t.match((await request(service, 'GET', url)).json, { data: { tags: [{ id: '1' }] } });

  const file = join(await makeFolder(), 'allowed.json');
  await writeFile(file, JSON.stringify([query]));
  const strict = await startTestService({ databaseUrl, GRAPHQL_ALLOW_LIST: file });
  t.match((await send(strict, { query })).json, { data: { tags: [{ id: '1' }] } });
  t.match((await send(strict, { extensions })).json, { data: { tags: [{ id: '1' }] } });
  t.match(await send(strict, { query: '{ tags { id } }' }), { status: 403 });
  const unknown = '{ articles { id } }';
  const digest = createHash('sha256').update(unknown).digest('hex');
  t.match(await send(strict, { query: unknown, extensions: { persistedQuery: { version: 1, sha256Hash: digest } } }), {
    status: 403,
  });
  await writeFile(file, '{}');
  await t.rejects(startTestService({ databaseUrl, GRAPHQL_ALLOW_LIST: file }), /GRAPHQL_ALLOW_LIST/);
});

t.test('a document deeper than the stack is told of a limit', async (t) => {
  const roomy = await startTestService({ databaseUrl, GRAPHQL_QUERY_TOKEN_LIMIT: '1000000' });
  for (const place of [service, roomy]) {
    for (const levels of [1_000, 2_400, 100_000]) {
      for (const query of [
        '{a'.repeat(levels),
        `${'{a'.repeat(levels)}${'}'.repeat(levels)}`,
        `{a(b:${'['.repeat(levels)}`,
      ]) {
        const answer = await send(place, { query });
        const message = /levels|tokens|^Syntax Error: Expected|^Syntax Error: Unexpected/;
        t.match(answer, { status: 400, json: { errors: [{ message }] } }, `${levels} levels`);
      }
    }
  }
});

t.test('limits are named in the errors', async (t) => {
  const limited = await startTestService({
    databaseUrl,
    GRAPHQL_QUERY_TOKEN_LIMIT: '60',
    GRAPHQL_QUERY_DEPTH_LIMIT: '3',
    GRAPHQL_QUERY_NODE_LIMIT: '8',
    GRAPHQL_QUERY_ALIAS_LIMIT: '2',
    GRAPHQL_INTROSPECTION: 'false',
    MAX_QUERY_NODES: '10',
  });
  const cases: readonly (readonly [query: string, complaint: RegExp | string])[] = [
    [`{ tags { ${'id '.repeat(80)} } }`, 'GRAPHQL_QUERY_TOKEN_LIMIT'],
    ['{ articles { author { articles { id } } } }', 'GRAPHQL_QUERY_DEPTH_LIMIT'],
    ['{ a: tags { id } b: tags { id } c: tags { id } }', 'GRAPHQL_QUERY_ALIAS_LIMIT'],
    [
      '{ tags { ...F } } fragment F on tags { ...G x: id } fragment G on tags { y: id z: name }',
      'GRAPHQL_QUERY_ALIAS_LIMIT',
    ],
    ['{ articles { id title slug body status views rating published_at } }', 'GRAPHQL_QUERY_NODE_LIMIT'],
    ['{ __schema { types { name } } }', /introspection/],
    ['{ tegs { id } }', /^Cannot query field "tegs" on type "Query"\.$/],
  ];
  for (const [query, complaint] of cases) {
    const answer = await send(limited, { query });
    const code = 'INVALID_QUERY';
    const error =
      typeof complaint === 'string'
        ? { extensions: { code, option: complaint, limit: Number } }
        : { message: complaint, extensions: { code } };
    t.match(answer, { status: 400, json: { errors: [error] } }, query);
  }
  t.match(await send(limited, { query: '{ tags(limit: 1) { id } }' }), { status: 200 });
  const bomb = Array.from({ length: 30 }, (_, n) => `fragment F${n} on tags { ...F${n + 1} ...F${n + 1} }`).join(' ');
  const start = performance.now();
  const answer = await send(service, { query: `{ tags { ...F0 } } ${bomb} fragment F30 on tags { id }` });
  t.equal(answer.status, 400, 'fragments that double at each step are refused');
  t.ok(performance.now() - start < 5_000);
});

function send(
  to: { readonly url: string },
  body: unknown,
  { accept = '*/*', ...options }: RequestOptions & { accept?: string } = {},
): Promise<Answer> {
  return request(to, 'POST', '/graphql', { headers: { ...JSON_BODY, accept }, body: JSON.stringify(body), ...options });
}
