/** Writes responses: one corked write each, with all headers in one piece. */
import type { HeaderList } from './cors.js';
import type { Exchange } from './exchange.js';
import type { Produce, Reply, Sink } from './reply.js';

const STATUS_LINES: Readonly<Record<number, string>> = {
  200: '200 OK',
  204: '204 No Content',
  206: '206 Partial Content',
  302: '302 Found',
  304: '304 Not Modified',
  400: '400 Bad Request',
  401: '401 Unauthorized',
  403: '403 Forbidden',
  404: '404 Not Found',
  405: '405 Method Not Allowed',
  415: '415 Unsupported Media Type',
  416: '416 Range Not Satisfiable',
  422: '422 Unprocessable Content',
  429: '429 Too Many Requests',
  500: '500 Internal Server Error',
  503: '503 Service Unavailable',
};

export interface ReplyStreamOptions {
  /** Headers that every response carries, e.g. of CORS. */
  readonly headers: HeaderList;
  readonly close: boolean;
  /** Logs failures after the response has begun. */
  readonly reportFailure: (exchange: Exchange, error: unknown) => void;
}

/** A reply that is ready to leave. */
export interface PendingResponse {
  readonly exchange: Exchange;
  readonly reply: Reply;
  /** What follows the name of the first header. */
  head: string | Uint8Array;
  readonly close: boolean;
}

/** Writes a whole body. Resolves when a large one has left; a small one is buffered at once. */
export function writeBody({ exchange, reply, head, close }: PendingResponse): Promise<void> | undefined {
  if (exchange.aborted) return undefined;
  const { response } = exchange;
  const { body } = reply;
  exchange.replied = true;
  let sent: Promise<void> | undefined;
  response.cork(() => {
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
      sent = endLarge(exchange, typeof body === 'string' ? Buffer.from(body) : body);
    }
  });
  return sent;
}

/** Of a body that is not sent. With a length the server would wait for as many bytes before it takes the next request. */
function endWithLength({ response }: Exchange, length: number, close: boolean): void {
  if (close) response.endWithoutBody(length, true);
  else {
    response.writeHeader('Content-Length', String(length));
    response.endWithoutBody();
  }
}

/** A length that is left out must not be named at all: given as undefined it is sent as 2^63, and the connection ends. */
function endEmpty({ response }: Exchange, close: boolean): void {
  if (close) response.endWithoutBody(0, true);
  else response.endWithoutBody();
}

/**
 * Streams a body. A failure before the first piece is thrown, to be answered as an error; one after it breaks the
 * transfer, so that a client never takes half a body for the whole.
 */
export async function stream(
  exchange: Exchange,
  reply: Reply,
  produce: Produce,
  options: ReplyStreamOptions,
): Promise<void> {
  const { response } = exchange;
  const { length } = reply;
  let begun = false;
  let left = length ?? 0;
  let resume: ((open: boolean) => void) | null = null;
  let sendRest: ((offset: number) => boolean) | null = null;
  const settle = (open: boolean): void => {
    const waiting = resume;
    resume = null;
    waiting?.(open);
  };
  exchange.onAbort(() => settle(false));
  // Made here and not where a piece is written: it would hold that piece for as long as the response lasts.
  const onWritable = (offset: number): boolean => {
    if (sendRest && !sendRest(offset)) return false;
    settle(true);
    return true;
  };
  const sink: Sink = {
    address: exchange.address,
    onAbort: (listener) => exchange.onAbort(listener),
    write: (piece) => {
      if (exchange.aborted) return false;
      if (length !== undefined) {
        if (piece.length === 0) return true;
        left -= piece.length;
        if (left < 0) throw new Error('the body is longer than was said');
      }
      let accepted = true;
      response.cork(() => {
        if (!begun) {
          writeHead(exchange, reply, headOf(exchange, reply, options.headers, options.close));
          if (options.close && length !== undefined) response.writeHeader('Connection', 'close');
          response.onWritable(onWritable);
        }
        begun = true;
        // A refusal means "buffered, stop": the piece is on its way and must not be sent again.
        if (length === undefined) accepted = response.write(piece);
        else {
          // Here it means that nobody holds what the socket did not take.
          const start = response.getWriteOffset();
          accepted = tryEnd(exchange, piece, length);
          sendRest = accepted ? null : (offset) => tryEnd(exchange, piece.subarray(offset - start), length);
        }
      });
      if (accepted) return true;
      return new Promise((resolve) => {
        resume = resolve;
      });
    },
  };
  try {
    await produce(sink);
  } catch (error) {
    if (!begun) throw error;
    options.reportFailure(exchange, error);
    exchange.replied = true;
    if (exchange.aborted) exchange.status = 500;
    else breakOff(exchange);
    return;
  }
  if (exchange.aborted) return;
  exchange.replied = true;
  if (begun && length !== undefined) {
    // With all its bytes it has ended; with fewer the client is told by the connection.
    if (left > 0) breakOff(exchange);
    return;
  }
  response.cork(() => {
    if (!begun) writeHead(exchange, reply, headOf(exchange, reply, options.headers, options.close));
    response.end('', options.close);
  });
}

