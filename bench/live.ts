/**
 * Live queries under changes: the time from a change until every subscriber has it, and its cost. Each subscriber is a connection with
 * server-sent events: (a) an item each, (b) the same list for all, (c) the list of each user by a row rule. In another case of (b), ten
 * subscribers share a WebSocket. A change writes the time of the database into a row just before the commit, so the subscriber knows its
 * age. Each change that reaches a connection counts, not only the newest of a result.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { packagePath } from '../src/base/package-files.js';
import { percentilesOf } from '../src/features/traffic/percentiles.js';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import type { ClientOrder, ClientReport, ClientTask } from './live-clients.js';
import { measure } from './load.js';
import { readMemory } from './memory.js';
import { spentBy } from './processor.js';

export interface LiveOptions {
  readonly subscribers: number;
  readonly seconds: number;
  readonly poolSize: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly profile?: string | undefined;
}

/** One case at one rate of changes; times in milliseconds, shares of a processor. */
export interface LivePoint {
  readonly rate: number;
  readonly statementsPerChange: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly serviceShare: number;
  readonly clientShare: number;
  readonly answers: number;
}

export interface LiveCaseResult {
  readonly title: string;
  /** Bytes per subscriber, including its connection. */
  readonly memory: number;
  readonly points: readonly LivePoint[];
}

export interface Live {
  readonly subscribers: number;
  readonly seconds: number;
  /** Bytes of an open connection that has read an item. */
  readonly connectionMemory: number;
  readonly cases: readonly LiveCaseResult[];
  /** Reads by key, alternating between a service whose subscribers are idle and another one without subscribers. */
  readonly reads: { readonly beside: KeyReads; readonly alone: KeyReads };
}

export interface KeyReads {
  readonly perSecond: number;
  /** CPU time of the service per read, in microseconds. Unlike the rate, it hardly depends on other processes. */
  readonly spent: number;
}

/** Milliseconds that are allowed from a commit until almost all subscribers have it. */
export const MOST_LAG = 250;

const RATES: readonly number[] = [1, 10, 100, 1_000];
const LISTED = 20;

interface LiveCase {
  readonly name: string;
  path(subscriber: number): string;
  token(subscriber: number): string;
  /** The row that a change updates. */
  row(draw: number): number;
  /** The number of subscribers that see it. */
  readonly seenBy: 'one' | 'all' | 'none';
  /** The table that a change updates, unless it is that of the items. */
  readonly table?: 'bench_live' | 'bench_notes';
  /** Subscribers of one WebSocket, whose path is a GraphQL query; null if each has a connection. */
  readonly sharing: number | null;
}

const SHARING = 10;

const ITEM = '/items/bench_live';
const admin = (): string => ADMINISTRATOR.token;

function casesOf(subscribers: number): readonly LiveCase[] {
  const anyRow = (draw: number): number => 1 + Math.floor(draw * subscribers);
  const listedRow = (draw: number): number => 1 + Math.floor(draw * LISTED);
  return [
    {
      name: 'a: an item each',
      path: (one) => `${ITEM}/${one}?fields=stamp`,
      token: admin,
      row: anyRow,
      seenBy: 'one',
      sharing: null,
    },
    {
      name: 'b: one list, a connection each',
      path: () => `${ITEM}?fields=stamp&sort=id&limit=${LISTED}`,
      token: admin,
      row: listedRow,
      seenBy: 'all',
      sharing: null,
    },
    {
      name: `b: one list, ${SHARING} subscribers on a WebSocket`,
      path: () => `subscription { bench_live(sort: ["id"], limit: ${LISTED}) { stamp } }`,
      token: admin,
      row: listedRow,
      seenBy: 'all',
      sharing: SHARING,
    },
    {
      name: 'c: a list by user',
      path: () => `${ITEM}?fields=stamp`,
      token: tokenOf,
      row: anyRow,
      seenBy: 'one',
      sharing: null,
    },
    {
      name: 'd: an item with its notes each',
      path: (one) => `${ITEM}/${one}?fields=id,notes.stamp`,
      token: admin,
      row: anyRow,
      seenBy: 'one',
      sharing: null,
      table: 'bench_notes',
    },
    {
      name: 'd: an item with its notes each, changes of notes of other items',
      path: (one) => `${ITEM}/${one}?fields=id,notes.stamp`,
      token: admin,
      row: (draw) => subscribers + anyRow(draw),
      seenBy: 'none',
      sharing: null,
      table: 'bench_notes',
    },
  ];
}

const tokenOf = (subscriber: number): string => `bench-live-token-${subscriber}`;

