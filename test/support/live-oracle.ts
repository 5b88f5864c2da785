/**
 * Random subscriptions of several users, random writes by the API and by plain SQL, and policies that change. At rest the last answer of every
 * subscriber is that of a fresh read, a copy that is kept by events alone is what a fresh read answers, no answer has gone back
 * in time, and none has seen what it may never see.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import t, { type Test } from 'tap';
import { makeCaller } from './callers.js';
import { EventFollower, type FollowedItems, MutationFollower } from './live-follower.js';
import { GraphqlWitness, type Place, StreamWitness, type Viewer, type Witness } from './live-witness.js';
import { ADMIN_TOKEN, request, type Sql, waitFor } from './service.js';
import { passTime } from './time.js';

/** Writes at the same time. */
const AT_ONCE = 5;
/** Articles that are never deleted; their status changes, that of later ones does not. */
const LASTING = 12;
/** Milliseconds between two looks at who has lost their connection. */
const TEND_MS = 250;
/** Milliseconds that a write is waited for. */
const MAX_WRITE_MS = 5_000;
/** Milliseconds until everything is in order. */
const SETTLE_MS = 30_000;

const FIELDS = ['id,title,status,author', 'id,status,author', 'id,title,author,views'] as const;

/** The title says what the status is: whoever sees a word of it has seen the row. */
const STATES = [
  ['published', 'shown'],
  ['draft', 'drafted'],
  ['secret', 'S3CRET'],
] as const;

export interface OracleOptions {
  readonly seed?: number;
  /** Whether the stream of changes is cut off now and then. */
  readonly cutsStreams?: boolean;
}

export class LiveOracle {
  /** Where requests go, and who has lost its connection comes back to. */
  places: readonly Place[];
  sql: Sql;
  readonly #cutsStreams: boolean;
  readonly witnesses: Witness[] = [];
  written = 0;
  #viewers: readonly Viewer[] = [{ token: ADMIN_TOKEN, hidden: null }];
  #state: number;
  #tending: NodeJS.Timeout | null = null;

  constructor(url: string, places: readonly Place[], { seed = 21, cutsStreams = true }: OracleOptions = {}) {
    this.places = places;
    this.sql = connect(url);
    this.#state = seed;
    this.#cutsStreams = cutsStreams;
  }

  /** The database is at another address. */
  async move(url: string): Promise<void> {
    const former = this.sql;
    this.sql = connect(url);
    await former.end({ timeout: 1 }).catch(() => {});
  }

