/** Writes responses: one corked write each, with all headers in one piece. */
import { STATUS_CODES } from 'node:http';
import { encodeInSlices } from '../node/turns.js';
import type { HeaderList } from './cors.js';
import type { Exchange } from './exchange.js';
import type { OpenListener, OpenResponse, Produce, Reply, Sink } from './reply.js';

/** Node still has the older name of 422. */
const STATUS_TEXTS: Readonly<Record<number, string | undefined>> = { ...STATUS_CODES, 422: 'Unprocessable Content' };

/** A reply that is ready to leave. */
interface PendingResponse {
  readonly exchange: Exchange;
  readonly reply: Reply;
  /** The headers, after the name of the first. */
  head: string | Uint8Array;
  readonly close: boolean;
}

/** Writes a whole body. Resolves when a large one has left; a small one is buffered at once. */
export function writeBody(pending: PendingResponse): Promise<void> | undefined {
  const { exchange, reply } = pending;
  if (exchange.aborted) return undefined;
  if (typeof reply.body === 'string' && reply.body.length > LONG_TEXT) return encodeAndWrite(pending, reply.body);
  exchange.replied = true;
  if (exchange.isCorked) return writeWhole(pending);
  let sent: Promise<void> | undefined;
  exchange.response.cork(() => {
    sent = writeWhole(pending);
  });
  return sent;
}

/** To encode more characters at once would keep others waiting. */
const LONG_TEXT = 4_194_304;

async function encodeAndWrite(pending: PendingResponse, text: string): Promise<void> {
  // The bytes of the headers are valid only now.
  const head = typeof pending.head === 'string' ? pending.head : Buffer.from(pending.head);
  const body = await encodeInSlices(text);
  await writeBody({ ...pending, head, reply: { ...pending.reply, body } });
}

function writeWhole({ exchange, reply, head, close }: PendingResponse): Promise<void> | undefined {
  const { response } = exchange;
  const { body } = reply;
  writeHead(exchange, reply, head);
  if (reply.status === 204 || reply.status === 304) endEmpty(exchange, close);
  else if (typeof body === 'function') {
    if (reply.length === undefined) endEmpty(exchange, close);
    else endWithLength(exchange, reply.length, close);
  } else if (exchange.method === 'HEAD') endWithLength(exchange, Buffer.byteLength(body), close);
  else if (body.length < LARGE_BODY_BYTES) response.end(body, close);
  else {
    // `end` would not say when all of it has left, and what has not is lost when the service stops.
    if (close && !exchange.closes) response.writeHeader('Connection', 'close');
    return endLarge(exchange, typeof body === 'string' ? Buffer.from(body) : body);
  }
  return undefined;
}

/**
 * Ends without the body. With a length uWebSockets would wait for as many bytes before it takes the next request, and it ends the process
 * if the handler returns before. So the client closes the connection: the header asks it to.
 */
function endWithLength({ response, closes }: Exchange, length: number, close: boolean): void {
  if (close && !closes) response.writeHeader('Connection', 'close');
  response.writeHeader('Content-Length', String(length));
  response.endWithoutBody();
}

/** A length that is left out must not be named at all: given as undefined it is sent as 2^63, and the connection ends. */
function endEmpty({ response }: Exchange, close: boolean): void {
  if (close) response.endWithoutBody(0, true);
  else response.endWithoutBody();
}

interface StreamedResponse {
  readonly exchange: Exchange;
  readonly reply: Reply;
  /** Headers that every response carries, e.g. of CORS. */
  readonly headers: HeaderList;
  readonly close: boolean;
}

/**
 * Streams a body. A failure before the first piece is thrown, to be answered as an error. One after it is reported and breaks the
 * transfer, so that a client never takes half a body for the whole.
 */