export async function measureLive(
  serverUrl: string,
  options: LiveOptions,
  report: Report,
  signal: AbortSignal,
): Promise<Live> {
  const { subscribers, seconds } = options;
  const url = Object.assign(new URL(serverUrl), { pathname: '/bench_live' }).href;
  const server = postgres(serverUrl, { max: 1, onnotice: () => {} });
  await server`drop database if exists bench_live with (force)`;
  await server`create database bench_live`;
  await server.end();
  const sql = postgres(url, { max: 4, onnotice: () => {} });
  await sql`create table bench_live (id int primary key, owner uuid not null, stamp text not null default '')`;
  await sql`create table bench_notes (id int primary key, item int not null references bench_live, stamp text not null default '')`;
  await sql`create index on bench_notes (item)`;
  // So that an update reports the former owner of the row.
  await sql`alter table bench_live replica identity full`;
  await sql`create index on bench_live (owner)`;
  const limits = { LIVE_MAX_SUBSCRIPTIONS_PER_USER: '1000000', LIVE_MAX_SUBSCRIPTIONS: '1000000' };
  // Each case has its own service: memory that one case has freed would be used by the next.
  const withService = async <Result>(work: (service: RunningService) => Promise<Result>): Promise<Result> => {
    const service = await startService({ ...options, databaseUrl: url, settings: { ...limits, ...options.settings } });
    try {
      return await work(service);
    } finally {
      await service.stop();
    }
  };
  try {
    await withService(() => fill(sql, options.subscribers));
    const connectionMemory = await withService((service) => measureConnections(service, subscribers, signal));
    report(
      `${subscribers} subscribers; ${seconds} s for each rate; ${kilobytes(connectionMemory)} kB for each connection`,
    );
    let reads: Live['reads'] | null = null;
    const cases: LiveCaseResult[] = [];
    for (const each of casesOf(subscribers)) {
      await withService(async (service) => {
        await warmUp(service, subscribers);
        const clients = await openClients(each, service, subscribers, signal);
        try {
          reads ??= await withService((other) => compareReads(service, other, subscribers, seconds));
          cases.push(await measureCase(each, { clients, service, sql }, { ...options, report, signal }));
        } finally {
          clients.process.kill();
        }
      });
    }
    if (reads === null) throw new Error('there is no case');
    report(describeReads(reads));
    return { subscribers, seconds, connectionMemory, cases, reads };
  } finally {
    await sql.end();
  }
}

export function kilobytes(bytes: number): string {
  return (bytes / 1_024).toFixed(1);
}

export function describeReads({ beside: subscribed, alone }: Live['reads']): string {
  return (
    `two services took turns with reads by key: ${subscribed.perSecond.toFixed(0)} per second ` +
    `(${subscribed.spent.toFixed(1)} us of processor time each) with all subscribers while nothing changes, ` +
    `and ${alone.perSecond.toFixed(0)} (${alone.spent.toFixed(1)} us) without subscribers`
  );
}

/** A row and a user for each subscriber. */
async function fill(sql: postgres.Sql, subscribers: number): Promise<void> {
  const owner = (column: string): string => `md5(${column}::text)::uuid`;
  await sql.unsafe(`
    insert into bench_live (id, owner) select n, ${owner('n')} from generate_series(1, ${2 * subscribers}) n;
    insert into bench_notes (id, item) select n, n from generate_series(1, ${2 * subscribers}) n;
    insert into service_fields (collection, field, special, interface) values ('bench_live', 'notes', 'o2m', 'list-o2m');
    insert into service_relations (many_collection, many_field, one_collection, one_field)
      values ('bench_notes', 'item', 'bench_live', 'notes');
    with made_role as (insert into service_roles (name) values ('live') returning id),
    policy as (insert into service_policies (name) values ('live') returning id),
    access as (insert into service_access (policy, role, sort) select policy.id, made_role.id, 1 from policy, made_role),
    permission as (
      insert into service_permissions (policy, collection, action, permissions, fields)
      select id, 'bench_live', 'read', '{"owner":{"_eq":"$CURRENT_USER"}}', '*' from policy
    )
    insert into service_users (id, email, token, role)
    select ${owner('n')}, n || '@example.com', encode(sha256(('bench-live-token-' || n)::bytea), 'hex'), made_role.id
    from generate_series(1, ${subscribers}) n, made_role;
    analyze`);
}

