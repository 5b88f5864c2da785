/** What applications keep beside the collections: who sees and changes it, and what becomes of it when users, items and collections go. */
import t from 'tap';
import { makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'app_data');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const NAMES = ['presets', 'comments', 'notifications', 'translations', 'folders', 'dashboards', 'panels'];
const ACTIONS = ['read', 'create', 'update', 'delete'] as const;
const everything = (...names: readonly string[]): Permission[] =>
  names.flatMap((name) => ACTIONS.map((action) => ({ collection: `service_${name}`, action })));

const admin = { token: ADMIN_TOKEN };
const reads: Permission = { collection: 'articles', action: 'read', permissions: { id: { _lt: 3 } } };
const ada = await makeCaller(sql, 'ada', [{ app_access: true, permissions: [reads] }]);
const bob = await makeCaller(sql, 'bob', [{ app_access: true }]);
/** Has policies, but no application. */
const program = await makeCaller(sql, 'program', [{ permissions: [reads] }]);
/** May do everything with these tables, and is no administrator. */
const keeper = await makeCaller(sql, 'keeper', [{ permissions: [reads, ...everything(...NAMES)] }]);
const service = await startTestService({ databaseUrl });

type Caller = { readonly token: string } | null;

function send(caller: Caller, method: string, path: string, body?: unknown): Promise<Answer> {
  const token = caller?.token ?? null;
  if (body === undefined) return request(service, method, path, { token });
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { token, headers, body: text });
}

const dataOf = (answer: Answer): unknown => (answer.json as { data?: unknown } | undefined)?.data ?? answer.text;
const keyOf = (answer: Answer): unknown => (dataOf(answer) as { id?: unknown }).id ?? answer.text;
const graphql = (caller: Caller, query: string): Promise<Answer> => send(caller, 'POST', '/graphql/system', { query });

const presets = await send(admin, 'POST', '/presets', [
  { bookmark: 'own', user: ada.user },
  { bookmark: 'of bob', user: bob.user },
  { bookmark: 'of the role', role: ada.role },
  { bookmark: 'of all' },
  { bookmark: 'of the role of bob', role: bob.role },
]);
const [own, others, ofRole, ofAll] = (dataOf(presets) as { id: number }[]).map(({ id }) => id);

/** Rows of all seven tables, to compare. */
function stored(): Promise<unknown> {
  return Promise.all(NAMES.map((name) => sql.unsafe(`select * from service_${name} order by id`)));
}

const SAMPLES: Readonly<Record<string, object>> = {
  presets: { collection: 'articles' },
  comments: { collection: 'articles', item: '1', comment: 'x' },
  notifications: { recipient: bob.user, subject: 'x' },
  translations: { language: 'de-DE', key: 'x', value: 'x' },
  folders: { name: 'x' },
  dashboards: { name: 'x' },
  panels: { dashboard: null, type: 'x', position_x: 1, position_y: 1, width: 1, height: 1 },
};

t.test('a caller without rights sees and changes nothing', async (t) => {
  const rows = new Map<string, unknown>();
  for (const name of NAMES) {
    const sample = { ...SAMPLES[name], ...(name === 'panels' ? { dashboard: rows.get('dashboards') } : {}) };
    rows.set(name, keyOf(await send(admin, 'POST', `/${name}`, sample)));
  }
  const before = await stored();
  for (const caller of [null, program])
    for (const name of NAMES) {
      const key = rows.get(name);
      for (const [method, path, body] of [
        ['GET', `/${name}`],
        ['GET', `/${name}/${key}`],
        ['SEARCH', `/${name}`, { query: {} }],
        ['POST', `/${name}`, SAMPLES[name]],
        ['POST', `/${name}`, [SAMPLES[name]]],
        ['PATCH', `/${name}/${key}`, SAMPLES[name]],
        ['PATCH', `/${name}`, { keys: [key], data: SAMPLES[name] }],
        ['PATCH', `/${name}`, [{ id: key, ...SAMPLES[name] }]],
        ['DELETE', `/${name}/${key}`],
        ['DELETE', `/${name}`, [key]],
        ['GET', `/items/service_${name}`],
      ] as const)
        t.equal((await send(caller, method, path, body)).status, 403, `${method} ${path}`);
      const asked = await graphql(caller, `{ ${name} { id } }`);
      t.match(asked.json, { errors: [{}] }, `${name} in GraphQL`);
    }
  // Nothing of folders, dashboards and panels comes with an application, and nothing but reading translations.
  for (const name of ['folders', 'dashboards', 'panels'])
    for (const [method, body] of [['GET'], ['POST', SAMPLES[name]]] as const)
      t.equal((await send(ada, method, `/${name}`, body)).status, 403, name);
  t.match(dataOf(await send(ada, 'GET', '/translations')), [{ key: 'x' }]);
  t.equal((await send(ada, 'POST', '/translations', SAMPLES['translations'])).status, 403);
  t.equal((await send(ada, 'DELETE', `/translations/${rows.get('translations')}`)).status, 403);
  t.strictSame(await stored(), before);
});

