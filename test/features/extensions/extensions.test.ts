/** Extensions: hooks that change, refuse and follow writes, conditions on reads, and routes. */
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import type { Event } from '../../../src/base/observe.js';
import { packagePath } from '../../../src/base/package-files.js';
import type { ExtensionLogEvent } from '../../../src/features/extensions/log-events.js';
import {
  type AfterWriteContext,
  type BeforeWriteContext,
  createLateral,
  defineExtension,
  type Extension,
  type Lateral,
  LateralError,
  Refused,
} from '../../../src/index.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  runProgram,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(300_000);
const server = await startDatabase();
const ADMIN = { as: 'administrator' } as const;

const TABLES = `
  create table audit_log (id bigserial primary key, at timestamptz not null default now(), user_id uuid, collection text not null,
    item text, action text not null, changes jsonb);
  create table quotas (user_id uuid primary key, used integer not null default 0, allowed integer not null);
  create table notes (id serial primary key, text text, owner text, parent integer references notes (id));`;

interface Started {
  readonly lateral: Lateral;
  readonly sql: ReturnType<typeof connectSql>;
  readonly events: (Event | ExtensionLogEvent)[];
  readonly url: string;
}

async function start(name: string, extensions: readonly Extension[], options: object = {}): Promise<Started> {
  const url = await createLibrary(server, name);
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(TABLES).simple();
  const events: (Event | ExtensionLogEvent)[] = [];
  const given = {
    databaseUrl: url,
    port: 0,
    logLevel: 'silent',
    adminToken: ADMIN_TOKEN,
    extensionTimeout: '1s',
    ...options,
  };
  const lateral = createLateral(given, { extensions });
  lateral.on('log', (event) => events.push(event as Event));
  await lateral.start();
  t.teardown(() => lateral.stop());
  return { lateral, sql, events, url };
}

/** An answer whose parts the tests compare. */
// biome-ignore lint/suspicious/noExplicitAny: the types of answers are what the tests check.
type Json = any;

interface Rule {
  readonly collection: string;
  readonly action: string;
  readonly fields?: string;
  readonly permissions?: object | null;
  readonly validation?: object | null;
}

async function makeUser(lateral: Lateral, rules: readonly Rule[]): Promise<string> {
  const permissions = rules.map((rule) => ({ fields: '*', permissions: null, ...rule }));
  const policy = await lateral.items('service_policies', ADMIN).create({ name: 'p', permissions });
  const user = await lateral
    .items('service_users', ADMIN)
    .create({ email: `${randomUUID()}@example.com`, policies: [{ policy: policy?.['id'] }] });
  return String(user?.['id']);
}

async function errorOf(call: Promise<unknown>): Promise<LateralError> {
  const error = await call.then(
    () => new Error('it was answered'),
    (failure: unknown) => failure,
  );
  if (!(error instanceof LateralError)) throw error;
  return error;
}

