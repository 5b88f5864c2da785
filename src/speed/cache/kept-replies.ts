/**
 * Replies from memory, found by the bytes of a request before anything of it is parsed. A reply is kept by the URL and by all headers
 * that may change it, so that an equal request gets an equal reply. Requests with equal headers have one caller: as long as the
 * caller's identity is valid, so are all replies to these headers whose answers are in memory.
 */
import { performance } from 'node:perf_hooks';
import { isDeepStrictEqual } from 'node:util';
import { growingCache } from '../../base/growing-cache.js';
import { callerName, type Identity, PUBLIC } from '../../server/access/identity.js';
import { readPosition } from '../../server/execute/consistency.js';
import type { Exchange, RequestCounter } from '../../server/http/exchange.js';
import { HeldRequest } from '../../server/http/held-request.js';
import type { Reply } from '../../server/http/reply.js';
import type { HeldForReply, KeptHeaders, ReplyMemory, Revisions } from '../../server/http/reply-memory.js';
import { ID_LENGTH, ID_SPACE, requestId, writeNextId } from '../../server/http/request-id.js';
import type { AnsweredRequest, RequestRecorder } from '../../server/http/request-recorder.js';
import type { ServerRequest, ServerResponse } from '../../server/http/transport.js';
import { LARGE_BODY_BYTES } from '../../server/http/write-reply.js';
import { type LogPosition, NO_POSITION } from '../../server/postgres/pools/sessions.js';
import { Attached, Kept } from './cache-space.js';
import { CacheEntry, groupFor, type ReadCache } from './read-cache.js';

/** Requests whose headers are longer are not kept. */
const MAX_HEADERS_LENGTH = 4_096;
/** An answer is sent so often before a reply is made of it: most answers are not sent again. */
const HITS_BEFORE_REPLY = 2;
/** One URL has as many replies: for different callers, encodings and so on. */
const MAX_REPLIES_OF_URL = 100;
/** Bytes of a reply besides its body and the URL, and of the headers of a client besides their text. */
const REPLY_BYTES = 500;
const CLIENT_BYTES = 700;
/** Heads of replies that differ in more than the id of the request and the entity tag. */
const MAX_HEADS = 1_000;

/** These headers change no reply of a read, or are read separately. */
const IGNORED: ReadonlySet<string> = new Set(['host', 'user-agent', 'x-request-id', 'accept-language', 'referer']);
/** A request that ends its connection, or whose body comes in an unusual way, passes through the stages. */
const EXCLUDED: ReadonlySet<string> = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'upgrade',
  'expect',
]);
/** Bytes of a request body. */
const MAX_BODY_LENGTH = 16_384;
/** With a cookie, the origin of a request with a body is compared with its host. */
const COMPARED_WITH_BODY: ReadonlySet<string> = new Set(['host', 'referer']);

/** A caller, as the headers of a request identify it. */
interface Identified {
  readonly headers: KeptHeaders;
  readonly caller: Identity;
  /** The position in the log that the client has seen. */
  readonly seen: LogPosition;
}

/** All requests with the same headers, and the caller that these headers identify. */
class Client extends Kept {
  readonly headers: KeptHeaders;
  readonly seen: LogPosition;
  caller: Identity;
  /** The number of replies to it. */
  replies = 0;
  /** Until then, in milliseconds since 1970, the headers identify this caller, unless a revision changes. */
  validUntil = 0;
  identities = 0;
  readHooks = 0;

  constructor(
    private readonly owner: KeptReplies | null,
    readonly key: string,
    { headers, caller, seen }: Identified,
    group: number,
  ) {
    super(CLIENT_BYTES + 2 * key.length, group);
    this.headers = headers;
    this.caller = caller;
    this.seen = seen;
  }

  evicted(): void {
    this.owner?.forgetClient(this);
  }
}

/** The headers of replies that differ only in the id of the request and in the entity tag. */
interface Head {
  /** With places for both. */
  readonly bytes: Buffer;
  readonly tagAt: number;
}

/** The parts of a reply that are sent. */
interface Content {
  readonly head: Head;
  readonly tag: string;
  readonly isModified: boolean;
  readonly body: Buffer;
  readonly counter: RequestCounter | null;
}

