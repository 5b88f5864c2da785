/** Writes responses: one corked write each, JSON of our own through compiled serializers, errors in the one envelope. */
import { build } from 'fast-json-stringify';
import { fromDatabase, invalidPayload, ServiceError } from '../errors.js';
import type { Exchange } from './exchange.js';
import { endLarge, LARGE } from './large.js';

export interface Reply {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer | string | Produce;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Nobody on the way may keep it. */
  readonly secret?: boolean;
}

/** The handler settles the exchange itself, when the answer is there: what is answered at once needs no promise. */
export const LATER = Symbol('later');

export type Outcome = Reply | typeof LATER | Promise<Reply | typeof LATER>;

/** Writes a body piece by piece. Nothing is sent before the first piece: a failure until then is an ordinary error. */
export type Produce = (sink: Sink) => Promise<void>;

export interface Sink {
  /** Resolves when more may be written; what the client does not read is not produced. False when the client has left. */
  write(piece: Buffer): Promise<boolean>;
  /** Calls back when the client leaves. */
  onAbort(listener: () => void): void;
}

export const JSON_TYPE = 'application/json; charset=utf-8';

export function jsonText(body: string, status = 200): Reply {
  return { status, type: JSON_TYPE, body };
}

export const noContent: Reply = { status: 204, type: '', body: '' };

const errorBody = build({
  type: 'object',
  properties: {
    errors: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          message: { type: 'string' },
          extensions: { type: 'object', properties: { code: { type: 'string' } }, additionalProperties: true },
        },
      },
    },
  },
});

/**
 * What is not an error of the catalogue is a broken invariant of ours: the client learns nothing of it. Only a database out
 * of reach is neither, wherever it was missed.
 */
export function errorReply(error: unknown): Reply {
  // The stack ends where a request nests deeper than anything sensible.
  if (error instanceof RangeError) return errorReply(invalidPayload('The request nests too deep'));
  const mapped = error instanceof ServiceError ? error : fromDatabase(error, 'query');
  const known =
    mapped instanceof ServiceError && (mapped === error || mapped.code === 'SERVICE_UNAVAILABLE')
      ? mapped
      : new ServiceError('INTERNAL_SERVER_ERROR', 'An unexpected error occurred.');
  const entry = { message: known.message, extensions: { ...known.extensions, code: known.code } };
  const reply = jsonText(errorBody({ errors: [entry] }), known.status);
  if (known.code !== 'REQUESTS_EXCEEDED') return reply;
  const seconds = Math.ceil((Date.parse(String(known.extensions.reset)) - Date.now()) / 1_000);
  return { ...reply, headers: { 'Retry-After': String(Math.max(seconds, 1)) } };
}

const STATUS_LINES: Readonly<Record<number, string>> = {
  200: '200 OK',
  204: '204 No Content',
  304: '304 Not Modified',
  400: '400 Bad Request',
  401: '401 Unauthorized',
  403: '403 Forbidden',
  404: '404 Not Found',
  405: '405 Method Not Allowed',
  415: '415 Unsupported Media Type',
  422: '422 Unprocessable Content',
  429: '429 Too Many Requests',
  500: '500 Internal Server Error',
  503: '503 Service Unavailable',
};

export interface WriteOptions {
  readonly timing: boolean;
  /** Headers that every response carries, e.g. of CORS. */
  readonly headers: readonly (readonly [string, string])[];
  readonly close: boolean;
  /** Takes failures that no response can tell of any more. */
  readonly report: (error: unknown) => void;
}

/** Answers when a large body has left; a small one is none of our business any more. */
export function write(exchange: Exchange, reply: Reply, options: WriteOptions): Promise<void> | undefined {
  if (exchange.aborted) return undefined;
  const { response } = exchange;
  const { body } = reply;
  exchange.replied = true;
  let sent: Promise<void> | undefined;
  response.cork(() => {
    writeHead(exchange, reply, options);
    if (reply.status === 204 || reply.status === 304 || typeof body === 'function') endEmpty(exchange, options.close);
    else if (exchange.method === 'HEAD') response.endWithoutBody(Buffer.byteLength(body), options.close);
    else if (body.length < LARGE || typeof body === 'string' || options.close) response.end(body, options.close);
    else sent = endLarge(exchange, body);
  });
  return sent;
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
export async function stream(exchange: Exchange, reply: Reply, produce: Produce, options: WriteOptions): Promise<void> {
  const { response } = exchange;
  let begun = false;
  let resume: ((open: boolean) => void) | null = null;
  const settle = (open: boolean): void => {
    const waiting = resume;
    resume = null;
    waiting?.(open);
  };
  exchange.onAbort(() => settle(false));
  const sink: Sink = {
    onAbort: (listener) => exchange.onAbort(listener),
    write: (piece) => {
      if (exchange.aborted) return Promise.resolve(false);
      let accepted = true;
      response.cork(() => {
        if (!begun) {
          writeHead(exchange, reply, options);
          response.onWritable(() => {
            settle(true);
            return true;
          });
        }
        begun = true;
        // A refusal means "buffered, stop": the piece is on its way and must not be sent again.
        accepted = response.write(piece);
      });
      if (accepted) return Promise.resolve(true);
      return new Promise((resolve) => {
        resume = resolve;
      });
    },
  };
  try {
    await produce(sink);
  } catch (error) {
    if (!begun) throw error;
    options.report(error);
    exchange.replied = true;
    exchange.status = 500;
    if (!exchange.aborted) response.close();
    return;
  }
  if (exchange.aborted) return;
  exchange.replied = true;
  response.cork(() => {
    if (!begun) writeHead(exchange, reply, options);
    response.end('', options.close);
  });
}

function writeHead(exchange: Exchange, reply: Reply, options: WriteOptions): void {
  const { response } = exchange;
  exchange.status = reply.status;
  // 200 is what is written where no status is.
  if (reply.status !== 200) response.writeStatus(STATUS_LINES[reply.status] ?? String(reply.status));
  if (reply.type !== '') response.writeHeader('Content-Type', reply.type);
  // Each call into the server costs more than what it writes: headers that every response has go in one.
  response.writeHeader(
    reply.secret ? 'Cache-Control: no-store\r\nX-Request-Id' : 'Cache-Control: no-cache\r\nX-Request-Id',
    exchange.id,
  );
  if (options.timing && exchange.timing !== '') response.writeHeader('Server-Timing', exchange.timing);
  for (const [name, value] of options.headers) response.writeHeader(name, value);
  for (const name in reply.headers) {
    const value = reply.headers[name] as string | readonly string[];
    if (typeof value === 'string') response.writeHeader(name, value);
    else for (const each of value) response.writeHeader(name, each);
  }
}
