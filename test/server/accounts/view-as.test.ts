/** `Lateral-View-As`: administrators read as the public, a role or a user; nobody gains anything by it, and nothing is written. */
import t from 'tap';
import { makeCaller, makePolicy } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { login, makeUser, post } from '../../support/users.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'view_as');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const published = { status: { _eq: 'published' } };
const own = { email: { _eq: '$CURRENT_USER.email' } };
await makePolicy(sql, 'visitors', {
  permissions: [{ collection: 'articles', action: 'read', permissions: published, fields: ['id', 'title'] }],
});
const editor = await makeCaller(sql, 'editor', [
  {
    permissions: [
      { collection: 'articles', action: 'read' },
      { collection: 'articles', action: 'update' },
      { collection: 'service_users', action: 'read', permissions: own, fields: ['id', 'email'] },
      { collection: 'comments', action: 'read', permissions: { id: { _in: [1, 2] } } },
    ],
  },
]);
const reader = await makeCaller(sql, 'reader', [{ permissions: [{ collection: 'tags', action: 'read' }] }]);
const service = await startTestService({ databaseUrl });
const AS_EDITOR = { 'lateral-view-as': `user:${editor.user}` };
const AS_ROLE = { 'lateral-view-as': `role:${editor.role}` };
const AS_PUBLIC = { 'lateral-view-as': 'public' };
const JSON_TYPE = { 'content-type': 'application/json' };

async function graphql(query: string, options: RequestOptions): Promise<Answer> {
  const headers = { ...JSON_TYPE, ...options.headers };
  return request(service, 'POST', '/graphql', { ...options, headers, body: JSON.stringify({ query }) });
}

t.test('an administrator sees what they see, and no more', async (t) => {
  const paths = [
    '/items/articles?limit=-1',
    '/items/articles/1',
    '/items/comments?meta=*',
    '/items/tags',
    '/users',
    '/server/info',
    '/server/health',
    '/server/metrics',
    '/graphql?query={articles(sort:[%22id%22]){id,title,status}}',
    '/server/specs/graphql',
    '/schema/snapshot',
  ];
  for (const path of paths) {
    const viewed = await get(service, path, { headers: AS_EDITOR });
    const seen = await get(service, path, { token: editor.token });
    t.equal(viewed.status, seen.status, path);
    t.strictSame(viewed.text, seen.text, path);
    t.equal(viewed.headers['lateral-view-as'], `user:${editor.user}`, 'the answer says whose it is');
    const asPublic = await get(service, path, { headers: AS_PUBLIC });
    const byPublic = await get(service, path, { token: null });
    t.equal(asPublic.status, byPublic.status, `${path}, by the public`);
    t.strictSame(asPublic.text, byPublic.text, `${path}, by the public`);
  }
  const search = { ...JSON_TYPE, ...AS_EDITOR };
  const body = '{"query":{"fields":["id"],"limit":-1}}';
  const found = await request(service, 'SEARCH', '/items/comments', { headers: search, body });
  t.strictSame(found.json, { data: [{ id: 1 }, { id: 2 }] });
  const file = '{"format":"csv","query":{"fields":["id"]}}';
  const exported = await request(service, 'POST', '/utils/export/comments', { headers: search, body: file });
  t.match(exported, { status: 200, text: /^"?id"?\r?\n1\r?\n2\s*$/ });
  const stored = '{"format":"csv","query":{"fields":["id"]},"file":{}}';
  const refused = await request(service, 'POST', '/utils/export/comments', { headers: search, body: stored });
  t.equal(refused.status, 403, 'a stored export is a write');
});

