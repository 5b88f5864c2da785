/**
 * Replies from memory, found by the bytes of a request before anything of it is parsed. A reply is kept by the URL and by all headers
 * that may change it, so that an equal request gets an equal reply. It is used for a second at most: then the caller is identified again.
 */
import { performance } from 'node:perf_hooks';
import { callerName, type Identity, PUBLIC } from '../../server/access/identity.js';
import { readPosition } from '../../server/execute/consistency.js';
import type { KeptAnswer, KeptMemory } from '../../server/execute/reads/kept-answer.js';
import type { Exchange, RequestCounter } from '../../server/http/exchange.js';
import type { Reply } from '../../server/http/reply.js';
import type { KeptHeaders, ReplyMemory } from '../../server/http/reply-memory.js';
import { ID_LENGTH, ID_SPACE, requestId, writeNextId } from '../../server/http/request-id.js';
import type { AnsweredRequest, RequestRecorder } from '../../server/http/request-recorder.js';
import type { ServerRequest, ServerResponse } from '../../server/http/transport.js';
import { LARGE_BODY_BYTES } from '../../server/http/write-reply.js';
import { type LogPosition, NO_POSITION } from '../../server/postgres/pools/sessions.js';

/** Milliseconds that a reply is used before its caller is identified again. */
const LEASE_MS = 1_000;
/** Requests whose headers are longer are not kept. */
const MAX_HEADERS_LENGTH = 4_096;
/** One URL has as many replies: for different callers, encodings and so on. */
const MAX_REPLIES_OF_URL = 100;
/** Bytes of a reply besides its body, its head and the headers of its request. */
const REPLY_BYTES = 700;

/** These headers change no reply of a read, or are read separately. */
const IGNORED: ReadonlySet<string> = new Set(['host', 'user-agent', 'x-request-id', 'accept-language', 'referer']);
/** A request with a body, or one that ends its connection, passes through the stages. */
const EXCLUDED: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'expect',
]);

interface KeptReply {
  readonly headers: KeptHeaders;
  readonly answer: KeptAnswer;
  readonly caller: Identity;
  /** The text of the statement that it was read with. */
  readonly statementText: string;
  /** The position in the log that the client has seen. */
  readonly seen: LogPosition;
  /** By the clock of `performance`. */
  readonly until: number;
  readonly generation: number;
  readonly isModified: boolean;
  /** The headers after the name of the first. The id of the request is written into it each time. */
  readonly head: Buffer;
  readonly body: Buffer;
  readonly counter: RequestCounter | null;
  /** The memory that it takes besides its answer; null before it has some. */
  memory: KeptMemory | null;
}

/** The replies of one URL. */
interface UrlReplies {
  /** The latest first. */
  readonly replies: KeptReply[];
  /** The answers that they are made of, and the memory that their place here takes. */
  readonly answers: Map<KeptAnswer, KeptMemory>;
}

