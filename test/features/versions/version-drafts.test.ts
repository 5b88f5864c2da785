/** Content versions without an item: drafts of new items. Promoting one creates the item, with the rights of who does so. */
import {
  createContentVersion,
  createDirectus,
  promoteContentVersion,
  rest,
  saveToContentVersion,
  staticToken,
} from '@directus/sdk';
import t from 'tap';
import { inForce, type MadeCaller, makeCaller, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';
import { failure, post } from '../../support/users.js';

const server = await startDatabase();
const url = await createLibrary(server, 'drafts');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table single (id integer primary key generated always as identity, name text)`;
await sql`create table parts (one integer, other text, note text, primary key (one, other))`;
await sql`insert into service_collections (collection, versioning, singleton) values ('single', true, true), ('parts', true, false)`;
await sql`update service_collections set versioning = true where collection = 'articles'`;
const counter = await StatementCounter.of(server, 'drafts');
const service = await startTestService({ databaseUrl: url });
const as = (token: string) => ({ token });
const send = (path: string, body: unknown, token = ADMIN_TOKEN) => post(service, path, body, as(token));

interface Version {
  readonly id: string;
}

async function makeDraft(collection: string, delta: object | null = null): Promise<string> {
  const made = await send('/versions', { key: 'draft', collection });
  if (made.status !== 200) throw new Error(made.text);
  const { id } = (made.json as { data: Version }).data;
  if (delta) {
    const saved = await send(`/versions/${id}/save`, delta);
    if (saved.status !== 200) throw new Error(saved.text);
  }
  return id;
}

t.test('the SDK makes a draft, saves to it in parts, and promotes it', async (t) => {
  const admin = createDirectus<Record<string, object[]>>(service.url).with(rest()).with(staticToken(ADMIN_TOKEN));
  const made = (await admin.request(
    createContentVersion({ key: 'draft', name: 'New', collection: 'articles', item: null } as never),
  )) as unknown as Version;
  t.match(made, { key: 'draft', item: null, hash: null, delta: null });
  const { id } = made;
  t.match(await admin.request(saveToContentVersion(id, { title: 'First' } as never)), { title: 'First' });
  const changes = { views: 7, author: { name: 'Newcomer' }, comments: [{ body: 'at once' }] };
  t.match(
    await admin.request(saveToContentVersion(id, changes as never)),
    { title: 'First', views: 7 },
    'saves add up',
  );
  t.equal((await sql`select from articles where title = 'First'`).length, 0, 'nothing is created before');
  t.equal(
    (await sql`select from service_revisions where version = ${id}`).length,
    0,
    'there is no item to record it of',
  );
  t.match(await get(service, `/versions/${id}/compare`, as(ADMIN_TOKEN)), failure(403, 'FORBIDDEN'));
  t.match(await get(service, '/items/articles?version=draft', as(ADMIN_TOKEN)), { status: 200, json: { data: [] } });

  const key = String(await admin.request(promoteContentVersion(id, '' as never)));
  const read = await get(
    service,
    `/items/articles/${key}?fields=title,views,author.name,comments.body`,
    as(ADMIN_TOKEN),
  );
  t.strictSame(read.json, {
    data: { title: 'First', views: 7, author: { name: 'Newcomer' }, comments: [{ body: 'at once' }] },
  });
  t.match((await get(service, `/versions/${id}`, as(ADMIN_TOKEN))).json, { data: { item: key, key: 'draft' } });
  const again = await send(`/versions/${id}/promote`, {});
  t.match(again, failure(400, 'INVALID_PAYLOAD'), 'now it has an item, and wants the digest of it');
  t.match((await get(service, `/versions/${id}/compare`, as(ADMIN_TOKEN))).json, { data: { outdated: true } });
});

t.test('only chosen fields, a key of its own, a key of several columns', async (t) => {
  const chosen = await makeDraft('articles', { title: 'Chosen', views: 9 });
  const { json } = await send(`/versions/${chosen}/promote`, { fields: ['title'] });
  const { data } = json as { data: string };
  const [row] = await sql`select title, views from articles where id = ${Number(data)}`;
  t.equal(row?.['title'], 'Chosen');
  t.not(row?.['views'], 9);
  const given = await makeDraft('articles', { id: 987_654, title: 'Given' });
  t.strictSame((await send(`/versions/${given}/promote`, {})).json, { data: '987654' });
  const parts = await makeDraft('parts', { one: 1, other: 'a,b', note: 'n' });
  const promoted = (await send(`/versions/${parts}/promote`, {})).json as { data: string };
  t.match((await get(service, `/items/parts/${encodeURIComponent(promoted.data)}`, as(ADMIN_TOKEN))).json, {
    data: { one: 1, other: 'a,b', note: 'n' },
  });
  const versioned = `/items/parts/${encodeURIComponent(promoted.data)}?version=draft`;
  t.equal((await get(service, versioned, as(ADMIN_TOKEN))).status, 200, 'the version is found by the key');
});

t.test('a draft that does not fit is refused, and nothing is left', async (t) => {
  for (const [body, status, text] of [
    [{ key: 'other', collection: 'articles' }, 400, /item.*is required: only/],
    [{ key: 'draft' }, 400, /collection.*is required/],
    [{ key: 'draft', collection: 'tags' }, 422, /not enabled/],
    [{ key: 'draft', collection: 'nothing' }, 403, /nothing/],
  ] as const) {
    const answer = await send('/versions', body);
    t.equal(answer.status, status, answer.text);
    t.match(answer.text, text);
  }
  const id = await makeDraft('articles');
  t.match(await send(`/versions/${id}/promote`, {}), failure(422, 'UNPROCESSABLE_CONTENT'), 'nothing was saved');
  t.match(await send(`/versions/${id}/save`, { nothing: 1 }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await send(`/versions/${id}/save`, { views: 'many' }), failure(400, 'INVALID_PAYLOAD'));
  await send(`/versions/${id}/save`, { views: 1 });
  t.match(await send(`/versions/${id}/promote`, {}), failure(400, 'FAILED_VALIDATION'), 'a title is required');
  t.match(
    (await get(service, `/versions/${id}`, as(ADMIN_TOKEN))).json,
    { data: { item: null } },
    'it is still a draft',
  );
  await send(`/versions/${id}/save`, { title: 'Once' });
  const holder = connectSql(url);
  const both = await holder.begin(async (held) => {
    await held`select from service_versions where id = ${id} for update`;
    const promoted = [1, 2].map(() => send(`/versions/${id}/promote`, {}));
    await waitFor(async () => {
      const [row] = await sql`
        select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return row?.['count'] === 2;
    }, 10_000);
    return { promoted };
  });
  await holder.end();
  t.equal(
    (await Promise.all(both.promoted)).filter(({ status }) => status === 200).length,
    1,
    'at the same time, one creates the item',
  );
  t.equal((await sql`select from articles where title = 'Once'`).length, 1);
  const named = await makeDraft('articles');
  const change = (body: object) =>
    request(service, 'PATCH', `/versions/${named}`, {
      token: ADMIN_TOKEN,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  t.match(await change({ key: 'other', name: 'x' }), failure(400, 'INVALID_PAYLOAD'));
  const { answer, counts } = await counter.count(() => change({ name: 'x' }));
  t.equal(answer.status, 200);
  t.notMatch(counts.map(({ query }) => query).join('\n'), /item is null/, 'nothing is looked up where the key stays');
  const raw = await get(service, '/items/articles/1?version=draft&versionRaw=true', as(ADMIN_TOKEN));
  t.match(raw, failure(400, 'INVALID_QUERY'));
  t.match(raw.text, /versionRaw.*is not offered/);
  for (const off of ['false', '0'])
    t.match(
      await get(service, `/items/articles/1?version=draft&versionRaw=${off}`, as(ADMIN_TOKEN)),
      failure(403, 'FORBIDDEN'),
      'turned off: there is no such version',
    );
  t.match(await send('/utils/revert/1', {}), failure(404, 'ROUTE_NOT_FOUND'));
});