t.test('presets: one’s own, of the role and of everybody', async (t) => {
  const listed = await send(ada, 'GET', '/presets?fields=bookmark&sort=id&filter[bookmark][_nnull]=true');
  t.strictSame(dataOf(listed), [{ bookmark: 'own' }, { bookmark: 'of the role' }, { bookmark: 'of all' }]);
  t.equal((await send(ada, 'GET', `/presets/${others}`)).status, 403);
  t.strictSame(
    dataOf(await send(ada, 'GET', '/presets?filter[bookmark]=of%20bob&aggregate[count]=*')),
    [{ count: 0 }],
    'not even counted',
  );
  t.match((await graphql(ada, `{ presets(filter: { bookmark: { _contains: "bob" } }) { id } }`)).json, {
    data: { presets: [] },
  });
  const before = await stored();
  for (const key of [others, ofRole, ofAll]) {
    t.equal((await send(ada, 'PATCH', `/presets/${key}`, { search: 'x' })).status, 403);
    t.equal((await send(ada, 'DELETE', `/presets/${key}`)).status, 403);
  }
  t.equal((await send(ada, 'PATCH', '/presets', { keys: [own, others], data: { search: 'x' } })).status, 403);
  t.equal((await send(ada, 'POST', '/presets', { user: bob.user, bookmark: 'x' })).status, 400, 'for another');
  t.equal((await send(ada, 'POST', '/presets', { user: null, bookmark: 'x' })).status, 400, 'for everybody');
  t.equal((await send(ada, 'PATCH', `/presets/${own}`, { user: null })).status, 400, 'given to everybody');
  t.equal((await send(ada, 'PATCH', `/presets/${own}`, { user: bob.user })).status, 400, 'given to another');
  t.strictSame(await stored(), before);
  const made = await send(ada, 'POST', '/presets', { collection: 'tags', layout_options: { a: 1 } });
  t.match(
    dataOf(made),
    { user: ada.user, layout: 'tabular', layout_options: { a: 1 } },
    'without a user it is one’s own',
  );
  t.match(dataOf(await send(ada, 'PATCH', `/presets/${own}`, { search: 'x' })), { search: 'x' });
  t.equal((await send(ada, 'DELETE', `/presets/${keyOf(made)}`)).status, 204);
  const logged = await sql`select from service_activity where collection = 'service_presets'`;
  t.equal(logged.length, 0, 'no activity');
});

t.test('notifications: for their recipient', async (t) => {
  const [mine, theirs] = await Promise.all(
    [ada, bob].map(async ({ user }) =>
      keyOf(await send(admin, 'POST', '/notifications', { recipient: user, subject: 'Hello' })),
    ),
  );
  t.strictSame(dataOf(await send(ada, 'GET', '/notifications?fields=id')), [{ id: mine }]);
  t.equal((await send(ada, 'GET', `/notifications/${theirs}`)).status, 403);
  const before = await stored();
  t.equal((await send(ada, 'PATCH', `/notifications/${theirs}`, { status: 'archived' })).status, 403);
  t.equal((await send(ada, 'PATCH', `/notifications/${mine}`, { subject: 'x' })).status, 403);
  t.equal((await send(ada, 'PATCH', `/notifications/${mine}`, { recipient: bob.user })).status, 403);
  t.equal((await send(ada, 'DELETE', `/notifications/${mine}`)).status, 403);
  t.equal((await send(ada, 'POST', '/notifications', { recipient: bob.user, subject: 'x' })).status, 403);
  t.match((await send(admin, 'POST', '/notifications', { subject: 'x' })).json, {
    errors: [{ extensions: { code: 'FAILED_VALIDATION', field: 'recipient', type: 'required' } }],
  });
  t.strictSame(await stored(), before);
  t.match(dataOf(await send(ada, 'PATCH', `/notifications/${mine}`, { status: 'archived' })), { status: 'archived' });
});

