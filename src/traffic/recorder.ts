/**
 * Records the requests of one thread while an administrator asks for them. Each recording is pulled: the thread that serves the
 * administrator asks all threads for their lines several times a second. A recording that nobody pulls ends by itself. While there is
 * none, a request pays for one comparison.
 */
import { performance } from 'node:perf_hooks';
import type { Identity } from '../access/identity.js';
import { shapeDigest } from '../batching/shape-stats.js';
import { STAGES } from '../engine/stages.js';
import type { Model } from '../mirror/model.js';
import { type Omission, SecretNames } from './secrets.js';

/** A request that was answered, as the HTTP server knows it. */
export interface AnsweredRequest {
  readonly method: string;
  /** As sent, without the query string. */
  readonly path: string;
  /** Without the access token. */
  readonly queryString: string;
  readonly headers: { readonly prefer: string; readonly accept: string };
  readonly route: string;
  /** By the clock of `performance`. */
  readonly begun: number;
  /** The caller, or null if the request was refused before, or if the route asks for no caller. */
  readonly identity: Identity | null;
  /** The text of its last statement; '' for none. */
  readonly statementText: string;
  readonly received: Buffer | null;
  /** Whether the body was collected, and is JSON or empty. */
  readonly hasJsonBody: boolean;
  readonly isWrite: boolean;
  /** Bytes of the response, before compression. */
  readonly sentBytes: number;
  /** Milliseconds by stage, negative for those that it did not pass; null for none. */
  readonly stageTimes: readonly number[] | null;
  /** Whether it is a stream of events. */
  readonly wantsEvents: boolean;
}

/** Asks a thread for what it has recorded since the last time. The first one begins the recording. */
export interface TrafficPull {
  readonly id: string;
  /** The share of requests that is recorded. */
  readonly sample: number;
  /** In milliseconds since 1970: the time from which offsets count. */
  readonly begun: number;
  /** Ends the recording. */
  readonly isLast: boolean;
}

export interface TrafficBatch {
  /** Lines of JSON, one per statement. */
  readonly statements: readonly string[];
  /** Lines of JSON, one per request, each with its end. */
  readonly lines: Uint8Array;
  readonly requests: number;
  /** Requests that came too fast, or did not fit into the memory of the recording. */
  readonly dropped: number;
}

/** Milliseconds without a pull after which a recording ends. */
const LEASE_MS = 15_000;
const MAX_BUFFERED_BYTES = 8_000_000;
/** The lines are written here at once: thousands of strings that live for a while would keep the garbage collector busy. */
const CHUNK_BYTES = 262_144;
const NO_LINES: TrafficBatch = { statements: [], lines: new Uint8Array(), requests: 0, dropped: 0 };
/** A request takes about 7 µs to record and send: so a recording takes at most 2 % of the time of a thread. */
const MAX_REQUESTS_PER_SECOND = 2_500;
const MAX_BODY_BYTES = 65_536;
/** Administrators rarely record twice at a time. */
export const MAX_RECORDINGS = 4;

export class TrafficRecorder {
  /** The recordings that run, or null if there are none. */
  current: readonly Recording[] | null = null;
  /** Whether the service stops: recordings end. */
  isStopping = false;
  #names: { readonly model: Model; readonly secret: SecretNames } | null = null;
  readonly #listeners: (() => void)[] = [];

  constructor(private readonly model: () => Model) {}

  /** Calls back when a recording begins or ends. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  pull(pull: TrafficPull): TrafficBatch {
    const running = this.current?.find(({ id }) => id === pull.id);
    if (running === undefined) {
      if (!pull.isLast) this.#change([...(this.current ?? []), new Recording(pull, () => this.#end(pull.id))]);
      return NO_LINES;
    }
    const batch = running.take();
    if (pull.isLast) this.#end(pull.id);
    return batch;
  }

  /** To be called if there is a recording. */
  add(request: AnsweredRequest, status: number): void {
    if (request.wantsEvents) return;
    for (const recording of this.current ?? []) recording.add(request, status, () => this.#secretNames());
  }

  stop(): void {
    this.isStopping = true;
  }

  #end(id: string): void {
    const left = (this.current ?? []).filter((recording) => recording.id !== id || recording.close());
    this.#change(left);
  }

