/**
 * Load that does not wait for the server. A client that waits for a response before it sends the next request leaves out the requests that
 * would have waited longest (coordinated omission). Here a schedule says when each request is due, and its latency begins then, even if
 * all connections are busy. Each connection has one request at a time.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as wait } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';

/** A request as it is sent. */
export interface Sending {
  readonly bytes: Buffer;
  /** Whether it is a HEAD request, whose response has no body. */
  readonly isHead?: boolean;
}

/** When requests are due, in the time of `performance`. */
export interface LoadSchedule<Request extends Sending> {
  /** The time at which the next request is due, or null if none is left. */
  peek(now: number): number | null;
  take(): Request | null;
}

/** Why a request has no response: the service closed its connection, or did not answer in time. */
export type Failure = 'connection closed' | 'timed out';

interface LoadListener<Request extends Sending> {
  /** `latency` begins when the request was due. The status is 0 if there was no response, and `failure` says why. */
  onAnswer(request: Request, latency: number, status: number, failure: Failure): void;
  /** How late this client sent a request although a connection was free: the server did not cause this delay. */
  onSend?(request: Request, lateness: number): void;
}

interface RequestText {
  readonly method?: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** With the query string. */
  readonly path: string;
  readonly body?: string | undefined;
}

export function writeRequest({ method = 'GET', headers, path, body }: RequestText, host: string): Buffer {
  const names = Object.keys(headers).map((name) => name.toLowerCase());
  const lines = [`${method} ${path} HTTP/1.1`];
  if (!names.includes('host')) lines.push(`Host: ${host}`);
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (body !== undefined) lines.push(`Content-Length: ${Buffer.byteLength(body)}`);
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body ?? ''}`);
}

/** The shortest time of a Node timer, in milliseconds. */
const TIMER_MS = 1;

/** Milliseconds of sleep between two checks of the sockets while a request is nearly due: neither a request nor a response waits longer. */
const SLEEP_MS = 0.1;
const NOTHING_TO_HEAR = new Int32Array(new SharedArrayBuffer(4));

/** Milliseconds for a connection to be opened. */
const CONNECT_TIMEOUT_MS = 10_000;
/** Between two attempts to open one again. */
const RECONNECT_MS = 10;
/** Between two checks for requests without a response, and for connections that were idle for so long that the server may close them. */
const SWEEP_MS = 250;
const MAX_IDLE_MS = 5_000;

export class OpenLoop<Request extends Sending> {
  readonly #idle: Line<Request>[] = [];
  readonly #busy = new Set<Line<Request>>();
  #schedule: LoadSchedule<Request> | null = null;
  #isEnded = false;
  #sweptAt = 0;
  /** The time at which a connection became free after all were busy: before that no client could have sent anything. */
  #freeSince = 0;
  /** Whether the last attempt to open a connection again failed. */
  #isRefused = false;

  /** A request without a response within `timeoutMs` counts as failed. */
  constructor(
    private readonly target: URL,
    private readonly listener: LoadListener<Request>,
    private readonly timeoutMs: number,
  ) {}

  /** Opens the connections. */
  async connect(count: number): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, async () => {
        this.#idle.push(await this.#openLine());
      }),
    );
  }

  /** Sends all requests of the schedule, and waits for their responses until the given time at the latest. */
  async run(schedule: LoadSchedule<Request>, until: number, signal?: AbortSignal): Promise<void> {
    this.#schedule = schedule;
    for (;;) {
      const due = this.#pump();
      const now = performance.now();
      if (signal?.aborted || now > until || (due === null && this.#busy.size === 0)) break;
      this.#sweep(now);
      const isNear = due !== null && due > now && due - now < TIMER_MS * 2;
      if (isNear) {
        Atomics.wait(NOTHING_TO_HEAR, 0, 0, SLEEP_MS);
        await nextTurn();
      } else await wait(TIMER_MS);
    }
    this.#schedule = null;
    // Requests without a response until then have failed.
    for (const line of this.#busy) line.fail();
  }

  /** Whether the service does not accept connections. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  end(): void {
    this.#isEnded = true;
    for (const line of [...this.#idle, ...this.#busy]) line.socket.destroy();
  }

  /** Sends due requests while connections are free. Returns the time at which the next one is due, or null if none is left. */
  #pump(): number | null {
    for (;;) {
      const now = performance.now();
      const due = this.#schedule?.peek(now) ?? null;
      if (due === null || due > now) return due;
      const line = this.#takeIdle();
      if (line === null) return now;
      const request = this.#schedule?.take() ?? null;
      if (request === null) {
        this.#idle.push(line);
        return null;
      }
      this.listener.onSend?.(request, Math.max(0, now - Math.max(due, this.#freeSince)));
      this.#busy.add(line);
      line.send(request, due, now);
    }
  }

  #takeIdle(): Line<Request> | null {
    for (;;) {
      const line = this.#idle.pop();
      if (line === undefined) return null;
      if (line.isUsable) return line;
      void this.#replace();
    }
  }

  #sweep(now: number): void {
    if (now - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now;
    for (const line of this.#busy) if (now - line.sentAt > this.timeoutMs) line.fail();
    const stale = this.#idle.filter((line) => !line.isUsable || now - line.freeSince > MAX_IDLE_MS);
    if (stale.length === 0) return;
    this.#idle.splice(0, Number.POSITIVE_INFINITY, ...this.#idle.filter((line) => !stale.includes(line)));
    for (const line of stale) {
      line.socket.destroy();
      void this.#replace();
    }
  }

  #openLine(): Promise<Line<Request>> {
    return new Promise((resolve, reject) => {
      const line: Line<Request> = new Line(openSocket(this.target), (...settled) => this.#settle(line, ...settled));
      const { socket } = line;
      const timer = setTimeout(() => socket.destroy(new Error('the connection timed out')), CONNECT_TIMEOUT_MS);
      socket.once(this.target.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
        clearTimeout(timer);
        resolve(line);
      });
      socket.once('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
    });
  }

  #settle(line: Line<Request>, ...[request, due, status, failure]: Parameters<Settled<Request>>): void {
    const now = performance.now();
    this.#busy.delete(line);
    this.listener.onAnswer(request, now - due, status, failure);
    if (this.#idle.length === 0) this.#freeSince = now;
    line.freeSince = now;
    if (line.isUsable) this.#idle.push(line);
    else void this.#replace();
    this.#pump();
  }

  /** Servers close connections now and then. */
  async #replace(): Promise<void> {
    while (!this.#isEnded)
      try {
        const line = await this.#openLine();
        this.#isRefused = false;
        if (this.#idle.length === 0) this.#freeSince = performance.now();
        if (this.#isEnded) line.socket.destroy();
        else this.#idle.push(line);
        this.#pump();
        return;
      } catch {
        this.#isRefused = true;
        await wait(RECONNECT_MS);
      }
  }
}

function openSocket({ protocol, hostname, port }: URL): Socket {
  const host = hostname.replace(/^\[|\]$/g, '');
  if (protocol !== 'https:') return connectTcp({ host, port: Number(port || 80), noDelay: true });
  const socket = connectTls({ host, port: Number(port || 443), ...(isIP(host) ? {} : { servername: host }) });
  return socket.setNoDelay();
}

type Settled<Request> = (request: Request, due: number, status: number, failure: Failure) => void;

/** One connection with at most one request in flight. */
class Line<Request extends Sending> {
  readonly #reader = new ResponseReader(false);
  #request: Request | null = null;
  #due = 0;
  sentAt = 0;
  freeSince = performance.now();
  isUsable = true;

  constructor(
    readonly socket: Socket,
    private readonly settled: Settled<Request>,
  ) {
    socket.on('data', (chunk: Buffer) => this.#hear(chunk));
    // 'close' follows each error.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.isUsable = false;
      this.#finish(this.#reader.endsWithConnection ? this.#reader.status : 0);
    });
  }

  send(request: Request, due: number, now: number): void {
    this.#request = request;
    this.#due = due;
    this.sentAt = now;
    this.#reader.bodiless = request.isHead === true;
    this.socket.write(request.bytes);
  }

  /** Ends the connection, and the request on it without a response. */
  fail(): void {
    this.isUsable = false;
    this.socket.destroy();
    this.#finish(0, 'timed out');
  }

  #hear(chunk: Buffer): void {
    if (!this.#reader.read(chunk)) return;
    this.isUsable = this.#reader.keepsConnection;
    if (!this.isUsable) this.socket.destroy();
    this.#finish(this.#reader.status);
  }

  #finish(status: number, failure: Failure = 'connection closed'): void {
    const request = this.#request;
    if (request === null) return;
    this.#request = null;
    this.settled(request, this.#due, status, failure);
  }
}

const LINE_END = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Finds the status and the end of each response on a connection, with just enough HTTP/1.1. Bodies are discarded. */
export class ResponseReader {
  status = 0;
  keepsConnection = true;
  #part: 'head' | 'body' | 'size' | 'chunk' | 'trailer' | 'rest' = 'head';
  #remaining = 0;
  /** A head or line whose end has not arrived yet. */
  #unread: Buffer = NOTHING;

  /** `bodiless`: the response of a HEAD request has no body, whatever its length says. */
  constructor(public bodiless: boolean) {}

  /** Whether the response ends when the server closes the connection. */
  get endsWithConnection(): boolean {
    return this.#part === 'rest';
  }

  /** True when the chunk completed the response. */
  read(chunk: Buffer): boolean {
    const data = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    this.#unread = NOTHING;
    let position = 0;
    while (position < data.length) {
      if (this.#part === 'rest') return false;
      if (this.#part === 'body' || this.#part === 'chunk') {
        const taken = Math.min(this.#remaining, data.length - position);
        position += taken;
        this.#remaining -= taken;
        if (this.#remaining > 0) return false;
        if (this.#part === 'body') return this.#complete();
        this.#part = 'size';
        continue;
      }
      const mark = this.#part === 'head' ? HEAD_END : LINE_END;
      const found = data.indexOf(mark, position);
      if (found < 0) {
        // A copy, because the memory may be reused for the next chunk.
        this.#unread = Buffer.from(data.subarray(position));
        return false;
      }
      const line = data.toString('latin1', position, found);
      position = found + mark.length;
      if (this.#readLine(line)) return this.#complete();
    }
    return false;
  }

  /** True if nothing follows. */
  #readLine(line: string): boolean {
    if (this.#part === 'trailer') return line === '';
    if (this.#part === 'head') return this.#readHead(line);
    const size = Number.parseInt(line, 16);
    this.#part = size > 0 ? 'chunk' : 'trailer';
    this.#remaining = size + LINE_END.length;
    return false;
  }

  #readHead(head: string): boolean {
    this.status = Number(head.slice(9, 12));
    if (this.status >= 100 && this.status < 200) return false;
    this.keepsConnection = !/\r\nconnection: *close/i.test(head);
    if (this.bodiless || this.status === 204 || this.status === 304) return true;
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length !== undefined) {
      this.#part = 'body';
      this.#remaining = Number(length);
      return this.#remaining === 0;
    }
    this.#part = /\r\ntransfer-encoding:[^\r]*chunked/i.test(head) ? 'size' : 'rest';
    return false;
  }

  #complete(): true {
    this.#part = 'head';
    return true;
  }
}