t.test('comments: on what one may read', async (t) => {
  const on = (item: unknown, more: object = {}): object => ({ collection: 'articles', item, comment: 'Well', ...more });
  const made = await send(ada, 'POST', '/comments', on(1));
  t.match(dataOf(made), { item: '1', user_created: ada.user, date_created: /^\d{4}/, user_updated: null });
  const key = keyOf(made);
  t.match(dataOf(await send(ada, 'POST', '/comments', [on('1'), on('2')])), [{ item: '1' }, { item: '2' }]);
  const before = await stored();
  for (const body of [
    on(3),
    on(404),
    on('no number'),
    on('1 or 1=1'),
    [on(1), on(3)],
    on(1, { collection: 'authors' }),
    on(1, { collection: 'no_such_table' }),
    on(ada.user, { collection: 'service_sessions' }),
    on(1, { user_created: bob.user }),
    on(1, { date_updated: '2020-01-01T00:00:00Z' }),
  ])
    t.match(
      await send(ada, 'POST', '/comments', body),
      { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } },
      JSON.stringify(body),
    );
  t.match(
    (await send(ada, 'POST', '/comments', on(1, { collection: 'authors' }))).text.replaceAll('authors', 'x'),
    (await send(ada, 'POST', '/comments', on(1, { collection: 'no_such_table' }))).text.replaceAll(
      'no_such_table',
      'x',
    ),
    'what may not be read is as good as absent',
  );
  const refused = await graphql(
    ada,
    'mutation { create_comments_item(data: { collection: "articles", item: "3", comment: "x" }) { id } }',
  );
  t.match(refused.json, { errors: [{ extensions: { code: 'FORBIDDEN' } }] });
  for (const missing of ['comment', 'collection', 'item'])
    t.match((await send(ada, 'POST', '/comments', on(1, { [missing]: undefined }))).json, {
      errors: [{ extensions: { code: 'FAILED_VALIDATION', field: missing } }],
    });
  t.equal((await send(ada, 'POST', '/comments', on(1, { comment: null }))).status, 400);
  // Somebody else’s, and more than the text.
  t.equal((await send(bob, 'GET', `/comments/${key}`)).status, 403);
  t.equal((await send(bob, 'PATCH', `/comments/${key}`, { comment: 'x' })).status, 403);
  t.equal((await send(bob, 'DELETE', `/comments/${key}`)).status, 403);
  t.equal((await send(ada, 'PATCH', `/comments/${key}`, { item: '2' })).status, 403);
  // Also who may write comments as they like.
  t.equal((await send(keeper, 'POST', '/comments', on(3))).status, 403);
  t.equal((await send(keeper, 'PATCH', `/comments/${key}`, { item: '3' })).status, 403);
  t.equal((await send(keeper, 'PATCH', `/comments/${key}`, { item: '3', collection: 'articles' })).status, 403);
  t.equal((await send(keeper, 'PATCH', '/comments', [{ id: key, item: '2' }])).status, 403, 'only half of a name');
  t.strictSame(await stored(), before);
  t.equal((await send(keeper, 'PATCH', `/comments/${key}`, { item: '2', collection: 'articles' })).status, 200);
  t.match(dataOf(await send(ada, 'PATCH', `/comments/${key}`, { comment: 'Better' })), {
    comment: 'Better',
    user_updated: ada.user,
    date_updated: /^\d{4}/,
  });
  t.match(dataOf(await graphql(ada, MADE_AND_NAMED)), { create_comments_item: { item: '2' } });
  t.equal((await send(ada, 'DELETE', `/comments/${key}`)).status, 204);
});

const MADE_AND_NAMED =
  'mutation { create_comments_item(data: { collection: "articles", item: "2", comment: "x" }) { item } }';

