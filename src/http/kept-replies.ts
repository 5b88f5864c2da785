/**
 * Replies from memory, found by the bytes of a request before anything of it is parsed. A reply is kept by the URL and by all headers
 * that may change it, so that an equal request gets an equal reply. It is used for a second at most: then the caller is identified again.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { performance } from 'node:perf_hooks';
import type { KeptAnswer } from '../batching/shape-queue.js';
import { readPosition } from '../engine/consistency.js';
import { type Exchange, type RequestCounter, requestId } from './exchange.js';
import type { Reply } from './reply.js';
import { LARGE_BODY_BYTES } from './write-reply.js';

/** Milliseconds that a reply is used before its caller is identified again. */
const LEASE_MS = 1_000;
/** Requests whose headers are longer are not kept. */
const MAX_KEY_LENGTH = 4_096;
/** One URL has as many replies: for different callers, encodings and so on. */
const MAX_REPLIES_OF_URL = 100;
/** Bytes of a reply besides its body, its head and its key. */
const REPLY_BYTES = 500;

/** These headers change no reply of a read, or are read separately. */
const IGNORED: ReadonlySet<string> = new Set(['host', 'user-agent', 'x-request-id', 'accept-language', 'referer']);
/** A request with a body, or one that ends its connection, takes the usual way. */
const EXCLUDED: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'expect',
]);

interface KeptReply {
  readonly answer: KeptAnswer;
  readonly user: string | null;
  /** The position in the log that the client has seen, in bytes. */
  readonly position: number;
  /** By the clock of `performance`. */
  readonly until: number;
  readonly generation: number;
  readonly isModified: boolean;
  /** The headers after the request id. */
  readonly head: Buffer;
  readonly body: Buffer;
  readonly counter: RequestCounter | null;
}

export class KeptReplies {
  readonly #byUrl = new Map<string, Map<string, KeptReply>>();
  /** Filled by `#readHeader`. */
  #key = '';
  #requestId = '';
  readonly #readHeader = (name: string, value: string): void => {
    if (name === 'x-request-id') this.#requestId = value;
    else if (name === 'connection' && value === 'keep-alive') return;
    else if (EXCLUDED.has(name)) this.#key += TOO_LONG;
    else if (!IGNORED.has(name)) this.#key += `${name}:${value}\n`;
  };

  /** `generation` changes whenever a token may belong to another caller. */
  constructor(private readonly generation: () => number) {}

  /** Answers the request if its reply is kept. Otherwise returns its headers, if replies of its URL are kept, or null. */
  answer(request: HttpRequest, response: HttpResponse): true | string | null {
    const query = request.getQuery();
    const url = query === undefined || query === '' ? request.getUrl() : `${request.getUrl()}?${query}`;
    const replies = this.#byUrl.get(url);
    if (replies === undefined || request.getCaseSensitiveMethod() !== 'GET') return null;
    this.#key = '';
    this.#requestId = '';
    request.forEach(this.#readHeader);
    const key = this.#key;
    if (key.length > MAX_KEY_LENGTH) return null;
    const reply = replies.get(key);
    if (reply === undefined) return key;
    const now = performance.now();
    if (
      now > reply.until ||
      reply.generation !== this.generation() ||
      !reply.answer.serves(reply.user, reply.position, now)
    )
      return key;
    reply.answer.hit(now);
    if (!reply.isModified) response.writeStatus('304 Not Modified');
    response.writeHeader(REQUEST_ID, requestId(this.#requestId));
    response.writeHeader(NEXT_HEADER, reply.head);
    if (reply.isModified) response.end(reply.body);
    else response.endWithoutBody();
    reply.counter?.count(reply.isModified ? 200 : 304, performance.now() - now);
    return true;
  }

  /** The reply that is about to leave, with its headers after the request id. */
  keep(exchange: Exchange, reply: Reply, head: string): void {
    const { kept, keptKey, accessToken, method } = exchange;
    if (kept === null || kept.answer.isDropped || accessToken !== '' || method !== 'GET') return;
    const { answer, caller } = kept;
    const lease = Math.min(LEASE_MS, caller.validUntil - Date.now());
    const url = exchange.queryString === '' ? exchange.path : `${exchange.path}?${exchange.queryString}`;
    if (lease <= 0 || caller.isAddressBound || exchange.closes || !head.startsWith(NEXT)) return;
    const replies = this.#repliesOf(url, answer);
    if (keptKey === null) return;
    const body = bodyOf(reply);
    if (body === null || (reply.status !== 200 && reply.status !== 304)) return;
    const isNew = !replies.has(keptKey);
    const [oldest] = replies.keys();
    if (isNew && replies.size >= MAX_REPLIES_OF_URL && oldest !== undefined) replies.delete(oldest);
    const made: KeptReply = {
      answer,
      user: caller.user,
      position: exchange.position === '' ? 0 : readPosition(exchange.position).position,
      until: performance.now() + lease,
      generation: this.generation(),
      isModified: reply.status === 200,
      head: Buffer.from(head.slice(NEXT.length), 'latin1'),
      body,
      counter: exchange.routeStats,
    };
    replies.set(keptKey, made);
    if (!isNew) return;
    const copied = answer.body !== null && body.buffer === answer.body.buffer ? 0 : body.length;
    answer.grow(REPLY_BYTES + made.head.length + 2 * keptKey.length + copied);
    answer.onDrop(() => {
      if (replies.get(keptKey)?.answer === answer) replies.delete(keptKey);
      if (replies.size === 0 && this.#byUrl.get(url) === replies) this.#byUrl.delete(url);
    });
  }

  #repliesOf(url: string, answer: KeptAnswer): Map<string, KeptReply> {
    const known = this.#byUrl.get(url);
    if (known) return known;
    const replies = new Map<string, KeptReply>();
    this.#byUrl.set(url, replies);
    answer.grow(REPLY_BYTES + 2 * url.length);
    answer.onDrop(() => {
      if (replies.size === 0 && this.#byUrl.get(url) === replies) this.#byUrl.delete(url);
    });
    return replies;
  }
}

const TOO_LONG = ' '.repeat(MAX_KEY_LENGTH + 1);
const NEXT = '\r\nX-Content-Type-Options: ';
const REQUEST_ID = Buffer.from('X-Request-Id');
const NEXT_HEADER = Buffer.from('X-Content-Type-Options');
const NOTHING = Buffer.alloc(0);

/** Null for a body that is not kept: one that is streamed, or so large that it leaves in several pieces. */
function bodyOf({ status, body }: Reply): Buffer | null {
  if (status === 304) return NOTHING;
  return typeof body === 'object' && body.length < LARGE_BODY_BYTES ? body : null;
}
