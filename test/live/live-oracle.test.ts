/**
 * Random subscriptions, random writes by the API and by plain SQL, policies that change and streams that are killed: at rest the last
 * answer of every subscriber is that of a fresh read, a copy that is kept by events alone is what a fresh read answers, and none has seen
 * what it may never see. `npm run test:live` does more of it.
 */
import postgres from 'postgres';
import t, { type Test } from 'tap';
import { makeCaller } from '../support/callers.js';
import { EventFollower, type Followed } from '../support/event-follower.js';
import { EventStream } from '../support/event-stream.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../support/service.js';

const SUBSCRIPTIONS = Number(process.env['LIVE_SUBSCRIPTIONS'] ?? 40);
/** Of them those that are told events. */
const FOLLOWERS = Math.ceil(SUBSCRIPTIONS / 8);
const WRITES = Number(process.env['LIVE_WRITES'] ?? 150);
/** Writes at the same time. */
const AT_ONCE = 5;
t.setTimeout(1_000_000);

let state = Number(process.env['LIVE_SEED'] ?? 21);
/** A whole number below the given one. */
function draw(below: number): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
}

function pick<Entry>(entries: readonly Entry[]): Entry {
  return entries[draw(entries.length)] as Entry;
}

/** `triggers`: changes are told by triggers, and the log cannot be read. */
const MODE = process.env['LIVE_MODE'] ?? 'auto';
const server = await startDatabase(MODE === 'triggers' ? { settings: { wal_level: 'replica' } } : {});
const url = await createLibrary(server, 'live_oracle');
const sql = postgres(url, { max: AT_ONCE, onnotice: () => {} });
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl: url, LIVE: MODE });

const FIELDS = ['id,title,status,author', 'id,status,author', 'id,title,author,views'] as const;
const read = { action: 'read' } as const;
const readers = await Promise.all(
  ['one', 'two'].map((name, position) =>
    makeCaller(sql, name, [
      {
        permissions: [
          // Nobody but administrators sees articles that are secret, and the body of any.
          {
            ...read,
            collection: 'articles',
            permissions:
              position === 0 ? { status: { _eq: 'published' } } : { status: { _in: ['draft', 'published'] } },
            fields: FIELDS[0].split(','),
          },
          { ...read, collection: 'authors', fields: ['id', 'name', 'score'] },
          { ...read, collection: 'comments', permissions: { article: { status: { _eq: 'published' } } } },
        ],
      },
    ]),
  ),
);
const tokens = [ADMIN_TOKEN, ...readers.map(({ token }) => token)];
const article = (): number => 1 + draw(12);

/** What each may never see: titles say what the status of their article is. */
const HIDDEN: ReadonlyMap<string, RegExp> = new Map(
  readers.map(({ token }, position) => [token, position === 0 ? /S3CRET|H1DDEN|drafted/ : /S3CRET|H1DDEN/]),
);

/** The fields of a reader are those that no rule takes away: who loses a field is not told all items once more. */
function followed(token: string): Followed {
  const seesAll = token === ADMIN_TOKEN;
  return {
    collection: 'articles',
    fields: seesAll ? ['id', 'title', 'status', 'author', 'views'] : ['id', 'author'],
    seesAll,
  };
}

interface Follower {
  readonly copy: EventFollower;
  readonly token: string;
  /** Whether it asks for all fields: what it is told is looked through, and not compared. */
  readonly isWhole: boolean;
}

async function follow(position: number): Promise<Follower> {
  const token = tokens[position % tokens.length] as string;
  const isWhole = position % (2 * tokens.length) >= tokens.length && token !== ADMIN_TOKEN;
  const copy = new EventFollower(service, isWhole ? { ...followed(token), fields: ['*'] } : followed(token));
  await copy.open(token);
  await waitFor(async () => copy.isReady, 20_000);
  return { copy, token, isWhole };
}

async function checkFollower(t: Test, { copy, token, isWhole }: Follower): Promise<void> {
  const { fields } = followed(token);
  const path = `/items/articles?fields=${fields}&sort=id&limit=-1`;
  let difference = '';
  const isRight = async (): Promise<boolean> => {
    difference = copy.differenceFrom(JSON.parse((await get(service, path, { token })).text).data);
    return difference === '';
  };
  if (!isWhole) await waitFor(isRight, 10_000).catch(() => t.fail(`events: ${difference}`));
  t.notOk(copy.isClosed, 'the connection is still open');
  t.strictSame(copy.faults.slice(0, 5), [], `${copy.events} messages of events, ${copy.resyncs} resyncs`);
  const hidden = HIDDEN.get(token);
  if (hidden) t.notMatch([...copy.seen].join(), hidden);
}

interface Subscription {
  readonly stream: EventStream;
  readonly token: string;
  /** The same read, once. */
  fresh(): Promise<string>;
}