export async function streamBody(
  response: StreamedResponse,
  produce: Produce,
  report: (error: unknown) => void,
): Promise<void> {
  const sink = new StreamSink(response);
  try {
    await produce(sink);
  } catch (error) {
    if (!sink.begun) throw error;
    report(error);
    response.exchange.replied = true;
    breakOff(response.exchange);
    return;
  }
  sink.end();
}

class StreamSink implements Sink {
  readonly address: string;
  begun = false;
  /** Bytes of a known length that were not written yet. */
  #left: number;
  #resume: ((open: boolean) => void) | null = null;
  #sendRest: ((offset: number) => boolean) | null = null;

  constructor(private readonly response: StreamedResponse) {
    const { exchange, reply } = response;
    this.#left = reply.length ?? 0;
    this.address = exchange.address;
    exchange.onAbort(() => this.#settle(false));
  }

  onAbort(listener: () => void): void {
    this.response.exchange.onAbort(listener);
  }

  write(piece: Buffer): boolean | Promise<boolean> {
    const { exchange, reply } = this.response;
    if (exchange.aborted) return false;
    exchange.sentBytes += piece.length;
    if (reply.length !== undefined) {
      if (piece.length === 0) return true;
      this.#left -= piece.length;
      if (this.#left < 0) throw new Error('the body is longer than was said');
    }
    let accepted = true;
    exchange.response.cork(() => {
      if (!this.begun) this.#begin();
      accepted = this.#writePiece(piece, reply.length);
    });
    if (accepted) return true;
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  end(): void {
    const { exchange, reply, close } = this.response;
    const { response } = exchange;
    if (exchange.aborted) return;
    exchange.replied = true;
    if (this.begun && reply.length !== undefined) {
      // A body with all of its bytes has ended. If bytes are missing, the connection is closed, so the client notices.
      if (this.#left > 0) breakOff(exchange);
      return;
    }
    response.cork(() => {
      if (!this.begun) this.#writeHead();
      response.end('', close);
    });
  }

  #begin(): void {
    const { exchange, reply, close } = this.response;
    this.#writeHead();
    if (close && reply.length !== undefined) exchange.response.writeHeader('Connection', 'close');
    exchange.response.onWritable((offset) => {
      if (this.#sendRest && !this.#sendRest(offset)) return false;
      this.#settle(true);
      return true;
    });
    this.begun = true;
  }

  #writeHead(): void {
    const { exchange, reply, headers, close } = this.response;
    writeHead(exchange, reply, headOf(exchange, reply, headers, close));
  }

  #writePiece(piece: Buffer, length: number | undefined): boolean {
    const { exchange } = this.response;
    // A refusal means "buffered, stop": the piece is on its way and must not be sent again.
    if (length === undefined) return exchange.response.write(piece);
    // Here it means that the rest is not buffered.
    const start = exchange.response.getWriteOffset();
    const accepted = tryEnd(exchange, piece, length);
    this.#sendRest = accepted ? null : (offset) => tryEnd(exchange, piece.subarray(offset - start), length);
    return accepted;
  }

  #settle(open: boolean): void {
    const waiting = this.#resume;
    this.#resume = null;
    waiting?.(open);
  }
}

/** Ends the connection: after half of an answer no other can follow. */
export function breakOff(exchange: Exchange): void {
  exchange.status = 500;
  try {
    if (!exchange.aborted) exchange.response.close();
  } catch {
    // There is nothing left to close.
  }
}

/** A piece of a body of known length. Returns false if the socket did not take all of it. */
function tryEnd({ response }: Exchange, piece: Buffer, length: number): boolean {
  const [accepted, ended] = response.tryEnd(piece, length);
  return accepted || ended;
}

export function writeHead(exchange: Exchange, { status }: Reply, head: string | Uint8Array): void {
  const { response } = exchange;
  exchange.status = status;
  // Without a status, uWebSockets writes 200.
  if (status !== 200) response.writeStatus(`${status} ${STATUS_TEXTS[status] ?? ''}`);
  // Each call into the server costs more than what it writes: all headers go in one.
  response.writeHeader(FIRST_HEADER, head);
}

const FIRST_HEADER = Buffer.from('X-Request-Id');

/**
 * uWebSockets looks for idle connections every four seconds and closes those that were idle for ten, the begun four included: it
 * is eight seconds at least, and nothing changes that. Clients that know of it do not use a connection that is about to be closed.
 */
const KEEP_ALIVE = '\r\nKeep-Alive: timeout=8';
const ALWAYS = '\r\nX-Content-Type-Options: nosniff';
const KEPT = `${ALWAYS}${KEEP_ALIVE}\r\nCache-Control: no-cache`;
const KEPT_SECRET = `${ALWAYS}${KEEP_ALIVE}\r\nCache-Control: no-store`;
const CLOSED = `${ALWAYS}\r\nCache-Control: no-cache`;
const CLOSED_SECRET = `${ALWAYS}\r\nCache-Control: no-store`;

/** The headers of a response after the name of the first: in ASCII, so that a character is a byte. */
export function headOf(exchange: Exchange, reply: Reply, common: HeaderList, close: boolean): string {
  const isLast = close || exchange.closes;
  const fixed =
    reply.cache !== undefined
      ? `${ALWAYS}${isLast ? '' : KEEP_ALIVE}\r\nCache-Control: ${reply.cache}`
      : isLast
        ? reply.secret
          ? CLOSED_SECRET
          : CLOSED
        : reply.secret
          ? KEPT_SECRET
          : KEPT;
  let head = `${exchange.id}${fixed}`;
  // uWebSockets names the end of a connection only if the client did not ask for it; some clients rely on the header.
  if (exchange.closes) head += '\r\nConnection: close';
  if (reply.type !== '') head += `\r\nContent-Type: ${reply.type}`;
  if (reply.tag !== undefined) head += `\r\nETag: ${reply.tag}`;
  const timing = exchange.stageTimes === null ? '' : exchange.serverTiming();
  if (timing !== '') head += `\r\nServer-Timing: ${timing}`;
  if (exchange.extraHeaders !== '') head += exchange.extraHeaders;
  for (const [name, value] of common) head += `\r\n${name}: ${inAscii(value)}`;
  for (const name in reply.headers) {
    const value = reply.headers[name] ?? [];
    for (const each of typeof value === 'string' ? [value] : value) head += `\r\n${name}: ${inAscii(each)}`;
  }
  return head;
}

function inAscii(value: string): string {
  return value.replace(/[^\x20-\x7e]/g, '?');
}

/** From this size on it pays to send straight from the bytes PostgreSQL wrote: `end` copies all that the socket does not take at once. */
export const LARGE_BODY_BYTES = 65_536;

/** To be called in a cork, after the head. Resolves when the socket has taken everything, or the client has left. */
function endLarge(exchange: Exchange, body: Buffer): Promise<void> {
  const { response } = exchange;
  return new Promise((resolve) => {
    const begun = response.getWriteOffset();
    const [, ended] = response.tryEnd(body, body.length);
    if (ended) return resolve();
    exchange.onAbort(resolve);
    response.onWritable((offset) => {
      const [accepted, complete] = response.tryEnd(body.subarray(offset - begun), body.length);
      if (complete) resolve();
      return accepted;
    });
  });
}

/** For the headers of the responses that wait; what does not fit is written as text, which takes longer. */
const HEADER_BUFFER_BYTES = 65_536;

/**
 * Responses that are ready at the same time are written one right after the other: a client that reads them is woken by the first
 * and finds the others while it still runs, and to wake it costs more than to write. So everything else is done before or after,
 * and the bytes of the headers are made beforehand.
 */
export class ResponseQueue {
  #pending: PendingResponse[] = [];
  readonly #headers = Buffer.allocUnsafeSlow(HEADER_BUFFER_BYTES);
  #used = 0;
  readonly #flush = (): void => this.#send();

