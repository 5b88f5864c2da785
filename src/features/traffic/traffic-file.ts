/**
 * The format of a recording: lines of JSON, compressed with gzip in a file. The first line says what it is, with the version of the format.
 * A line with "text" has the statement of a shape, every other line a request. The last line has the length of the recording.
 */
import { createReadStream } from 'node:fs';
import { PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { StartError, UsageError } from '../../base/errors.js';
import { codeOf, isRecord, messageOf } from '../../base/narrow.js';

const FORMAT = 'lateral-traffic';
const TRAFFIC_VERSION = 1;

interface TrafficHeader {
  readonly started: Date;
  /** The share of requests that was recorded. */
  readonly sample: number;
  /** The version of the service. */
  readonly service: string;
  /** Whether values were replaced. */
  readonly isRedacted?: boolean;
}

interface TrafficEnd {
  /** The length of the recording. */
  readonly milliseconds: number;
  readonly requests: number;
  /** Requests that the service could not keep. */
  readonly dropped: number;
}

/** A request. In its line, `path` has the query string too, and a request that is omitted has a `route` instead. */
export interface RecordedRequest {
  /** Milliseconds from the beginning of the recording. */
  readonly t: number;
  readonly method: string;
  /** As sent; of a request that is omitted, the template of its route. */
  readonly path: string;
  readonly query?: string;
  readonly body?: string;
  readonly prefer?: string;
  /** For GraphQL: the statuses of errors depend on it. */
  readonly accept?: string;
  /** Why the request has no values and cannot be replayed. */
  readonly omitted?: string;
  /** The digest of its statement, as /server/shapes has it. Absent for requests without a statement. */
  readonly shape?: string;
  readonly write?: boolean;
  readonly user: string | null;
  readonly role: string | null;
  readonly status: number;
  readonly bytes: number;
  readonly ms: number;
  readonly stages?: Readonly<Record<string, number>>;
}

export interface Traffic extends TrafficEnd {
  readonly header: TrafficHeader;
  /** Statements by the digest of their shape. */
  readonly statements: ReadonlyMap<string, string>;
  /** In the order in which the service received them. */
  readonly recorded: readonly RecordedRequest[];
  /** Whether the recording has its last line. */
  readonly isComplete: boolean;
}

export function headerLine({ started, sample, service, isRedacted = false }: TrafficHeader): string {
  return JSON.stringify({
    format: FORMAT,
    version: TRAFFIC_VERSION,
    started: started.toISOString(),
    sample,
    service,
    redacted: isRedacted,
  });
}

export function endLine({ milliseconds, requests, dropped }: TrafficEnd): string {
  return JSON.stringify({ end: true, milliseconds, requests, dropped });
}

export function requestLine({ path, query, ...others }: RecordedRequest): string {
  const url = query === undefined ? path : `${path}?${query}`;
  return JSON.stringify({ ...others, ...(others.omitted === undefined ? { path: url } : { route: path }) });
}

/** The factor by which a replay has to be faster to have the rate of the service: some requests were not recorded. */
export function serviceFactor({ header, requests, dropped }: Traffic): number {
  if (requests === 0) return 1;
  return Math.round((100 * (requests + dropped)) / requests / header.sample) / 100;
}

/** Reads a recording, compressed or not. A file that is none is a wrong operand. */
export async function readTraffic(path: string): Promise<Traffic> {
  const reader = new TrafficReader(path);
  try {
    await readLines(path, (line) => reader.add(line));
    return reader.finish();
  } catch (error) {
    if (error instanceof StartError) throw new UsageError(error.message);
    if (codeOf(error) === 'ENOENT') throw new UsageError(`there is no file ${path}`);
    throw new UsageError(`${path} cannot be read: ${messageOf(error)}`);
  }
}

const GZIP_MAGIC = [0x1f, 0x8b];

async function readLines(path: string, onLine: (line: string) => void): Promise<void> {
  const source = createReadStream(path, { highWaterMark: CHUNK_BYTES });
  const first = await firstChunk(source);
  const isCompressed = GZIP_MAGIC.every((byte, position) => first?.[position] === byte);
  const whole = async function* (): AsyncIterable<Buffer> {
    if (first !== null) yield first;
    yield* source;
  };
  const text = isCompressed ? createGunzip() : new PassThrough();
  await pipeline(whole, text, (chunks: AsyncIterable<Uint8Array>) => splitLines(chunks, onLine));
}

const CHUNK_BYTES = 262_144;

async function firstChunk(source: Readable): Promise<Buffer | null> {
  for await (const chunk of source.iterator({ destroyOnReturn: false })) return Buffer.from(chunk);
  return null;
}

export async function splitLines(chunks: AsyncIterable<Uint8Array>, onLine: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  }
  if (rest !== '') onLine(rest);
}

