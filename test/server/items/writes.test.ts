/**
 * Writes whose effect is known beforehand: types and keys, errors and who is named by them, flags, limits, and what hostile
 * payloads must not reach. Whatever is refused has changed nothing.
 */
import t, { type Test } from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';
import {
  createTables,
  HOSTILE_BODIES,
  HOSTILE_SELECTIONS,
  MISFITS,
  nest,
  ROUND_TRIPS,
} from './writes-property/direct-cases.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'written');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const counter = await StatementCounter.of(server, 'written');
await createTables(sql);
const service = await startTestService({ databaseUrl, ...KNOWS_CALLERS });
const limited = await startTestService({ databaseUrl, MAX_BATCH_MUTATION: '5' });

t.test('every type comes back as it was written', async (t) => {
  for (const [field, value, shown = value] of ROUND_TRIPS) {
    const name = `${field} ${JSON.stringify(value)}`;
    const made = await send('POST', '/items/kinds', { [field]: value });
    t.equal(made.status, 200, `${name}: ${made.text}`);
    t.strictSame(item(made)[field], shown, name);
    const changed = await send('PATCH', `/items/kinds/${item(made)['id']}`, { [field]: value });
    t.strictSame(item(changed)[field], shown, `${name}, changed`);
  }
  const [row] = await sql`select exact::text from kinds where exact is not null`;
  t.equal(row?.['exact'], '123456789012345678901234567890.123456789012345678901234567890');
});

t.test('a value that does not fit is refused by the name of its field', async (t) => {
  for (const [field, value] of MISFITS) {
    const name = `${field} ${JSON.stringify(value)}`;
    const answer = await refused(t, 400, 'POST', '/items/kinds', [{ plain: 'good' }, { [field]: value }]);
    const { message, extensions } = errorOf(answer);
    t.ok(extensions['field'] === field || message.includes(field), `${name}: ${answer.text}`);
  }
});

t.test('a value that the database would refuse names collection, field and kind', async (t) => {
  const cases: [string, string, unknown, string, string, string][] = [
    ['POST', '/items/authors', { name: 'Twin', email: 'ada@example.com' }, 'authors', 'email', 'unique'],
    ['POST', '/items/named', { name: 'ADA' }, 'named', 'name', 'unique'],
    ['POST', '/items/named', { short: 'ADA' }, 'named', 'short', 'unique'],
    ['POST', '/items/articles', { title: 'x', author: 999 }, 'articles', 'author', 'foreign_key'],
    ['POST', '/items/articles', { title: 'x', comments: [{ author: 999 }] }, 'comments', 'author', 'foreign_key'],
    ['PATCH', '/items/articles/1', { title: null }, 'articles', 'title', 'nnull'],
    ['POST', '/items/articles', { body: 'x' }, 'articles', 'title', 'required'],
    ['POST', '/items/articles', { title: 'x'.repeat(256) }, 'articles', 'title', 'too_long'],
    ['POST', '/items/articles', { title: 'x', views: 2 ** 31 }, 'articles', 'views', 'out_of_range'],
    ['POST', '/items/articles', { title: 'x', rating: '123456789' }, 'articles', 'rating', 'out_of_range'],
    ['POST', '/items/counted', [{ id: 1 }, { id: 1 }], 'counted', 'id', 'unique'],
    ['DELETE', '/items/authors/4', undefined, 'comments', 'author', 'foreign_key'],
  ];
  for (const [method, path, body, collection, field, type] of cases) {
    const answer = await refused(t, 400, method, path, body);
    t.match(
      errorOf(answer).extensions,
      { code: 'FAILED_VALIDATION', collection, field, type },
      `${method} ${path} ${type}`,
    );
  }
});

t.test('values of a row that fails a check are not told, whatever they look like', async (t) => {
  const answer = await refused(t, 400, 'POST', '/items/guarded', { note: 'x)=(y', size: 1_000 });
  t.match(errorOf(answer).extensions, { collection: 'guarded', field: null, type: 'check' });
  t.notMatch(answer.text, /hidden/);
});

t.test('an unknown field of a collection is refused by name', async (t) => {
  for (const [path, body, name] of [
    ['/items/articles', { title: 'x', titel: 'y' }, 'titel'],
    ['/items/articles', { title: 'x', comments: [{ boddy: 1 }] }, 'boddy'],
    ['/items/articles', { title: 'x', author: { nam: 1 } }, 'nam'],
    ['/items/kinds', { total: 4 }, 'total'],
  ] as const) {
    const answer = await refused(t, 400, 'POST', path, body);
    t.equal(errorOf(answer).extensions['code'], 'INVALID_PAYLOAD');
    t.match(errorOf(answer).message, name);
  }
});