t.test('a singleton has one draft, while it is empty', async (t) => {
  const id = await makeDraft('single', { name: 'only' });
  t.match(await send('/versions', { key: 'draft', collection: 'single' }), failure(422, 'UNPROCESSABLE_CONTENT'));
  t.equal((await send(`/versions/${id}/promote`, {})).status, 200);
  t.equal((await sql`select from single where name = 'only'`).length, 1);
  t.match(await send('/versions', { key: 'draft', collection: 'single' }), failure(422, 'UNPROCESSABLE_CONTENT'));
});

t.test(
  'rights: read to make it, create to promote it; what others wrote is not shown to who may see some items only',
  async (t) => {
    const versions = (['create', 'read', 'update'] as const).map(
      (action): Permission => ({ collection: 'service_versions', action }),
    );
    const writer = await makeCaller(sql, 'writer', [
      {
        permissions: [
          ...versions,
          { collection: 'articles', action: 'read', permissions: { status: { _eq: 'published' } } },
          {
            collection: 'articles',
            action: 'create',
            fields: ['title', 'slug'],
            presets: { slug: 'preset' },
            validation: { title: { _ncontains: 'forbidden' } },
          },
        ],
      },
    ]);
    const stranger = await makeCaller(sql, 'stranger', [
      { permissions: [...versions, { collection: 'tags', action: 'read' }] },
    ]);
    await inForce(service, writer, '/items/articles');
    await inForce(service, stranger, '/items/tags');
    const body = { key: 'draft', collection: 'articles' };
    t.match(await send('/versions', body, stranger.token), failure(403, 'FORBIDDEN'));
    const made = (await send('/versions', body, writer.token)).json as { data: Version };
    const save = (delta: object) => send(`/versions/${made.data.id}/save`, delta, writer.token);
    const promote = () => send(`/versions/${made.data.id}/promote`, {}, writer.token);
    t.equal((await save({ title: 'forbidden word' })).status, 200);
    t.match(await promote(), failure(400, 'FAILED_VALIDATION'));
    await save({ title: 'allowed', views: 3 });
    t.match(await promote(), failure(403, 'FORBIDDEN'), 'a field that may not be written');
    const others = await makeDraft('articles', { title: 'Hidden', body: 'of somebody else' });
    const saved = await send(`/versions/${others}/save`, { slug: 'mine' }, writer.token);
    t.strictSame(Object.keys((saved.json as { data: object }).data).sort(), ['_date', '_user', 'slug']);
    const fresh = (await send('/versions', body, writer.token)).json as { data: Version };
    await send(`/versions/${fresh.data.id}/save`, { title: 'By the writer' }, writer.token);
    const { json } = await send(`/versions/${fresh.data.id}/promote`, {}, writer.token);
    const [row] = await sql`select id::text, slug from articles where title = 'By the writer'`;
    t.strictSame(json, { data: row?.['id'] });
    t.equal(row?.['slug'], 'preset');
    t.match(await send(`/versions/${others}/promote`, {}, stranger.token), failure(403, 'FORBIDDEN'));
    t.match(await send(`/versions/${others}/save`, {}, stranger.token), failure(403, 'FORBIDDEN'));
  },
);

