/** The answer of a handler: a reply, or a promise of one. All errors have one envelope. */
import { build } from 'fast-json-stringify';
import { invalidPayload, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { propertiesOf } from '../../base/narrow.js';
import { fromDatabase } from '../../base/sqlstate.js';

export interface Reply {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer | string | Produce;
  /** The ETag. */
  readonly tag?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** No cache may store it. */
  readonly secret?: boolean;
  /** The size of a streamed body, if it is known: it is then sent with a Content-Length, and never compressed. */
  readonly length?: number;
  /** The Cache-Control header, in place of `no-cache`. */
  readonly cache?: string;
  /** It is the same for every caller, and at any time. */
  readonly isConstant?: boolean;
}

/** The names of collections and errors that clients of another API use. */
export interface NameMapping {
  /** A segment of a path that names a collection. */
  parameter(name: string): string;
  /** The errors in it. */
  reply(reply: Reply): Reply;
  /** An error as the client sees it. */
  error(error: ErrorText): { readonly code: string; readonly message: string };
  /** A message over a WebSocket, as JSON, with the errors in it. */
  messageOut(text: string): string;
  /** The header that shows whether a response comes from memory, or null for none. */
  readonly cacheHeader: string | null;
}

export type ErrorText = Pick<ServiceError, 'message' | 'extensions'> & { readonly code: string };

/** The handler responds by itself when the result arrives: this is faster than a promise. */
export const DEFERRED = Symbol('deferred');

export type Outcome = Reply | typeof DEFERRED | Promise<Reply | typeof DEFERRED>;

/** Writes a body piece by piece. Nothing is sent before the first piece: a failure until then is an ordinary error. */
export type Produce = (sink: Sink) => Promise<void>;

export interface Sink {
  /** A promise until more may be written; what the client does not read is not produced. False when the client has left. */
  write(piece: Buffer): boolean | Promise<boolean>;
  /** Calls back when the client leaves. */
  onAbort(listener: () => void): void;
  /** The client's. */
  readonly address: string;
}

/** A response that stays open as long as the client does. Its holder writes it piece by piece. */
export interface OpenResponse {
  /** Returns false if the client takes no more for now. The piece is on its way all the same. */
  write(piece: Buffer): boolean;
  /** To be called even if the client has left. */
  end(): void;
}

export interface OpenListener {
  /** The client accepts bytes again. The unsent rest of the last piece leaves only with the next one, so something must be written. */
  writable(): void;
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

const TOO_SLOW = serviceUnavailable('database', 'It took too long to answer', { option: 'DATABASE_STATEMENT_TIMEOUT' });

/**
 * The error as the client may see it. Errors of the catalogue are shown. A database that cannot be reached is a 503, also if no other code
 * mapped its error. Any other error is a fault of the service, and the client learns nothing of it.
 */
export function publicError(error: unknown): ServiceError {
  // The stack overflows if a request is nested too deeply.
  if (error instanceof RangeError) return invalidPayload('The request is nested too deeply');
  // Slow statements of clients have their own error. This is one of the service's own statements.
  if (propertiesOf(error)['code'] === '57014') return TOO_SLOW;
  const mapped = error instanceof ServiceError ? error : fromDatabase(error, 'query');
  return mapped instanceof ServiceError && (mapped === error || mapped.code === 'SERVICE_UNAVAILABLE')
    ? mapped
    : new ServiceError('INTERNAL_SERVER_ERROR', 'An unexpected error occurred.');
}

export function errorReply(error: unknown): Reply {
  const known = publicError(error);
  const entry = { message: known.message, extensions: { ...known.extensions, code: known.code } };
  const reply = jsonText(errorBody({ errors: [entry] }), known.status);
  if (known.code === 'RANGE_NOT_SATISFIABLE')
    return { ...reply, headers: { 'Content-Range': `bytes */${known.extensions['size']}` } };
  if (known.code === 'SERVICE_UNAVAILABLE') return { ...reply, headers: { 'Retry-After': '1' } };
  if (known.code !== 'REQUESTS_EXCEEDED' || known.extensions['reset'] === undefined) return reply;
  const seconds = Math.ceil((Date.parse(String(known.extensions['reset'])) - Date.now()) / 1_000);
  return { ...reply, headers: { 'Retry-After': String(Math.max(seconds, 1)) } };
}

/** The Content-Disposition header: what a file is called, in ASCII for old clients and in full for all others (RFC 6266). */
export function contentDisposition(kind: 'attachment' | 'inline', name: string): string {
  const plain = name.replace(/[^\w. -]/g, '_');
  const full = plain === name ? '' : `; filename*=UTF-8''${encodeHeader(name.toWellFormed())}`;
  return `${kind}; filename="${plain}"${full}`;
}

/** As RFC 5987 wants it: stricter than a URL. */
function encodeHeader(text: string): string {
  return encodeURIComponent(text).replace(/['()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}