t.test('keys', async (t) => {
  t.strictSame(item(await send('POST', '/items/always', { id: 70, label: 'supplied' })), { id: 70, label: 'supplied' });
  t.equal(item(await send('POST', '/items/always', { label: 'made' }))['id'], 71);
  t.equal(item(await send('POST', '/items/counted', { id: 500 }))['id'], 500);
  t.equal(item(await send('POST', '/items/counted', {}))['id'], 501);
  t.strictSame(keys(await send('POST', '/items/counted', [{ id: 502 }, {}, { id: 504 }, {}])), [502, 505, 504, 506]);
  t.strictSame(keys(await send('POST', '/items/counted', [{ id: 3 }, {}])), [3, 507], 'a low key moves nothing back');
  await refused(t, 400, 'POST', '/items/counted', { id: 500 });
  for (const key of ['x', '1.5', 2 ** 31]) await refused(t, 403, 'POST', '/items/counted', { id: key });
  for (const path of ['/items/counted/9999', '/items/counted/x', '/items/counted/%00']) {
    await refused(t, 403, 'PATCH', path, { label: 'x' });
    await refused(t, 403, 'DELETE', path);
  }
  const upper = '0BADCAFE-0000-4000-8000-00000000000A';
  t.equal(item(await send('POST', '/items/keyed', { id: upper, label: 'x' }))['id'], upper.toLowerCase());
  const twice = [
    { id: upper, label: 'y' },
    { id: upper.toLowerCase(), extra: 'z' },
  ];
  await send('PATCH', '/items/keyed', twice);
  t.strictSame(item(await send('GET', `/items/keyed/${upper}`)), { id: upper.toLowerCase(), label: 'y', extra: 'z' });
});

t.test('items that a payload names in several places', async (t) => {
  const tree = item(
    await send('POST', '/items/nodes?fields=id,children.id', {
      label: 'a',
      children: [{ label: 'b' }, { label: 'c' }],
    }),
  );
  const [b = 0, c = 0] = (tree['children'] as { id: number }[]).map(({ id }) => id);
  const parentOf = async (id: unknown): Promise<unknown> => item(await send('GET', `/items/nodes/${id}`))['parent'];
  await send('PATCH', `/items/nodes/${tree['id']}`, {
    children: [{ id: c, children: { update: [{ id: b, label: 'moved' }] } }],
  });
  t.equal(await parentOf(b), c, 'a child that the list leaves out goes where another part puts it');
  await send('PATCH', '/items/nodes', [
    { id: tree['id'], children: [] },
    { id: c, label: 'changed' },
  ]);
  t.strictSame(
    item(await send('GET', `/items/nodes/${c}`)),
    { id: c, label: 'changed', parent: null, children: [b] },
    'it leaves, though it is changed elsewhere',
  );
  await refused(t, 400, 'PATCH', '/items/nodes', [
    { id: b, label: 'x' },
    { id: b, label: 'y' },
  ]);
  await refused(t, 400, 'POST', '/items/nodes', [{ children: [b] }, { children: [b] }]);
  await refused(t, 403, 'PATCH', `/items/nodes/${b}`, { label: 'x', children: [99_999] });

  const linked = await send('POST', '/items/nodes', { label: 'd', parent: { id: 7_000 } });
  t.equal(linked.status, 200, 'an object with nothing but an unknown key makes the item');
  t.equal(await parentOf(item(linked)['id']), 7_000);
  const shared = await send('PATCH', '/items/nodes', { keys: [b, c], data: { parent: { label: 'one for both' } } });
  t.equal(shared.status, 200);
  t.equal(await parentOf(b), await parentOf(c));
  t.strictSame((await sql`select count(*)::int from nodes where label = 'one for both'`)[0], { count: 1 });
});

t.test('nothing to write is no error', async (t) => {
  for (const [method, path, body] of [
    ['POST', '/items/nodes', []],
    ['PATCH', '/items/nodes', []],
    ['PATCH', '/items/nodes', { keys: [], data: { label: 'x' } }],
    ['PATCH', '/items/nodes', { query: { filter: { id: { _lt: 0 } } }, data: { label: 'x' } }],
  ] as const)
    t.strictSame((await send(method, path, body)).json, { data: [] }, `${method} ${JSON.stringify(body)}`);
  for (const body of [[], { keys: [] }, { query: { filter: { id: { _lt: 0 } } } }])
    t.equal((await send('DELETE', '/items/nodes', body)).status, 204);
});