async function send(
  lateral: Lateral,
  method: string,
  path: string,
  body?: unknown,
): Promise<{ status: number; json: Json }> {
  const made = new Request(`http://lateral${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const response = await lateral.fetch(made, ADMIN);
  const text = await response.text();
  return { status: response.status, json: text === '' ? null : JSON.parse(text) };
}

t.test('the examples: slugs, an audit table, a quota per user', async (t) => {
  const { lateral, sql } = await start('ext_examples', [], { extensions: packagePath('examples', 'extensions') });
  const articles = lateral.items('articles', ADMIN);
  const made = await articles.create(
    { title: 'Ein Früh-Stück!', author: { name: 'New' } },
    { fields: ['id', 'slug', 'author'] },
  );
  t.match(String(made?.['slug']), /^ein-fr/);
  t.equal((await articles.create({ title: 'Own', slug: 'mine' }, { fields: ['slug'] }))?.['slug'], 'mine');
  await articles.update(Number(made?.['id']), { title: 'Changed' });
  await articles.delete(Number(made?.['id']));
  const log = [
    ...(await sql`select collection, item, action, changes ->> 'title' as title from audit_log order by id`),
  ];
  t.strictSame(
    log
      .filter(({ item, collection }) => item === String(made?.['id']) && collection === 'articles')
      .map(({ action, title }) => [action, title]),
    [
      ['create', 'Ein Früh-Stück!'],
      ['update', 'Changed'],
      ['delete', null],
    ],
  );
  t.ok(
    log.some(({ collection, item }) => collection === 'authors' && item === String(made?.['author'])),
    'the key of a nested item',
  );
  const user = await makeUser(lateral, [{ collection: 'comments', action: 'create' }]);
  await sql`insert into quotas (user_id, allowed) values (${user}, 3)`;
  const comments = lateral.items('comments', { as: { user } });
  const outcomes = await Promise.allSettled(
    Array.from({ length: 8 }, (_, n) => comments.create({ body: `quota ${n}` })),
  );
  t.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 3);
  const refused = await errorOf(comments.create({ body: 'quota' }));
  t.match(refused, { status: 403, code: 'QUOTA_EXCEEDED', message: 'You may create 3 comments.' });
  t.strictSame([...(await sql`select count(*)::int from comments where body like 'quota%'`)], [{ count: 3 }]);
});

/** Marks each text that it is given, and notes its calls. */
function markingExtension(calls: BeforeWriteContext[]): Extension {
  return defineExtension({
    name: 'marks',
    beforeWrite: {
      comments: (context) => {
        calls.push({ ...context, payload: structuredClone(context.payload) });
        if (typeof context.payload['body'] === 'string') context.payload['body'] += '!';
      },
      tags: async (context) => {
        calls.push({ ...context, payload: structuredClone(context.payload) });
        await passTime(1, 'a hook may be asynchronous');
        return 'name' in context.payload ? { ...context.payload, name: `<${context.payload['name']}>` } : undefined;
      },
    },
  });
}

t.test('beforeWrite changes payloads, nested ones included, whatever the request', async (t) => {
  const calls: BeforeWriteContext[] = [];
  const { lateral, sql } = await start('ext_before', [markingExtension(calls)]);
  const [last] = await sql`select max(id) as id from comments`;
  const bodies = async (): Promise<string[]> =>
    (await sql`select body from comments where id > ${last?.['id']} order by id`).map(({ body }) => String(body));
  const taken = (): BeforeWriteContext[] => calls.splice(0);
  await send(lateral, 'POST', '/items/comments', { body: 'one' });
  await send(lateral, 'POST', '/items/comments', [{ body: 'two' }, { body: 'three' }]);
  t.strictSame(await bodies(), ['one!', 'two!', 'three!']);
  t.match(taken(), [
    { collection: 'comments', action: 'create', keys: [], attempt: 1, caller: { administrator: true, user: null } },
    {},
    {},
  ]);
  const nested = await send(lateral, 'POST', '/items/articles?fields=id,comments.id,comments.body,tags.tags_id.name', {
    title: 'Nested',
    comments: [{ body: 'four' }],
    tags: [{ tags_id: { name: 'new' } }],
  });
  t.strictSame(nested.json.data.comments[0].body, 'four!');
  t.strictSame(nested.json.data.tags, [{ tags_id: { name: '<new>' } }]);
  const [comment] = nested.json.data.comments;
  taken();
  await send(lateral, 'POST', '/items/articles', { title: 'Moved', comments: [{ id: comment.id }] });
  t.match(taken(), [{ collection: 'comments', action: 'upsert', keys: [comment.id] }], 'a key alone moves the item');
  await send(lateral, 'PATCH', `/items/articles/${nested.json.data.id}`, { comments: [{ id: comment.id }] });
  taken();
  const changed = await send(lateral, 'PATCH', `/items/articles/${nested.json.data.id}?fields=comments.body`, {
    comments: { create: [{ body: 'five' }], update: [{ id: comment.id, body: 'six' }], delete: [] },
  });
  t.strictSame(changed.json.data.comments.map(({ body }: { body: string }) => body).sort(), ['five!', 'six!']);
  t.match(taken(), [{ action: 'create' }, { action: 'update', keys: [comment.id] }]);
  await send(lateral, 'PATCH', `/items/articles/${nested.json.data.id}`, {
    comments: [{ id: comment.id, body: 'seven' }],
  });
  t.match(taken(), [
    { action: 'unlink', keys: [] },
    { action: 'upsert', keys: [comment.id] },
  ]);
  await send(lateral, 'PATCH', '/items/comments', {
    query: { filter: { body: { _eq: 'seven!' } } },
    data: { body: 'eight' },
  });
  t.match(taken(), [{ action: 'update', keys: [comment.id], payload: { body: 'eight' } }]);
  await send(lateral, 'PATCH', '/items/comments', [{ id: comment.id, body: 'nine' }]);
  await send(lateral, 'PATCH', `/items/comments/${comment.id}`, { body: 'ten' });
  t.strictSame([...(await sql`select body from comments where id = ${comment.id}`)], [{ body: 'ten!' }]);
  const upserted = await send(lateral, 'POST', '/items/tags?on_conflict=id&resolution=merge', {
    id: 1,
    name: 'merged',
  });
  t.equal(upserted.json.data.name, '<merged>');
  t.match(taken().at(-1), { collection: 'tags', action: 'upsert' });
  const operations = [
    { method: 'POST', path: '/items/comments', body: { body: 'eleven' } },
    { method: 'PATCH', path: '/items/comments', key: { $ref: '0' }, body: { body: 'twelve' } },
  ];
  const transaction = await send(lateral, 'POST', '/transactions', { operations });
  t.equal(transaction.json.data[1].data.body, 'twelve!');
  const mutation =
    'mutation { create_comments_item(data: { body: "thirteen" }) { body } update_tags_item(id: 2, data: { name: "x" }) { name } }';
  t.strictSame(await lateral.graphql(mutation, {}, ADMIN), {
    create_comments_item: { body: 'thirteen!' },
    update_tags_item: { name: '<x>' },
  });
  const form = new FormData();
  form.append('file', new Blob(['[{"body":"fourteen"},{"body":"fifteen"}]'], { type: 'application/json' }), 'a.json');
  const imported = await lateral.fetch(
    new Request('http://lateral/utils/import/comments', { method: 'POST', body: form }),
    ADMIN,
  );
  t.ok(imported.ok, `${imported.status}`);
  t.strictSame((await bodies()).slice(-2), ['fourteen!', 'fifteen!']);
  taken();
  await send(lateral, 'DELETE', '/items/comments', { query: { filter: { body: { _eq: 'fifteen!' } } } });
  t.match(taken(), [{ action: 'delete', payload: {}, keys: [Number] }]);
  await send(lateral, 'PATCH', '/items/articles/1', { views: 5 });
  await send(lateral, 'POST', '/items/authors', { name: 'No hook' });
  t.strictSame(taken(), [], 'other collections call no hook');
  const same = await send(lateral, 'POST', '/items/comments', { body: 'x', article: 1 });
  t.equal(same.status, 200);
});

t.test('hooks that follow a commit may continue without end', async (t) => {
  const steps: number[] = [];
  const chain = defineExtension({
    name: 'chain',
    afterCommit: {
      notes: async ({ api, payload }) => {
        const step = steps.push(Number(payload['text']));
        if (step < 30) await api.items('notes', ADMIN).create({ text: String(step) });
      },
    },
  });
  const { lateral } = await start('ext_chain', [chain]);
  await lateral.items('notes', ADMIN).create({ text: '0' });
  await waitFor(async () => steps.length === 30, 10_000);
  t.strictSame(
    steps,
    Array.from({ length: 30 }, (_, step) => step),
  );
});

t.test('late hooks that trigger themselves by the API end', async (t) => {
  let calls = 0;
  const self = defineExtension({
    name: 'self',
    afterWrite: {
      notes: async () => {
        calls++;
        await lateral.items('notes', ADMIN).create({ text: 'again' });
      },
    },
  });
  // Each of them holds a connection, so the next ones wait until these are late.
  const { lateral, sql, events } = await start('ext_late', [self]);
  const refused = await lateral
    .items('notes', ADMIN)
    .create({ text: 'first' })
    .catch((error: unknown) => error);
  t.match(refused, { status: 503 });
  const isFound = (): boolean =>
    events.some((event) => 'error' in event && /triggers itself/.test(String(event.error)));
  await waitFor(async () => isFound(), 20_000);
  await lateral.items('tags', ADMIN).create({ name: 'afterwards' });
  t.equal(calls, 20);
  t.match([...(await sql`select count(*)::int from notes`)], [{ count: 0 }]);
});

t.test('a hook refuses with its own status; any other error, and a hook that hangs, is a 503 in the log', async (t) => {
  let mode = 'none';
  const extension = defineExtension({
    name: 'moody',
    collections: ['notes'],
    beforeWrite: async ({ tx, payload }) => {
      if (mode === 'write first') await tx.items('tags', ADMIN).create({ name: 'by the hook' });
      if (mode === 'refuse' || mode === 'write first') throw new Refused(409, 'TAKEN', 'It is taken.');
      if (mode === 'status') throw Object.assign(new Error('A teapot.'), { status: 418 });
      if (mode === 'throw') throw new Error('the secret reason');
      if (mode === 'status 500') throw Object.assign(new Error('the secret reason'), { status: 500 });
      if (mode === 'hang') await new Promise(() => {});
      if (mode === 'odd') return 'a text';
      if (mode === 'instance') return { text: new Map() };
      if (mode === 'self') await tx.items('notes', ADMIN).create({ text: 'again' });
      if (mode === 'self by the API') await lateral.items('notes', ADMIN).create({ text: 'again' });
      if (mode === 'without hooks') await tx.items('notes', { ...ADMIN, hooks: false }).create({ text: 'again' });
      if (mode === 'caught')
        await tx
          .items('authors', ADMIN)
          .create({ name: 'x', email: 'ada@example.com' })
          .catch(() => {});
      if (mode === 'not awaited') void tx.items('authors', ADMIN).create({ name: 'x', email: 'ada@example.com' });
      if (mode === 'late')
        void passTime(50, 'the hook has ended then')
          .then(() => tx.items('tags', ADMIN).create({ name: 'late' }))
          .catch(() => {});
      return payload;
    },
  });
  const misspelt = defineExtension({ name: 'misspelt', beforeRead: { artcles: () => ({}) } });
  const { lateral, sql, events } = await start('ext_errors', [extension, misspelt]);
  t.match(
    events.filter(({ kind }) => kind === 'extension-unmatched'),
    [{ extension: 'misspelt', collection: 'artcles', hint: ' Did you mean "articles"?' }],
    'a hook without a collection is reported',
  );
  const notes = lateral.items('notes', ADMIN);
  const count = async (): Promise<number> =>
    Number(
      (await sql`select (select count(*) from notes) + (select count(*) from tags where id > 10)::int as n`)[0]?.['n'],
    );
  const before = await count();
  const attempt = async (next: string): Promise<LateralError> => {
    mode = next;
    return errorOf(notes.create({ text: 'x' }));
  };
  t.match(await attempt('refuse'), { status: 409, code: 'TAKEN', message: 'It is taken.' });
  t.match(await attempt('write first'), { status: 409 });
  t.match(await attempt('status'), { status: 418, code: 'REFUSED', message: 'A teapot.' });
  for (const next of ['throw', 'status 500', 'hang', 'odd', 'instance', 'self']) {
    events.length = 0;
    const error = await attempt(next);
    t.match(error, { status: 503, code: 'SERVICE_UNAVAILABLE' }, next);
    t.notMatch(error.message, /secret/);
    t.match(
      events.filter(({ kind }) => kind === 'extension-failed'),
      [{ extension: 'moody', hook: 'beforeWrite', collection: 'notes' }],
      next,
    );
  }
  const logged = JSON.stringify(events.map((event) => ('error' in event ? String(event.error) : '')));
  t.match(logged, /triggers itself/);
  events.length = 0;
  t.match(await attempt('self by the API'), { status: 503, code: 'SERVICE_UNAVAILABLE' });
  t.match(String(events.map((event) => ('error' in event ? event.error : ''))), /it triggers itself: 20 hooks/);
  t.equal(await count(), before, 'nothing was written');
  mode = 'without hooks';
  await notes.create({ text: 'x' });
  mode = 'caught';
  await notes.create({ text: 'x' });
  t.match(await attempt('not awaited'), { status: 400, code: 'FAILED_VALIDATION' }, 'nothing is lost silently');
  mode = 'late';
  await notes.create({ text: 'x' });
  await passTime(100, 'the late call must write nothing');
  t.equal(await count(), before + 4, 'a call after the end of its hook writes nothing');
  mode = 'refuse';
  const graphql = await errorOf(
    lateral.graphql('mutation { create_notes_item(data: { text: "x" }) { id } }', {}, ADMIN),
  );
  t.equal(graphql.code, 'TAKEN');
  const step = await send(lateral, 'POST', '/transactions', {
    operations: [{ method: 'POST', path: '/items/notes', body: { text: 'x' } }],
  });
  t.match(step, { status: 409, json: { errors: [{ extensions: { code: 'TAKEN', operation: 0 } }] } });
});

t.test('afterWrite is a part of the transaction, afterCommit follows it', async (t) => {
  const after: Omit<AfterWriteContext, 'tx'>[] = [];
  const committed: string[] = [];
  let refuses = false;
  const extension = defineExtension({
    name: 'followers',
    collections: ['articles', 'comments', 'tags', 'notes'],
    afterWrite: async ({ tx, ...context }) => {
      after.push(context);
      const { collection, keys } = context;
      const [key] = keys;
      if (collection === 'comments' && key !== undefined && context.action !== 'delete') {
        const item = await tx.items('comments', ADMIN).readOne(key);
        await tx.items('audit_log', ADMIN).create({ collection, item: String(key), action: String(item['body']) });
        await tx.items('authors', ADMIN).create({ name: 'made by the hook' });
      }
      if (refuses) throw new Refused(400, 'NO', 'No.');
    },
    afterCommit: async ({ api, collection, keys }) => {
      const found = await api.items(collection, ADMIN).read({ filter: { id: { _in: keys } }, fields: ['id'] });
      committed.push(`${collection} ${found.length}`);
      throw new Error('nobody minds');
    },
  });
  const { lateral, sql, events } = await start('ext_after', [extension]);
  const made = await send(lateral, 'POST', '/items/articles?fields=id,title,comments.id', [
    { title: 'A', comments: [{ body: 'a' }, { body: 'b' }] },
    { title: 'B', comments: [{ body: 'c' }] },
  ]);
  t.strictSame(
    made.json.data.map(({ title }: { title: string }) => title),
    ['A', 'B'],
    'the answer has the items of the request',
  );
  const keysOf = (name: string): unknown[] =>
    after
      .filter(({ collection }) => collection === name)
      .flatMap(({ keys }) => keys)
      .sort();
  const ids = made.json.data.map(({ id }: { id: number }) => id);
  t.strictSame(keysOf('articles'), ids);
  t.strictSame(
    keysOf('comments'),
    made.json.data.flatMap(({ comments }: Json) => comments.map(({ id }: Json) => id)).sort(),
  );
  t.strictSame(
    (await sql`select action from audit_log order by id`).map(({ action }) => action),
    ['a', 'b', 'c'],
  );
  await waitFor(async () => committed.length === 5, 5_000);
  t.strictSame([...new Set(committed)].sort(), ['articles 1', 'comments 1'], 'the rows are visible to others');
  t.ok(events.some((event) => event.kind === 'extension-failed' && event.hook === 'afterCommit'));
  refuses = true;
  after.length = 0;
  for (const [method, path, body] of [
    ['POST', '/items/articles', { title: 'Never', comments: [{ body: 'never' }] }],
    ['PATCH', `/items/articles/${ids[0]}`, { title: 'Never' }],
    ['DELETE', `/items/articles/${ids[0]}`],
    ['DELETE', '/items/comments', [1, 2]],
  ] as const)
    t.equal((await send(lateral, method, path, body)).status, 400, `${method} ${path}`);
  t.match(after.at(-1), { action: 'delete', keys: [1, 2] });
  t.strictSame([...(await sql`select count(*)::int from articles where title = 'Never'`)], [{ count: 0 }]);
  t.strictSame([...(await sql`select count(*)::int from comments where id in (1, 2)`)], [{ count: 2 }]);
  refuses = false;
  const key = { 'idempotency-key': 'once', 'content-type': 'application/json' };
  const once = (): Promise<Response> =>
    lateral.fetch(
      new Request('http://lateral/items/comments?fields=id', { method: 'POST', headers: key, body: '{"body":"once"}' }),
      ADMIN,
    );
  t.equal(await (await once()).text(), await (await once()).text(), 'an idempotent write runs once');
});

t.test('a retry calls the hooks again, and says so', async (t) => {
  const attempts: number[] = [];
  const extension = defineExtension({
    name: 'patient',
    beforeWrite: {
      notes: ({ attempt, payload }) => {
        attempts.push(attempt);
        payload['owner'] = `attempt ${attempt}`;
      },
    },
  });
  const { lateral, sql } = await start('ext_retry', [extension]);
  await sql
    .unsafe(`create sequence tries; create function busy() returns trigger language plpgsql as $$ begin
    if nextval('tries') < 3 then raise serialization_failure; end if; return new; end $$;
    create trigger busy before insert on notes for each row execute function busy()`)
    .simple();
  await waitFor(
    async () => (await send(lateral, 'POST', '/items/notes?fields=owner', { text: 'x' })).status === 200,
    5_000,
  );
  t.strictSame(attempts.slice(0, 3), [1, 2, 3]);
  t.match([...(await sql`select owner from notes order by id limit 1`)], [{ owner: 'attempt 3' }]);
});

t.test('a hook cannot give a caller more than their rights', async (t) => {
  let called = 0;
  let payloadOf: (payload: object) => object = (payload) => payload;
  const extension = defineExtension({
    name: 'generous',
    collections: ['notes', 'comments'],
    beforeWrite: ({ payload }) => {
      called++;
      return payloadOf(payload);
    },
  });
  const { lateral, sql } = await start('ext_rights', [extension]);
  const user = await makeUser(lateral, [
    { collection: 'notes', action: 'create', fields: 'id,text', validation: { text: { _neq: 'forbidden' } } },
    { collection: 'notes', action: 'update', fields: 'text', permissions: { owner: { _eq: 'me' } } },
    { collection: 'notes', action: 'read', fields: 'id,text' },
  ]);
  const notes = lateral.items('notes', { as: { user } });
  t.equal((await errorOf(lateral.items('comments', { as: { user } }).create({ body: 'x' }))).status, 403);
  t.equal((await errorOf(notes.delete(1))).status, 403);
  t.equal(called, 0, 'without the right for the action no hook is called');
  t.ok(await notes.create({ text: 'fine' }));
  payloadOf = (payload) => ({ ...payload, owner: 'me' });
  t.equal((await errorOf(notes.create({ text: 'x' }))).status, 403, 'a field that the caller may not write');
  payloadOf = () => ({ text: 'forbidden' });
  t.equal((await errorOf(notes.create({ text: 'x' }))).status, 400, 'a value that a validation refuses');
  payloadOf = (payload) => ({ ...payload, parent: { owner: 'x' } });
  t.equal((await errorOf(notes.create({ text: 'x' }))).status, 403, 'a nested item with it');
  payloadOf = () => ({ nope: 1 });
  t.equal((await errorOf(notes.create({ text: 'x' }))).status, 403);
  const [other] = await sql`insert into notes (text, owner) values ('of another', 'you') returning id`;
  payloadOf = (payload) => ({ ...payload, id: other?.['id'] });
  t.equal((await errorOf(notes.update(Number(other?.['id']), { text: 'mine now' }))).status, 403, 'a row of another');
  const [own] = await sql`insert into notes (text, owner) values ('own', 'me') returning id`;
  payloadOf = (payload) => payload;
  t.equal((await notes.update(Number(own?.['id']), { text: 'changed' }))?.['text'], 'changed');
  t.strictSame([...(await sql`select text from notes where id = ${other?.['id']}`)], [{ text: 'of another' }]);
});

t.test('beforeRead adds conditions to every read of its collection', async (t) => {
  let condition: unknown = { status: { _eq: 'published' } };
  const asked: string[] = [];
  const extension = defineExtension({
    name: 'conditions',
    beforeRead: {
      articles: ({ caller, query, collection }) => {
        asked.push(`${collection} ${query.collections.join()} ${caller.administrator}`);
        return condition as object;
      },
    },
  });
  const { lateral, sql } = await start('ext_read', [extension], { readCacheSize: 0 });
  const published = (await sql`select id from articles where status = 'published' order by id`).map(({ id }) =>
    Number(id),
  );
  const user = await makeUser(lateral, [
    { collection: 'articles', action: 'read', permissions: { id: { _lt: 9 } } },
    { collection: 'articles', action: 'update' },
    { collection: 'authors', action: 'read' },
    { collection: 'comments', action: 'read' },
  ]);
  for (const as of ['administrator', { user }] as const) {
    const articles = lateral.items<{ id: number }>('articles', { as });
    const visible = as === 'administrator' ? published : published.filter((id) => id < 9);
    t.strictSame(
      (await articles.read({ fields: ['id'], sort: ['id'], limit: -1 })).map(({ id }) => id),
      visible,
    );
    t.equal((await errorOf(articles.readOne(3))).status, 403);
    t.equal((await articles.readOne(1)).id, 1);
    t.strictSame(await articles.read({ aggregate: { count: '*' } }), [{ count: visible.length }]);
    const comments = await lateral
      .items<{ article: { id: number } | null }>('comments', { as })
      .read({ fields: ['article.id'], limit: -1 });
    t.ok(
      comments.every(({ article }) => article === null || visible.includes(article.id)),
      'nested items',
    );
    const authors = lateral.items('authors', { as });
    t.strictSame(await authors.read({ fields: ['id'], filter: { id: { _in: [1] } } }), [{ id: 1 }]);
    const { articles: listed } = await lateral.graphql<{ articles: { id: string | number }[] }>(
      '{ articles(limit: 50, sort: ["id"]) { id } }',
      {},
      { as },
    );
    t.strictSame(
      listed.map(({ id }) => Number(id)),
      visible,
    );
    const updated = await articles.updateMany(
      { query: { filter: { id: { _in: [1, 3] } } } },
      { views: 77 },
      { fields: ['id'] },
    );
    t.strictSame(updated, [{ id: 1 }], 'a query selects what the caller may read');
  }
  const hidden = await lateral.items('comments', ADMIN).read({ filter: { article: { status: { _eq: 'draft' } } } });
  t.strictSame(hidden, [], 'filters find nothing in hidden rows');
  asked.length = 0;
  await lateral.items('authors', ADMIN).read({ fields: ['id'] });
  await lateral.items('tags', ADMIN).read();
  t.strictSame(asked, [], 'reads without the collection ask nobody');
  condition = { id: { _eq: '$CURRENT_USER' }, nope: { _eq: 1 } };
  t.equal(
    (await errorOf(lateral.items('articles', ADMIN).read())).status,
    403,
    'a condition that does not fit shows nothing',
  );
  condition = { _nope: [] };
  t.equal((await errorOf(lateral.items('articles', ADMIN).read())).status, 503);
  condition = undefined;
  t.equal((await lateral.items('articles', ADMIN).read({ limit: -1 })).length, 10, 'no condition');
  const events = await lateral.fetch(
    new Request('http://lateral/items/articles', { headers: { accept: 'text/event-stream' } }),
    ADMIN,
  );
  t.match(await events.text(), /FORBIDDEN/, 'live queries are refused');
});

t.test('routes below /ext have a caller, checked input, the API and a place in OpenAPI', async (t) => {
  let cancelled = 0;
  const cancel = (): void => void cancelled++;
  const drip = async (controller: ReadableStreamDefaultController): Promise<void> => {
    await passTime(20, 'a body that never ends');
    controller.enqueue(Buffer.from('drop '));
  };
  const breakOff = (): never => {
    throw new Error('the secret reason');
  };
  const extension = defineExtension({
    name: 'shop',
    routes: (router) => {
      const body = {
        type: 'object',
        properties: { count: { type: 'integer', minimum: 1 } },
        required: ['count'],
        additionalProperties: false,
      };
      router.post<{ count: number }>(
        '/orders/:id',
        { summary: 'Order', body, answer: { type: 'object' } },
        async (request) => ({
          id: request.parameters['id'],
          count: request.body.count,
          page: request.query.get('page'),
          user: request.caller.user,
          seen: (await request.api.items('articles', { as: 'caller' }).read({ fields: ['id'], limit: -1 })).length,
        }),
      );
      router.get(
        '/open',
        { allow: 'anyone' },
        () => new Response('plain', { status: 202, headers: { 'x-own': 'yes' } }),
      );
      router.get('/admin', { allow: 'administrators' }, () => undefined);
      router.get('/cookies', { allow: 'anyone' }, () => {
        const headers = new Headers({ 'content-type': 'text/plain', vary: 'cookie' });
        for (const cookie of ['a=1; Path=/', 'b=2; Expires=Thu, 01 Jan 2099 00:00:00 GMT'])
          headers.append('set-cookie', cookie);
        return new Response('two', { headers });
      });
      router.get('/endless', { allow: 'anyone' }, () => new Response(new ReadableStream({ cancel, pull: () => {} })));
      router.get('/dripping', { allow: 'anyone' }, () => new Response(new ReadableStream({ cancel, pull: drip })));
      router.get('/broken', { allow: 'anyone' }, () => new Response(new ReadableStream({ pull: breakOff })));
      router.get('/circular', { allow: 'anyone' }, () => {
        const value: { self?: unknown } = {};
        value.self = value;
        return value;
      });
      router.get('/hang', { allow: 'anyone' }, () => new Promise(() => {}));
      router.get('/refuse', { allow: 'anyone' }, () => {
        throw new Refused(402, 'PAY', 'Pay first.');
      });
    },
  });
  const { lateral, events } = await start('ext_routes', [extension]);
  const user = await makeUser(lateral, [{ collection: 'articles', action: 'read', permissions: { id: { _lte: 4 } } }]);
  const call = async (
    method: string,
    path: string,
    as: 'public' | 'administrator' | { user: string },
    body?: object,
  ) => {
    const headers = { 'content-type': 'application/json' };
    const response = await lateral.fetch(
      new Request(`http://lateral/ext/shop${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) }),
      { as },
    );
    return { status: response.status, own: response.headers.get('x-own'), text: await response.text() };
  };
  const ordered = await call('POST', '/orders/a%20b?page=2', { user }, { count: 3 });
  t.strictSame(JSON.parse(ordered.text), { data: { id: 'a b', count: 3, page: '2', user, seen: 4 } });
  t.match(await call('POST', '/orders/1', { user }, { count: 0 }), { status: 400, text: /must be at least 1/ });
  t.match(await call('POST', '/orders/1', { user }, { count: 1, more: 1 }), { status: 400, text: /not allowed/ });
  t.match(await call('POST', '/orders/1', { user }), { status: 400 });
  t.equal((await call('POST', '/orders/1', 'public', { count: 1 })).status, 401);
  t.match(await call('GET', '/open', 'public'), { status: 202, own: 'yes', text: 'plain' });
  t.equal((await call('GET', '/admin', { user })).status, 403);
  t.equal((await call('GET', '/admin', 'administrator')).status, 204);
  const cookies = await lateral.fetch(new Request('http://lateral/ext/shop/cookies'), { as: 'public' });
  t.strictSame(cookies.headers.getSetCookie(), ['a=1; Path=/', 'b=2; Expires=Thu, 01 Jan 2099 00:00:00 GMT']);
  t.strictSame(await cookies.text(), 'two');
  const overPort = await request(lateral, 'GET', '/ext/shop/cookies');
  t.equal(overPort.headers['set-cookie']?.length, 2);
  const bodies = await Promise.all(
    ['/endless', '/dripping', '/broken', '/circular'].map((path) => call('GET', path, 'public')),
  );
  for (const { status, text } of bodies) {
    t.equal(status, 503);
    t.notMatch(text, /secret/);
  }
  t.ok(events.some((event) => event.kind === 'extension-failed' && event.hook === 'GET /ext/shop/dripping'));
  await waitFor(async () => cancelled > 0, 5_000);
  t.equal((await call('GET', '/hang', 'public')).status, 503);
  t.ok(events.some((event) => event.kind === 'extension-failed' && event.hook === 'GET /ext/shop/hang'));
  t.match(await call('GET', '/refuse', 'public'), { status: 402, text: /"code":"PAY"/ });
  t.equal((await call('GET', '/nothing', 'administrator')).status, 404);
  const document = await send(lateral, 'GET', '/server/specs/oas');
  t.match(document.json.paths['/ext/shop/orders/{id}']?.post, { summary: 'Order', requestBody: {} });
});

