/**
 * Records the requests of one thread while an administrator asks for them. Each recording is pulled: the thread that serves the
 * administrator asks all threads for their lines several times a second. A recording that nobody pulls ends by itself. While there is
 * none, a request pays for one comparison. A request that is recorded is kept as it is, and many lines are written at once. If the requests
 * come so fast that this takes more than a small part of a processor, a random part of them is recorded.
 */
import { isUtf8 } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { Model } from '../../compiler/model/model.js';
import type { Identity } from '../../server/access/identity.js';
import { shapeDigest } from '../../server/batching/shape-stats.js';
import { STAGES } from '../../server/execute/stages.js';
import type { AnsweredRequest, RequestRecorder } from '../../server/http/request-recorder.js';
import { type Omission, SecretNames } from './secrets.js';

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
  /** Requests that would have taken too much time, or did not fit into the memory of the recording. */
  readonly dropped: number;
}

/** Milliseconds without a pull after which a recording ends. */
const LEASE_MS = 15_000;
const MAX_BUFFERED_BYTES = 8_000_000;
/** The lines are written here: thousands of strings that live for a while would keep the garbage collector busy. */
const CHUNK_BYTES = 262_144;
const NO_LINES: TrafficBatch = { statements: [], lines: new Uint8Array(), requests: 0, dropped: 0 };
/** Requests that wait until their lines are written, which takes about 0.1 ms for all of them. */
const SLICE = 64;
const MAX_BODY_BYTES = 65_536;
/** Administrators rarely record twice at a time. */
export const MAX_RECORDINGS = 4;

/** The names that may be secret. */
type Names = Pick<Model, 'collections'>;

export class TrafficRecorder implements RequestRecorder {
  /** The recordings that run, or null if there are none. */
  current: readonly Recording[] | null = null;
  /** Whether the service stops: recordings end. */
  isStopping = false;
  #names: { readonly model: Names; readonly secret: SecretNames } | null = null;
  readonly #listeners: (() => void)[] = [];
  #budget = new Budget();
  /** Requests whose lines are not written yet, with what is known only when they end. */
  readonly #waiting: (AnsweredRequest | null)[] = new Array(SLICE).fill(null);
  readonly #statuses = new Uint16Array(SLICE);
  readonly #durations = new Float64Array(SLICE);
  /** For each of them, a bit for each recording that has it. */
  readonly #takers = new Uint8Array(SLICE);
  #count = 0;