t.test('conditions in the URL of a write are refused, not dropped', async (t) => {
  const made = item(await send('POST', '/items/nodes', { label: 'kept' }))['id'];
  const keys = { keys: [made] };
  const query = { query: { filter: { id: { _eq: made } } } };
  for (const condition of [
    'filter[label]=other',
    'filter={"label":"x"}',
    'search=x',
    'limit=0',
    'offset=1',
    'page=2',
    'sort=id',
  ])
    for (const [method, path, body] of [
      ['PATCH', '/items/nodes', { ...keys, data: { label: 'changed' } }],
      ['PATCH', '/items/nodes', { ...query, data: { label: 'changed' } }],
      ['PATCH', `/items/nodes/${made}`, { label: 'changed' }],
      ['DELETE', '/items/nodes', keys],
      ['DELETE', `/items/nodes/${made}`, undefined],
    ] as const)
      t.match(
        await send(method, `${path}?${condition}`, body),
        { status: 400, json: { errors: [{ message: /in the URL does not select the items to write/ }] } },
        `${method} ${path}?${condition}`,
      );
  t.match(await send('PATCH', '/items/nodes?limit=-1&fields=label', { ...keys, data: { parent: null } }), {
    json: { data: [{ label: 'kept' }] },
  });
});

t.test('flags of the service', async (t) => {
  const [user] = await sql`select id from service_users order by id limit 1`;
  const made = item(
    await send('POST', '/items/stamped', { label: 'a', secret: 'pass', maker: '0badcafe-0000-4000-8000-000000000001' }),
  );
  t.match(made, { id: /^[0-9a-f-]{36}$/, code: /^[0-9a-f-]{36}$/, maker: user?.['id'], changed: null, changer: null });
  t.ok(Math.abs(Date.parse(String(made['made'])) - Date.now()) < 60_000);
  t.match(await secretOf(made['id']), /^\$argon2id\$/);
  const hash = await secretOf(made['id']);
  const changed = item(await send('PATCH', `/items/stamped/${made['id']}`, { label: 'b', secret: '' }));
  t.match(changed, { made: made['made'], maker: made['maker'], changer: user?.['id'], code: made['code'] });
  t.ok(Date.parse(String(changed['changed'])) >= Date.parse(String(made['made'])));
  t.equal(await secretOf(made['id']), hash, 'an empty password leaves the old one');
  await refused(t, 400, 'POST', '/items/stamped', { secret: { a: 1 } });
});

t.test('an item counts as changed if only items that refer to it are written', async (t) => {
  const editor = await makeCaller(sql, 'marks', [
    {
      permissions: [
        { collection: 'stamped', action: 'read', fields: ['id', 'label'] },
        { collection: 'stamped', action: 'update', fields: ['marks'] },
        ...(['create', 'read', 'update'] as const).map((action) => ({ collection: 'marks', action })),
      ],
    },
  ]);
  await inForce(service, editor, '/items/marks');
  const [user] = await sql`select id from service_users where id <> ${editor.user} order by id limit 1`;
  const made = item(await send('POST', '/items/stamped', { label: 'parent', marks: [{ label: 'first' }] }));
  const first = (made['marks'] as number[])[0];
  let changes = 0;
  const change = async (marks: unknown, by: unknown, token?: string): Promise<void> => {
    await sql`update stamped set changed = null, changer = null where id = ${String(made['id'])}`;
    const body = JSON.stringify({ marks });
    const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
    const answer = await request(service, 'PATCH', `/items/stamped/${made['id']}?fields=id`, { body, headers });
    t.equal(answer.status, 200, `${body}: ${answer.text}`);
    const [row] =
      await sql`select changed is not null as changed, changer, label from stamped where id = ${String(made['id'])}`;
    t.strictSame(row, { changed: by !== null, changer: by, label: 'parent' }, body);
    if (by !== null) changes++;
    const records = await revisionsOf('stamped', made['id']);
    t.equal(records.length, changes, body);
    if (by !== null) t.match(records.at(-1), { user: by, data: { label: 'parent' }, delta: { changer: by } }, body);
  };
  await change({ create: [{ label: 'new' }], update: [], delete: [] }, user?.['id']);
  await change({ update: [{ id: first, label: 'changed' }] }, user?.['id']);
  await change({ delete: [first] }, user?.['id']);
  await change([], user?.['id']);
  await change({ create: [], update: [], delete: [] }, null);
  await change({ create: [{ label: 'by another' }] }, editor.user, editor.token);
  t.equal((await send('PATCH', '/items/articles/2', { comments: { create: [{ body: 'new' }] } })).status, 200);
  t.match(await revisionsOf('articles', 2), [{ data: { id: 2 }, delta: {} }], 'also without a field for its date');
});