  /** A response is sent, for a large body when all of it has left, or it fails: then no other answer is possible. */
  constructor(
    private readonly onSent: (response: PendingResponse) => void,
    private readonly onFailed: (response: PendingResponse, error: unknown) => void,
  ) {}

  /**
   * A small response is written at once if the handler of uWebSockets still runs, or if no other request is running, because then no other
   * response can be ready. All others are written in a microtask, before the event loop goes on: until then borrowed memory is valid.
   */
  add(response: PendingResponse, isOnly: boolean): void {
    const start = this.#used;
    if (typeof response.head === 'string' && start + response.head.length <= HEADER_BUFFER_BYTES) {
      this.#used += this.#headers.write(response.head, start, 'latin1');
      response.head = this.#headers.subarray(start, this.#used);
    }
    if ((isOnly || response.exchange.isCorked) && isSmall(response.reply)) {
      this.#used = start;
      this.#finish(response, attempt(response));
      return;
    }
    if (this.#pending.length === 0) void RESOLVED.then(this.#flush);
    this.#pending.push(response);
  }

  #send(): void {
    const responses = this.#pending;
    this.#pending = [];
    const outcomes: Attempt[] = [];
    for (const response of responses) outcomes.push(attempt(response));
    // None is added while others are written; if one were, the bytes of its headers would be there.
    if (this.#pending.length === 0) this.#used = 0;
    for (let position = 0; position < responses.length; position++) {
      const response = responses[position];
      if (response !== undefined) this.#finish(response, outcomes[position]);
    }
  }

  #finish(response: PendingResponse, outcome: Attempt): void {
    if (outcome === undefined) this.onSent(response);
    else if (outcome instanceof Promise)
      void outcome.then(
        () => this.onSent(response),
        (error: unknown) => this.onFailed(response, error),
      );
    else this.onFailed(response, outcome.error);
  }
}

function isSmall({ body }: Reply): boolean {
  return typeof body !== 'function' && body.length < LARGE_BODY_BYTES;
}

type Attempt = Promise<void> | undefined | { readonly error: unknown };

function attempt(response: PendingResponse): Attempt {
  try {
    return writeBody(response);
  } catch (error) {
    return { error };
  }
}

const RESOLVED = Promise.resolve();

interface OpenOptions {
  /** The headers, after the name of the first. */
  readonly head: string;
  readonly close: boolean;
  readonly onDone: (exchange: Exchange) => void;
}

/** Writes a response that stays open. There may be ten thousand of them: each holds little, and nothing that was written. */
export class OpenResponseWriter implements OpenResponse {
  readonly #onDone: (exchange: Exchange) => void;
  readonly #close: boolean;
  /** The head until it is written, then null. */
  #head: { readonly reply: Reply; readonly text: string } | null;

  constructor(
    private readonly exchange: Exchange,
    reply: Reply,
    private readonly listener: OpenListener,
    { head, close, onDone }: OpenOptions,
  ) {
    this.#onDone = onDone;
    this.#close = close;
    this.#head = { reply, text: head };
  }

  write(piece: Buffer): boolean {
    const { response, aborted } = this.exchange;
    if (aborted) return true;
    let isTaken = true;
    response.cork(() => {
      this.#writeHead();
      isTaken = response.write(piece);
    });
    return isTaken;
  }

  end(): void {
    const { response, aborted } = this.exchange;
    if (!aborted) {
      this.exchange.replied = true;
      response.cork(() => {
        this.#writeHead();
        response.end('', this.#close);
      });
    }
    this.#onDone(this.exchange);
  }

  #writeHead(): void {
    if (this.#head === null) return;
    writeHead(this.exchange, this.#head.reply, this.#head.text);
    this.#head = null;
    // Not later: without it a piece that was taken and did not fit would end the connection ten seconds after it has left.
    this.exchange.response.onWritable(() => {
      this.listener.writable();
      return true;
    });
  }
}