function subscribe(): Subscription {
  const token = pick(tokens);
  const path = pick([
    () => `/items/articles/${article()}?fields=id,author`,
    () => `/items/articles?filter[author][_eq]=${1 + draw(4)}&fields=*&sort=id&limit=-1`,
    () => '/items/comments?fields=id,body,article.id,article.author.name&sort=id&limit=-1',
    () => '/items/articles?aggregate[count]=*&groupBy=author&sort=author',
    () => `/items/articles?limit=${1 + draw(5)}&meta=filter_count&fields=id&sort=-id&filter[views][_gt]=${draw(300)}`,
    () => '/items/articles?filter[author][name][_contains]=a&fields=id&sort=id&limit=-1',
    () => `/items/authors?filter[id][_in]=${1 + draw(4)},${1 + draw(4)}&fields=id,name,score&sort=id`,
    () => null,
  ])();
  if (path !== null)
    return {
      stream: new EventStream(service, path, { token }),
      token,
      fresh: async () => (await get(service, path, { token })).text,
    };
  const query = `{ articles(sort: ["id"], limit: -1, filter: { author: { id: { _eq: ${1 + draw(4)} } } }) { id author { id name } } }`;
  const asked = { body: JSON.stringify({ query }), headers: { 'content-type': 'application/json' }, token };
  return {
    stream: new EventStream(service, '/graphql', { ...asked, method: 'POST' }),
    token,
    fresh: async () => (await request(service, 'POST', '/graphql', asked)).text,
  };
}

/** The title says what the status is: whoever sees a word of it has seen the row. */
const STATES = [
  ['published', 'shown'],
  ['draft', 'drafted'],
  ['secret', 'S3CRET'],
] as const;

function change(): Promise<unknown> {
  const [status, title] = pick(STATES);
  const id = article();
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ title, status, views: draw(500), author: 1 + draw(4), body: 'H1DDEN' });
  return pick([
    () => sql`update articles set title = ${title}, status = ${status}, body = 'H1DDEN' where id = ${id}`,
    () => sql`update articles set views = ${draw(500)}, author = ${1 + draw(4)} where id in (${id}, ${article()})`,
    () =>
      sql`insert into articles (title, status, author, views, body) values (${title}, ${status}, ${1 + draw(4)}, 7, 'H1DDEN')`,
    () => sql`delete from articles where id = (select max(id) from articles where id > 12)`,
    () => sql`update authors set name = ${`name ${draw(1000)} ${pick(['a', 'b'])}`} where id = ${1 + draw(4)}`,
    () => sql`insert into comments (body, article) values ('said', ${id})`,
    () => sql`delete from comments where id = (select min(id) from comments)`,
    () => sql.begin((inner) => [inner`update articles set views = 1`, inner`update authors set score = score + 1`]),
    () => request(service, 'PATCH', `/items/articles/${id}`, { body, headers }),
    () => request(service, 'POST', '/items/articles', { body, headers }),
  ])();
}

async function disturb(): Promise<void> {
  await pick([
    () =>
      sql`update service_permissions set fields = ${pick(FIELDS)} where collection = 'articles' and action = 'read'`,
    // Whoever reads the log, or hears what triggers tell.
    () => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where backend_type = 'walsender' or (query like '%pg_listening_channels())::text%' and pid <> pg_backend_pid())`,
    () => sql`update service_users set last_name = 'changed' where role is not null`,
  ])();
}

await t.test('at rest every subscriber has what a fresh read answers', async (t) => {
  await sql`update articles set body = 'H1DDEN', title = 'shown', status = 'published'`;
  await sql`update authors set score = 0`;
  const followers = await Promise.all(Array.from({ length: FOLLOWERS }, (_, position) => follow(position)));
  const subscriptions = Array.from({ length: SUBSCRIPTIONS - FOLLOWERS }, subscribe);
  const scores = new EventStream(service, '/items/authors/1?fields=score');
  t.teardown(() => {
    for (const { stream } of [...subscriptions, { stream: scores }]) stream.close();
    for (const { copy } of followers) copy.close();
  });
  for (const { stream } of subscriptions) await stream.count(1, 20_000);
  await scores.count(1);
  for (let written = 0; written < WRITES; written += AT_ONCE) {
    // Deadlocks are no matter of this test.
    await Promise.allSettled(Array.from({ length: AT_ONCE }, change));
    await Promise.allSettled(Array.from({ length: 1 }, () => sql`update authors set score = score + 1 where id = 1`));
    if (draw(8) === 0) await disturb();
  }
  let events = 0;
  for (const { stream, token, fresh } of subscriptions) {
    const isRight = async (): Promise<boolean> => stream.isEnded || stream.events.at(-1)?.data === (await fresh());
    await waitFor(isRight, 10_000).catch(() => t.equal(stream.events.at(-1)?.data, 'a fresh read'));
    if (stream.isEnded && stream.status === 200) t.match(stream.events.at(-1), { name: 'failed', data: /FORBIDDEN/ });
    const seen = stream.events.map(({ data }) => data).join();
    const hidden = HIDDEN.get(token)?.exec(seen);
    if (hidden) t.fail(`seen: ${seen.slice(Math.max(hidden.index - 80, 0), hidden.index + 20)}`);
    events += stream.events.length;
  }
  for (const follower of followers) await checkFollower(t, follower);
  const counted = scores.events.map(({ data }) => Number(/-?\d+/.exec(data)?.[0]));
  t.strictSame(
    counted,
    [...counted].sort((one, other) => one - other),
    'no answer goes back in time',
  );
  t.ok(events > SUBSCRIPTIONS, `${events} answers`);
  t.comment(`${events} answers to ${SUBSCRIPTIONS} subscriptions, ${counted.length} scores`);
});