/** Bytes that the service takes for a connection whose request was answered. */
async function measureConnections(service: RunningService, count: number, signal: AbortSignal): Promise<number> {
  await warmUp(service, count);
  const before = await readMemory(service.pid);
  const { hostname, port } = new URL(service.url);
  const sockets: Socket[] = [];
  try {
    for (let number = 0; number < count; number++) {
      const socket = connect({ port: Number(port), host: hostname });
      sockets.push(socket.on('error', () => {}));
      socket.write(`GET ${ITEM}/1?fields=stamp HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${admin()}\r\n\r\n`);
      await once(socket, 'data', { signal });
    }
    return (((await readMemory(service.pid)) - before) * 2 ** 20) / count;
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

interface Clients {
  readonly process: ChildProcess;
  /** Bytes that the service took for each. */
  readonly memory: number;
}

async function openClients(
  { path, token, sharing }: LiveCase,
  service: RunningService,
  subscribers: number,
  signal: AbortSignal,
): Promise<Clients> {
  const before = await readMemory(service.pid);
  const clients = fork(packagePath('dist', 'bench', 'live-clients.js'), { detached: true });
  const requests = Array.from({ length: subscribers / (sharing ?? 1) }, (_, index) => ({
    path: path(index + 1),
    token: token(index + 1),
  }));
  const task: ClientTask = { url: service.url, requests, sharing };
  clients.send({ open: task } satisfies ClientOrder);
  try {
    await once(clients, 'message', { signal });
  } catch (error) {
    clients.kill();
    throw error;
  }
  await sleep(1_000);
  return { process: clients, memory: (((await readMemory(service.pid)) - before) * 2 ** 20) / subscribers };
}

async function askClients({ process }: Clients): Promise<ClientReport> {
  process.send('measure' satisfies ClientOrder);
  const [report] = await once(process, 'message');
  return report;
}

interface Running {
  readonly clients: Clients;
  readonly service: RunningService;
  readonly sql: postgres.Sql;
}

async function measureCase(
  { name, row, seenBy, table = 'bench_live' }: LiveCase,
  { clients, service, sql }: Running,
  { subscribers, seconds, report, signal }: LiveOptions & { readonly report: Report; readonly signal: AbortSignal },
): Promise<LiveCaseResult> {
  const { memory } = clients;
  report(`${name}: ${kilobytes(memory)} kB of memory for each subscriber, its connection included`);
  const points: LivePoint[] = [];
  for (const rate of RATES) {
    signal.throwIfAborted();
    const { spent: spentByClients } = await askClients(clients);
    const [statements, spent] = [await statementsOf(service), spentBy(service.pid) ?? 0];
    const changes = rate * seconds;
    const begun = performance.now();
    for (let change = 0; change < changes; change++) {
      const wait = begun + (change * 1_000) / rate - performance.now();
      if (wait > 0) await sleep(wait);
      const id = row(Math.random());
      void sql`update ${sql(table)} set stamp = (extract(epoch from clock_timestamp()) * 1000)::bigint where id = ${id}`.catch(
        () => {},
      );
    }
    await sleep(1_000);
    const elapsed = performance.now() - begun;
    const { answers, p50, p99, max, spent: spentAfter } = await askClients(clients);
    const point: LivePoint = {
      rate,
      statementsPerChange: ((await statementsOf(service)) - statements) / changes,
      p50,
      p99,
      max,
      serviceShare: ((spentBy(service.pid) ?? 0) - spent) / elapsed,
      clientShare: (spentAfter - spentByClients) / elapsed,
      answers,
    };
    points.push(point);
    const expected = { all: changes * subscribers, one: changes, none: 0 }[seenBy];
    report(
      `${name}, ${rate}/s: ${point.statementsPerChange.toFixed(2)} statements per change, p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms, ` +
        `at most ${max.toFixed(0)} ms, ${(point.serviceShare * 100).toFixed(0)} % of a processor (clients ${(point.clientShare * 100).toFixed(0)} %), ` +
        `${answers} answers (at most ${expected})`,
    );
  }
  return { title: name, memory, points };
}

const READ_ROUNDS = 10;

async function warmUp(service: RunningService, subscribers: number): Promise<void> {
  for (let round = 0; round < 3; round++) await readByKey(service, subscribers, 1);
}

/** Alternates, and each begins equally often, so that other processes affect both. Returns the median of each. */
async function compareReads(
  service: RunningService,
  other: RunningService,
  subscribers: number,
  seconds: number,
): Promise<Live['reads']> {
  await warmUp(other, subscribers);
  const beside: KeyReads[] = [];
  const alone: KeyReads[] = [];
  const ask = async (of: RunningService, into: KeyReads[]): Promise<void> => {
    into.push(await readByKey(of, subscribers, seconds));
  };
  for (let round = 0; round < READ_ROUNDS; round++) {
    if (round % 2 === 0) await ask(service, beside);
    await ask(other, alone);
    if (round % 2 === 1) await ask(service, beside);
  }
  return { beside: medianOf(beside), alone: medianOf(alone) };
}

function medianOf(rounds: readonly KeyReads[]): KeyReads {
  const { p50: perSecond } = percentilesOf(rounds.map((each) => each.perSecond));
  const { p50: spent } = percentilesOf(rounds.map((each) => each.spent));
  return { perSecond, spent };
}

async function readByKey({ url, pid }: RunningService, subscribers: number, seconds: number): Promise<KeyReads> {
  const paths = Array.from({ length: 100 }, (_, index) => `${ITEM}/${1 + ((index * 97) % subscribers)}?fields=stamp`);
  const headers = { Authorization: `Bearer ${ADMINISTRATOR.token}` };
  const spent = spentBy(pid) ?? 0;
  const { requestsPerSecond } = await measure({ url, paths, headers, connections: 32, seconds });
  const used = (spentBy(pid) ?? 0) - spent;
  return { perSecond: requestsPerSecond, spent: (used * 1_000) / (requestsPerSecond * seconds) };
}

/** The cases that read. */
async function statementsOf({ url }: RunningService): Promise<number> {
  const response = await fetch(`${url}/server/metrics`, {
    headers: { authorization: `Bearer ${ADMINISTRATOR.token}` },
  });
  const text = await response.text();
  return [...text.matchAll(/^lateral_statements_total\{kind="(?:read|batch)"\} (\d+)/gm)].reduce(
    (sum, [, number]) => sum + Number(number),
    0,
  );
}