t.test('a draft of another is promoted by who may change it and sees all that it would create', async (t) => {
  const read: Permission = { collection: 'service_versions', action: 'read' };
  const versions: Permission[] = [read, { collection: 'service_versions', action: 'update' }];
  const article: Permission[] = [
    { collection: 'articles', action: 'read' },
    { collection: 'articles', action: 'create' },
  ];
  const mine = { permissions: { slug: { _eq: 'mine' } }, presets: { slug: 'mine' } };
  const some: Permission[] = [
    { collection: 'articles', action: 'read', permissions: mine.permissions },
    { collection: 'articles', action: 'create', presets: mine.presets },
  ];
  const own: Permission[] = [
    { collection: 'comments', action: 'read', permissions: { body: { _eq: 'own' } } },
    { collection: 'comments', action: 'create' },
  ];
  const make = async (name: string, permissions: Permission[]): Promise<MadeCaller> => {
    const caller = await makeCaller(sql, name, [{ permissions }]);
    await inForce(service, caller, '/items/articles');
    return caller;
  };
  const reader = await make('only-reads', [read, ...article, ...own]);
  const partial = await make('sees-some', [
    ...versions,
    { collection: 'service_versions', action: 'create' },
    { collection: 'service_users', action: 'read' },
    { collection: 'service_users', action: 'update' },
    ...some,
    ...own,
  ]);
  const whole = await make('sees-all', [...versions, ...article, ...own]);
  const promote = (id: string, { token }: MadeCaller, fields?: string[]) =>
    send(`/versions/${id}/promote`, fields ? { fields } : {}, token);

  const secret = await makeDraft('articles', { title: 'Secret of another', body: 'hidden' });
  t.match(await promote(secret, reader), failure(403, 'FORBIDDEN'), 'to promote it changes the version');
  t.match(await promote(secret, partial), failure(403, 'FORBIDDEN'), 'the item would be shown');
  for (const user_created of [partial.user, { id: partial.user }]) {
    const taken = await request(service, 'PATCH', `/versions/${secret}`, {
      token: partial.token,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ user_created }),
    });
    t.match(taken, failure(400, 'INVALID_PAYLOAD'));
  }
  t.match(await promote(secret, partial), failure(403, 'FORBIDDEN'), 'nobody becomes the one who made it');
  t.equal((await sql`select from articles where title = 'Secret of another'`).length, 0);
  t.equal((await promote(secret, whole)).status, 200);

  const nested = await makeDraft('articles', { title: 'With more', comments: [{ body: 'of another' }] });
  t.match(await promote(nested, whole), failure(403, 'FORBIDDEN'), 'items that belong to it are not all shown');
  t.equal((await sql`select from comments where body = 'of another'`).length, 0);
  t.equal((await promote(nested, whole, ['title'])).status, 200, 'the rest can be promoted');

  const made = await send('/versions', { key: 'draft', collection: 'articles' }, partial.token);
  const { id } = (made.json as { data: Version }).data;
  await send(`/versions/${id}/save`, { title: 'Made by the caller', comments: [{ body: 'own' }] }, partial.token);
  t.equal((await promote(id, partial)).status, 200, 'a draft of their own');
  const ofNobody = await makeDraft('articles', { title: 'Of nobody' });
  await sql`update service_versions set user_created = null where id = ${ofNobody}`;
  t.match(await promote(ofNobody, partial), failure(403, 'FORBIDDEN'));
});