function breakOff(exchange: Exchange): void {
  exchange.status = 500;
  exchange.response.close();
}

/** A piece of a body of known length. False where the socket did not take all of it. */
function tryEnd({ response }: Exchange, piece: Buffer, length: number): boolean {
  const [accepted, ended] = response.tryEnd(piece, length);
  return accepted || ended;
}

export function writeHead(exchange: Exchange, { status }: Reply, head: string | Uint8Array): void {
  const { response } = exchange;
  exchange.status = status;
  // 200 is what is written where no status is.
  if (status !== 200) response.writeStatus(STATUS_LINES[status] ?? String(status));
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

/** The headers of a response behind the name of the first: in ASCII, so that a character is a byte. */
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
  // uWebSockets names the end of a connection only where the client did not ask for it; some clients rely on the answer.
  if (exchange.closes) head += '\r\nConnection: close';
  if (reply.type !== '') head += `\r\nContent-Type: ${reply.type}`;
  if (reply.tag !== undefined) head += `\r\nETag: ${reply.tag}`;
  const timing = exchange.serverTiming();
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
const LARGE_BODY_BYTES = 65_536;

/** To be called in a cork, behind the head. Resolves when the socket has taken everything, or the client has left. */
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
 * Responses that are ready at the same time are written right behind one another: a client that reads them is woken by the first
 * and finds the others while it still runs, and to wake it costs more than to write. So everything else is done before or after,
 * and the bytes of the headers are made beforehand.
 */
export class ResponseQueue {
  readonly #onSent: (response: PendingResponse) => void;
  readonly #onFailed: (response: PendingResponse, error: unknown) => void;
  #pending: PendingResponse[] = [];
  readonly #headers = Buffer.allocUnsafeSlow(HEADER_BUFFER_BYTES);
  #used = 0;
  readonly #flush = (): void => this.#send();

  /** Each is either sent, for a large body when all of it has left, or has failed: then the request cannot be answered any more. */
  constructor(
    onSent: (response: PendingResponse) => void,
    onFailed: (response: PendingResponse, error: unknown) => void,
  ) {
    this.#onSent = onSent;
    this.#onFailed = onFailed;
  }

  /** It is written when what runs now has ended, before the event loop goes on: until then borrowed memory is valid. */
  add(response: PendingResponse): void {
    if (this.#pending.length === 0) void RESOLVED.then(this.#flush);
    const start = this.#used;
    if (typeof response.head === 'string' && start + response.head.length <= HEADER_BUFFER_BYTES) {
      this.#used += this.#headers.write(response.head, start, 'latin1');
      response.head = this.#headers.subarray(start, this.#used);
    }
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
      if (response === undefined) continue;
      const outcome = outcomes[position];
      if (outcome === undefined) this.#onSent(response);
      else if (outcome instanceof Promise) void outcome.then(() => this.#onSent(response));
      else this.#onFailed(response, outcome.error);
    }
  }
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
