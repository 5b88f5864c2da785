/**
 * Random writes with hooks against an oracle: the same service without hooks, which gets the payloads as hooks would return them, changed
 * by hand. EXTENSION_WRITES and EXTENSION_KILLS make it longer.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { createLateral, defineExtension, type Extension, type Lateral, Refused } from '../../../src/index.js';
import { ADMIN_TOKEN, connectSql, createLibrary, type Sql, startDatabase, waitFor } from '../../support/service.js';

const WRITES = Number(process.env['EXTENSION_WRITES'] ?? 80);
const KILLS = Number(process.env['EXTENSION_KILLS'] ?? 6);
const given = process.env['PROPERTY_SEED'] ?? '42';
const SEED = given === 'random' ? Math.floor(Math.random() * 1_000_000) : Number(given);
t.setTimeout(120_000 + WRITES * 200 + KILLS * 2_000);
t.comment(`EXTENSION_WRITES=${WRITES} EXTENSION_KILLS=${KILLS} seed ${SEED}`);
const server = await startDatabase();
const ADMIN = { as: 'administrator' } as const;

type Payload = Record<string, unknown>;

let state = SEED;
function random(count: number): number {
  state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
  return Math.floor((state / 2_147_483_648) * count);
}
function pick<Value>(...values: Value[]): Value {
  return values[random(values.length)] as Value;
}

async function open(name: string, extensions: readonly Extension[]): Promise<{ lateral: Lateral; sql: Sql }> {
  const databaseUrl = await createLibrary(server, name);
  const options = { databaseUrl, logLevel: 'silent', adminToken: ADMIN_TOKEN, extensionTimeout: 400 };
  const lateral = createLateral({ ...options, databaseWritePoolSize: 4, databaseWaitTimeout: '5s' }, { extensions });
  await lateral.start({ listen: false });
  t.teardown(() => lateral.stop());
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  return { lateral, sql };
}

/** What the hooks make of a payload. They depend on its action, so that a wrong one is found. */
const CHANGES: Readonly<Record<string, (payload: Payload, action: string) => Payload>> = {
  articles: (payload, action) => ({
    ...payload,
    ...('title' in payload && { title: `${payload['title']}/${action}` }),
    ...(action === 'create' && { slug: `slug of ${payload['title']}` }),
  }),
  comments: (payload, action) => ({
    ...payload,
    ...(action !== 'unlink' && action !== 'delete' && { body: `${payload['body'] ?? ''}:${action}` }),
  }),
  tags: (payload) => ('name' in payload ? { ...payload, name: `<${payload['name']}>` } : payload),
};

const marking = defineExtension({
  name: 'marking',
  beforeWrite: Object.fromEntries(
    Object.entries(CHANGES).map(([name, change]) => [
      name,
      // Some hooks change the payload, others return one.
      ({ payload, action }: { payload: Payload; action: string }) => {
        const changed = change(payload, action);
        if (name !== 'comments') return changed;
        Object.assign(payload, changed);
        return undefined;
      },
    ]),
  ),
});

/** The relations of the library, written down again. */
const NESTED: Readonly<Record<string, Readonly<Record<string, { to: string; many: boolean }>>>> = {
  articles: {
    author: { to: 'authors', many: false },
    comments: { to: 'comments', many: true },
    tags: { to: 'articles_tags', many: true },
  },
  comments: { author: { to: 'authors', many: false }, article: { to: 'articles', many: false } },
  articles_tags: { tags_id: { to: 'tags', many: false } },
  authors: { articles: { to: 'articles', many: true } },
};