t.test('modules are loaded from files, and a wrong one stops the start', async (t) => {
  const url = await createLibrary(server, 'ext_modules');
  const folder = await makeFolder();
  const refusal = async (files: Record<string, string>, entry?: string): Promise<string> => {
    const own = await makeFolder();
    for (const [name, text] of Object.entries(files)) await writeFile(join(own, name), text);
    const lateral = createLateral({ databaseUrl: url, logLevel: 'silent', extensions: entry ?? own });
    return lateral.start({ listen: false }).then(
      async () => {
        await lateral.stop();
        return 'it started';
      },
      (error: Error) => error.message,
    );
  };
  t.match(await refusal({}), /has no modules/);
  t.match(await refusal({}, './no-such-file'), /neither a file, nor a folder, nor an installed package/);
  t.match(await refusal({ 'a.mjs': 'export const x = 1;' }), /no default export/);
  t.match(await refusal({ 'a.mjs': 'export default {' }), /could not be loaded/);
  t.match(await refusal({ 'a.mjs': 'export default { name: "A b" }' }), /lower-case letters/);
  t.match(
    await refusal({ 'a.mjs': 'export default { name: "a", beforeWrites: () => {} }' }),
    /unknown property "beforeWrites". Did you mean "beforeWrite"\?/,
  );
  t.match(await refusal({ 'a.mjs': 'export default { name: "a", beforeWrite: 7 }' }), /must be a function/);
  t.match(
    await refusal({ 'a.mjs': 'export default { name: "a" }', 'b.mjs': 'export default { name: "a" }' }),
    /two extensions/,
  );
  t.match(
    await refusal({ 'a.mjs': 'export default { name: "a", start() { throw new Error("no luck") } }' }),
    /did not start: no luck/,
  );
  t.match(
    await refusal({ 'a.mjs': 'export default { name: "a", routes: (r) => r.get("/X", {}, () => 1) }' }),
    /must look like/,
  );
  const typed = await refusal({ 'a.mts': 'const name: string = "a"; export default { name };' });
  t.match(typed, 'typescript' in process.features ? /it started/ : /TypeScript, which Node .* does not run/);
  const source = (text: string): string =>
    `export default { name: "reloaded", beforeWrite: { tags: ({ payload }) => { payload.name = ${JSON.stringify(text)}; } } };`;
  const file = join(folder, 'reloaded.mjs');
  await writeFile(file, source('first'));
  const lateral = createLateral({ databaseUrl: url, logLevel: 'silent', extensions: file, extensionsAutoReload: true });
  await lateral.start({ listen: false });
  t.teardown(() => lateral.stop());
  const tags = lateral.items<{ name: string }>('tags', ADMIN);
  t.equal((await tags.create({ name: 'x' }))?.name, 'first');
  await writeFile(file, source('second'));
  await waitFor(async () => (await tags.create({ name: 'x' }))?.name === 'second', 10_000);
  const authors = lateral.items('authors', ADMIN);
  for (const name of ['one', 'two']) await authors.create({ name });
  const follows = `export default { name: "reloaded", afterWrite: { authors: () => { throw { status: 418 }; } } };`;
  await writeFile(file, follows);
  const isFollowed = (): Promise<boolean> =>
    authors.create({ name: 'three' }).then(
      () => false,
      ({ status }: LateralError) => status === 418,
    );
  await waitFor(isFollowed, 10_000);
});