/** What is recorded of changes of the item, the oldest first. */
function revisionsOf(collection: string, key: unknown): Promise<Record<string, unknown>[]> {
  return sql`select a."user", r.data, r.delta from service_activity a join service_revisions r on r.activity = a.id
    where a.collection = ${collection} and a.item = ${String(key)} and a.action = 'update' order by a.id`;
}

t.test('a singleton is made once and then changed', async (t) => {
  t.match(item(await send('PATCH', '/items/settings', { label: 'first' })), { label: 'first', theme: 'light' });
  t.match(item(await send('PATCH', '/items/settings', { theme: 'dark' })), { label: 'first', theme: 'dark' });
  t.strictSame((await sql`select count(*)::int from settings`)[0], { count: 1 });
  t.equal((await send('POST', '/items/settings', {})).status, 404);
  t.equal((await send('PATCH', '/items/settings/1', {})).status, 404);
  await refused(t, 400, 'PATCH', '/items/settings', { them: 'x' });
});

t.test('MAX_BATCH_MUTATION counts what is nested', async (t) => {
  const children = (count: number): object[] => Array.from({ length: count }, () => ({ label: 'x' }));
  for (const [method, path, body] of [
    ['POST', '/items/nodes', children(6)],
    ['POST', '/items/nodes', { label: 'x', children: children(5) }],
    ['POST', '/items/nodes', { children: [{ children: { create: children(4) } }] }],
    ['PATCH', '/items/articles/1', { tags: { delete: [1, 2, 3, 4, 5] } }],
    ['DELETE', '/items/comments', [1, 2, 3, 4, 5, 6]],
    ['PATCH', '/items/comments', { query: { limit: -1 }, data: { body: 'x' } }],
    ['DELETE', '/items/comments', { query: { limit: -1 } }],
  ] as const) {
    const answer = await refused(t, 400, method, path, body, limited);
    t.match(
      errorOf(answer),
      {
        message: 'Invalid payload. Exceeded max batch mutation limit of 5.',
        extensions: { option: 'MAX_BATCH_MUTATION', limit: 5 },
      },
      `${method} ${path} ${JSON.stringify(body)}`,
    );
  }
  t.equal((await send('POST', '/items/nodes', { label: 'x', children: children(4) }, limited)).status, 200);
});

t.test('hostile payloads are refused as a whole', async (t) => {
  for (const body of HOSTILE_BODIES) {
    const before = await everything();
    const answer = await request(service, 'POST', '/items/nodes', {
      body,
      headers: { 'content-type': 'application/json' },
    });
    const name = `${answer.status} ${body.slice(0, 60)}: ${answer.text.slice(0, 300)}`;
    t.ok(answer.status === 400 || answer.status === 403, name);
    t.equal(await everything(), before, `nothing of ${body.slice(0, 60)} is left`);
  }
  for (const levels of [5_000, 100_000]) {
    const body = `{"doc":${nest(levels, '[', '', ']')}}`;
    const answer = await request(service, 'POST', '/items/kinds', {
      body,
      headers: { 'content-type': 'application/json' },
    });
    t.ok(answer.status === 200 || answer.status === 400, `${answer.status}: json of ${levels} levels`);
  }
  const deep = await send('POST', '/items/nodes', JSON.parse(nest(1_000, '{"label":"deep","parent":', 'null', '}')));
  t.equal(deep.status, 200, deep.text.slice(0, 300));
  t.strictSame((await sql`select count(*)::int from nodes where label = 'deep'`)[0], { count: 1_000 });
  const wide = await send(
    'POST',
    '/items/nodes?fields=id',
    Array.from({ length: 20_000 }, () => ({ label: 'wide' })),
  );
  t.equal((wide.json as { data: unknown[] }).data.length, 20_000);
  await refused(
    t,
    400,
    'POST',
    '/items/nodes',
    Array.from({ length: 20_000 }, (_, position) => ({ label: 'w', parent: position === 19_999 ? 'x' : null })),
  );
  for (const [method, body] of HOSTILE_SELECTIONS) {
    const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
    const answer = await request(service, method, '/items/nodes', { body, headers });
    t.ok(answer.status === 400 || answer.status === 403, `${method} ${body}: ${answer.status} ${answer.text}`);
  }
});

