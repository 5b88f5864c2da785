/**
 * The subscribers of the live bench, in a separate process, so that their cost does not delay the writer. Each is a connection with
 * server-sent events, or several share a WebSocket with GraphQL. They share one buffer, and only search a result for its times. A time
 * that is newer than all that a connection has seen is a new change.
 */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { percentilesOf } from '../src/features/traffic/percentiles.js';

export interface ClientTask {
  readonly url: string;
  /** For each connection. */
  readonly requests: readonly ClientRequest[];
  /** Subscriptions of one connection to the GraphQL query that is its path; null for server-sent events. */
  readonly sharing: number | null;
}

export interface ClientRequest {
  readonly path: string;
  readonly token: string;
}

/** `measure` returns the changes since the last one. */
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

/** Milliseconds for each change that reached a connection. */
let ages: number[] = [];
let answered = 0;
const buffer = Buffer.allocUnsafe(BUFFER_BYTES);

/**
 * Records the changes behind a position in the buffer that are newer than the given one, and returns the newest. All subscriptions of a
 * connection have the same result, so the last one in the buffer represents all of them.
 */
function noteChanges(from: number, length: number, known: number): number {
  const now = Date.now();
  let newest = known;
  for (let at = buffer.indexOf(STAMP, from); at >= 0 && at < length; at = buffer.indexOf(STAMP, at)) {
    at += STAMP.length;
    let stamp = 0;
    for (let digit = 0; digit < DIGITS && at + digit < length; digit++) {
      const byte = buffer[at + digit] ?? 0;
      if (byte < ZERO || byte > NINE) break;
      stamp = stamp * 10 + byte - ZERO;
    }
    if (stamp <= known) continue;
    ages.push(now - stamp);
    newest = Math.max(newest, stamp);
  }
  return newest;
}

async function open({ url, requests, sharing }: ClientTask): Promise<void> {
  const { hostname, port } = new URL(url);
  let ready = 0;
  for (const [index, request] of requests.entries()) {
    let awaited = sharing ?? 1;
    let newest = 0;
    const take = (length: number): boolean => {
      const { answers, last } = answersIn(length, sharing === null ? EVENT : NEXT);
      if (awaited > 0) {
        awaited -= answers;
        if (awaited <= 0) ready++;
      } else answered += answers;
      newest = noteChanges(last, length, newest);
      return true;
    };
    const socket = connect({ port: Number(port), host: hostname, onread: { buffer, callback: take } });
    socket.once('connect', () => (sharing === null ? ask(socket, request) : askOverSocket(socket, request, sharing)));
    socket.on('error', () => {});
    // The system would refuse more connections at once.
    if (index % 100 === 99) while (ready < index - 99) await sleep(5);
  }
  while (ready < requests.length) await sleep(20);
}

const EVENT = Buffer.from('data: ');
const NEXT = Buffer.from('"type":"next"');

/** The number of results, and the start of the last complete one, or of the incomplete rest. */
function answersIn(length: number, sign: Buffer): { readonly answers: number; readonly last: number } {
  const chunk = buffer.subarray(0, length);
  let answers = 0;
  let last = 0;
  let before = 0;
  for (let at = chunk.indexOf(sign); at >= 0; at = chunk.indexOf(sign, at + sign.length)) {
    answers++;
    before = last;
    last = at;
  }
  // The end of the last one may arrive later.
  return { answers, last: before };
}

function ask(socket: Socket, { path, token }: ClientRequest): void {
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${token}\r\nAccept: text/event-stream\r\n\r\n`,
  );
}

/** The service reads the bytes after the request once the connection is a WebSocket. */
function askOverSocket(socket: Socket, { path, token }: ClientRequest, subscriptions: number): void {
  socket.write(
    `GET /graphql?access_token=${token} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n',
  );
  const begin = { type: 'connection_init', payload: { access_token: token } };
  const messages = Array.from({ length: subscriptions }, (_, index) => ({
    id: String(index),
    type: 'subscribe',
    payload: { query: path },
  }));
  // The client must not subscribe before the acknowledgement.
  setTimeout(() => socket.write(frame(begin)), UPGRADE_MS);
  setTimeout(() => socket.write(Buffer.concat(messages.map(frame))), 2 * UPGRADE_MS);
}

/** Milliseconds until a connection is upgraded and acknowledged. */
const UPGRADE_MS = 500;

/** A frame of a client, with a mask that changes nothing. */
function frame(message: object): Buffer {
  const text = Buffer.from(JSON.stringify(message));
  const head = Buffer.from([0x81, 0xfe, text.length >> 8, text.length & 0xff, 0, 0, 0, 0]);
  if (text.length >= SHORT_FRAME) return Buffer.concat([head, text]);
  return Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), text]);
}

/** From this many bytes on, the length of a frame takes two more bytes. */
const SHORT_FRAME = 126;

process.on('message', (order: ClientOrder) => {
  if (order !== 'measure') {
    void open(order.open).then(() => process.send?.('open'));
    return;
  }
  const { user, system } = process.cpuUsage();
  const { p50, p99 } = percentilesOf(ages);
  const max = ages.reduce((most, age) => Math.max(most, age), 0);
  const report: ClientReport = { answers: answered, p50, p99, max, spent: (user + system) / 1_000 };
  ages = [];
  answered = 0;
  process.send?.(report);
});
process.once('disconnect', () => process.exit());
