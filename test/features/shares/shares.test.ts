/** Shares: an item for who has the link. They see it and what belongs to it, as far as role and creator may, and nothing else. */
import {
  authenticateShare,
  createDirectus,
  createShare,
  createShares,
  deleteShare,
  deleteShares,
  inviteShare,
  readShare,
  readShareInfo,
  readShares,
  rest,
  staticToken,
  updateShare,
  updateShares,
  updateSharesBatch,
} from '@directus/sdk';
import t from 'tap';
import { inForce, makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { claimsOf, cookieOf, failure, granted, post } from '../../support/users.js';

const server = await startDatabase();
const url = await createLibrary(server, 'shares');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table holders (id serial primary key, share uuid references service_shares)`;
const service = await startTestService({
  databaseUrl: url,
  LOGIN_STALL_TIME: '0',
  LOGIN_BACKOFF_AFTER: '30',
  ACCESS_TOKEN_TTL: '15m',
});
const admin = createDirectus<Record<string, object[]>>(service.url).with(rest()).with(staticToken(ADMIN_TOKEN));
const read = (
  collection: string,
  fields: readonly string[] = ['*'],
  permissions: object | null = null,
): Permission => ({
  collection,
  action: 'read',
  fields,
  permissions,
});
const viewer = await makeCaller(sql, 'viewer', [
  {
    permissions: [
      read('articles', ['id', 'title', 'author', 'comments', 'tags', 'status']),
      read('authors', ['id', 'name', 'email']),
      read('comments', ['id', 'body'], { id: { _lt: 3 } }),
      read('articles_tags'),
      read('tags'),
      read('block_text'),
    ],
  },
]);
const JSON_BODY = { 'content-type': 'application/json' };

interface Share {
  readonly id: string;
}

async function share(body: object, token = ADMIN_TOKEN): Promise<string> {
  const answer = await post(
    service,
    '/shares',
    { collection: 'articles', item: '1', role: viewer.role, ...body },
    { token },
  );
  if (answer.status !== 200) throw new Error(answer.text);
  return (answer.json as { data: Share }).data.id;
}

const enter = (id: string, more: object = {}) => post(service, '/shares/auth', { share: id, ...more });

async function tokenOf(id: string, more: object = {}): Promise<string> {
  return granted(await enter(id, more)).access_token;
}

async function dataOf(path: string, token: string): Promise<unknown> {
  const answer = await get(service, path, { token });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
  return (answer.json as { data: unknown }).data;
}

t.test('the SDK makes, changes, opens and deletes shares', async (t) => {
  const made = (await admin.request(
    createShare({
      name: 'One',
      collection: 'articles',
      item: '1',
      role: viewer.role,
      password: 'open sesame',
    } as never),
  )) as unknown as Share & { password: string };
  t.match(made, { name: 'One', times_used: 0, password: '**********' });
  t.strictSame(await admin.request(readShareInfo(made.id)), {
    id: made.id,
    collection: 'articles',
    item: '1',
    password: '**********',
    max_uses: null,
    times_used: 0,
    date_start: null,
    date_end: null,
  } as never);
  const tokens = await admin.request(authenticateShare(made.id, 'open sesame', 'json'));
  t.match(tokens, { access_token: /./, refresh_token: /./, expires: 900_000 });
  t.match(await admin.request(readShare(made.id)), { times_used: 1 });
  t.match(await admin.request(updateShare(made.id, { name: 'Two' } as never)), { name: 'Two' });
  const others = (await admin.request(
    createShares([
      { collection: 'articles', item: '2' },
      { collection: 'articles', item: '3' },
    ] as never),
  )) as unknown as Share[];
  const ids = others.map(({ id }) => id);
  await admin.request(updateShares(ids, { max_uses: 5 } as never));
  await admin.request(updateSharesBatch(ids.map((id) => ({ id, name: id })) as never));
  t.equal((await admin.request(readShares({ filter: { max_uses: { _eq: 5 } } } as never))).length, 2);
  await admin.request(inviteShare(made.id, ['somebody@example.com']));
  await admin.request(deleteShares(ids));
  await admin.request(deleteShare(made.id));
  t.match(await enter(made.id, { password: 'open sesame' }), failure(401, 'INVALID_CREDENTIALS'), 'gone');
});

t.test('a share shows its item and what belongs to it', async (t) => {
  const id = await share({});
  const token = await tokenOf(id);
  t.match(claimsOf(token), { share: id, role: viewer.role, admin_access: false, app_access: false });
  t.strictSame(await dataOf('/users/me', token), { share: id });
  t.strictSame(
    await dataOf('/items/articles?fields=id,title', token),
    [{ id: 1, title: 'Hello World' }],
    'no other item',
  );
  t.strictSame(await dataOf('/items/authors?fields=id,name', token), [
    { id: 1, name: 'Ada Lovelace' },
    { id: 2, name: 'Alan Turing' },
    { id: 3, name: 'grace hopper' },
  ]);
  t.strictSame(await dataOf('/items/comments?fields=id', token), [{ id: 1 }, { id: 2 }], 'as far as the role may');
  t.strictSame(await dataOf('/items/tags?fields=name&sort=name', token), [{ name: 'news' }, { name: 'tech' }]);
  t.strictSame(await dataOf('/items/block_text?fields=id', token), [{ id: 1 }]);
  t.strictSame(await dataOf('/items/articles/1?fields=author.name,comments.body,tags.tags_id.name', token), {
    author: { name: 'Ada Lovelace' },
    comments: [{ body: 'Nice!' }, { body: 'I disagree' }],
    tags: [{ tags_id: { name: 'tech' } }, { tags_id: { name: 'news' } }],
  });
  const graphql = await post(service, '/graphql', { query: '{ articles { title } }' }, { token });
  t.strictSame(graphql.json, { data: { articles: [{ title: 'Hello World' }] } });
  for (const path of ['/items/articles/2', '/items/articles/1?fields=body', '/users', '/shares', '/items/block_quote'])
    t.match(await get(service, path, { token }), failure(403, 'FORBIDDEN'), path);
  t.match(await request(service, 'DELETE', '/items/articles/1', { token }), failure(403, 'FORBIDDEN'));
  const body = JSON.stringify({ title: 'x' });
  for (const [method, path] of [
    ['PATCH', '/items/articles/1'],
    ['POST', '/items/articles'],
    ['POST', '/shares'],
  ] as const)
    t.match(await request(service, method, path, { headers: JSON_BODY, body, token }), failure(403, 'FORBIDDEN'), path);
});

t.test('nobody sees by a share what its creator does not', async (t) => {
  const creator = await makeCaller(sql, 'creator', [
    {
      permissions: [
        read('articles', ['id', 'title', 'author'], { author: { name: { _eq: 'Ada Lovelace' } } }),
        read('authors', ['id', 'name'], { email: { _neq: '$CURRENT_USER.email' } }),
        { collection: 'articles', action: 'share' as never, permissions: { id: { _in: [1, 3] } } },
        ...(['create', 'read', 'update'] as const).map((action) => ({ collection: 'service_shares', action })),
      ],
    },
  ]);
  await inForce(service, creator, '/items/articles');
  const [boss] = await sql<{ id: string; role: string }[]>`
    select u.id, u.role from service_users u join service_roles r on r.id = u.role where r.name = 'Administrator' limit 1`;
  const id = await share({ role: boss?.role }, creator.token);
  const token = await tokenOf(id);
  t.strictSame(
    await dataOf('/items/articles', token),
    [{ id: 1, title: 'Hello World', author: 1 }],
    'the role may all',
  );
  t.match(await get(service, '/items/authors', { token }), failure(403, 'FORBIDDEN'), 'a rule about the creator');
  t.match(await get(service, '/users', { token }), failure(403, 'FORBIDDEN'));
  const attempt = (body: object) =>
    post(service, '/shares', { collection: 'articles', item: '1', ...body }, { token: creator.token });
  t.match(await attempt({ item: '2' }), failure(403, 'FORBIDDEN'), 'may read, may not share');
  t.match(await attempt({ item: '3' }), failure(403, 'FORBIDDEN'), 'may share, may not read');
  t.match(await attempt({ collection: 'tags' }), failure(403, 'FORBIDDEN'));
  const named = await attempt({ user_created: boss?.id });
  t.match(named, { status: 200, json: { data: { user_created: creator.user } } }, 'never in the name of another');
  t.match(await attempt({ times_used: -5 }), failure(400, 'INVALID_PAYLOAD'));
  for (const body of ['{"item":"2"}', `{"user_created":"${boss?.id}"}`, `{"user_created":{"id":"${boss?.id}"}}`]) {
    const changed = await request(service, 'PATCH', `/shares/${id}`, {
      headers: JSON_BODY,
      body,
      token: creator.token,
    });
    t.match(changed, failure(400, 'INVALID_PAYLOAD'), body);
  }
  await sql`update service_users set status = 'suspended' where id = ${creator.user}`;
  await t.resolves(
    until(async () => (await get(service, '/items/articles', { token })).status === 401),
    'with its creator',
  );
  t.match(await enter(id), failure(401, 'INVALID_CREDENTIALS'));
});

t.test('only its creator or an administrator changes a share; others can end it', async (t) => {
  const permissions: Permission[] = [
    read('articles', ['id', 'title']),
    { collection: 'articles', action: 'share' as never },
    { collection: 'holders', action: 'create' },
    ...(['create', 'read', 'update', 'delete'] as const).map((action) => ({ collection: 'service_shares', action })),
  ];
  const maker = await makeCaller(sql, 'maker', [{ permissions }]);
  const colleague = await makeCaller(sql, 'colleague', [{ permissions }]);
  await inForce(service, maker, '/items/articles');
  await inForce(service, colleague, '/items/articles');
  const id = await share({ password: 'secret' }, maker.token);
  const own = await share({}, colleague.token);
  const patch = (path: string, body: object, token: string) =>
    request(service, 'PATCH', path, { headers: JSON_BODY, body: JSON.stringify(body), token });
  const before = await sql`select * from service_shares where id = ${id}`;
  for (const body of [{ password: null }, { role: null }, { date_end: null }, { max_uses: 99 }])
    t.match(await patch(`/shares/${id}`, body, colleague.token), failure(403, 'FORBIDDEN'), JSON.stringify(body));
  for (const [path, body] of [
    ['/shares', { keys: [own, id], data: { password: 'x' } }],
    [
      '/shares',
      [
        { id: own, name: 'x' },
        { id, name: 'x' },
      ],
    ],
  ] as const)
    t.match(await patch(path, body, colleague.token), failure(403, 'FORBIDDEN'), JSON.stringify(body));
  const moved = { id, collection: 'articles', item: '2', role: viewer.role };
  for (const token of [colleague.token, maker.token, ADMIN_TOKEN])
    for (const query of ['on_conflict=id', 'on_conflict=id&resolution=ignore'])
      t.match(await post(service, `/shares?${query}`, moved, { token }), failure(400, 'INVALID_QUERY'), query);
  for (const token of [colleague.token, maker.token, ADMIN_TOKEN])
    t.match(await post(service, '/items/holders', { share: moved }, { token }), failure(400, 'INVALID_PAYLOAD'));
  t.strictSame(await sql`select * from service_shares where id = ${id}`, before, 'nothing is changed');
  t.match(await patch(`/shares/${id}`, { max_uses: 5 }, maker.token), { status: 200 });
  t.match(await patch(`/shares/${id}`, { max_uses: 6 }, ADMIN_TOKEN), { status: 200 });
  t.match(await request(service, 'DELETE', `/shares/${id}`, { token: colleague.token }), { status: 204 });
});

t.test('a new password or role ends the sessions of a share, another name does not', async (t) => {
  const id = await share({ password: 'first' });
  const patch = (body: object) =>
    request(service, 'PATCH', `/shares/${id}`, { headers: JSON_BODY, body: JSON.stringify(body) });
  for (const change of [{ password: 'second' }, { role: null }]) {
    const password = 'role' in change ? 'second' : 'first';
    const { refresh_token } = granted(await enter(id, { password }));
    const headers = { cookie: cookieOf(await enter(id, { password, mode: 'session' })) };
    t.equal((await patch({ name: 'Another' })).status, 200);
    t.equal((await get(service, '/items/articles/1', { token: null, headers })).status, 200);
    t.equal((await patch(change)).status, 200);
    await until(async () => (await get(service, '/items/articles/1', { token: null, headers })).status === 401);
    t.match(await post(service, '/auth/refresh', { refresh_token }), failure(401, 'INVALID_CREDENTIALS'));
  }
});

t.test('without a role it is what the public may see', async (t) => {
  await makePolicy(sql, 'everybody', { permissions: [read('articles', ['title'])] });
  const id = await share({ role: null });
  await until(async () => (await get(service, '/items/articles?limit=1', { token: null })).status === 200);
  t.strictSame(await dataOf('/items/articles', await tokenOf(id)), [{ title: 'Hello World' }]);
});

t.test('closed, used up, wrong and unknown look the same', async (t) => {
  const refused = failure(401, 'INVALID_CREDENTIALS');
  const past = '2020-01-01T00:00:00Z';
  const future = '2999-01-01T00:00:00Z';
  for (const [name, body] of Object.entries({
    expired: { date_end: past },
    'not begun': { date_start: future },
    never: { max_uses: 0 },
  })) {
    const id = await share(body);
    t.match(await enter(id), refused, name);
    if (name !== 'never') t.match(await get(service, `/shares/info/${id}`, { token: null }), failure(403, 'FORBIDDEN'));
  }
  const locked = await share({ password: 'secret', max_uses: 1 });
  t.match(await enter(locked), refused, 'no password');
  t.match(await enter(locked, { password: 'wrong' }), refused);
  t.match(await enter('00000000-0000-0000-0000-000000000000'), refused);
  t.match(await enter('word'), refused);
  t.match(await post(service, '/shares/auth', {}), failure(400, 'INVALID_PAYLOAD'));
  t.match(await get(service, '/shares/info/word', { token: null }), failure(403, 'FORBIDDEN'));
  t.equal((await enter(locked, { password: 'secret' })).status, 200, 'attempts that failed are no uses');
  t.match(await enter(locked, { password: 'secret' }), refused, 'used up');
  const few = await share({ max_uses: 2 });
  const answers = await Promise.all(Array.from({ length: 4 }, () => enter(few)));
  t.equal(answers.filter(({ status }) => status === 200).length, 2, 'also of many at once');
  const [row] = await sql`select times_used from service_shares where id = ${few}`;
  t.equal(row?.['times_used'], 2);
});

t.test('tokens are renewed, and end with the share', async (t) => {
  const id = await share({});
  const first = granted(await enter(id));
  const second = granted(await post(service, '/auth/refresh', { refresh_token: first.refresh_token }));
  t.match(claimsOf(second.access_token), { share: id, role: viewer.role });
  t.match(
    await post(service, '/auth/refresh', { refresh_token: first.refresh_token }),
    failure(401, 'INVALID_CREDENTIALS'),
  );
  const session = await enter(id, { mode: 'session' });
  t.match(session, { status: 200, json: { data: { expires: /\d/ } } });
  const headers = { cookie: cookieOf(session) };
  t.equal((await get(service, '/items/articles/1', { token: null, headers })).status, 200);
  const renewed = await post(service, '/auth/refresh', { mode: 'session' }, { headers });
  t.equal(renewed.status, 200);
  const cookie = { cookie: cookieOf(renewed) };
  const refreshed = await enter(id, { mode: 'cookie' });
  t.match(refreshed, { status: 200, json: { data: { access_token: /./ } } });
  t.equal((await request(service, 'DELETE', `/shares/${id}`)).status, 204);
  await until(async () => (await get(service, '/items/articles/1', { token: null, headers: cookie })).status === 401);
  await until(async () => (await get(service, '/items/articles/1', { token: second.access_token })).status === 401);
  t.match(
    await post(service, '/auth/refresh', { refresh_token: second.refresh_token }),
    failure(401, 'INVALID_CREDENTIALS'),
  );
});

t.test('passwords cannot be guessed one after the other', async (t) => {
  const id = await share({ password: 'secret' });
  let last = 0;
  for (let tries = 0; tries < 80 && last !== 429; tries++) last = (await enter(id, { password: `${tries}` })).status;
  t.equal(last, 429);
});

/** Other instances, and other ways of writing, are heard of a moment later. */
async function until(holds: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + 10_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error('it has not come about');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