t.test('a nested create is one statement, whatever the number of its rows', async (t) => {
  const parents = (count: number): object[] =>
    Array.from({ length: count }, (_, number) => ({
      title: `Counted ${number}`,
      author: { name: `Author ${number}` },
      comments: [{ body: `${number} a`, author: { name: `Reader ${number}` } }, { body: `${number} b` }],
      tags: [{ tags_id: { name: `Tag ${number}` } }],
    }));
  const path = '/items/articles?fields=title,author.name,comments.body,comments.author.name,tags.tags_id.name';
  // The text itself is kept with or without its constants, depending on who parsed it first.
  const identities: string[] = [];
  for (const count of [1, 1, 200]) {
    const { answer, counts: statements } = await counter.count(() => send('POST', path, parents(count)));
    const said = statements.map(({ query, calls }) => `${calls} × ${query}`);
    t.ok(
      statements.every(({ calls }) => calls === 1),
      said.join('\n'),
    );
    const writes = statements.filter(({ query }) => /insert into/i.test(query));
    const rest = statements
      .filter(({ query }) => !/insert into/i.test(query))
      .map(({ query }) => /^\w+/.exec(query)?.[0]?.toLowerCase());
    t.equal(writes.length, 1, 'one statement writes');
    t.strictSame(
      rest.filter((word) => word === 'select' || word === 'with').length,
      1,
      `one reads: ${said.join('\n')}`,
    );
    t.equal(rest.length, 1, 'none begins or commits: what is sent together is one transaction');
    identities.push(writes[0]?.id ?? '');
    t.strictSame(
      (answer.json as { data: unknown[] }).data,
      Array.from({ length: count }, (_, number) => ({
        title: `Counted ${number}`,
        author: { name: `Author ${number}` },
        comments: [
          { body: `${number} a`, author: { name: `Reader ${number}` } },
          { body: `${number} b`, author: null },
        ],
        tags: [{ tags_id: { name: `Tag ${number}` } }],
      })),
      'in the order of the payload, each with its own',
    );
  }
  t.equal(new Set(identities).size, 1, 'the same statement, however many rows there are');
});

function send(method: string, path: string, body?: unknown, to: { readonly url: string } = service): Promise<Answer> {
  if (body === undefined) return request(to, method, path);
  const text = JSON.stringify(body);
  // Without its length a body of DELETE would not be taken for one.
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(to, method, path, { body: text, headers });
}

async function refused(
  t: Test,
  status: number,
  method: string,
  path: string,
  body?: unknown,
  to = service,
): Promise<Answer> {
  const before = await everything();
  const answer = await send(method, path, body, to);
  const said = `${method} ${path} ${JSON.stringify(body)?.slice(0, 200)}`;
  t.equal(answer.status, status, `${said}: ${answer.text.slice(0, 300)}`);
  t.equal(await everything(), before, `${said} changed nothing`);
  return answer;
}

/** All rows of the tables that are written here, as one text. */
async function everything(): Promise<string> {
  const [row] = await sql<{ digest: string }[]>`select md5(concat(
    (select json_agg(x order by id) from articles x), (select json_agg(x order by id) from authors x),
    (select json_agg(x order by id) from comments x), (select json_agg(x order by id) from articles_tags x),
    (select json_agg(x order by id) from kinds x), (select json_agg(x order by id) from counted x),
    (select json_agg(x order by id) from always x), (select json_agg(x order by id) from nodes x),
    (select json_agg(x order by id) from stamped x), (select json_agg(x order by id) from settings x))) as digest`;
  return row?.digest ?? '';
}

function item(answer: Answer): Record<string, unknown> {
  return (
    (answer.json as { data?: Record<string, unknown> } | undefined)?.data ?? {
      status: answer.status,
      said: answer.text,
    }
  );
}

function keys(answer: Answer): unknown[] {
  const { data = [] } = (answer.json ?? {}) as { data?: { id: unknown }[] };
  return data.map(({ id }) => id);
}

function errorOf(answer: Answer): { message: string; extensions: Record<string, unknown> } {
  const { errors = [] } = (answer.json ?? {}) as {
    errors?: { message: string; extensions: Record<string, unknown> }[];
  };
  return errors[0] ?? { message: '', extensions: {} };
}

async function secretOf(id: unknown): Promise<string> {
  const [row] = await sql<{ secret: string }[]>`select secret from stamped where id = ${String(id)}`;
  return row?.secret ?? '';
}
