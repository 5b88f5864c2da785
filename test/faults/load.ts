/**
 * Clients that read and write without a pause while something goes wrong, and what they saw: how each request was answered,
 * which were not, and, afterwards, whether what was answered is in the database and nothing is there in part.
 */
import { request as openRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_TOKEN, type Sql } from '../support/service.js';

const KINDS = ['graphql', 'patch', 'import', 'create', 'schema', 'read'] as const;
export type Kind = (typeof KINDS)[number];

/** Rows of one import: more than one batch. */
const IMPORTED = 520;
/** Articles that one PATCH with a query changes together. */
const GROUP = 3;

interface Sent {
  readonly kind: Kind;
  readonly marker: string;
  readonly acknowledged: boolean;
}

interface Answer {
  /** 0 where the connection was broken, null where there was no answer. */
  readonly status: number | null;
  readonly text: string;
}

export interface Report {
  /** By kind and status. */
  readonly statuses: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** What was said of refusals, and how often. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Requests without an answer. */
  readonly hung: readonly string[];
  /** Answers that a fault of the database does not explain. */
  readonly wrong: readonly string[];
  /** Acknowledged writes that are not there. */
  readonly lost: readonly string[];
  /** Writes of which only a part is there. */
  readonly halfDone: readonly string[];
  /** Milliseconds. */
  readonly slowest: number;
}

/** To be run once, before any load. */
export async function prepareLoad(sql: Sql): Promise<void> {
  await sql.unsafe(`
    create table groups (id serial primary key, name text not null, turn int not null default 0);
    create index on groups (name);
    create table goods (id serial primary key, name text not null);
    create index on goods (name);
    create index on authors (name);
    create index on articles (title);
    create index on tags (name)`);
}

export interface LoadOptions {
  readonly clients: Readonly<Partial<Record<Kind, number>>>;
  /** Milliseconds after which a request counts as hung. */
  readonly patience: number;
  /** Milliseconds between two requests of a client. */
  readonly pause?: number;
}

let loads = 0;