t.test('the public comments on nothing, whatever its policy says', async (t) => {
  const before = await stored();
  await makePolicy(sql, 'public', { permissions: [reads, ...everything('comments')] });
  // Rights that were written with SQL are in force soon.
  await waitFor(async () => (await send(null, 'GET', '/comments')).status === 200, 10_000);
  t.equal((await send(null, 'POST', '/comments', SAMPLES['comments'])).status, 403);
  t.strictSame(await stored(), before);
});

t.test('invalid data of the app are refused', async (t) => {
  const before = await stored();
  t.equal((await send(admin, 'POST', '/translations', SAMPLES['translations'])).status, 400, 'twice');
  const folder = keyOf(await send(admin, 'POST', '/folders', { name: 'Above' }));
  const below = keyOf(await send(admin, 'POST', '/folders', { name: 'Below', parent: folder }));
  t.match(await send(admin, 'DELETE', `/folders/${folder}`), {
    status: 400,
    json: { errors: [{ extensions: { code: 'FAILED_VALIDATION' } }] },
  });
  t.equal((await send(admin, 'PATCH', `/folders/${folder}`, { parent: folder })).status, 400, 'in itself');
  t.equal((await send(admin, 'DELETE', '/folders', [below, folder])).status, 204);
  t.match((await send(admin, 'POST', '/panels', { type: 'x' })).json, {
    errors: [{ extensions: { code: 'FAILED_VALIDATION', type: 'required' } }],
  });
  t.equal((await send(admin, 'POST', '/presets', { filter: 'x', no_such: 1 })).status, 400);
  t.strictSame(await stored(), before);
});

t.test('users, dashboards and collections go', async (t) => {
  const { user } = await makeCaller(sql, 'leaver', [{ app_access: true }]);
  const [preset] = await sql`insert into service_presets ("user") values (${user}) returning id`;
  const [received] =
    await sql`insert into service_notifications (recipient, subject) values (${user}, 'x') returning id`;
  const [sent] = await sql`
    insert into service_notifications (recipient, sender, subject) values (${bob.user}, ${user}, 'x') returning id`;
  const [comment] = await sql`
    insert into service_comments (collection, item, comment, user_created, user_updated)
    values ('tags', '1', 'x', ${user}, ${user}) returning id`;
  const [dashboard] = await sql`insert into service_dashboards (name, user_created) values ('x', ${user}) returning id`;
  const [panel] = await sql`
    insert into service_panels (dashboard, type, position_x, position_y, width, height, user_created)
    values (${dashboard?.['id']}, 'x', 1, 1, 1, 1, ${user}) returning id`;
  t.equal((await send(admin, 'DELETE', `/users/${user}`)).status, 204);
  const find = async (path: string): Promise<unknown> => dataOf(await send(admin, 'GET', path));
  t.equal((await send(admin, 'GET', `/presets/${preset?.['id']}`)).status, 403);
  t.equal((await send(admin, 'GET', `/notifications/${received?.['id']}`)).status, 403);
  t.match(await find(`/notifications/${sent?.['id']}`), { sender: null });
  t.match(await find(`/comments/${comment?.['id']}`), { user_created: null, user_updated: null, comment: 'x' });
  t.match(await find(`/panels/${panel?.['id']}`), { user_created: null });
  t.equal((await send(admin, 'DELETE', `/dashboards/${dashboard?.['id']}`)).status, 204);
  t.equal((await send(admin, 'GET', `/panels/${panel?.['id']}`)).status, 403);
  await send(admin, 'POST', '/collections', { collection: 'short_lived', schema: {} });
  await send(admin, 'POST', '/comments', { collection: 'short_lived', item: '1', comment: 'x' });
  await send(admin, 'POST', '/presets', { collection: 'short_lived' });
  const count = '?filter[collection]=short_lived&aggregate[count]=*';
  t.strictSame(await find(`/comments${count}`), [{ count: 1 }]);
  t.equal((await send(admin, 'DELETE', '/collections/short_lived')).status, 204);
  t.strictSame(await find(`/comments${count}`), [{ count: 0 }]);
  t.strictSame(await find(`/presets${count}`), [{ count: 0 }]);
});