t.test('a role is anybody who has it', async (t) => {
  t.match(await get(service, '/items/comments?fields=id', { headers: AS_ROLE }), {
    json: { data: [{ id: 1 }, { id: 2 }] },
  });
  t.match(await get(service, '/users', { headers: AS_ROLE }), { status: 200, json: { data: [] } }, 'it is no user');
  t.equal((await get(service, '/users/me', { headers: AS_ROLE })).status, 401);
  const allowed = await get(service, '/permissions/me', { headers: AS_ROLE });
  const theirs = await get(service, '/permissions/me', { token: editor.token });
  t.strictSame(allowed.json, theirs.json, 'what they are allowed');
  const visitors = (await get(service, '/permissions/me', { headers: AS_PUBLIC })).json as { data: object };
  t.strictSame(Object.keys(visitors.data), ['articles']);
  t.equal((await get(service, '/permissions/me', { token: null })).status, 403, 'others have to be somebody');
  const fields = (await get(service, '/fields', { headers: AS_PUBLIC })).json as { data: { field: string }[] };
  t.strictSame(fields.data.map(({ field }) => field).sort(), ['id', 'title'], 'the schema as far as they see items');
  t.equal((await get(service, '/fields', { token: null })).status, 403, 'which the public itself may not read');
});

t.test('nobody else may, whatever they name', async (t) => {
  const admin = await makeUser(sql, 'other-admin');
  for (const token of [null, reader.token, editor.token])
    for (const as of [
      'public',
      `user:${admin.id}`,
      `user:${reader.user}`,
      `role:${reader.role}`,
      'nonsense',
      `user:${'0'.repeat(8)}`,
    ])
      for (const path of ['/items/tags', '/items/articles', '/users/me', '/server/health', '/schema/snapshot']) {
        const answer = await get(service, path, { token, headers: { 'lateral-view-as': as } });
        t.match(answer, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } }, `${path} as ${as}`);
        t.notMatch(answer.text, '"data"');
        t.equal(answer.headers['lateral-view-as'], undefined);
      }
  const answer = await get(service, '/items/tags', { token: 'no-such-token', headers: AS_PUBLIC });
  t.equal(answer.status, 401, 'a bad token is one');
  t.equal(
    (await get(service, `/items/articles?access_token=${reader.token}`, { token: null, headers: AS_PUBLIC })).status,
    403,
  );
});

t.test('a user whom nobody knows', async (t) => {
  const absent = '00000000-0000-4000-8000-000000000000';
  const names = [
    '',
    ' ',
    'user',
    'user:',
    'user:1',
    'users',
    `user:${absent}`,
    `role:${absent}`,
    `role:${editor.user}`,
  ];
  const forged = [
    `user:${editor.user}:1`,
    `user:${editor.user} `,
    `USER:${editor.user}`,
    `policy:${absent}`,
    "user:' or true--",
  ];
  for (const as of [...names, ...forged].filter((each) => each.trim() === each && each !== '')) {
    const answer = await get(service, '/items/articles', { headers: { 'lateral-view-as': as } });
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } }, as);
  }
  await sql`update service_users set status = 'suspended' where id = ${reader.user}`;
  const suspended = await get(service, '/items/tags', { headers: { 'lateral-view-as': `user:${reader.user}` } });
  t.equal(suspended.status, 400, 'a user who may not log in');
  await sql`update service_users set status = 'active' where id = ${reader.user}`;
});

