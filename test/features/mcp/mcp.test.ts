/** /mcp: agents list and call tools with the permissions of their token, within lower limits, and every call is logged. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const url = await createLibrary(server, 'mcp');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create function double_of(n int) returns int language sql immutable as 'select n * 2';
  create function rename_tag(tag int) returns tags language sql volatile as 'update tags set name = ''renamed'' where id = tag returning *';
  create function numbers(most int) returns setof int language sql immutable as 'select generate_series(1, most)';
  create table parents (id int primary key);
  create table children (id int primary key, parent int references parents deferrable initially deferred);
  create function some_tags() returns setof tags language sql stable as 'select * from tags where id > 1000';
  insert into service_functions (name) values ('double_of'), ('rename_tag'), ('numbers'), ('some_tags');
  insert into tags (id, name) select n, 'tag ' || n from generate_series(1001, 1300) n`);
const issuer = [
  { issuer: 'https://login.example.com', audience: 'lateral', jwks_url: 'https://login.example.com/jwks' },
];
const options = { databaseUrl: url, WORKERS: '1', MCP_MAX_ROWS: '50', MCP_MAX_BYTES: '3kb' };
const writing = await startTestService({ ...options, MCP: 'write', JWT_ISSUERS: JSON.stringify(issuer) });
const reading = await startTestService({ ...options, MCP: 'read', QUERY_LIMIT_MAX: '50' });
const off = await startTestService({ databaseUrl: url, WORKERS: '1' });
const reader = await makeCaller(sql, 'mcp-reader', [
  { permissions: [{ collection: 'tags', action: 'read', fields: ['id', 'name'], permissions: { id: { _lt: 1003 } } }] },
]);

type Place = typeof writing;

function post(place: Place, message: unknown, token: string | null = ADMIN_TOKEN, more: object = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...more };
  return request(place, 'POST', '/mcp', { token, headers, body: JSON.stringify(message) });
}

interface Result {
  readonly isError: boolean;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: results of tools differ
  readonly json: any;
}

async function call(name: string, input: object, { place = writing, token = ADMIN_TOKEN } = {}): Promise<Result> {
  const params = { name, arguments: input };
  const { json } = await post(place, { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, token);
  const { result } = json as { result: { isError?: boolean; content: { text: string }[] } };
  const text = result.content[0]?.text ?? '';
  const isError = result.isError ?? false;
  return { isError, text, json: isError ? null : JSON.parse(text) };
}

t.test('the protocol', async (t) => {
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'tester', version: '1.0' } };
  const first = await post(writing, { jsonrpc: '2.0', id: 'a', method: 'initialize', params });
  t.match(first.json, { id: 'a', result: { protocolVersion: '2025-06-18', serverInfo: { name: 'lateral' } } });
  const session = String(first.headers['mcp-session-id']);
  t.equal(Buffer.from(session, 'base64url').toString(), 'tester 1.0');
  t.equal((await post(writing, { jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
  t.match((await post(writing, { jsonrpc: '2.0', id: 2, method: 'ping' })).json, { id: 2, result: {} });
  t.match((await post(writing, { jsonrpc: '2.0', id: 3, method: 'prompts/list' })).json, { error: { code: -32601 } });
  t.match(await post(writing, [1]), { status: 400, json: { error: { code: -32600 } } });
  t.equal((await get(writing, '/mcp')).status, 405);
  const missing = { jsonrpc: '2.0', id: 4, method: 'tools/call', params: { name: 'drop' } };
  t.match((await post(writing, missing)).json, { error: { code: -32602 } });
  const names = async (place: Place): Promise<string[]> => {
    const { json } = await post(place, { jsonrpc: '2.0', id: 5, method: 'tools/list' });
    return (json as { result: { tools: { name: string }[] } }).result.tools.map(({ name }) => name).sort();
  };
  const readers = ['aggregate', 'call', 'describe', 'explain', 'read', 'search', 'why'];
  t.strictSame(await names(reading), readers);
  t.strictSame(await names(writing), [...readers, 'create', 'update', 'delete'].sort());
  t.equal((await post(off, { jsonrpc: '2.0', id: 6, method: 'ping' })).status, 404, 'it is off by default');
});

t.test('versions, batches and ids', async (t) => {
  const ping = (id: unknown) => ({ jsonrpc: '2.0', id, method: 'ping' });
  const as = (version: string) => ({ 'mcp-protocol-version': version });
  t.equal((await post(writing, ping(1), ADMIN_TOKEN, as('2025-11-25'))).status, 200);
  t.match(await post(writing, ping(1), ADMIN_TOKEN, as('1999-01-01')), { status: 400, text: /2025-11-25/ });
  const batch = [ping(1), { jsonrpc: '2.0', method: 'notifications/initialized' }, ping('b')];
  t.strictSame((await post(writing, batch)).json, [
    { jsonrpc: '2.0', id: 1, result: {} },
    { jsonrpc: '2.0', id: 'b', result: {} },
  ]);
  t.equal((await post(writing, batch.slice(1, 2))).status, 202);
  t.equal((await post(writing, batch, ADMIN_TOKEN, as('2025-06-18'))).status, 400, 'later versions have no batches');
  t.equal(
    (
      await post(
        writing,
        Array.from({ length: 21 }, () => ping(1)),
      )
    ).status,
    400,
  );
  for (const id of [null, {}, true, 'x'.repeat(2_000)]) t.equal((await post(writing, ping(id))).status, 400);
  const unknown = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'x'.repeat(100_000) } };
  t.ok((await post(writing, unknown)).text.length < 500);
});

t.test('clients learn which tools change something', async (t) => {
  const hints = async (place: Place): Promise<Record<string, { readOnlyHint: boolean; destructiveHint: boolean }>> => {
    const { json } = await post(place, { jsonrpc: '2.0', id: 5, method: 'tools/list' });
    const { tools } = (json as { result: { tools: { name: string; annotations: never }[] } }).result;
    return Object.fromEntries(tools.map(({ name, annotations }) => [name, annotations]));
  };
  const readOnly = { readOnlyHint: true, destructiveHint: false };
  t.match(await hints(reading), { read: readOnly, call: readOnly });
  t.match(await hints(writing), {
    ...{ read: readOnly, call: { readOnlyHint: false, destructiveHint: true } },
    ...{ create: { readOnlyHint: false, destructiveHint: false }, update: { destructiveHint: true } },
  });
});

t.test('a token is required, and clients learn where to get one', async (t) => {
  const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
  const answer = await post(writing, ping, null);
  t.equal(answer.status, 401);
  t.match(
    answer.headers['www-authenticate'],
    /^Bearer resource_metadata="http.*\/\.well-known\/oauth-protected-resource\/mcp"$/,
  );
  t.match((await get(writing, '/.well-known/oauth-protected-resource/mcp', { token: null })).json, {
    authorization_servers: ['https://login.example.com'],
  });
  t.equal((await get(reading, '/.well-known/oauth-protected-resource', { token: null })).status, 404);
  t.equal((await post(writing, ping, 'a-wrong-token-of-nobody')).status, 401);
  t.equal((await post(writing, ping, ADMIN_TOKEN, { origin: 'https://evil.example.com' })).status, 403);
  t.equal((await post(writing, ping, ADMIN_TOKEN, { origin: 'http://localhost:5173' })).status, 200);
});

t.test('reads are pages that say how to get more', async (t) => {
  const first = await call('read', {
    collection: 'tags',
    fields: ['id'],
    filter: { id: { _gt: 1000 } },
    sort: ['id'],
    limit: 2,
  });
  t.strictSame(first.json.data, [{ id: 1001 }, { id: 1002 }]);
  t.match(first.json.more, /"offset": 2/);
  const most = await call('read', { collection: 'tags', fields: ['id'], limit: 10_000 });
  t.equal(most.json.data.length, 50, 'MCP_MAX_ROWS');
  t.match(await call('read', { collection: 'articles', fields: ['*', 'author.*', 'comments.*'], limit: 50 }), {
    isError: true,
    text: /MCP_MAX_BYTES/,
  });
  const nested = await call('read', { collection: 'articles', fields: ['title', 'author.name'], limit: 1 });
  t.ok(nested.json.data[0].author.name);
  t.match((await call('search', { collection: 'tags', text: 'tag 1234', fields: ['id'] })).json, {
    data: [{ id: 1234 }],
  });
  const counted = await call('aggregate', {
    collection: 'tags',
    aggregate: { count: '*' },
    filter: { id: { _gt: 1000 } },
  });
  t.equal(Number(counted.json.data[0].count), 300);
  t.match((await call('describe', {})).json.collections, [{ collection: /./ }]);
  const described = await call('describe', { collection: 'articles' });
  t.match(
    described.json.fields.find(({ field }: { field: string }) => field === 'author'),
    { relation: 'many-to-one', to: 'authors' },
  );
  t.match((await call('explain', { collection: 'tags' })).json, { sql: /select/, cost: Number });
});

t.test('an agent has the permissions of its token', async (t) => {
  const as = { token: reader.token };
  const { json } = await call('read', { collection: 'tags', filter: { id: { _gt: 1000 } } }, as);
  t.strictSame(json.data, [
    { id: 1001, name: 'tag 1001' },
    { id: 1002, name: 'tag 1002' },
  ]);
  t.strictSame(
    (await call('describe', {}, as)).json.collections.map((each: { collection: string }) => each.collection),
    ['tags'],
  );
  const hostile: readonly [string, object][] = [
    ['read', { collection: 'articles' }],
    ['read', { collection: 'service_users', fields: ['password'] }],
    ['read', { collection: 'tags', fields: ['articles.*'] }],
    ['read', { collection: 'tags"; drop table tags; --' }],
    ['read', { collection: 'tags', filter: { name: { _regex: '(a+)+$' } } }],
    ['read', { collection: 'tags', sort: ['id; drop table tags'] }],
    ['read', { collection: 'tags', limit: -1 }],
    ['read', { collection: 'tags', limit: 1e300 }],
    ['read', { collection: 'tags', query: 'select 1' }],
    ['read', { collection: '\u0000' }],
    ['aggregate', { collection: 'articles', aggregate: { count: '*' } }],
    ['search', { collection: 'articles', text: 'x' }],
    ['describe', { collection: 'articles' }],
    ['explain', { collection: 'tags' }],
    ['call', { function: 'double_of', arguments: { n: 1 } }],
    ['call', { function: 'pg_sleep', arguments: { x: 100 } }],
    ['create', { collection: 'tags', items: [{ name: 'x' }] }],
    ['update', { collection: 'tags', keys: [1001], data: { name: 'x' } }],
    ['update', { collection: 'tags', filter: {}, data: { name: 'x' } }],
    ['delete', { collection: 'tags', keys: [1001] }],
    ['delete', { collection: 'tags', filter: { id: { _gt: 0 } } }],
  ];
  for (const [name, input] of hostile) {
    const { isError, text } = await call(name, input, as);
    t.ok(isError, `${name} ${JSON.stringify(input)}: ${text.slice(0, 100)}`);
  }
  t.match((await call('why', { collection: 'tags', action: 'update' }, as)).json, {
    allowed: false,
    reason: /grants "update"/,
  });
  t.match((await call('why', { collection: 'tags', action: 'read', key: 1200 }, as)).json, {
    allowed: false,
    rules: [{}],
  });
  t.match((await call('why', { collection: 'tags', action: 'read', key: 1001 }, as)).json, { allowed: true });
  t.equal(Number((await sql`select count(*) from tags where id > 1000`)[0]?.['count']), 300);
});

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function randomsOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const HOSTILE_CALLS = Number(process.env['MCP_HOSTILE_CALLS'] ?? 80);
const SECRET = 'secret-of-somebody-else';

t.test(`${HOSTILE_CALLS} hostile calls stay within rights and limits`, async (t) => {
  const seed = process.env['PROPERTY_SEED'] === 'random' ? Date.now() : Number(process.env['PROPERTY_SEED'] ?? 38);
  t.comment(`seed ${seed}`);
  const random = randomsOf(seed);
  const pick = <Value>(values: readonly Value[]): Value => values[Math.floor(random() * values.length)] as Value;
  await sql`insert into authors (id, name) values (9000, ${SECRET})`;
  await sql`insert into tags (id, name) values (9000, ${SECRET})`;
  const count = async () =>
    JSON.stringify(
      await sql`select (select md5(string_agg(t::text, ',' order by id)) from tags t), (select count(*)::int from authors),
        (select count(*)::int from articles), (select count(*)::int from service_users), (select count(*)::int from service_permissions)`,
    );
  const before = await count();
  const names = ['tags', 'articles', 'authors', 'comments', 'service_users', 'service_webhooks', 'service_sessions'];
  const odd: readonly unknown[] = [
    ...[
      null,
      '',
      '*',
      '\u0000',
      '../authors',
      'tags"; drop table tags; --',
      "' or 1=1 --",
      '$CURRENT_USER',
      '__proto__',
    ],
    ...[-1, 0, 1e300, 1e15, 0.5, true, [], {}, [[[]]], { a: { b: {} } }, ['*.*.*.*'], 'x'.repeat(5_000)],
  ];
  const fields = [
    'id',
    'name',
    '*',
    '*.*',
    'articles.*',
    'articles.tags_id.name',
    'password',
    'token',
    'count(articles)',
  ];
  const operators = ['_eq', '_neq', '_in', '_contains', '_regex', '_some', '_none', '_sql', '_or', '_gt', '_null'];
  const filter = (): unknown => ({
    [pick(['id', 'name', 'articles', '_or', '_and', 'year(name)', 'author', 'password', '$where'])]: {
      [pick(operators)]: random() < 0.3 ? pick(odd) : random() < 0.5 ? { name: { _contains: 'secret' } } : '%secret%',
    },
  });
  const some = <Value>(value: () => Value): Value | unknown => (random() < 0.25 ? pick(odd) : value());
  const collection = () => some(() => (random() < 0.5 ? 'tags' : pick(names)));
  const page = () => ({ limit: some(() => 1_000_000), offset: some(() => 0) });
  const inputs: Readonly<Record<string, () => object>> = {
    read: () => ({
      ...{ collection: collection(), fields: some(() => [pick(fields), pick(fields)]), filter: some(filter) },
      ...{ sort: some(() => [pick(['id', '-name', 'password', 'articles.title', '(select 1)'])]), ...page() },
    }),
    search: () => ({
      collection: collection(),
      text: some(() => 'secret'),
      fields: some(() => [pick(fields)]),
      ...page(),
    }),
    aggregate: () => ({
      ...{
        collection: collection(),
        aggregate: some(() => ({ [pick(['count', 'max', 'sum', 'eval'])]: pick(fields) })),
      },
      ...{ groupBy: some(() => [pick(fields)]), filter: some(filter) },
    }),
    describe: () => ({ collection: collection(), system: some(() => true) }),
    explain: () => ({ collection: collection(), fields: ['*'] }),
    why: () => ({ collection: collection(), action: some(() => 'read'), key: some(() => 9000) }),
    call: () => ({
      function: some(() => pick(['double_of', 'rename_tag', 'pg_sleep', 'pg_read_file'])),
      arguments: some(() => ({ tag: 1001 })),
    }),
    create: () => ({
      collection: collection(),
      items: some(() => [{ name: 'made', role: 'x' }]),
      dry_run: some(() => true),
    }),
    update: () => ({ collection: collection(), keys: some(() => [1001, 9000]), data: some(() => ({ name: 'taken' })) }),
    delete: () => ({ collection: collection(), filter: some(filter), keys: some(() => [1001]) }),
  };
  let refused = 0;
  for (let number = 0; number < HOSTILE_CALLS; number++) {
    const name = pick(Object.keys(inputs));
    const input = inputs[name]?.() ?? {};
    const params = { name, arguments: input };
    const answer = await post(writing, { jsonrpc: '2.0', id: number, method: 'tools/call', params }, reader.token);
    const shown = `${name} ${JSON.stringify(input).slice(0, 300)}: ${answer.status} ${answer.text.slice(0, 300)}`;
    if (answer.status !== 200 || answer.text.includes(SECRET) || answer.text.length > 4_000) t.fail(shown);
    if (/INTERNAL|whsec_|argon2/.test(answer.text)) t.fail(shown);
    const { result } = answer.json as { result?: { isError?: boolean; content: { text: string }[] } };
    if (result?.isError !== false && result?.isError !== undefined) refused++;
    const data: unknown = result?.isError ? null : JSON.parse(result?.content[0]?.text ?? 'null')?.data;
    if (Array.isArray(data) && data.length > 50) t.fail(`too many rows: ${shown}`);
  }
  t.ok(refused > HOSTILE_CALLS / 4 && refused < HOSTILE_CALLS, `${refused} were refused`);
  t.equal(await count(), before, 'nothing has changed');
  t.equal((await post(writing, { jsonrpc: '2.0', id: 1, method: 'ping' }, reader.token)).status, 200);
  await sql`delete from tags where id = 9000`;
  await sql`delete from authors where id = 9000`;
});

t.test('writes, and what they would do', async (t) => {
  const name = async (id: number): Promise<unknown> => (await sql`select name from tags where id = ${id}`)[0]?.['name'];
  const tried = await call('update', { collection: 'tags', keys: [1010, 1011], data: { name: 'new' }, dry_run: true });
  t.match(tried.json, { dry_run: true, would_be_updated: 2, data: [{ id: 1010, name: 'new' }, {}] });
  t.equal(await name(1010), 'tag 1010');
  t.match((await call('update', { collection: 'tags', filter: { id: { _eq: 1010 } }, data: { name: 'new' } })).json, {
    updated: 1,
  });
  t.equal(await name(1010), 'new');
  t.match(await call('update', { collection: 'tags', filter: { id: { _gt: 1100 } }, data: { name: 'all' } }), {
    isError: true,
    text: /MCP_MAX_ROWS/,
  });
  t.equal(await name(1200), 'tag 1200', 'too many: none is changed');
  const created = await call('create', { collection: 'tags', items: [{ id: 5000, name: 'made' }] });
  t.match(created.json, { created: 1, data: [{ id: 5000 }] });
  t.match((await call('delete', { collection: 'tags', keys: [5000], dry_run: true })).json, { would_be_deleted: 1 });
  t.equal(await name(5000), 'made');
  t.match((await call('delete', { collection: 'tags', keys: [5000] })).json, { deleted: 1, data: [{ name: 'made' }] });
  t.equal(await name(5000), undefined);
  t.equal((await call('call', { function: 'double_of', arguments: { n: 21 } })).json.data, 42);
  t.match(await call('call', { function: 'rename_tag', arguments: { tag: 1020 } }, { place: reading }), {
    isError: true,
  });
  t.match((await call('call', { function: 'rename_tag', arguments: { tag: 1020 }, dry_run: true })).json, {
    dry_run: true,
  });
  t.equal(await name(1020), 'tag 1020');
  t.match((await call('call', { function: 'rename_tag', arguments: { tag: 1020 } })).json, {
    data: [{ name: 'renamed' }],
  });
});

t.test('an answer that is too large changes nothing', async (t) => {
  const keys = Array.from({ length: 50 }, (_, index) => 1101 + index);
  const data = { name: 'long'.repeat(25) };
  t.match(await call('update', { collection: 'tags', keys, data }), { isError: true, text: /nothing was changed/ });
  t.match(await sql`select name from tags where id = 1101`, [{ name: 'tag 1101' }]);
  t.match((await call('update', { collection: 'tags', keys, data, fields: ['id'] })).json, { updated: 50 });
});

t.test('the number of written items does not depend on what the agent may read', async (t) => {
  const writer = await makeCaller(sql, 'mcp-writer', [
    {
      permissions: [
        { collection: 'tags', action: 'create', fields: ['*'], permissions: {} },
        { collection: 'tags', action: 'update', fields: ['*'], permissions: { id: { _lt: 1003 } } },
        { collection: 'tags', action: 'delete', fields: ['*'], permissions: {} },
        { collection: 'tags', action: 'read', fields: ['id'], permissions: { id: { _lt: 1250 } } },
      ],
    },
  ]);
  await inForce(writing, writer, '/items/tags?fields=id');
  const as = { token: writer.token };
  t.match((await call('create', { collection: 'tags', items: [{ id: 6001, name: 'new' }] }, as)).json, { created: 1 });
  const gone = { collection: 'tags', filter: { id: { _between: [1248, 1253] } }, dry_run: true };
  t.match((await call('delete', gone, as)).json, { would_be_deleted: 2, data: [{ id: 1248 }, { id: 1249 }] });
  const open = async (key: number) => (await call('why', { collection: 'tags', action: 'update', key }, as)).json;
  t.match(await open(1001), { allowed: true });
  t.match(await open(1200), { allowed: false, reason: /no rule for "update"/ });
});

t.test('a dry run checks deferred constraints', async (t) => {
  const item = { collection: 'children', items: [{ id: 1, parent: 99 }], dry_run: true };
  t.match(await call('create', item), { isError: true });
});

t.test('a view of another caller writes nothing, by a function either', async (t) => {
  const caller = await makeCaller(sql, 'mcp-caller', [
    {
      permissions: [
        { collection: 'rename_tag', action: 'execute', fields: ['*'], permissions: {} },
        { collection: 'tags', action: 'read', fields: ['*'], permissions: {} },
      ],
    },
  ]);
  await inForce(writing, caller, '/items/tags?fields=name');
  const params = { name: 'call', arguments: { function: 'rename_tag', arguments: { tag: 1030 } } };
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params };
  const answer = await post(writing, message, ADMIN_TOKEN, { 'lateral-view-as': `user:${caller.user}` });
  t.match(answer.text, /Lateral-View-As/);
  t.match(await sql`select name from tags where id = 1030`, [{ name: 'tag 1030' }]);
});

t.test('lists that are long come in parts', async (t) => {
  const many = { function: 'numbers', arguments: { most: 200 } };
  const first = (await call('call', many)).json;
  t.equal(first.data.length, 20);
  t.match(first.more, /"offset": 20/);
  const rows = (await call('call', { function: 'some_tags', limit: 1_000, fields: ['id'] })).json;
  t.equal(rows.data.length, 50);
  t.match(rows.more, /"offset": 50/);
  t.match((await call('call', { ...many, limit: 1_000, offset: 190 })).json.data.length, 10);
  t.equal(
    (await call('read', { collection: 'tags', fields: ['id'], limit: 50 }, { place: reading })).json.data.length,
    49,
  );
  const found = { collections: new Set<string>(), functions: new Set<string>() };
  for (let offset: number | null = 0; offset !== null; ) {
    const { json } = await call('describe', { offset, system: true });
    for (const { collection } of json.collections) found.collections.add(collection);
    for (const each of json.functions) found.functions.add(each.function);
    offset = json.more ? Number(/\d+/.exec(json.more)?.[0]) : null;
  }
  t.strictSame([...found.functions].sort(), ['double_of', 'numbers', 'rename_tag', 'some_tags']);
  t.ok(found.collections.has('tags') && found.collections.has('service_users'));
});

t.test('every call is in the activity log, with the name of the client', async (t) => {
  const session = Buffer.from('tester 1.0').toString('base64url');
  const params = { name: 'read', arguments: { collection: 'authors', limit: 1 } };
  await post(writing, { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, ADMIN_TOKEN, {
    'mcp-session-id': session,
  });
  const rows =
    await sql`select action, collection, user_agent from service_activity where user_agent = 'mcp: tester 1.0'`;
  t.strictSame(
    rows.map((row) => ({ ...row })),
    [{ action: 'mcp.read', collection: 'authors', user_agent: 'mcp: tester 1.0' }],
  );
  t.match(await call('search', { collection: 'logged', constructor: 'x' }), { isError: true, text: /"constructor"/ });
  t.equal((await sql`select from service_activity where action = 'mcp.search' and collection = 'logged'`).length, 1);
});
