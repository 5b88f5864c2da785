/**
 * Requests without a socket: a `Request` of the Fetch standard is served as one that came over the port, and becomes a `Response`. The two
 * classes have the methods of uWebSockets that the exchange and the writer of responses call.
 */
import { TimeSlice } from '../../base/time-slices.js';
import type { ServerRequest, ServerResponse } from './transport.js';

export class MemoryRequest implements ServerRequest {
  readonly #url: URL;

  constructor(private readonly request: Request) {
    this.#url = new URL(request.url);
  }

  getCaseSensitiveMethod(): string {
    return this.request.method;
  }

  getUrl(): string {
    return this.#url.pathname;
  }

  getQuery(): string {
    return this.#url.search.slice(1);
  }

  getHeader(lowerCaseName: string): string {
    return this.request.headers.get(lowerCaseName) ?? '';
  }

  forEach(read: (name: string, value: string) => void): void {
    for (const [name, value] of this.request.headers) if (!IGNORED.has(name)) read(name, value);
  }
}

/** These headers are about a connection. */
const IGNORED: ReadonlySet<string> = new Set(['connection', 'keep-alive', 'transfer-encoding']);
const CONNECTION_HEADERS: ReadonlySet<string> = new Set(['connection', 'keep-alive']);

/** Bytes of a body that wait to be read: with more, the writer is paused. */
const HIGH_WATER_BYTES = 65_536;

/** The status and the headers of a response until it begins. */
export class ResponseHead {
  protected status: { readonly code: number; readonly text: string } = { code: 200, text: 'OK' };
  #lines = '';

  writeStatus(status: string): void {
    const [code = '200', ...text] = status.split(' ');
    this.status = { code: Number(code), text: text.join(' ') };
  }

  /** One value may have the lines of several headers. */
  writeHeader(name: Uint8Array | string, value: Uint8Array | string): void {
    this.#lines += `${textOf(name)}: ${textOf(value)}\r\n`;
  }

  protected headers(): [name: string, value: string][] {
    return this.#lines.split('\r\n').flatMap((line) => {
      const at = line.indexOf(':');
      return at > 0 ? [[line.slice(0, at), line.slice(at + 1).trim()]] : [];
    });
  }
}

export class MemoryResponse extends ResponseHead implements ServerResponse {
  /** Rejects if the response is broken off before its first byte. */
  readonly response: Promise<Response>;
  #settle!: { readonly resolve: (response: Response) => void; readonly reject: (error: Error) => void };
  #begun = false;
  #ended = false;
  #offset = 0;
  #body: ReadableStreamDefaultController<Uint8Array> | null = null;
  #onAborted: (() => void) | null = null;
  #onWritable: ((offset: number) => boolean) | null = null;
  #isBlocked = false;
  #reader: ReadableStreamDefaultReader<Uint8Array> | null = null;
  #resume: (() => void) | null = null;
  #isPaused = false;