export class KeptReplies implements ReplyMemory {
  /** By path and query string. */
  readonly #byPath = new Map<string, Map<string, UrlReplies>>();
  /** Filled by `#readHeader`. */
  readonly #headers: string[] = [];
  #count = 0;
  #hosts = 0;
  #requestId = '';
  readonly #readHeader = (name: string, value: string): void => {
    if (IGNORED.has(name)) {
      if (name === 'host') this.#hosts++;
      else if (name === 'x-request-id') this.#requestId ||= value;
    } else if (name !== 'connection' || value !== 'keep-alive') {
      this.#headers[this.#count++] = name;
      this.#headers[this.#count++] = value;
    }
  };

  /** `generation` changes whenever a token may belong to another caller. */
  constructor(
    private readonly generation: () => number,
    private readonly recorder: RequestRecorder,
  ) {}

  answer(path: string, request: ServerRequest, response: ServerResponse): true | KeptHeaders | null {
    const found = this.#byPath.get(path)?.get(request.getQuery() ?? '');
    if (found === undefined) return null;
    this.#count = 0;
    this.#hosts = 0;
    this.#requestId = '';
    request.forEach(this.#readHeader);
    // With several hosts it is refused.
    if (this.#hosts > 1) return null;
    const reply = this.#find(found);
    if (reply === null) return this.#headers.slice(0, this.#count);
    const { answer, caller, seen } = reply;
    const now = performance.now();
    if (
      answer.isDropped ||
      now > reply.until ||
      reply.generation !== this.generation() ||
      !answer.serves(caller.user, seen, now)
    )
      return reply.headers;
    answer.hit(now);
    if (!reply.isModified) response.writeStatus('304 Not Modified');
    this.#writeHead(response, reply);
    if (reply.isModified) response.end(reply.body);
    else response.endWithoutBody();
    const status = reply.isModified ? 200 : 304;
    reply.counter?.count(status, performance.now() - now);
    const takers = this.recorder.current === null ? 0 : this.recorder.draw();
    if (takers !== 0) this.recorder.add(answeredRequest(request, reply, now), status, takers);
    return true;
  }

  /** One call for all headers, unless the client has given an id. */
  #writeHead(response: ServerResponse, { head }: KeptReply): void {
    if (this.#requestId === '' && writeNextId(head)) response.writeHeader(REQUEST_ID, head);
    else {
      response.writeHeader(REQUEST_ID, requestId(this.#requestId));
      response.writeHeader(NEXT_HEADER, head.subarray(ID_LENGTH + NEXT.length));
    }
  }

  #find({ replies }: UrlReplies): KeptReply | null {
    for (const reply of replies) if (isEqual(reply.headers, this.#headers, this.#count)) return reply;
    return null;
  }

  keep(exchange: Exchange, reply: Reply, head: string): void {
    const { accessToken, method, closes } = exchange;
    const { answer, caller } = exchange.kept ?? CONSTANT;
    if (accessToken !== '' || method !== 'GET' || closes || reply.secret || answer.isDropped) return;
    // Clients could make up as many spellings of the URL as they like, and a constant has no memory that bounds them.
    if (exchange.kept === null && (exchange.queryString !== '' || exchange.path !== exchange.route)) return;
    const lease = Math.min(LEASE_MS, caller.validUntil - Date.now());
    if (lease <= 0 || caller.isAddressBound || !head.startsWith(NEXT)) return;
    // The headers of the request are known if the URL was kept before it came.
    const name = callerName(caller, exchange);
    const place = this.#placeOf(exchange, answer, name);
    const headers = exchange.keptHeaders;
    const body = bodyOf(reply);
    if (place === null || headers === null || body === null || !mayBeKept(headers)) return;
    const isCopy = answer.body === null || body.buffer !== answer.body.buffer;
    const bytes = REPLY_BYTES + head.length + 2 * lengthOf(headers) + (isCopy ? body.length : 0);
    const made: KeptReply = {
      headers,
      answer,
      caller,
      statementText: exchange.statementText,
      seen: exchange.kept === null ? NO_POSITION : readPosition(exchange.position),
      until: performance.now() + lease,
      generation: this.generation(),
      isModified: reply.status === 200,
      head: Buffer.from(`${ID_SPACE}${head}`, 'latin1'),
      body,
      counter: exchange.routeStats,
      memory: null,
    };
    makeRoom(place, headers);
    made.memory = answer.reserve(bytes, name, () => take(place, place.replies.indexOf(made)));
    // The place may have had to leave for it.
    if (made.memory !== null && place.answers.has(answer)) place.replies.unshift(made);
    else made.memory?.release();
    place.answers.get(answer)?.touch();
  }

  /** Returns null if there is no memory for it. */
  #placeOf({ path, queryString }: Exchange, answer: KeptAnswer, name: string): UrlReplies | null {
    const byQuery = this.#byPath.get(path) ?? new Map<string, UrlReplies>();
    const place: UrlReplies = byQuery.get(queryString) ?? { replies: [], answers: new Map() };
    if (place.answers.has(answer)) return place;
    const leave = (): void => {
      place.answers.delete(answer);
      for (let index = place.replies.length - 1; index >= 0; index--)
        if (place.replies[index]?.answer === answer) take(place, index);
      if (place.answers.size > 0 || byQuery.get(queryString) !== place) return;
      byQuery.delete(queryString);
      if (byQuery.size === 0 && this.#byPath.get(path) === byQuery) this.#byPath.delete(path);
    };
    const memory = answer.reserve(REPLY_BYTES + 2 * (path.length + queryString.length), name, leave);
    if (memory === null) return null;
    place.answers.set(answer, memory);
    byQuery.set(queryString, place);
    this.#byPath.set(path, byQuery);
    return place;
  }
}

/** A request that was answered from memory, for a recording. */
function answeredRequest(request: ServerRequest, reply: KeptReply, begun: number): AnsweredRequest {
  const { caller, statementText, counter, body } = reply;
  return {
    method: 'GET',
    path: request.getUrl(),
    queryString: request.getQuery() ?? '',
    headers: { prefer: request.getHeader('prefer'), accept: request.getHeader('accept') },
    route: counter?.path ?? '',
    begun,
    identity: caller,
    statementText,
    received: null,
    hasJsonBody: false,
    isWrite: false,
    sentBytes: body.length,
    stageTimes: null,
    wantsEvents: false,
  };
}

const UNCOUNTED: KeptMemory = { touch: () => {}, release: () => {} };

/** For replies that do not depend on the database. */
const CONSTANT: NonNullable<Exchange['kept']> = {
  caller: PUBLIC,
  answer: { body: null, isDropped: false, reserve: () => UNCOUNTED, serves: () => true, hit: () => {} },
};

const NEXT = '\r\nX-Content-Type-Options: ';
const REQUEST_ID = Buffer.from('X-Request-Id');
const NEXT_HEADER = Buffer.from('X-Content-Type-Options');
const NOTHING = Buffer.alloc(0);

/** Removes the former reply to these headers, and the oldest one if there are too many. */
function makeRoom(place: UrlReplies, headers: KeptHeaders): void {
  const { replies } = place;
  const former = replies.findIndex((reply) => isEqual(reply.headers, headers, headers.length));
  take(place, former >= 0 || replies.length < MAX_REPLIES_OF_URL ? former : replies.length - 1);
}

/** Removes the reply at the index, if there is one, and releases its memory. */
function take({ replies }: UrlReplies, index: number): void {
  if (index >= 0) replies.splice(index, 1)[0]?.memory?.release();
}

/** Whether the first `count` of the others are these. */
function isEqual(headers: KeptHeaders, others: KeptHeaders, count: number): boolean {
  if (headers.length !== count) return false;
  for (let index = count - 1; index >= 0; index--) if (headers[index] !== others[index]) return false;
  return true;
}

function lengthOf(headers: KeptHeaders): number {
  return headers.reduce((sum, text) => sum + text.length, 0);
}

function mayBeKept(headers: KeptHeaders): boolean {
  return (
    lengthOf(headers) <= MAX_HEADERS_LENGTH && !headers.some((text, index) => index % 2 === 0 && EXCLUDED.has(text))
  );
}

/** Returns null if the reply cannot be kept: its body is streamed, or too large to be sent in one piece. */
function bodyOf({ status, body }: Reply): Buffer | null {
  if (status === 304) return NOTHING;
  if (status !== 200 || typeof body === 'function' || body.length >= LARGE_BODY_BYTES) return null;
  return typeof body === 'string' ? Buffer.from(body) : body;
}