t.test('patchRevision adds to what the same user has saved last', async (t) => {
  const { json } = await send('/versions', { key: 'patched', collection: 'articles', item: '1' });
  const { id } = (json as { data: Version }).data;
  const recorded = async () =>
    (await sql`select delta from service_revisions where version = ${id} order by id`).map((row) => row['delta']);
  await send(`/versions/${id}/save`, { title: 'a' });
  await send(`/versions/${id}/save?patchRevision=true`, { views: 1 });
  t.strictSame(await recorded(), [{ title: 'a', views: 1 }]);
  await send(`/versions/${id}/save?patchRevision=false`, { views: 2 });
  t.strictSame(await recorded(), [{ title: 'a', views: 1 }, { views: 2 }]);
  await send(`/versions/${id}/save?patchRevision=0`, { views: 4 });
  t.strictSame(await recorded(), [{ title: 'a', views: 1 }, { views: 2 }, { views: 4 }], 'written as a number');
  const editor = await makeCaller(sql, 'patcher', [
    {
      permissions: [
        { collection: 'service_versions', action: 'read' },
        { collection: 'service_versions', action: 'update' },
        { collection: 'articles', action: 'read' },
      ],
    },
  ]);
  await inForce(service, editor, '/items/articles');
  t.equal((await send(`/versions/${id}/save?patchRevision`, { views: 3 }, editor.token)).status, 200);
  t.strictSame((await recorded()).slice(2), [{ views: 4 }, { views: 3 }], 'not to those of another');
  t.equal((await sql`select from service_activity where action = 'version_save' and item = '1'`).length, 4);
});

t.test('of saves at the same time the later one adds to what the earlier one recorded', async (t) => {
  const { json } = await send('/versions', { key: 'crowded', collection: 'articles', item: '1' });
  const { id } = (json as { data: Version }).data;
  const holder = connectSql(url);
  const { saved } = await holder.begin(async (held) => {
    await held`select from service_versions where id = ${id} for update`;
    const saved = [{ title: 'one' }, { views: 2 }].map((each) => send(`/versions/${id}/save?patchRevision=true`, each));
    await waitFor(async () => {
      const [row] = await sql`
        select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return row?.['count'] === 2;
    }, 10_000);
    return { saved };
  });
  await holder.end();
  t.strictSame(
    (await Promise.all(saved)).map(({ status }) => status),
    [200, 200],
  );
  const recorded = await sql`select delta from service_revisions where version = ${id}`;
  t.strictSame(
    recorded.map((row) => row['delta']),
    [{ title: 'one', views: 2 }],
  );
});