t.test('nothing is written', async (t) => {
  const before = await sql`select * from articles order by id`;
  const [{ users } = {}] = await sql`select count(*) as users from service_users`;
  const title = JSON.stringify({ title: 'written' });
  const writes: [string, string, string?][] = [
    ['POST', '/items/articles', title],
    ['PATCH', '/items/articles/1', title],
    ['PATCH', '/items/articles', JSON.stringify({ keys: [1], data: { title: 'written' } })],
    ['DELETE', '/items/articles/1'],
    ['PATCH', '/users/me', '{"first_name":"written"}'],
    ['POST', '/users', '{"email":"written@example.com"}'],
    ['POST', '/utils/import/articles', '[{"title":"written"}]'],
    ['POST', '/utils/sort/articles', '{"item":1,"to":2}'],
    ['POST', '/utils/cache/clear'],
    ['POST', '/auth/logout', '{}'],
    ['POST', '/auth/login', '{"email":"editor@example.com","password":"x"}'],
    ['POST', '/fields/articles', '{"field":"written","type":"string"}'],
    ['DELETE', '/fields/articles/title'],
    ['POST', '/rpc/anything', '{}'],
    ['POST', '/schema/apply', '{}'],
  ];
  for (const headers of [AS_EDITOR, AS_ROLE, AS_PUBLIC])
    for (const [method, path, body] of writes) {
      const answer = await request(service, method, path, {
        headers: { ...JSON_TYPE, ...headers },
        ...(body ? { body } : {}),
      });
      t.match(answer, { status: 403, text: /Lateral-View-As/ }, `${method} ${path}`);
    }
  const mutations = [
    'mutation { update_articles_item(id: 1, data: { title: "written" }) { id } }',
    'mutation { delete_articles_item(id: 1) { id } }',
  ];
  for (const mutation of mutations) {
    const answer = await graphql(mutation, { headers: AS_EDITOR });
    t.match(answer.text, /Lateral-View-As|Cannot query field/, mutation);
    t.notMatch(answer.text, '"data":{"');
  }
  const system = { ...JSON_TYPE, 'lateral-view-as': `user:${(await makeUser(sql, 'second-admin')).id}` };
  for (const query of [
    'mutation { utils_cache_clear }',
    'mutation { create_users_item(data: { email: "w@example.com" }) { id } }',
  ]) {
    const answer = await request(service, 'POST', '/graphql/system', {
      headers: system,
      body: JSON.stringify({ query }),
    });
    t.match(answer.text, /Lateral-View-As/, 'not as another administrator either');
  }
  t.strictSame(await sql`select * from articles order by id`, before);
  const [{ now } = {}] = await sql`select count(*) as now from service_users where email not like 'second-admin%'`;
  t.equal(now, users);
});

t.test('the statement is shown with the rules in it: an administrator asks', async (t) => {
  const headers = { prefer: 'explain', ...AS_PUBLIC };
  const explained = await get(service, '/items/articles?fields=title', { headers });
  t.match(explained, { status: 200, json: { data: { sql: /"status"/, parameters: ['published'] } } });
  const refused = await get(service, '/items/articles?fields=title', {
    token: editor.token,
    headers: { prefer: 'explain' },
  });
  t.equal(refused.status, 403);
});

t.test('a session in a cookie, changes of access, and reads that travel together', async (t) => {
  const admin = await makeUser(sql, 'cookie-admin');
  const logged = await login(service, admin.email, { mode: 'session' });
  const cookie = String(logged.headers['set-cookie']).split(';')[0] ?? '';
  const path = '/items/articles?fields=id&limit=-1';
  const all = (await sql`select from articles`).length;
  const open = (await sql`select from articles where status = 'published'`).length;
  const count = async (options: RequestOptions): Promise<number> => {
    const { data } = (await get(service, path, options)).json as { data: unknown[] };
    return data.length;
  };
  const keyed = async (key: number, headers: Record<string, string>): Promise<number> =>
    (await get(service, `/items/articles/${key}?fields=id`, { token: ADMIN_TOKEN, headers })).status;
  t.equal(await count({ token: null, headers: { cookie, ...AS_PUBLIC } }), open);
  t.equal(await count({ token: null, headers: { cookie } }), all, 'the session itself is as before');
  t.equal(await count({ token: null }), open, 'and so is the public');
  const [draft] = await sql`select id from articles where status = 'draft' limit 1`;
  const key = Number(draft?.['id']);
  for (let round = 0; round < 10; round++) {
    const mixed = Array.from({ length: 40 }, (_, position) => keyed(key, position % 2 === 0 ? AS_PUBLIC : {}));
    const statuses = await Promise.all(mixed);
    t.ok(
      statuses.every((status, position) => status === (position % 2 === 0 ? 403 : 200)),
      'no read is answered with the rights of another',
    );
  }
  await post(
    service,
    '/permissions',
    { policy: editor.policies[0], collection: 'tags', action: 'read', fields: ['*'] },
    { token: ADMIN_TOKEN },
  );
  t.equal((await get(service, '/items/tags', { headers: AS_EDITOR })).status, 200, 'a change counts at once');
  await request(service, 'PATCH', `/users/${admin.id}`, {
    headers: JSON_TYPE,
    body: JSON.stringify({ role: reader.role }),
  });
  t.equal(
    (await get(service, path, { token: null, headers: { cookie, ...AS_PUBLIC } })).status,
    403,
    'no administrator any more',
  );
});