/** Takes the lines of a recording, and checks them. */
export class TrafficReader {
  #number = 0;
  #header: TrafficHeader | null = null;
  #end: TrafficEnd | null = null;
  readonly #statements = new Map<string, string>();
  readonly #recorded: RecordedRequest[] = [];

  constructor(private readonly name: string) {}

  get requests(): number {
    return this.#recorded.length;
  }

  /** Whether it has its first line. */
  get hasBegun(): boolean {
    return this.#header !== null;
  }

  get isComplete(): boolean {
    return this.#end !== null;
  }

  add(line: string): void {
    this.#number++;
    if (line === '') return;
    const value = this.#parse(line);
    if (this.#header === null) this.#header = this.#headerOf(value);
    else if (value['end'] === true) this.#end = this.#endOf(value);
    else if (typeof value['text'] === 'string') this.#statements.set(String(value['shape']), value['text']);
    else this.#recorded.push(this.#requestOf(value));
  }

  /** `elapsedMs` is the length of a recording without its last line. */
  finish(elapsedMs = 0): Traffic {
    if (this.#header === null) throw this.#failure('is empty');
    const recorded = this.#recorded.sort((one, other) => one.t - other.t);
    const last = recorded.at(-1)?.t ?? 0;
    const end = this.#end ?? {
      milliseconds: Math.max(last, Math.round(elapsedMs)),
      requests: recorded.length,
      dropped: 0,
    };
    return { ...end, header: this.#header, statements: this.#statements, recorded, isComplete: this.#end !== null };
  }

  #parse(line: string): Readonly<Record<string, unknown>> {
    try {
      const value: unknown = JSON.parse(line);
      if (isRecord(value) && !Array.isArray(value)) return value;
    } catch {
      // Reported below.
    }
    throw this.#header === null ? this.#notTraffic() : this.#failure(`has no JSON object in line ${this.#number}`);
  }

  #headerOf({ format, version, started, sample, service, redacted }: Readonly<Record<string, unknown>>): TrafficHeader {
    if (format !== FORMAT) throw this.#notTraffic();
    if (version !== TRAFFIC_VERSION)
      throw this.#failure(
        `has version ${JSON.stringify(version)} of the format, and this program reads version ${TRAFFIC_VERSION}: record it again`,
      );
    const begun = new Date(String(started));
    const isShare = typeof sample === 'number' && sample > 0 && sample <= 1;
    if (Number.isNaN(begun.getTime()) || !isShare) throw this.#notTraffic();
    return { started: begun, sample, service: String(service), isRedacted: redacted === true };
  }

  #endOf({ milliseconds, requests, dropped }: Readonly<Record<string, unknown>>): TrafficEnd {
    if (!isCount(milliseconds) || !isCount(requests) || !isCount(dropped)) throw this.#failure('has a bad last line');
    return { milliseconds, requests, dropped };
  }

  #requestOf({ path: url, route, ...others }: Readonly<Record<string, unknown>>): RecordedRequest {
    const [path, query] = typeof url === 'string' ? url.split(/\?(.*)/s, 2) : [route];
    const request = { ...others, path, ...(query === undefined ? {} : { query }) };
    if (!isRequest(request)) throw this.#failure(`has no request in line ${this.#number}`);
    return request;
  }

  #notTraffic(): UsageError {
    return new UsageError(`${this.name} is no recording: make one with lateral record`);
  }

  #failure(reason: string): StartError {
    return new StartError(`${this.name} ${reason}`);
  }
}

/** It becomes a part of a header. */
const IDENTIFIER = /^[\w-]{1,64}$/;

function isCount(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && Number.isFinite(value);
}

function isRequest(value: unknown): value is RecordedRequest {
  if (!isRecord(value)) return false;
  const { t, method, path, query, body, prefer, accept, user, role, status, ms } = value;
  return (
    [t, status, ms].every(isCount) &&
    typeof method === 'string' &&
    /^[A-Z]{3,10}$/.test(method) &&
    typeof path === 'string' &&
    ['omitted', 'shape'].every((name) => isTextOrAbsent(value[name])) &&
    [query, body, prefer, accept].every(isTextOrAbsent) &&
    [user, role].every((each) => each === null || (typeof each === 'string' && IDENTIFIER.test(each))) &&
    (path.startsWith('/') || value['omitted'] !== undefined) &&
    !/\s/.test(path + String(query ?? '')) &&
    !/[\r\n]/.test(`${prefer}${accept}`)
  );
}

function isTextOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}
