/**
 * The cost of one log reader per thread with subscribers, compared with one reader for all threads: `node dist/bench/readers.js
 * [seconds]`. One process writes one transaction per row. Another reads with one, two or four slots, or with one slot whose transactions
 * are passed to three other threads. CPU times are from /proc.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import postgres from 'postgres';
import { LogDecoder } from '../src/features/change-stream/log-decoder.js';
import { ReplicationConnection } from '../src/features/change-stream/slot-stream.js';
import { startEmbedded } from '../src/features/embedded/cluster.js';
import type { LoggedChange } from '../src/server/changes/change-source.js';
import { openDatabase } from './environment.js';
import { spentBy } from './processor.js';

const RATES = [1_000, 5_000] as const;
const OTHER_THREADS = 3;
const ROWS = 10_000;
/** Milliseconds between two groups of writes. */
const GROUP_MS = 10;
const MAX_WAITING = 1_000;

const own = fileURLToPath(import.meta.url);
const [role = '10', url = '', number = '0', forwards = ''] = process.argv.slice(2);
if (!isMainThread) receive();
else if (role === 'write') await write(Number(number));
else if (role === 'read') await read(Number(number), forwards === 'forward');
else await measure(Number(role) * 1_000);

/** Another thread, which has to check each transaction. */
function receive(): void {
  const seen = new Map<string, number>();
  parentPort?.on('message', ({ xid, changes }: Transaction) => {
    for (const { table } of changes) seen.set(table.name, xid);
  });
}

interface Transaction {
  readonly xid: number;
  readonly changes: readonly LoggedChange[];
}

async function write(rate: number): Promise<void> {
  const sql = postgres(url, { max: 4, onnotice: () => {} });
  let waiting = 0;
  let sent = 0;
  const begun = performance.now();
  for (;;) {
    const due = ((performance.now() - begun) * rate) / 1_000;
    while (sent < due && waiting < MAX_WAITING) {
      sent++;
      waiting++;
      void sql`update written set counter = counter + 1 where id = ${1 + (sent % ROWS)}`
        .catch(() => {})
        .finally(() => waiting--);
    }
    await sleep(GROUP_MS);
  }
}

async function read(streams: number, isForwarding: boolean): Promise<void> {
  const database = await openDatabase(url);
  const { replication } = database;
  if (replication === null) throw new Error('the log cannot be read');
  const threads = isForwarding ? Array.from({ length: OTHER_THREADS }, () => new Worker(own)) : [];
  const took: number[] = [];
  for (let stream = 0; stream < streams; stream++) {
    let transaction: { xid: number; changes: LoggedChange[] } = { xid: 0, changes: [] };
    const decoder = new LogDecoder({
      wanted: (table) => table.columns.map(({ isKey }) => isKey),
      begin: (xid) => {
        transaction = { xid, changes: [] };
      },
      change: (change) => void transaction.changes.push(change),
      commit: () => {
        for (const thread of threads) thread.postMessage(transaction);
      },
    });
    const begun = performance.now();
    const connection = new ReplicationConnection(replication, {
      take: (message) => decoder.take(message),
      advanced: () => {},
      lost: (error) => {
        throw error;
      },
    });
    await connection.open();
    const slot = `bench_reader_${stream}`;
    await connection.query(`CREATE_REPLICATION_SLOT ${slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`, 60_000);
    const options = "proto_version '1', publication_names 'bench_readers'";
    await connection.start(`START_REPLICATION SLOT ${slot} LOGICAL 0/0 (${options})`, 10_000);
    took.push(performance.now() - begun);
  }
  process.send?.(took);
  // Statements of other sessions are not part of the measurement.
  await sleep(2 ** 31 - 1);
}

async function measure(milliseconds: number): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'lateral-readers-'));
  const server = await startEmbedded({ directory, settings: { synchronous_commit: 'off' } });
  const sql = postgres(server.url, { max: 1, onnotice: () => {} });
  try {
    await sql`create table written (id int primary key, counter int not null default 0, body text)`;
    await sql`insert into written select n, 0, repeat('x', 200) from generate_series(1, ${ROWS}) n`;
    await sql`create publication bench_readers for table written`;
    for (const rate of RATES)
      for (const [streams, forwarding] of [
        [1, ''],
        [2, ''],
        [4, ''],
        [1, 'forward'],
      ] as const)
        await measureOne(server.url, sql, { rate, streams, forwarding }, milliseconds);
  } finally {
    await sql.end();
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

async function measureOne(
  serverUrl: string,
  sql: postgres.Sql,
  { rate, streams, forwarding }: { readonly rate: number; readonly streams: number; readonly forwarding: string },
  milliseconds: number,
): Promise<void> {
  const children: ChildProcess[] = [];
  const start = (...words: readonly string[]): ChildProcess => {
    const child = fork(own, [...words]);
    children.push(child);
    return child;
  };
  try {
    start('write', serverUrl, String(rate));
    await sleep(1_000);
    const reader = start('read', serverUrl, String(streams), forwarding);
    const [took] = (await once(reader, 'message')) as [number[]];
    await sleep(1_000);
    const slots = await sql`select active_pid from pg_replication_slots`;
    const senders = slots.map(({ active_pid }) => Number(active_pid));
    const spent = (): [number, number] => [
      senders.reduce((sum, pid) => sum + (spentBy(pid) ?? 0), 0),
      spentBy(reader.pid ?? 0) ?? 0,
    ];
    const [sendersBefore, readerBefore] = spent();
    const [before] = await sql`select sum(counter)::int as count from written`;
    const begun = performance.now();
    await sleep(milliseconds);
    const elapsed = performance.now() - begun;
    const [sendersAfter, readerAfter] = spent();
    const [after] = await sql`select sum(counter)::int as count from written`;
    const written = ((Number(after?.['count']) - Number(before?.['count'])) * 1_000) / elapsed;
    const share = (used: number): string => `${((used * 100) / elapsed).toFixed(1)} %`;
    console.log(
      `${rate}/s, ${streams} slots${forwarding === '' ? '' : `, passed to ${OTHER_THREADS} threads`}: ${written.toFixed(0)} writes/s, ` +
        `walsenders ${share(sendersAfter - sendersBefore)}, reader ${share(readerAfter - readerBefore)} of a processor; ` +
        `opened within ${took.map((each) => each.toFixed(0)).join(', ')} ms`,
    );
  } finally {
    for (const child of children) child.kill('SIGKILL');
    await Promise.all(children.map((child) => child.exitCode === null && once(child, 'exit')));
    await sleep(500);
  }
}