  constructor(private readonly model: () => Names) {}

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
    this.#writeLines();
    this.#budget.renew();
    const batch = running.take();
    if (pull.isLast) this.#end(pull.id);
    return batch;
  }

  /**
   * Decides which recordings have the request that ends now, before anything is spent on it: a bit for each. To be called once for each
   * request if there is a recording.
   */
  draw(): number {
    const recordings = this.current ?? [];
    const chance = Math.random();
    let takers = 0;
    for (let index = 0; index < recordings.length; index++)
      if (recordings[index]?.takes(chance, this.#budget)) takers |= 1 << index;
    return takers;
  }

  /** `takers` comes from `draw`. */
  add(request: AnsweredRequest, status: number, takers: number): void {
    if (takers === 0 || request.wantsEvents) return;
    const index = this.#count++;
    this.#waiting[index] = request;
    this.#statuses[index] = status;
    this.#durations[index] = performance.now() - request.begun;
    this.#takers[index] = takers;
    if (this.#count === SLICE) this.#writeLines();
  }

  stop(): void {
    this.isStopping = true;
  }

  #writeLines(): void {
    if (this.#count === 0) return;
    const begun = performance.now();
    const names = this.#secretNames();
    const recordings = this.current ?? [];
    for (let index = 0; index < this.#count; index++) {
      const request = this.#waiting[index];
      this.#waiting[index] = null;
      if (!request) continue;
      const end = endOf(request, { status: this.#statuses[index] ?? 0, ms: this.#durations[index] ?? 0 }, names);
      const takers = this.#takers[index] ?? 0;
      for (let taker = 0; taker < recordings.length; taker++)
        if (takers & (1 << taker)) recordings[taker]?.add(request, end);
    }
    for (const recording of recordings) recording.writeLines();
    this.#budget.spend(this.#count, performance.now() - begun);
    this.#count = 0;
  }

  #end(id: string): void {
    const left = (this.current ?? []).filter((recording) => recording.id !== id || recording.close());
    this.#change(left);
  }

  #change(recordings: readonly Recording[]): void {
    // Bits name recordings by their order.
    this.#writeLines();
    if (this.current === null) this.#budget = new Budget();
    this.current = recordings.length === 0 ? null : recordings;
    for (const listener of this.#listeners) listener();
  }

  #secretNames(): SecretNames {
    const model = this.model();
    if (this.#names?.model !== model) this.#names = { model, secret: new SecretNames(model) };
    return this.#names.secret;
  }
}

/** The part of a processor that a thread takes to write lines. To send them, and to free their memory, takes as long again. */
const PROCESSOR_SHARE = 0.005;
/** Requests per millisecond that are recorded whatever they take: all of a small service, at most 1.5 % of a slow processor. */
const LEAST_RATE = 0.3;
/** Milliseconds until the share is computed again. */
const RENEWAL_MS = 200;
/** A recording may begin at full load: the share is computed after so many requests for the first time. */
const FIRST_REQUESTS = 500;
/** Milliseconds to record a request, until it is measured. */
const FIRST_COST_MS = 0.003;
/** The part of a new measurement in the average. */
const NEW_PART = 0.1;

/** The share of requests that a thread records: all of them, unless that takes too much time. */
class Budget {
  share = 1;
  /** Requests that recordings asked for since the last renewal. */
  offered = 0;
  #cost = FIRST_COST_MS;
  #renewed = performance.now();
  #isFirst = true;

  spend(requests: number, milliseconds: number): void {
    // The thread may be interrupted while it records: one long time says little.
    const measured = Math.min(milliseconds / requests, 2 * this.#cost);
    this.#cost += (measured - this.#cost) * NEW_PART;
    if (this.#isFirst && this.offered >= FIRST_REQUESTS) this.renew();
  }

  renew(): void {
    const elapsed = performance.now() - this.#renewed;
    if (elapsed < RENEWAL_MS && !this.#isFirst) return;
    this.#isFirst = false;
    const allowed = Math.max(PROCESSOR_SHARE / Math.max(this.#cost, Number.EPSILON), LEAST_RATE) * elapsed;
    this.share = this.offered > allowed ? allowed / this.offered : 1;
    this.offered = 0;
    this.#renewed += elapsed;
  }
}

class Recording {
  readonly id: string;
  readonly #sample: number;
  /** Added to a time of `performance`, the offset in the recording. */
  readonly #offset: number;
  readonly #lease: NodeJS.Timeout;
  /** Digests of the statements that were recorded, as a part of a line. */
  readonly #shapes = new Map<string, string>();
  #statements: string[] = [];
  /** Lines that are not in the chunk yet. */
  #text = '';
  /** Full chunks, and the one that is being written. */
  #full: Buffer[] = [];
  #chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  #used = 0;
  #bytes = 0;
  #requests = 0;
  #dropped = 0;

  constructor({ id, sample, begun }: TrafficPull, onExpired: () => void) {
    this.id = id;
    this.#sample = sample;
    this.#offset = Date.now() - performance.now() - begun;
    this.#lease = setTimeout(onExpired, LEASE_MS).unref();
  }

  /** Whether it has a request, by a random number from 0 to 1. */
  takes(chance: number, budget: Budget): boolean {
    if (chance >= this.#sample) return false;
    budget.offered++;
    if (chance < this.#sample * budget.share && this.#bytes <= MAX_BUFFERED_BYTES) return true;
    this.#dropped++;
    return false;
  }

  /** `end` is the line after its time and shape. */
  add({ begun, statementText }: AnsweredRequest, end: string): void {
    const time = begun + this.#offset;
    if (time < 0) return;
    const shape = statementText === '' ? '' : this.#shapeOf(statementText);
    this.#text += `{"t":${tenths(time)}${shape}${end}`;
    this.#requests++;
  }

  /** The digest of the statement, which is recorded once. */
  #shapeOf(text: string): string {
    const known = this.#shapes.get(text);
    if (known !== undefined) return known;
    const shape = shapeDigest(text);
    const part = `,"shape":"${shape}"`;
    this.#shapes.set(text, part);
    this.#statements.push(`{"shape":"${shape}","text":${JSON.stringify(text)}}`);
    return part;
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

  writeLines(): void {
    // A character takes three bytes at most.
    const most = this.#text.length * 3;
    if (this.#used + most > this.#chunk.length) {
      this.#full.push(this.#chunk.subarray(0, this.#used));
      this.#chunk = Buffer.allocUnsafeSlow(Math.max(CHUNK_BYTES, most));
      this.#used = 0;
    }
    const written = this.#chunk.write(this.#text, this.#used);
    this.#used += written;
    this.#bytes += written;
    this.#text = '';
  }
}

interface Measured {
  readonly status: number;
  readonly ms: number;
}

/** The rest of a line after the time and the shape. Built as text, because that takes half the time of an object. */
function endOf(request: AnsweredRequest, { status, ms }: Measured, names: SecretNames): string {
  const { method, route, identity, sentBytes } = request;
  const unread = unreadBody(request);
  const body = unread === null ? bodyOf(request) : '';
  const omitted = omissionOf(request, body, names) ?? unread ?? callerOmission(request);
  let line = method === 'GET' ? ',"method":"GET"' : `,"method":${JSON.stringify(method)}`;
  if (omitted !== null) line += `,"route":${JSON.stringify(route)},"omitted":"${omitted}"`;
  else {
    const { path, queryString } = request;
    line += `,"path":${JSON.stringify(queryString === '' ? path : `${path}?${queryString}`)}`;
    if (body !== '') line += `,"body":${JSON.stringify(body)}`;
    const { prefer, accept } = request.headers;
    if (prefer !== '' && PREFERENCES.test(prefer)) line += `,"prefer":${JSON.stringify(prefer)}`;
    // GraphQL answers errors with other statuses to clients that name application/json.
    if (accept !== '' && route === '/graphql' && MEDIA_TYPES.test(accept)) line += `,"accept":"${accept}"`;
  }
  if (isWrite(request)) line += ',"write":true';
  line += identity === null ? NO_CALLER : callerOf(identity);
  line += `,"status":${status},"bytes":${sentBytes},"ms":${hundredths(ms)}`;
  return request.stageTimes === null ? `${line}}\n` : `${line},"stages":{${stagesOf(request.stageTimes)}}}\n`;
}

/** Headers of the usual form, with names that the service knows. */
const MEDIA_TYPES = listOf('(?:application|text|\\*)/[\\w+.*-]+(?:;\\s*q=[\\d.]+)?');
const PREFERENCES = listOf(
  '(?:return|handling|wait|explain|timing|consistency|count|resolution|tx)(?:=(?:[a-z-]{1,20}|\\d{1,6}))?',
);

function listOf(part: string): RegExp {
  return new RegExp(`^${part}(?:[;,]\\s*${part})*$`);
}

function omissionOf(request: AnsweredRequest, body: string, names: SecretNames): Omission | null {
  const { method, route, path, queryString } = request;
  return names.omissionOf({ method, route, path, queryString, body });
}

function callerOmission({ identity }: AnsweredRequest): Omission | null {
  if (identity === null) return 'caller';
  return identity.share === undefined ? null : 'share';
}

/** A POST of these routes may be a read. */
const MAY_READ: ReadonlySet<string> = new Set(['/graphql', '/graphql/system', '/rpc/:function']);

function isWrite({ method, route, isWrite }: AnsweredRequest): boolean {
  if (method === 'GET' || method === 'HEAD' || method === 'SEARCH') return false;
  return isWrite || method !== 'POST' || !MAY_READ.has(route);
}

/** Why a body cannot be recorded, or null if it can. Bytes that are no text would become others in a replay. */
function unreadBody(request: AnsweredRequest): Omission | null {
  const { method, received, hasJsonBody } = request;
  if (method === 'GET' || method === 'HEAD') return null;
  if (!hasJsonBody) return 'body';
  if (received === null) return null;
  if (received.length > MAX_BODY_BYTES) return 'large';
  return isUtf8(received) ? null : 'body';
}

function bodyOf({ method, received }: AnsweredRequest): string {
  return method === 'GET' || method === 'HEAD' || received === null ? '' : received.toString('utf8');
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
/** The recorded text of each caller. An identity object serves many requests, so the text is built once. */
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