function isPayload(value: unknown): value is Payload {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function byHand(collection: string, payload: Payload, action: string): Payload {
  const changed = CHANGES[collection]?.(payload, action) ?? payload;
  const result: Payload = { ...changed };
  for (const [name, { to, many }] of Object.entries(NESTED[collection] ?? {})) {
    const value = changed[name];
    const one = (entry: unknown): unknown => {
      if (!isPayload(entry)) return entry;
      if (entry['id'] === undefined) return byHand(to, entry, 'create');
      return { ...byHand(to, entry, 'upsert'), id: entry['id'] };
    };
    if (Array.isArray(value) && many)
      result[name] = value.map((entry: unknown) => {
        if (isPayload(entry)) return one(entry);
        const linked = byHand(to, {}, 'update');
        return Object.keys(linked).length === 0 ? entry : { ...linked, id: entry };
      });
    else if (isPayload(value) && many) {
      const { create, update, ...others } = value;
      result[name] = {
        ...others,
        ...(Array.isArray(create) && { create: create.map((each: Payload) => byHand(to, each, 'create')) }),
        ...(Array.isArray(update) && {
          update: update.map((each: Payload) => ({ ...byHand(to, each, 'update'), id: each['id'] })),
        }),
      };
    } else if (isPayload(value)) result[name] = one(value);
  }
  return result;
}

let names = 0;
function text(): string {
  return `text ${++names}`;
}

function randomPayload(collection: string, depth: number): Payload {
  const nested = depth < 3;
  const list = (make: () => unknown): unknown[] => Array.from({ length: random(3) }, make);
  switch (collection) {
    case 'articles':
      return {
        title: text(),
        ...(random(3) === 0 && { views: random(100) }),
        ...(random(6) === 0 && { nope: 1 }),
        ...(nested &&
          random(2) === 0 && {
            author: pick<unknown>(null, 1 + random(5), randomPayload('authors', depth + 1), {
              id: 1 + random(7),
              bio: text(),
            }),
          }),
        ...(nested && random(2) === 0 && { comments: randomChildren('comments', depth) }),
        ...(nested &&
          random(3) === 0 && {
            tags: list(() => ({
              tags_id: pick<unknown>(1 + random(3), { name: text() }, { id: 1 + random(9), name: text() }),
            })),
          }),
      };
    case 'authors':
      return {
        name: text(),
        ...(random(5) === 0 && { email: pick('ada@example.com', `${randomUUID()}@example.com`) }),
        ...(nested && random(3) === 0 && { articles: list(() => randomPayload('articles', depth + 1)) }),
      };
    default:
      return {
        body: text(),
        ...(nested && random(4) === 0 && { author: pick<unknown>(2, randomPayload('authors', depth + 1)) }),
      };
  }
}

function randomChildren(collection: string, depth: number): unknown {
  const children = (): Payload[] => Array.from({ length: random(3) }, () => randomPayload(collection, depth + 1));
  const keyed = (): Payload => ({ id: 1 + random(12), body: text() });
  if (random(2) === 0)
    return [...children(), ...(random(2) === 0 ? [keyed()] : []), ...(random(3) === 0 ? [1 + random(9)] : [])];
  return {
    create: children(),
    update: random(2) === 0 ? [keyed()] : [],
    delete: random(3) === 0 ? [1 + random(12)] : [],
  };
}

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
}

/** The request, and the one that the oracle gets. */
function randomWrite(): readonly [Sent, Sent] {
  const collection = pick('articles', 'articles', 'comments', 'authors', 'tags');
  const payload = collection === 'tags' ? { name: text() } : randomPayload(collection, 0);
  const path = `/items/${collection}`;
  const id = 1 + random(14);
  switch (random(6)) {
    case 0: {
      const other = collection === 'tags' ? { name: text() } : randomPayload(collection, 1);
      const both = [payload, other];
      return [
        { method: 'POST', path, body: both },
        { method: 'POST', path, body: both.map((each) => byHand(collection, each, 'create')) },
      ];
    }
    case 1:
      return [
        { method: 'PATCH', path: `${path}/${id}`, body: payload },
        { method: 'PATCH', path: `${path}/${id}`, body: byHand(collection, payload, 'update') },
      ];
    case 2: {
      const selection = { query: { filter: { id: { _lte: random(5) } } } };
      const flat =
        collection === 'comments' ? { body: text() } : { [collection === 'articles' ? 'title' : 'name']: text() };
      return [
        { method: 'PATCH', path, body: { ...selection, data: flat } },
        { method: 'PATCH', path, body: { ...selection, data: byHand(collection, flat, 'update') } },
      ];
    }
    case 3: {
      const operations = (body: Payload): unknown => ({ operations: [{ method: 'POST', path, body }] });
      return [
        { method: 'POST', path: '/transactions', body: operations(payload) },
        { method: 'POST', path: '/transactions', body: operations(byHand(collection, payload, 'create')) },
      ];
    }
    default:
      return [
        { method: 'POST', path, body: payload },
        { method: 'POST', path, body: byHand(collection, payload, 'create') },
      ];
  }
}

async function send(lateral: Lateral, { method, path, body }: Sent, as: 'administrator' | { user: string }) {
  const headers = { 'content-type': 'application/json' };
  const response = await lateral.fetch(
    new Request(`http://lateral${path}`, { method, headers, body: JSON.stringify(body) }),
    { as },
  );
  return { status: response.status, text: await response.text() };
}

/** A user who may write some fields, some rows and some values. */
async function makeWriter(lateral: Lateral): Promise<string> {
  const rule = (collection: string, action: string, more: object = {}) => ({
    collection,
    action,
    fields: '*',
    permissions: null,
    ...more,
  });
  const policy = await lateral.items('service_policies', ADMIN).create({
    name: 'writer',
    permissions: [
      rule('articles', 'create', {
        fields: 'id,title,slug,author,comments,tags',
        validation: { title: { _ncontains: '7' } },
      }),
      rule('articles', 'update', { fields: 'title,comments', permissions: { id: { _gt: 2 } } }),
      rule('articles', 'read', { fields: 'id,title,author' }),
      rule('comments', 'create', { fields: 'id,body,article' }),
      rule('comments', 'update', { fields: 'body,article', permissions: { id: { _lt: 6 } } }),
      rule('articles_tags', 'create'),
      rule('tags', 'create', { fields: 'id' }),
    ],
  });
  const user = await lateral
    .items('service_users', ADMIN)
    .create({ email: `${randomUUID()}@example.com`, policies: [{ policy: policy?.['id'] }] });
  return String(user?.['id']);
}