  #change(recordings: readonly Recording[]): void {
    this.current = recordings.length === 0 ? null : recordings;
    for (const listener of this.#listeners) listener();
  }

  #secretNames(): SecretNames {
    const model = this.model();
    if (this.#names?.model !== model) this.#names = { model, secret: new SecretNames(model) };
    return this.#names.secret;
  }
}

class Recording {
  readonly id: string;
  readonly #sample: number;
  /** Added to a time of `performance`, the offset in the recording. */
  readonly #offset: number;
  readonly #lease: NodeJS.Timeout;
  /** Digests of the statements that were recorded. */
  readonly #shapes = new Map<string, string>();
  #statements: string[] = [];
  /** Full chunks, and the one that is being written. */
  #full: Buffer[] = [];
  #chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  #used = 0;
  #bytes = 0;
  #requests = 0;
  #dropped = 0;
  /** The second of the last request, and the requests in it. */
  #second = 0;
  #inSecond = 0;

  constructor({ id, sample, begun }: TrafficPull, onExpired: () => void) {
    this.id = id;
    this.#sample = sample;
    this.#offset = Date.now() - performance.now() - begun;
    this.#lease = setTimeout(onExpired, LEASE_MS).unref();
  }

  add(request: AnsweredRequest, status: number, names: () => SecretNames): void {
    if (this.#sample < 1 && Math.random() >= this.#sample) return;
    const time = request.begun + this.#offset;
    if (time < 0) return;
    if (this.#bytes > MAX_BUFFERED_BYTES || this.#isTooFast(time)) {
      this.#dropped++;
      return;
    }
    const shape = request.statementText === '' ? '' : this.#shapeOf(request.statementText);
    this.#push(lineOf(request, { time, shape, status }, names()));
  }

  #isTooFast(time: number): boolean {
    const second = Math.floor(time / 1_000);
    if (second !== this.#second) {
      this.#second = second;
      this.#inSecond = 0;
    }
    return ++this.#inSecond > MAX_REQUESTS_PER_SECOND;
  }