  /** A whole number below the given one. */
  draw(below: number): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * below);
  }

  pick<Entry>(entries: readonly Entry[]): Entry {
    return entries[this.draw(entries.length)] as Entry;
  }

  /** Subscribes so many, and waits until each has what it begins with. */
  async open(subscriptions: number): Promise<void> {
    const { sql } = this;
    await sql`update articles set body = 'H1DDEN', title = 'shown', status = 'published'`;
    await sql`update authors set score = 0`;
    this.#viewers = [
      ...this.#viewers,
      await this.#reader('one', ['published']),
      await this.#reader('two', ['draft', 'published']),
    ];
    const followers = Math.ceil(subscriptions / 8);
    for (let position = 0; position < followers; position++) this.witnesses.push(this.#follower(position));
    while (this.witnesses.length < subscriptions) this.witnesses.push(this.#subscriber());
    for (const [position, witness] of this.witnesses.entries()) witness.connect(this.#placeOf(position));
    this.#tending = setInterval(() => this.#tend(), TEND_MS);
    t.teardown(() => this.close());
    await this.ready();
  }

  /** Nothing says when a subscription to events of GraphQL has begun: some come before. */
  async ready(): Promise<void> {
    await waitFor(async () => {
      await this.sql`update articles set views = views + 1, title = 'shown', status = 'published' where id = 1`.catch(
        () => {},
      );
      await sleep(50);
      return this.witnesses.every(({ isReady }) => isReady);
    }, SETTLE_MS).catch(() => {
      const left = this.witnesses.filter(({ isReady }) => !isReady).map(({ name }) => name);
      throw new Error(`${left.length} have not begun: ${left.slice(0, 5).join('; ')}`);
    });
  }

  async write(writes: number, isWanted: () => boolean = () => true): Promise<void> {
    for (let written = 0; written < writes && isWanted(); written += AT_ONCE) {
      // Deadlocks are no matter of this, and faults are looked at elsewhere.
      await Promise.all(Array.from({ length: AT_ONCE }, () => settled(this.#change())));
      await settled(this.sql`update authors set score = score + 1 where id = 1`);
      if (this.draw(8) === 0) await settled(this.#disturb());
      this.written += AT_ONCE;
    }
  }

  async settle(t: Test): Promise<void> {
    let answers = 0;
    let over = 0;
    for (const [position, witness] of this.witnesses.entries()) {
      let difference = '';
      const isRight = async (): Promise<boolean> => {
        difference = await witness.difference(this.#placeOf(position)).catch(String);
        return difference === '';
      };
      await waitFor(isRight, SETTLE_MS).catch(() => t.fail(`${witness.name}: ${difference}`));
      for (const fault of witness.faults.splice(0).slice(0, 5)) t.fail(`${witness.name}: ${fault}`);
      answers += witness.answers;
      if (witness.isOver) over++;
    }
    const resyncs = this.witnesses.reduce((sum, each) => sum + ('resyncs' in each ? Number(each.resyncs) : 0), 0);
    t.ok(
      answers > this.witnesses.length && over < this.witnesses.length / 2,
      `${this.written} writes, ${answers} answers to ${this.witnesses.length} subscriptions, ${over} of them over, ${resyncs} resyncs`,
    );
    t.comment(`${this.written} writes, ${answers} answers, ${resyncs} resyncs`);
  }

  /** What is taken away is not seen any more, at the latest a second later. */
  async revoke(t: Test): Promise<void> {
    const { sql } = this;
    await sql`update service_permissions set fields = ${FIELDS[1]} where collection = 'articles' and action = 'read'`;
    await passTime(1_000, 'the change of permissions takes effect');
    const seen: string[] = [];
    for (const witness of this.witnesses)
      witness.onSeen = (text) => text.includes('AFTERWARDS') && seen.push(witness.viewer.token);
    await sql`update articles set title = 'AFTERWARDS', status = 'published' where id <= ${LASTING}`;
    await waitFor(async () => seen.includes(ADMIN_TOKEN), SETTLE_MS);
    await passTime(500, 'nothing arrives');
    t.strictSame(
      seen.filter((token) => token !== ADMIN_TOKEN),
      [],
      'titles are not seen after they were taken away',
    );
  }

  close(): void {
    if (this.#tending) clearInterval(this.#tending);
    this.#tending = null;
    for (const witness of this.witnesses) witness.close();
    void this.sql.end({ timeout: 1 }).catch(() => {});
  }

  #placeOf(position: number): Place {
    return this.places[position % this.places.length] as Place;
  }

  #tend(): void {
    for (const [position, witness] of this.witnesses.entries()) witness.tend(this.#placeOf(position));
  }

  /** Nobody but administrators sees articles that are secret, and the body of any. */
  async #reader(name: string, states: readonly string[]): Promise<Viewer> {
    const read = { action: 'read' } as const;
    const permissions = [
      { ...read, collection: 'articles', permissions: { status: { _in: states } }, fields: FIELDS[0].split(',') },
      { ...read, collection: 'authors', fields: ['id', 'name', 'score'] },
      { ...read, collection: 'comments', permissions: { article: { status: { _eq: 'published' } } } },
    ];
    const { token } = await makeCaller(this.sql, name, [{ permissions }]);
    return { token, hidden: states.includes('draft') ? /S3CRET|H1DDEN/ : /S3CRET|H1DDEN|drafted/ };
  }

  /** The fields of a reader are those that no rule takes away: who loses a field is not told all items once more. */
  #follower(position: number): Witness {
    const viewer = this.#viewers[position % this.#viewers.length] as Viewer;
    const seesAll = viewer.hidden === null;
    const turn = Math.floor(position / this.#viewers.length) % 3;
    const followed: FollowedItems = {
      collection: 'articles',
      fields: seesAll ? ['id', 'title', 'status', 'author', 'views'] : ['id', 'author'],
      seesAll,
      limit: LASTING,
      witnessToken: ADMIN_TOKEN,
      isWhole: turn === 1 && !seesAll,
    };
    return turn === 2 ? new MutationFollower(viewer, followed) : new EventFollower(viewer, followed);
  }

  #subscriber(): Witness {
    const viewer = this.pick(this.#viewers);
    const author = (): number => 1 + this.draw(4);
    const rest = (path: string) => (): Witness => new StreamWitness(viewer, path);
    const ofAuthor = `{ articles(sort: ["id"], limit: -1, filter: { author: { id: { _eq: ${author()} } } }) { id author { id name } } }`;
    const twoRoots = `{ authors_by_id(id: ${author()}) { id name score } articles_aggregated { countAll } }`;
    return this.pick([
      rest(`/items/articles/${1 + this.draw(LASTING)}?fields=id,author`),
      rest(`/items/articles?filter[author][_eq]=${author()}&fields=*&sort=id&limit=-1`),
      rest('/items/comments?fields=id,body,article.id,article.author.name&sort=id&limit=-1'),
      rest('/items/articles?aggregate[count]=*&groupBy=author&sort=author'),
      rest(
        `/items/articles?limit=${1 + this.draw(5)}&meta=filter_count&fields=id&sort=-id&filter[views][_gt]=${this.draw(300)}`,
      ),
      rest('/items/articles?filter[author][name][_contains]=a&fields=id&sort=id&limit=-1'),
      rest(`/items/authors?filter[id][_in]=${author()},${author()}&fields=id,name,score&sort=id`),
      rest('/items/authors/1?fields=id,name,score'),
      (): Witness => new StreamWitness(viewer, '/graphql', ofAuthor),
      (): Witness => new GraphqlWitness(viewer, ofAuthor),
      (): Witness => new GraphqlWitness(viewer, '{ authors(sort: ["id"]) { id name score } }'),
      (): Witness => new GraphqlWitness(viewer, '{ articles_aggregated { countAll } }'),
      (): Witness => new StreamWitness(viewer, '/graphql', twoRoots),
    ])();
  }

  #change(): Promise<unknown> {
    const { sql } = this;
    const [status, title] = this.pick(STATES);
    const id = 1 + this.draw(LASTING);
    const author = 1 + this.draw(4);
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ title, status, views: this.draw(500), author, body: 'H1DDEN' });
    const place = this.pick(this.places);
    return this.pick([
      () => sql`update articles set title = ${title}, status = ${status}, body = 'H1DDEN' where id = ${id}`,
      () =>
        sql`update articles set views = ${this.draw(500)}, author = ${author} where id in (${id}, ${1 + this.draw(LASTING)})`,
      () =>
        sql`insert into articles (title, status, author, views, body) values (${title}, ${status}, ${author}, 7, 'H1DDEN')`,
      () => sql`delete from articles where id = (select max(id) from articles where id > ${LASTING})`,
      () => sql`delete from articles where id = (select min(id) from articles where id > ${LASTING})`,
      () => sql`update authors set name = ${`name ${this.draw(1000)} ${this.pick(['a', 'b'])}`} where id = ${author}`,
      () => sql`insert into comments (body, article) values ('said', ${id})`,
      () => sql`delete from comments where id = (select min(id) from comments)`,
      // One transaction, sent as one message: the driver throws where the connection is lost between two.
      () => sql.unsafe('update articles set views = 1; update authors set score = score + 1'),
      () => request(place, 'PATCH', `/items/articles/${id}`, { body, headers }),
      () => request(place, 'POST', '/items/articles', { body, headers }),
    ])();
  }

  async #disturb(): Promise<void> {
    const { sql } = this;
    const fields = this.pick(FIELDS);
    const ways = [
      () => sql`update service_permissions set fields = ${fields} where collection = 'articles' and action = 'read'`,
      () => sql`update service_users set last_name = 'changed' where role is not null`,
    ];
    // Whoever reads the log, or hears what triggers tell.
    const cut = () => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where backend_type = 'walsender' or (query like '%pg_listening_channels())::text%' and pid <> pg_backend_pid())`;
    if (this.#cutsStreams) ways.push(cut);
    await this.pick(ways)();
  }
}

/** The driver never answers a transaction whose connection is lost between two of its statements. */
async function settled(work: PromiseLike<unknown>): Promise<void> {
  const done = new AbortController();
  const ended = Promise.resolve(work).catch(() => {});
  await Promise.race([ended, sleep(MAX_WRITE_MS, null, { signal: done.signal }).catch(() => {})]);
  done.abort();
}

/** A server that is away must not hold up the writes of others for long. */
function connect(url: string): Sql {
  return postgres(url, { max: AT_ONCE, onnotice: () => {}, connect_timeout: 5 });
}