/** The URL, the answer and the client that a reply belongs to. */
interface Source {
  readonly url: string;
  /** The answer, or null if the reply is always the same. */
  readonly entry: CacheEntry | null;
  readonly client: Client;
}

/** The reply to a URL for a client; without a content, the URL is remembered until the headers of a request are known. */
class KeptReply extends Attached implements Source {
  readonly url: string;
  readonly entry: CacheEntry | null;
  readonly client: Client;
  /** The next reply to the same URL. */
  following: KeptReply | null = null;

  constructor(
    private readonly owner: KeptReplies,
    { url, entry, client }: Source,
    readonly content: Content | null,
    { size, group }: Pick<Kept, 'size' | 'group'>,
  ) {
    super(size, group);
    this.url = url;
    this.entry = entry;
    this.client = client;
  }

  evicted(): void {
    this.entry?.detach(this);
    this.gone();
  }

  gone(): void {
    this.owner.forget(this);
  }
}

/** For replies without the headers of a request. */
const NO_CLIENT = clientOfAll([]);

/** Headers whose caller does not matter. */
function clientOfAll(headers: KeptHeaders): Client {
  return new Client(null, '', { headers, caller: PUBLIC, seen: NO_POSITION }, 0);
}

export class KeptReplies implements ReplyMemory {
  /** By path and query string: the latest reply, which leads to the others. */
  readonly #byUrl = new Map<string, KeptReply>();
  /** The number of replies by method and URL, for methods with a body: the body follows in the key above. */
  readonly #withBody = new Map<string, number>();
  /** By the headers. */
  readonly #clients = new Map<string, Client>();
  readonly #heads = growingCache<Head>(MAX_HEADS);
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

  /** `cache` is null if no answers are in memory: then only replies are kept that are always the same. */
  constructor(
    private readonly cache: ReadCache | null,
    private readonly revisions: Revisions,
    private readonly recorder: RequestRecorder,
  ) {}

  /** Replies that are always the same are those of every caller. */
  get revision(): number {
    return this.cache === null ? 0 : this.revisions.identities + this.revisions.readHooks;
  }