  /** The digest of the statement, which is recorded once. */
  #shapeOf(text: string): string {
    const known = this.#shapes.get(text);
    if (known !== undefined) return known;
    const shape = shapeDigest(text);
    this.#shapes.set(text, shape);
    this.#statements.push(`{"shape":"${shape}","text":${JSON.stringify(text)}}`);
    return shape;
  }

  take(): TrafficBatch {
    this.#lease.refresh();
    const lines = Buffer.concat([...this.#full, this.#chunk.subarray(0, this.#used)]);
    const batch = { statements: this.#statements, lines, requests: this.#requests, dropped: this.#dropped };
    this.#statements = [];
    this.#full = [];
    this.#used = this.#bytes = this.#requests = this.#dropped = 0;
    return batch;
  }

  /** Returns false. */
  close(): boolean {
    clearTimeout(this.#lease);
    return false;
  }

  #push(line: string): void {
    // A character takes three bytes at most.
    const most = line.length * 3 + 1;
    if (this.#used + most > this.#chunk.length) {
      this.#full.push(this.#chunk.subarray(0, this.#used));
      this.#chunk = Buffer.allocUnsafeSlow(Math.max(CHUNK_BYTES, most));
      this.#used = 0;
    }
    const written = this.#chunk.write(`${line}\n`, this.#used);
    this.#used += written;
    this.#bytes += written;
    this.#requests++;
  }
}

interface Measured {
  readonly time: number;
  readonly shape: string;
  readonly status: number;
}

/** The request as a line of JSON. Built as text, because that takes half the time of an object. */
function lineOf(request: AnsweredRequest, { time, shape, status }: Measured, names: SecretNames): string {
  const { method, route, identity, sentBytes } = request;
  const body = bodyOf(request);
  const omitted = omissionOf(request, body, names);
  let line = `{"t":${tenths(time)},"method":${JSON.stringify(method)}`;
  if (omitted !== null) line += `,"route":${JSON.stringify(route)},"omitted":"${omitted}"`;
  else {
    const { path, queryString } = request;
    line += `,"path":${JSON.stringify(queryString === '' ? path : `${path}?${queryString}`)}`;
    if (body !== null && body !== '') line += `,"body":${JSON.stringify(body)}`;
    const { prefer, accept } = request.headers;
    if (prefer !== '' && PREFERENCES.test(prefer)) line += `,"prefer":${JSON.stringify(prefer)}`;
    // GraphQL answers errors with other statuses to clients that name application/json.
    if (accept !== '' && route === '/graphql' && MEDIA_TYPES.test(accept)) line += `,"accept":"${accept}"`;
  }
  if (shape !== '') line += `,"shape":"${shape}"`;
  if (isWrite(request)) line += ',"write":true';
  line += identity === null ? NO_CALLER : callerOf(identity);
  line += `,"status":${status},"bytes":${sentBytes},"ms":${hundredths(performance.now() - request.begun)}`;
  return request.stageTimes === null ? `${line}}` : `${line},"stages":{${stagesOf(request.stageTimes)}}}`;
}

/** Headers of the usual form. */
const MEDIA_TYPES = /^[\w+./*-]+(?:;\s*q=[\d.]+)?(?:,\s*[\w+./*-]+(?:;\s*q=[\d.]+)?)*$/;
const PREFERENCES = /^[a-z]+(?:=[a-z0-9.-]+)?(?:[;,]\s*[a-z]+(?:=[a-z0-9.-]+)?)*$/;

function omissionOf(request: AnsweredRequest, body: string | null, names: SecretNames): Omission | null {
  const { method, route, path, queryString, identity } = request;
  const omission = names.omissionOf({ method, route, path, queryString, body: body ?? '' });
  if (omission !== null) return omission;
  if (body === null) return request.hasJsonBody ? 'large' : 'body';
  if (identity === null) return 'caller';
  return identity.share === undefined ? null : 'share';
}

/** A POST of these routes may be a read. */
const MAY_READ: ReadonlySet<string> = new Set(['/graphql', '/graphql/system', '/rpc/:function']);

function isWrite({ method, route, isWrite }: AnsweredRequest): boolean {
  if (method === 'GET' || method === 'HEAD' || method === 'SEARCH') return false;
  return isWrite || method !== 'POST' || !MAY_READ.has(route);
}

/** Returns null if the body cannot be recorded. */
function bodyOf({ received, hasJsonBody, method }: AnsweredRequest): string | null {
  if (method === 'GET' || method === 'HEAD') return '';
  if (!hasJsonBody || (received !== null && received.length > MAX_BODY_BYTES)) return null;
  return received === null ? '' : received.toString('utf8');
}

function stagesOf(times: readonly number[]): string {
  let text = '';
  for (let position = 0; position < STAGES.length; position++) {
    const ms = times[position] ?? -1;
    if (ms >= 0) text += `${text === '' ? '' : ','}"${STAGES[position]}":${hundredths(ms)}`;
  }
  return text;
}

const NO_CALLER = ',"user":null,"role":null';
/** An identity is cached for many requests. */
const callers = new WeakMap<Identity, string>();

function callerOf(identity: Identity): string {
  const known = callers.get(identity);
  if (known !== undefined) return known;
  const { user, role } = identity;
  const text = `,"user":${JSON.stringify(user)},"role":${JSON.stringify(role)}`;
  callers.set(identity, text);
  return text;
}

/** Most times are short and come again: to write a fraction takes longer than to find its text. */
const MAX_CACHED_HUNDREDTHS = 2_000;
const HUNDREDTHS: string[] = [];

function hundredths(ms: number): string {
  const count = Math.round(ms * 100);
  if (count >= MAX_CACHED_HUNDREDTHS) return String(Math.round(ms));
  HUNDREDTHS[count] ??= String(count / 100);
  return HUNDREDTHS[count];
}

function tenths(ms: number): string {
  const count = Math.floor(ms * 10);
  const whole = Math.floor(count / 10);
  return `${whole}.${count - whole * 10}`;
}
