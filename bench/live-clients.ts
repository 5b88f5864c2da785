/**
 * The subscribers of the live bench, in a process of their own: what they cost must not delay who writes. Each is a connection that
 * gets server-sent events; they share one buffer, and an answer is looked through for the newest time in it, no more.
 */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { percentilesOf } from './statistics.js';

export interface ClientTask {
  readonly url: string;
  /** Of each subscriber. */
  readonly requests: readonly { readonly path: string; readonly token: string }[];
}

/** `measure`: what has come since the last one. */
export type ClientOrder = { readonly open: ClientTask } | 'measure';

export interface ClientReport {
  readonly answers: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  /** Processor time, in milliseconds. */
  readonly spent: number;
}

const BUFFER_BYTES = 262_144;
const STAMP = Buffer.from('"stamp":"');
const DIGITS = 13;
const ZERO = 0x30;
const NINE = 0x39;

let ages: number[] = [];
const buffer = Buffer.allocUnsafe(BUFFER_BYTES);

/** The newest time in the first bytes of the buffer; 0 for none. */
function newestIn(length: number): number {
  const chunk = buffer.subarray(0, length);
  let newest = 0;
  for (let at = chunk.indexOf(STAMP); at >= 0; at = chunk.indexOf(STAMP, at)) {
    at += STAMP.length;
    let stamp = 0;
    for (let digit = 0; digit < DIGITS; digit++) {
      const byte = chunk[at + digit] ?? 0;
      if (byte < ZERO || byte > NINE) break;
      stamp = stamp * 10 + byte - ZERO;
    }
    if (stamp > newest) newest = stamp;
  }
  return newest;
}

async function open({ url, requests }: ClientTask): Promise<void> {
  const { hostname, port } = new URL(url);
  let ready = 0;
  for (const [index, { path, token }] of requests.entries()) {
    let isReady = false;
    const take = (length: number): boolean => {
      if (isReady) {
        const newest = newestIn(length);
        if (newest > 0) ages.push(Date.now() - newest);
      } else if (buffer.subarray(0, length).includes('data: ')) {
        isReady = true;
        ready++;
      }
      return true;
    };
    const socket = connect({ port: Number(port), host: hostname, onread: { buffer, callback: take } });
    socket.once('connect', () =>
      socket.write(
        `GET ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${token}\r\nAccept: text/event-stream\r\n\r\n`,
      ),
    );
    socket.on('error', () => {});
    // More at once than the system lets wait would be refused.
    if (index % 100 === 99) while (ready < index - 99) await sleep(5);
  }
  while (ready < requests.length) await sleep(20);
}

process.on('message', (order: ClientOrder) => {
  if (order !== 'measure') {
    void open(order.open).then(() => process.send?.('open'));
    return;
  }
  const { user, system } = process.cpuUsage();
  const { p50, p99 } = percentilesOf(ages.length > 0 ? ages : [Number.NaN]);
  const max = ages.reduce((most, age) => Math.max(most, age), 0);
  const report: ClientReport = { answers: ages.length, p50, p99, max, spent: (user + system) / 1_000 };
  ages = [];
  process.send?.(report);
});
process.once('disconnect', () => process.exit());