t.test('worker threads and the command "import" call the hooks of modules', async (t) => {
  const databaseUrl = await createLibrary(server, 'ext_workers');
  await withSql(databaseUrl, (sql) => sql.unsafe(TABLES).simple());
  const EXTENSIONS = packagePath('examples', 'extensions');
  const file = join(await makeFolder(), 'articles.json');
  await writeFile(file, '[{"title":"From a File"}]');
  const imported = await runProgram(['import', file], { DATABASE_URL: databaseUrl, EXTENSIONS });
  t.match(imported, { code: 0, output: /1 row imported/ });
  const service = await startTestService({ databaseUrl, WORKERS: '2', EXTENSIONS });
  const answer = await request(service, 'POST', '/items/articles?fields=slug', {
    headers: { 'content-type': 'application/json' },
    body: '{"title":"From a Thread"}',
  });
  t.strictSame(answer.json, { data: { slug: 'from-a-thread' } });
  const logged = await withSql(
    databaseUrl,
    (sql) => sql`select action, changes ->> 'slug' as slug from audit_log order by id`,
  );
  t.strictSame(
    [...logged],
    [
      { action: 'create', slug: 'from-a-file' },
      { action: 'create', slug: 'from-a-thread' },
    ],
  );
});

t.test('"Prefer: explain" says that a read with conditions of an extension is not kept', async (t) => {
  const extension = defineExtension({ name: 'reader', beforeRead: { articles: () => undefined } });
  const { lateral } = await start('ext_explain', [extension], { readCacheSize: '16mb' });
  const explain = async (path: string): Promise<unknown> =>
    JSON.parse((await request(lateral, 'GET', path, { headers: { prefer: 'explain' } })).text).data.cache;
  const reason = 'an extension may add conditions to reads of "articles" (beforeRead)';
  t.strictSame(await explain('/items/articles/1'), { kept: false, reason });
  t.strictSame(await explain('/items/comments?fields=id,article.title'), { kept: false, reason });
  await waitFor(async () => JSON.stringify(await explain('/items/tags')) === '{"kept":true,"reason":null}', 5_000);
});