  constructor(
    private readonly request: Request,
    private readonly address: string,
  ) {
    super();
    this.response = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    request.signal.addEventListener('abort', () => this.#abort(request.signal.reason), { once: true });
  }

  /** There is no socket: the program gives the address as a text. */
  getRemoteAddress(): ArrayBuffer {
    return new ArrayBuffer(0);
  }

  getRemoteAddressAsText(): ArrayBuffer {
    return new TextEncoder().encode(this.address).buffer;
  }

  cork(write: () => void): void {
    write();
  }

  write(piece: Parameters<ServerResponse['write']>[0]): boolean {
    this.#begin(null, true);
    return this.#enqueue(piece);
  }

  tryEnd(piece: Parameters<ServerResponse['tryEnd']>[0], length: number): [boolean, boolean] {
    this.#begin(length, true);
    const isTaken = this.#enqueue(piece);
    const isComplete = this.#offset >= length;
    if (isComplete) this.#end();
    return [isTaken || isComplete, isComplete];
  }

  end(body: string | Uint8Array = '', _closes = false): void {
    const bytes = copyOf(body);
    if (!this.#begun) this.#begin(bytes.byteLength, bytes.byteLength > 0);
    if (bytes.byteLength > 0) this.#enqueue(bytes);
    this.#end();
  }

  endWithoutBody(length?: number, _closes = false): void {
    this.#begin(length ?? null, false);
    this.#end();
  }

  getWriteOffset(): number {
    return this.#offset;
  }

  onWritable(handler: (offset: number) => boolean): void {
    this.#onWritable = handler;
  }

  onAborted(handler: () => void): void {
    this.#onAborted = handler;
  }

  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): void {
    void this.#readBody(handler);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#resume?.();
    this.#resume = null;
  }

  close(): void {
    this.#abort(new Error('the response was broken off'));
  }

  #begin(length: number | null, hasBody: boolean): void {
    if (this.#begun) return;
    this.#begun = true;
    const headers = new Headers();
    for (const [name, value] of this.headers())
      if (!CONNECTION_HEADERS.has(name.toLowerCase())) headers.append(name, value);
    if (length !== null && !headers.has('content-length')) headers.set('content-length', String(length));
    const { code: status, text: statusText } = this.status;
    const body = hasBody ? this.#openBody() : null;
    this.#settle.resolve(new Response(body, { status, statusText, headers }));
  }

  #openBody(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#body = controller;
        },
        pull: () => this.#unblock(),
        cancel: () => this.#abort(null),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: HIGH_WATER_BYTES }),
    );
  }

  /** The bytes are only borrowed: they are copied. Returns false if the reader should catch up first. */
  #enqueue(piece: Parameters<ServerResponse['write']>[0]): boolean {
    const bytes = copyOf(piece);
    if (bytes.byteLength === 0) return true;
    this.#offset += bytes.byteLength;
    this.#body?.enqueue(bytes);
    this.#isBlocked = (this.#body?.desiredSize ?? 1) <= 0;
    return !this.#isBlocked;
  }

  #unblock(): void {
    if (!this.#isBlocked || this.#ended) return;
    this.#isBlocked = false;
    // The writer may answer at once with another piece.
    setImmediate(() => {
      if (!this.#ended) this.#onWritable?.(this.#offset);
    });
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#body?.close();
    this.#releaseBody();
  }

  #abort(reason: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    const error = reason instanceof Error ? reason : new Error('the request was aborted');
    if (!this.#begun) this.#settle.reject(error);
    else if (reason !== null) this.#body?.error(error);
    this.#onAborted?.();
    this.#releaseBody();
  }

  #releaseBody(): void {
    this.resume();
    this.#reader?.cancel().catch(() => {});
  }

  /** Calls the handler until the body has ended or the response has left. */
  async #readBody(handler: (chunk: ArrayBuffer, isLast: boolean) => void): Promise<void> {
    if (!this.request.body) {
      handler(new ArrayBuffer(0), true);
      return;
    }
    try {
      this.#reader = this.request.body.getReader();
      // A stream that never pauses leaves others their turns all the same.
      const slice = new TimeSlice();
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (this.#ended) return;
        if (done) break;
        if (!ArrayBuffer.isView(value)) throw new TypeError('the body of a request must be a stream of bytes');
        handler(arrayBufferOf(value), false);
        if (this.#isPaused)
          await new Promise<void>((resolve) => {
            this.#resume = resolve;
          });
        else if (slice.isOver()) await slice.rest();
      }
      handler(new ArrayBuffer(0), true);
    } catch (error) {
      this.#abort(error);
    }
  }
}

function textOf(value: Uint8Array | string): string {
  return typeof value === 'string' ? value : Buffer.from(value).toString('latin1');
}

export function copyOf(piece: Parameters<ServerResponse['write']>[0]): Uint8Array {
  return typeof piece === 'string' ? Buffer.from(piece) : new Uint8Array(piece);
}

export function arrayBufferOf({ buffer, byteOffset, byteLength }: Uint8Array): ArrayBuffer {
  const bytes = new ArrayBuffer(byteLength);
  new Uint8Array(bytes).set(new Uint8Array(buffer, byteOffset, byteLength));
  return bytes;
}
