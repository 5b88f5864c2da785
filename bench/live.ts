/**
 * Live queries under changes: how long it takes from a change until every subscriber has it, and what that costs. Each subscriber is a
 * connection that gets server-sent events: (a) each an item of its own, (b) all the same list, (c) each the list of its user, by a row
 * rule. A change writes the time into a row; whoever gets it knows how old it is.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import { readMemory } from './memory.js';
import { spentBy } from './processor.js';
import { percentilesOf } from './statistics.js';

export interface LiveOptions {
  readonly subscribers: number;
  readonly seconds: number;
  readonly poolSize: number;
  readonly settings: Readonly<Record<string, string>>;
}

const RATES: readonly number[] = [1, 10, 100];
const LISTED = 20;

interface LiveCase {
  readonly name: string;
  path(subscriber: number): string;
  token(subscriber: number): string;
  /** The row that a change touches. */
  row(draw: number): number;
  /** How many subscribers see it. */
  readonly seenBy: 'one' | 'all';
}

const ITEM = '/items/bench_live';
const admin = (): string => ADMINISTRATOR.token;

function casesOf(subscribers: number): readonly LiveCase[] {
  const anyRow = (draw: number): number => 1 + Math.floor(draw * subscribers);
  return [
    { name: 'a: an item each', path: (one) => `${ITEM}/${one}?fields=stamp`, token: admin, row: anyRow, seenBy: 'one' },
    {
      name: 'b: one list',
      path: () => `${ITEM}?fields=stamp&sort=id&limit=${LISTED}`,
      token: admin,
      row: (draw) => 1 + Math.floor(draw * LISTED),
      seenBy: 'all',
    },
    { name: 'c: a list by user', path: () => `${ITEM}?fields=stamp`, token: tokenOf, row: anyRow, seenBy: 'one' },
  ];
}

const tokenOf = (subscriber: number): string => `bench-live-token-${subscriber}`;

export async function measureLive(
  serverUrl: string,
  options: LiveOptions,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  const url = Object.assign(new URL(serverUrl), { pathname: '/bench_live' }).href;
  const server = postgres(serverUrl, { max: 1, onnotice: () => {} });
  await server`drop database if exists bench_live with (force)`;
  await server`create database bench_live`;
  await server.end();
  const sql = postgres(url, { max: 4, onnotice: () => {} });
  await sql`create table bench_live (id int primary key, owner uuid not null, stamp text not null default '')`;
  // So that of an update it is known whose row it was.
  await sql`alter table bench_live replica identity full`;
  await sql`create index on bench_live (owner)`;
  const limits = { LIVE_MAX_SUBSCRIPTIONS_PER_USER: '1000000', LIVE_MAX_SUBSCRIPTIONS: '1000000' };
  const service = await startService({ ...options, databaseUrl: url, settings: { ...limits, ...options.settings } });
  try {
    await fill(sql, options.subscribers);
    report(`${options.subscribers} subscribers, each with a connection; ${options.seconds} s for each rate`);
    for (const each of casesOf(options.subscribers)) await measureCase(each, service, sql, options, report, signal);
  } finally {
    await sql.end();
    await service.stop();
  }
}

/** A row and a user for each subscriber. */
async function fill(sql: postgres.Sql, subscribers: number): Promise<void> {
  const owner = (column: string): string => `md5(${column}::text)::uuid`;
  await sql.unsafe(`
    insert into bench_live (id, owner) select n, ${owner('n')} from generate_series(1, ${subscribers}) n;
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

async function measureCase(
  { name, path, token, row, seenBy }: LiveCase,
  service: RunningService,
  sql: postgres.Sql,
  { subscribers, seconds }: LiveOptions,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  const before = await readMemory(service.pid);
  const received: number[] = [];
  const sockets: Socket[] = [];
  let ready = 0;
  for (let subscriber = 1; subscriber <= subscribers; subscriber++) {
    signal.throwIfAborted();
    sockets.push(subscribe(service.url, path(subscriber), token(subscriber), () => ready++, received));
    // More at once than the system lets wait would be refused.
    if (subscriber % 100 === 0) while (ready < subscriber - 100) await sleep(5);
  }
  while (ready < subscribers) await sleep(20);
  await sleep(1_000);
  const bytes = ((await readMemory(service.pid)) - before) * 2 ** 20;
  report(`${name}: ${(bytes / subscribers / 1_024).toFixed(1)} kB of memory for each subscriber, its socket included`);
  for (const rate of RATES) {
    signal.throwIfAborted();
    received.length = 0;
    const [statements, spent] = [await statementsOf(service), spentBy(service.pid) ?? 0];
    const changes = rate * seconds;
    const begun = performance.now();
    for (let change = 0; change < changes; change++) {
      await sleep(Math.max(0, begun + (change * 1_000) / rate - performance.now()));
      const id = row(Math.random());
      void sql`update bench_live set stamp = ${Date.now()} where id = ${id}`.catch(() => {});
    }
    await sleep(1_000);
    const elapsed = (performance.now() - begun) / 1_000;
    const cpu = ((spentBy(service.pid) ?? 0) - spent) / 1_000 / elapsed;
    const perChange = ((await statementsOf(service)) - statements) / changes;
    const { p50, p99 } = percentilesOf(received.length > 0 ? received : [Number.NaN]);
    const expected = seenBy === 'all' ? changes * subscribers : changes;
    report(
      `${name}, ${rate}/s: ${perChange.toFixed(2)} statements per change, p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms, ` +
        `${(cpu * 100).toFixed(0)} % of a processor, ${received.length} answers (at most ${expected})`,
    );
  }
  for (const socket of sockets) socket.destroy();
  await sleep(500);
}

/** Calls back at the first answer; later ones are counted by their age. */
function subscribe(url: string, path: string, token: string, onReady: () => void, ages: number[]): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let isReady = false;
  void once(socket, 'connect').then(() =>
    socket.write(
      `GET ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${token}\r\nAccept: text/event-stream\r\n\r\n`,
    ),
  );
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    const text = chunk.toString('latin1');
    if (!isReady && text.includes('data: ')) {
      isReady = true;
      onReady();
      return;
    }
    let newest = 0;
    for (const [stamp] of text.matchAll(/\d{13}/g)) newest = Math.max(newest, Number(stamp));
    if (newest > 0) ages.push(Date.now() - newest);
  });
  return socket;
}

/** Those that read. */
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