const TABLES = ['articles', 'authors', 'comments', 'tags', 'articles_tags'];

async function contents(sql: Sql): Promise<string> {
  const rows = await Promise.all(TABLES.map((table) => sql`select * from ${sql(table)} order by id`));
  return JSON.stringify(rows);
}

t.test(`${WRITES} random writes with hooks equal those of the oracle, and give no caller more rights`, async (t) => {
  const hooked = await open('ext_random', [marking]);
  const plain = await open('ext_oracle', []);
  const users = [await makeWriter(hooked.lateral), await makeWriter(plain.lateral)] as const;
  const statuses = new Map<number, number>();
  for (let count = 0; count < WRITES; count++) {
    const [sent, expected] = randomWrite();
    const isAdmin = random(3) > 0;
    const [got, wanted] = [
      await send(hooked.lateral, sent, isAdmin ? 'administrator' : { user: users[0] }),
      await send(plain.lateral, expected, isAdmin ? 'administrator' : { user: users[1] }),
    ];
    statuses.set(got.status, (statuses.get(got.status) ?? 0) + 1);
    const isSame = got.status === wanted.status && (got.status >= 300 || got.text === wanted.text);
    if (!isSame) t.strictSame(got, wanted, `write ${count}: ${JSON.stringify(sent)}`);
    if (!isSame) break;
    if (count % 20 === 19 || count === WRITES - 1)
      if ((await contents(hooked.sql)) !== (await contents(plain.sql))) {
        t.fail(`the tables differ after write ${count}`);
        break;
      }
  }
  t.ok((statuses.get(200) ?? 0) > WRITES / 5, `statuses: ${JSON.stringify([...statuses])}`);
  t.ok(statuses.size > 2);
});

t.test(`${KILLS} killed backends while hooks throw, hang and recurse leave nothing half done`, async (t) => {
  let isCalm = false;
  const moody = defineExtension({
    name: 'moody',
    collections: ['notes'],
    beforeWrite: async ({ tx, payload, action }) => {
      const mode = isCalm || action !== 'create' ? 0 : random(8);
      if (mode === 1) throw new Error('a fault');
      if (mode === 2) throw new Refused(409, 'NO', 'No.');
      if (mode === 3) await new Promise(() => {});
      if (mode === 4) await tx.items('notes', ADMIN).create({ text: 'again' });
      if (mode === 5) await tx.items('tags', ADMIN).read({ limit: 1 });
      return { ...payload, text: `${payload['text']}!` };
    },
    afterWrite: async ({ tx, keys, action }) => {
      if (action === 'create') await tx.items('note_log', ADMIN).create({ note: keys[0] });
      if (!isCalm && random(6) === 0) throw new Error('a late fault');
    },
  });
  const { lateral, sql } = await open('ext_kills', [moody]);
  await sql
    .unsafe(
      'create table notes (id serial primary key, text text); create table note_log (id serial primary key, note integer not null)',
    )
    .simple();
  const notes = lateral.items<{ id: number }>('notes', ADMIN);
  await waitFor(
    () =>
      Promise.all([notes.read(), lateral.items('note_log', ADMIN).read()]).then(
        () => true,
        () => false,
      ),
    5_000,
  );
  const answered = new Set<number>();
  let isRunning = true;
  const statuses = new Map<number | string, number>();
  const writer = async (): Promise<void> => {
    while (isRunning) {
      const outcome = await notes.create({ text: 'x' }).then(
        (note) => {
          answered.add(Number(note?.id));
          return 200;
        },
        (error: { status?: number }) => error.status ?? String(error),
      );
      statuses.set(outcome, (statuses.get(outcome) ?? 0) + 1);
    }
  };
  const writers = Array.from({ length: 6 }, writer);
  for (let kill = 0; kill < KILLS; kill++) {
    await sql`select pg_sleep(0.1), pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and application_name like 'lateral%'
      order by random() limit ${1 + random(3)}`;
  }
  isRunning = false;
  await Promise.all(writers);
  isCalm = true;
  t.strictSame(
    [...statuses.keys()].filter((status) => ![200, 409, 503].includes(Number(status))),
    [],
    JSON.stringify([...statuses]),
  );
  await waitFor(
    () =>
      notes.create({ text: 'after' }).then(
        () => true,
        () => false,
      ),
    10_000,
  );
  const [half] = await sql`select count(*)::int as n from notes full join note_log on note_log.note = notes.id
    where notes.id is null or note_log.id is null or right(text, 1) <> '!'`;
  t.equal(half?.['n'], 0, 'each note has its row in the log, and each row its note');
  const stored = new Set((await sql`select id from notes`).map(({ id }) => Number(id)));
  t.strictSame(
    [...answered].filter((id) => !stored.has(id)),
    [],
    'each answered write is stored',
  );
  const many = await Promise.all(Array.from({ length: 30 }, () => notes.create({ text: 'calm' })));
  t.equal(many.length, 30, 'no connection was lost');
  const [open_] =
    await sql`select count(*)::int as n from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`;
  t.equal(open_?.['n'], 0, 'no transaction stays open');
});