export class Load {
  readonly #url: URL;
  readonly #options: LoadOptions;
  readonly #name = `load${++loads}`;
  readonly #sent: Sent[] = [];
  readonly #statuses: Record<string, Record<string, number>> = {};
  readonly #reasons: Record<string, number> = {};
  readonly #hung: string[] = [];
  readonly #wrong: string[] = [];
  /** By group: the last turn that was acknowledged, and the last that was sent. */
  readonly #turns = new Map<string, { acknowledged: number; sent: number }>();
  #slowest = 0;
  #stopped = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(service: { readonly url: string }, options: LoadOptions) {
    this.#url = new URL(service.url);
    this.#options = options;
  }

  async start(sql: Sql): Promise<void> {
    const clients = KINDS.flatMap((kind) =>
      Array.from({ length: this.#options.clients[kind] ?? 0 }, (_, number) => ({ kind, name: `${kind}-${number}` })),
    );
    for (const { kind, name } of clients)
      if (kind === 'patch')
        await sql`insert into groups (name) select ${`${this.#name}-${name}`} from generate_series(1, ${GROUP})`;
    this.#running = Promise.all(clients.map(({ kind, name }) => this.#run(kind, `${this.#name}-${name}`)));
  }

  /** Resolves when the last request was answered, or has hung. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  get answered(): number {
    return this.#sent.filter(({ acknowledged }) => acknowledged).length;
  }

  async report(sql: Sql): Promise<Report> {
    const counts = await this.#count(sql);
    const lost: string[] = [];
    const halfDone: string[] = [];
    for (const { kind, marker, acknowledged } of this.#sent) {
      const rows = (table: string): number => counts.get(`${table} ${marker}`) ?? 0;
      const found = [rows('authors'), rows('articles'), rows('tags'), rows('goods')].join();
      const whole = { graphql: '1,2,1,0', create: '1,1,0,0', import: `0,0,0,${IMPORTED}` }[kind as string];
      if (whole === undefined) continue;
      if (found !== whole && found !== '0,0,0,0') halfDone.push(`${marker}: ${found}`);
      else if (acknowledged && found !== whole) lost.push(marker);
    }
    for (const [name, { acknowledged, sent }] of this.#turns) {
      const rows = await sql<{ turn: number }[]>`select distinct turn from groups where name = ${name}`;
      const turn = rows[0]?.turn ?? -1;
      if (rows.length !== 1) halfDone.push(`${name}: turns ${rows.map((row) => row.turn).join()}`);
      else if (turn < acknowledged || turn > sent) lost.push(`${name}: turn ${turn}, ${acknowledged} acknowledged`);
    }
    return {
      statuses: this.#statuses,
      reasons: this.#reasons,
      hung: this.#hung,
      wrong: this.#wrong,
      lost,
      halfDone,
      slowest: Math.round(this.#slowest),
    };
  }

  /** Rows by table and marker. */
  async #count(sql: Sql): Promise<ReadonlyMap<string, number>> {
    const like = `${this.#name}-%`;
    const rows = await sql<{ place: string; count: number }[]>`
      select 'authors ' || name as place, count(*)::int from authors where name like ${like} group by name
      union all select 'articles ' || title, count(*)::int from articles where title like ${like} group by title
      union all select 'tags ' || name, count(*)::int from tags where name like ${like} group by name
      union all select 'goods ' || name, count(*)::int from goods where name like ${like} group by name`;
    return new Map(rows.map(({ place, count }) => [place, count]));
  }

  async #run(kind: Kind, name: string): Promise<void> {
    for (let turn = 1; !this.#stopped; turn++) {
      const marker = `${name}-${turn}.`;
      const answer = await this.#request(kind, name, marker, turn);
      const key = answer.status === null ? 'hung' : answer.status === 0 ? 'broken off' : String(answer.status);
      this.#statuses[kind] ??= {};
      const counted = this.#statuses[kind] as Record<string, number>;
      counted[key] = (counted[key] ?? 0) + 1;
      const reason = /"reason":"([^"]*)"/.exec(answer.text)?.[1];
      if (reason !== undefined && !isAcknowledged(answer)) this.#reasons[reason] = (this.#reasons[reason] ?? 0) + 1;
      if (answer.status === null) this.#hung.push(marker);
      else if (!isExplained(kind, answer)) this.#wrong.push(`${marker} ${answer.status} ${answer.text.slice(0, 300)}`);
      this.#sent.push({ kind, marker, acknowledged: isAcknowledged(answer) });
      if (kind === 'patch' && isAcknowledged(answer)) this.#turnOf(name).acknowledged = turn;
      await sleep(this.#options.pause ?? 1);
    }
  }

  #turnOf(name: string): { acknowledged: number; sent: number } {
    const known = this.#turns.get(name) ?? { acknowledged: 0, sent: 0 };
    this.#turns.set(name, known);
    return known;
  }

  async #request(kind: Kind, name: string, marker: string, turn: number): Promise<Answer> {
    switch (kind) {
      case 'graphql': {
        const query = `mutation ($name: String!) {
          create_authors_item(data: { name: $name, articles: [{ title: $name }, { title: $name }] }) { id }
          create_tags_item(data: { name: $name }) { id }
        }`;
        return this.#send('POST', '/graphql', { query, variables: { name: marker } });
      }
      case 'patch': {
        this.#turnOf(name).sent = turn;
        const query = { filter: { name: { _eq: name } }, limit: -1 };
        return this.#send('PATCH', '/items/groups', { query, data: { turn } });
      }
      case 'import':
        return this.#send(
          'POST',
          '/utils/import/goods',
          Array.from({ length: IMPORTED }, () => ({ name: marker })),
        );
      case 'create':
        return this.#send('POST', '/items/authors?fields=id', { name: marker, articles: [{ title: marker }] });
      case 'schema': {
        const field = marker.replaceAll(/\W/g, '_');
        const made = await this.#send('POST', '/fields/comments', { field, type: 'string' });
        return isAcknowledged(made) ? this.#send('DELETE', `/fields/comments/${field}`) : made;
      }
      case 'read':
        return this.#send('GET', `/items/articles/${1 + (turn % 3)}?fields=id,title,author.name`);
    }
  }

  #send(method: string, path: string, body?: unknown): Promise<Answer> {
    const { hostname, port } = this.#url;
    const start = performance.now();
    return new Promise((resolve) => {
      const text = body === undefined ? undefined : JSON.stringify(body);
      const headers = {
        authorization: `Bearer ${ADMIN_TOKEN}`,
        ...(text === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
      };
      const outgoing = openRequest({ hostname, port, method, path, headers, agent: false }, (incoming) => {
        const pieces: Buffer[] = [];
        incoming.on('data', (piece: Buffer) => pieces.push(piece));
        incoming.on('error', () => settle({ status: 0, text: '' }));
        incoming.on('end', () => settle({ status: incoming.statusCode ?? 0, text: Buffer.concat(pieces).toString() }));
      });
      const timer = setTimeout(() => settle({ status: null, text: '' }), this.#options.patience);
      const settle = (answer: Answer): void => {
        clearTimeout(timer);
        this.#slowest = Math.max(this.#slowest, performance.now() - start);
        resolve(answer);
        outgoing.destroy();
      };
      outgoing.on('error', () => settle({ status: 0, text: '' }));
      outgoing.end(text);
    });
  }
}

/** GraphQL says 200 also of what has failed. */
function isAcknowledged({ status, text }: Answer): boolean {
  return (status === 200 || status === 204) && !text.includes('"errors"');
}

/** What a fault of the database may do: a refusal that says so. Statements may also take longer than they are allowed to. */
function isExplained(kind: Kind, answer: Answer): boolean {
  if (isAcknowledged(answer) || answer.status === 503) return true;
  if (answer.text.includes('"option":"DATABASE_STATEMENT_TIMEOUT"')) return true;
  return kind === 'graphql' && answer.status === 200 && answer.text.includes('SERVICE_UNAVAILABLE');
}