  answer(path: string, request: ServerRequest, response: ServerResponse): true | KeptHeaders | null {
    const first = this.#byUrl.get(`${path}?${request.getQuery() ?? ''}`);
    if (first === undefined) return null;
    this.#count = 0;
    this.#hosts = 0;
    this.#requestId = '';
    request.forEach(this.#readHeader);
    // With several hosts it is refused.
    if (this.#hosts > 1) return null;
    const reply = find(first, this.#headers, this.#count);
    if (reply === null || reply.content === null) return this.#headers.slice(0, this.#count);
    return this.#reply(reply, reply.content, { request, response, body: null }) || reply.client.headers;
  }

  hold(path: string, request: ServerRequest): HeldForReply | null {
    if (this.#withBody.size === 0) return null;
    const url = urlOf(methodOf(request), path, request.getQuery() ?? '');
    if (!this.#withBody.has(url)) return null;
    const all: string[] = [];
    const headers: string[] = [];
    let [lengths, length, hosts, id] = [0, 0, 0, ''];
    request.forEach((name, value) => {
      all.push(name, value);
      if (name === 'host') hosts++;
      if (name === 'x-request-id') id ||= value;
      else if (name === 'content-length') {
        lengths++;
        length = /^\d{1,5}$/.test(value) ? Number(value) : Number.POSITIVE_INFINITY;
      } else if (!IGNORED.has(name) || COMPARED_WITH_BODY.has(name)) {
        if (name !== 'connection' || value !== 'keep-alive') headers.push(name, value);
      }
    });
    if (lengths !== 1 || length === 0 || length > MAX_BODY_LENGTH || hosts !== 1 || !mayBeKept(headers)) return null;
    return { request: new HeldRequest(request, path, all), url, headers, requestId: id };
  }

  answerHeld({ request, url, headers, requestId: id }: HeldForReply, body: Buffer, response: ServerResponse): boolean {
    const first = this.#byUrl.get(url + textOf(body));
    const reply = first === undefined ? null : find(first, headers, headers.length);
    if (reply === null || reply.content === null) return false;
    this.#requestId = id;
    return this.#reply(reply, reply.content, { request, response, body });
  }

  /** Returns whether the reply may be used, and was sent. */
  #reply(reply: KeptReply, content: Content, { request, response, body }: Served): boolean {
    const now = performance.now();
    if (!this.#isValid(reply, now)) return false;
    if (reply.entry !== null) this.cache?.hit(reply.entry, now);
    this.cache?.touch(reply);
    if (body === null) this.#send(response, content);
    else response.cork(() => this.#send(response, content));
    const status = content.isModified ? 200 : 304;
    content.counter?.count(status, performance.now() - now);
    const takers = this.recorder.current === null ? 0 : this.recorder.draw();
    if (takers !== 0) this.recorder.add(answeredRequest(request, reply, { begun: now, body }), status, takers);
    return true;
  }

  #isValid({ entry, client }: KeptReply, now: number): boolean {
    if (entry === null) return true;
    const { cache, revisions } = this;
    if (entry.isDropped || cache === null || Date.now() >= client.validUntil) return false;
    if (client.identities !== revisions.identities || client.readHooks !== revisions.readHooks) return false;
    if (!cache.servesUser(client.caller.user, client.seen, now)) return false;
    cache.touch(client);
    return true;
  }

  /** One call for all headers, unless the client has given an id. */
  #send(response: ServerResponse, { head: { bytes, tagAt }, tag, isModified, body }: Content): void {
    if (!isModified) response.writeStatus('304 Not Modified');
    bytes.write(tag, tagAt, 'latin1');
    if (this.#requestId === '' && writeNextId(bytes)) response.writeHeader(REQUEST_ID, bytes);
    else {
      response.writeHeader(REQUEST_ID, requestId(this.#requestId));
      response.writeHeader(NEXT_HEADER, bytes.subarray(ID_LENGTH + NEXT.length));
    }
    if (isModified) response.end(body);
    else response.endWithoutBody();
  }

  keep(exchange: Exchange, reply: Reply, head: string): void {
    const { accessToken, method, closes, kept } = exchange;
    if (accessToken !== '' || method === 'HEAD' || closes || reply.secret || !head.startsWith(NEXT)) return;
    if (!exchange.isRepeatable || exchange.revision !== this.revision) return;
    const { received, path, queryString } = exchange;
    if (method !== 'GET' && (kept === null || received === null || received.length > MAX_BODY_LENGTH)) return;
    const url = urlOf(method, path, queryString) + (received === null ? '' : textOf(received));
    if (kept === null) this.#keepConstant(exchange, reply, { url, head });
    else if (kept.answer instanceof CacheEntry && !kept.caller.isAddressBound)
      this.#keep(exchange, reply, { url, head, entry: kept.answer, caller: kept.caller });
  }

  /** Clients could make up as many spellings of the URL as they like, and it has no answer whose memory bounds them. */
  #keepConstant(exchange: Exchange, reply: Reply, { url, head }: Sent): void {
    if (exchange.queryString !== '' || exchange.path !== exchange.route) return;
    const { keptHeaders: headers } = exchange;
    const size = { size: 0, group: 0 };
    if (headers === null) {
      if (!this.#byUrl.has(url)) this.#add(new KeptReply(this, { url, entry: null, client: NO_CLIENT }, null, size));
      return;
    }
    const content = this.#contentOf(exchange, reply, head);
    if (content === null || !mayBeKept(headers)) return;
    const client = clientOfAll(headers);
    this.#add(new KeptReply(this, { url, entry: null, client }, content, size));
  }

  #keep(exchange: Exchange, reply: Reply, sent: Sent & { entry: CacheEntry; caller: Identity }): void {
    const { url, entry, caller } = sent;
    if (caller.validUntil <= Date.now() || entry.isDropped) return;
    const { keptHeaders: headers } = exchange;
    const group = groupFor(callerName(caller, exchange));
    const urlBytes = REPLY_BYTES + 2 * url.length;
    if (headers === null || entry.hits < HITS_BEFORE_REPLY) {
      if (!this.#byUrl.has(url))
        this.#attach(new KeptReply(this, { url, entry, client: NO_CLIENT }, null, { size: urlBytes, group }));
      return;
    }
    if (!mayBeKept(headers)) return;
    const client = this.#clientOf(exchange, headers, { entry, caller, group });
    if (client === null) return;
    const first = this.#byUrl.get(url);
    const former = first && find(first, headers, headers.length);
    // It was valid but for its client, which is valid again.
    if (former?.client === client && former.entry === entry && former.content !== null) return;
    const content = this.#contentOf(exchange, reply, sent.head);
    if (content === null) return;
    const isCopy = entry.body === null || content.body.buffer !== entry.body.buffer;
    const size = urlBytes + (isCopy ? content.body.length : 0);
    this.#attach(new KeptReply(this, { url, entry, client }, content, { size, group }));
  }

  /** The client with these headers, which now identify the caller; null if there is no memory for it. */
  #clientOf(
    exchange: Exchange,
    headers: KeptHeaders,
    { entry, caller, group }: { readonly entry: CacheEntry; readonly caller: Identity; readonly group: number },
  ): Client | null {
    const key = headers.join('\0');
    const known = this.#clients.get(key);
    const isSame = known !== undefined && known.next !== null && isSameCaller(known.caller, caller);
    const client = isSame
      ? known
      : new Client(this, key, { headers, caller, seen: readPosition(exchange.position) }, group);
    const { identities, readHooks } = this.revisions;
    // Hooks may add conditions to reads that had none.
    if (isSame && client.readHooks !== readHooks) {
      this.forgetClient(client);
      return null;
    }
    client.caller = caller;
    client.validUntil = caller.validUntil;
    client.identities = identities;
    client.readHooks = readHooks;
    if (isSame) return client;
    if (known) this.forgetClient(known);
    if (!this.cache?.hold(client, entry)) return null;
    this.#clients.set(key, client);
    return client;
  }

  /** Replies to it are made again when they are asked for. */
  forgetClient(client: Client): void {
    client.validUntil = 0;
    this.cache?.release(client);
    if (this.#clients.get(client.key) === client) this.#clients.delete(client.key);
  }

  #attach(reply: KeptReply): void {
    this.#add(reply);
    // If it has no room, or its entry had to leave for it, it may still be here.
    if (!reply.entry?.attach(reply)) this.forget(reply);
  }

  /** Takes the place of the former reply to these headers, of a mere URL, or of the oldest one if there are too many. */
  #add(reply: KeptReply): void {
    const { url, client } = reply;
    client.replies++;
    let count = 0;
    for (let each = this.#byUrl.get(url) ?? null, next: KeptReply | null; each !== null; each = next) {
      next = each.following;
      count++;
      if (
        each.content === null ||
        isEqual(each.client.headers, client.headers, client.headers.length) ||
        count === MAX_REPLIES_OF_URL
      )
        each.evicted();
    }
    reply.following = this.#byUrl.get(url) ?? null;
    this.#byUrl.set(url, reply);
    this.#countWithBody(url, 1);
  }

  #countWithBody(url: string, change: number): void {
    const end = url.indexOf('\n');
    if (end < 0) return;
    const requested = url.slice(0, end + 1);
    const count = (this.#withBody.get(requested) ?? 0) + change;
    if (count > 0) this.#withBody.set(requested, count);
    else this.#withBody.delete(requested);
  }

  /** It has left the memory. */
  forget(reply: KeptReply): void {
    const { url, client, following } = reply;
    const first = this.#byUrl.get(url);
    let before = first ?? null;
    while (before !== null && before !== reply && before.following !== reply) before = before.following;
    if (before === null) return;
    if (before !== reply) before.following = following;
    else if (following) this.#byUrl.set(url, following);
    else this.#byUrl.delete(url);
    reply.following = null;
    this.#countWithBody(url, -1);
    if (--client.replies === 0) this.forgetClient(client);
  }

  /** Returns null if the reply cannot be kept. */
  #contentOf({ routeStats }: Exchange, reply: Reply, head: string): Content | null {
    const body = bodyOf(reply);
    if (body === null) return null;
    const { tag = '' } = reply;
    const header = `\r\nETag: ${tag}`;
    const at = tag === '' ? -1 : head.indexOf(header);
    const tagAt = at < 0 ? 0 : at + header.length - tag.length;
    const key = at < 0 ? head : `${head.slice(0, tagAt)}${' '.repeat(tag.length)}${head.slice(tagAt + tag.length)}`;
    const known = this.#heads.get(key) ?? {
      bytes: Buffer.from(`${ID_SPACE}${key}`, 'latin1'),
      tagAt: ID_LENGTH + tagAt,
    };
    this.#heads.set(key, known);
    return { head: known, tag: at < 0 ? '' : tag, isModified: reply.status === 200, body, counter: routeStats };
  }
}

/** A request, and where its reply goes. */
interface Served {
  readonly request: ServerRequest;
  readonly response: ServerResponse;
  readonly body: Buffer | null;
}

/** SEARCH and QUERY are one method. */
function methodOf(request: ServerRequest): string {
  const method = request.getCaseSensitiveMethod();
  return method === 'QUERY' ? 'SEARCH' : method;
}

/** The key of a reply, in front of the bytes of the body. No URL has a line break. */
function urlOf(method: string, path: string, query: string): string {
  return method === 'GET' ? `${path}?${query}` : `${method} ${path}?${query}\n`;
}

/** A character for each byte. */
function textOf(body: Buffer): string {
  return body.toString('latin1');
}

interface Sent {
  readonly url: string;
  /** The headers after the id of the request. */
  readonly head: string;
}

/** A request that was answered from memory, for a recording. */
function answeredRequest(
  request: ServerRequest,
  { client, entry, content }: KeptReply,
  { begun, body }: { readonly begun: number; readonly body: Buffer | null },
): AnsweredRequest {
  return {
    method: methodOf(request),
    path: request.getUrl(),
    queryString: request.getQuery() ?? '',
    headers: { prefer: request.getHeader('prefer'), accept: request.getHeader('accept') },
    route: content?.counter?.path ?? '',
    begun,
    identity: client.caller,
    statementText: entry?.shape.compiled.statement.text ?? '',
    received: body && Buffer.from(body),
    hasJsonBody: body !== null,
    isWrite: false,
    sentBytes: content?.body.length ?? 0,
    stageTimes: null,
    wantsEvents: false,
  };
}

const NEXT = '\r\nX-Content-Type-Options: ';
const REQUEST_ID = Buffer.from('X-Request-Id');
const NEXT_HEADER = Buffer.from('X-Content-Type-Options');
const NOTHING = Buffer.alloc(0);

/** The first `count` headers are those of the reply. */
function find(first: KeptReply, headers: KeptHeaders, count: number): KeptReply | null {
  for (let reply: KeptReply | null = first; reply !== null; reply = reply.following)
    if (isEqual(reply.client.headers, headers, count)) return reply;
  return null;
}

/** Whether the first `count` of the others are these. */
function isEqual(headers: KeptHeaders, others: KeptHeaders, count: number): boolean {
  if (headers.length !== count) return false;
  for (let index = count - 1; index >= 0; index--) if (headers[index] !== others[index]) return false;
  return true;
}

/** Whether the caller has the same permissions and values, though it was looked up again. */
function isSameCaller(one: Identity, other: Identity): boolean {
  return one === other || isDeepStrictEqual({ ...one, validUntil: 0 }, { ...other, validUntil: 0 });
}

function mayBeKept(headers: KeptHeaders): boolean {
  let length = 0;
  for (const text of headers) length += text.length;
  return length <= MAX_HEADERS_LENGTH && !headers.some((text, index) => index % 2 === 0 && EXCLUDED.has(text));
}

/** Returns null if the reply cannot be kept: its body is streamed, or too large to be sent in one piece. */
function bodyOf({ status, body }: Reply): Buffer | null {
  if (status === 304) return NOTHING;
  if (status !== 200 || typeof body === 'function' || body.length >= LARGE_BODY_BYTES) return null;
  return typeof body === 'string' ? Buffer.from(body) : body;
}
