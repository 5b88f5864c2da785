/**
 * One request and its response. uWebSockets keeps a request only until its handler returns, so everything of it is read
 * here at once; the response may be written at any later time, unless the client has left.
 */
import { performance } from 'node:perf_hooks';
import { invalidPayload, unsupportedMediaType } from '../../base/errors.js';
import type { Identity } from '../access/identity.js';
import type { Config } from '../config/config.js';
import { laterPosition } from '../execute/consistency.js';
import type { KeptAnswer } from '../execute/reads/kept-answer.js';
import { STAGES, type Stage } from '../execute/stages.js';
import { type ClientAddressResolver, peerOf } from './client-address.js';
import { type Framing, noteFraming } from './framing.js';
import type { HeldBody } from './held-request.js';
import { parseBody } from './parse-body.js';
import type { NameMapping, OpenListener, OpenResponse, Outcome, Reply } from './reply.js';
import { requestId } from './request-id.js';
import type { ServerRequest, ServerResponse } from './transport.js';

export interface Headers {
  readonly authorization: string;
  readonly viewAs: string;
  readonly accept: string;
  readonly contentType: string;
  readonly origin: string;
  readonly requestMethod: string;
  readonly prefer: string;
  /** '' if no reads are served from memory. */
  readonly cacheControl: string;
  /** '' if reads are served neither from replicas nor from memory. */
  readonly position: string;
  readonly ifNoneMatch: string;
  /** '' for reads. */
  readonly ifMatch: string;
  /** For requests of a file; '' for all others. */
  readonly range: string;
  readonly ifRange: string;
  readonly ifModifiedSince: string;
  /** '' for requests without events. */
  readonly lastEventId: string;
  readonly idempotencyKey: string;
  readonly mcpSession: string;
  readonly mcpVersion: string;
  readonly cookie: string;
  /** '' for reads, which do not record it. */
  readonly userAgent: string;
  readonly host: string;
  readonly fetchSite: string;
}

/** A session carries the position after its last write in a second cookie. */
export interface PositionCookies {
  read(exchange: Exchange): string;
  /** The value of a Set-Cookie header; '' without a session. */
  write(exchange: Exchange, position: string): string;
}

/** The common part of all exchanges of a server. */
export interface ServerHooks {
  readonly clientAddress: ClientAddressResolver;
  /** Whether the stages of a request are timed, for its response or for traces. */
  readonly timing: boolean;
  /** Callers whose responses carry the times: SERVER_TIMING. */
  readonly timingFor: 'administrators' | 'true' | 'false';
  /** Cookies with positions, or null if reads are served neither from replicas nor from memory. */
  readonly positions: PositionCookies | null;
  /** Whether reads are served from memory. */
  readonly caches: boolean;
  /** The names that clients use, or null if they are those of the service. */
  readonly names: NameMapping | null;
  /** Whether a response depends on the origin of the request. */
  readonly answersOrigins: boolean;
  respond(exchange: Exchange, outcome: Outcome): void;
  respondError(exchange: Exchange, error: unknown): void;
  openResponse(exchange: Exchange, reply: Reply, listener: OpenListener): OpenResponse;
}

export type Encoding = Config['COMPRESSION'][number];

export interface NegotiatedEncoding {
  readonly name: Encoding;
  /** The client refuses a body that is not encoded, however small it is. */
  readonly always: boolean;
}

/** Counts the requests of a route. */
export interface RequestCounter {
  readonly path: string;
  count(status: number, ms: number): void;
}

export class Exchange {
  /** SEARCH for a QUERY: the two are one method with two names. */
  readonly method: string;
  /** As sent: percent-encoded, with its query string apart. */
  readonly path: string;
  readonly queryString: string;
  /** Removed from the query string, which is logged, cached and shown. */
  readonly accessToken: string;
  readonly headers: Headers;
  readonly prefer: string;
  /** Whether the request comes from an `EventSource`. */
  readonly wantsEvents: boolean;
  readonly acceptEncoding: string;
  readonly id: string;
  /** Decoded parts of the path that the route names. */
  parameters: readonly string[] = [];
  aborted = false;
  /** Whether the handler of uWebSockets runs, which sends all that is written until it returns at once. */
  isCorked = true;
  /** Why its end or its host is not certain: proxies may disagree on where the next request begins. '' for almost all requests. */
  readonly ambiguity: string;
  /** The client asked to close the connection after the response, which uWebSockets does. */
  readonly closes: boolean;
  /** The rest of the body is not read: the connection ends with the response. */
  unread = false;
  /** Whether the response was written: from then on nothing may touch it. */
  replied = false;
  /** As written; 0 before that. */
  status = 0;
  /** The counter of its route, or null until the route is found. */
  routeStats: RequestCounter | null = null;
  readonly begun = performance.now();
  /** How the body of the response is to be compressed; null for not at all. */
  encoding: NegotiatedEncoding | null = null;
  /** More headers of the response, as they are written: the preference that was honoured, and the position after a write. */
  extraHeaders = '';
  /** Called once, when the answer has left or never will. */
  onDone: (() => void) | null = null;
  /** The session cookie is not valid: the response deletes it. */
  cookieRefused = false;
  fromAdministrator = false;
  /** The caller if the program itself sends the request; null if its credentials name the caller. */
  caller: Identity | null = null;
  /** Identifies that caller again, or null if the credentials name the caller. */
  renewCaller: (() => Promise<Identity>) | null = null;
  /** The caller, with whose permissions it is answered; null until the caller is identified. */
  identity: Identity | null = null;
  /** The text of the statement that answers it; '' for none. */
  statementText = '';
  /** The body of the request, if it was collected. */
  received: Buffer | null = null;
  isWrite = false;
  /** Bytes of the response's body, before compression: counted while traffic is recorded. */
  sentBytes = 0;
  /** Milliseconds by stage, negative for those that it did not pass; null for none. */
  stageTimes: StageTimes | null = null;
  /** The response from memory that this request gets, and its caller. */
  kept: { readonly answer: KeptAnswer; readonly caller: Identity } | null = null;
  /** Whether an equal request of the caller gets the same answer as long as that is in memory. */
  isRepeatable = true;
  /** The body, if a part of it came before this was made, or null. */
  heldBody: HeldBody | null = null;
  /** The revision of the memory of replies when the request came. */
  revision = 0;
  /** The request headers, if replies to this URL are kept in memory, or null. */
  keptHeaders: readonly string[] | null = null;
  readonly #forwarded: string;
  readonly #forwardedProtocol: string;
  #address: string | null = null;
  #abortListeners: (() => void)[] | null = null;
  #stageBegun = this.begun;
  /** Reads that its statement carried. */
  #batch = 1;
  #body: Promise<Buffer> | null = null;

  constructor(
    request: ServerRequest,
    readonly response: ServerResponse,
    private readonly hooks: ServerHooks,
    path = request.getUrl(),
  ) {
    const method = request.getCaseSensitiveMethod();
    this.method = method === 'QUERY' ? 'SEARCH' : method;
    this.path = path;
    const query = request.getQuery() ?? '';
    const [queryString, accessToken] = query.includes('access_token=') ? takeAccessToken(query) : [query, ''];
    this.queryString = queryString;
    this.accessToken = accessToken;
    const read = readHeaders(request, this, hooks);
    this.headers = read;
    this.prefer = read.prefer;
    this.wantsEvents = read.accept.startsWith(EVENT_STREAM) && !REFUSED.test(read.accept);
    this.#forwarded = read.forwarded;
    this.#forwardedProtocol = read.forwardedProtocol;
    this.acceptEncoding = read.acceptEncoding;
    this.closes = read.connection.length === CLOSE_LENGTH;
    this.ambiguity = read.ambiguity;
    this.id = requestId(read.requestId);
  }

  /** To be called before the handler of uWebSockets returns, unless the response is written: a call that small replies do not need. */
  outlive(): void {
    this.isCorked = false;
    this.response.onAborted(() => {
      this.aborted = true;
      for (const listener of this.#abortListeners ?? []) listener();
    });
  }

  /** The address of the client, by the headers of trusted proxies; '' if the client has left. */
  get address(): string {
    this.#address ??=
      this.aborted || this.replied ? '' : this.hooks.clientAddress.addressOf(peerOf(this.response), this.#forwarded);
    return this.#address;
  }

  /** Whether the client came by TLS, which ends at a proxy. */
  get secure(): boolean {
    if (this.#forwardedProtocol === '' || this.aborted || this.replied) return false;
    return /^https$/i.test(this.#forwardedProtocol.trim()) && this.hooks.clientAddress.trusts(peerOf(this.response));
  }

  /** The value of a cookie; '' for none. */
  cookie(name: string): string {
    return this.headers.cookie === '' ? '' : readCookie(this.headers.cookie, name);
  }

  /** The log position of the header or of the cookie, the later one. */
  get position(): string {
    return laterPosition(this.headers.position, this.hooks.positions?.read(this) ?? '');
  }

  /** The last of several writes counts. */
  wrote(position: string): void {
    const cookie = this.hooks.positions?.write(this, position) ?? '';
    const header = `\r\nLateral-Position: ${position}${cookie === '' ? '' : `\r\nSet-Cookie: ${cookie}`}`;
    this.extraHeaders = this.extraHeaders.replace(/\r\nLateral-Position:.*$/s, '') + header;
  }

  applied(preference: string): void {
    this.extraHeaders += `\r\nPreference-Applied: ${preference}`;
  }

  /** Removes `Preference-Applied`: an error response applies no preference of the request. */
  withdrawPreferences(): void {
    if (this.extraHeaders === '') return;
    this.extraHeaders = this.extraHeaders.replace(/\r\nPreference-Applied: [^\r]*/g, '');
  }

  get noCache(): boolean {
    const { cacheControl } = this.headers;
    return cacheControl !== '' && /(?:^|,)\s*no-(?:cache|store)\b/i.test(cacheControl);
  }

  /** An answer from memory has passed no stages. */
  cached(answer: KeptAnswer, caller: Identity, isRepeatable: boolean): void {
    if (this.#seesCache) this.extraHeaders += '\r\nCache-Status: lateral; hit';
    this.showCache('HIT');
    this.stageTimes = null;
    this.kept = { answer, caller };
    if (!isRepeatable) this.isRepeatable = false;
  }

  /** In the header of the other API that clients use. */
  showCache(status: 'HIT' | 'MISS'): void {
    const header = this.hooks.names?.cacheHeader;
    if (header && this.#seesCache) this.extraHeaders += `\r\n${header}: ${status}`;
  }

  /** A hit or a miss reveals changes that the caller may not see, and reads of other callers. */
  get #seesCache(): boolean {
    return this.fromAdministrator || this.hooks.timingFor === 'true';
  }

  viewedAs(text: string): void {
    this.extraHeaders += `\r\nLateral-View-As: ${text}`;
  }

  /** Reads the body, up to the given size and time: to be called before anything is awaited, since data without a reader is lost. */
  collect(maxBytes: number, timeoutMs: number): void {
    this.#body = this.#collect(maxBytes, timeoutMs);
    // Whether the route wants the body is known later; a failure before that must not count as unhandled.
    this.#body.catch(() => {});
  }

  /** Calls back when the client leaves; at once if it already has. */
  onAbort(listener: () => void): void {
    if (this.aborted) listener();
    else if (this.#abortListeners === null) this.#abortListeners = [listener];
    else this.#abortListeners.push(listener);
  }

  /** Answers the request: for handlers that said they would do so later. */
  respond(outcome: Outcome): void {
    this.hooks.respond(this, outcome);
  }

  respondError(error: unknown): void {
    this.hooks.respondError(this, error);
  }

  /** Begins a response that stays open: its head leaves with the first piece. */
  openResponse(reply: Reply, listener: OpenListener): OpenResponse {
    return this.hooks.openResponse(this, reply, listener);
  }

  /** Ends a stage of the pipeline: what has passed since the last call is its duration. */
  staged(stage: Stage): void {
    if (!this.hooks.timing) return;
    const now = performance.now();
    this.stageTimes ??= noStageTimes();
    addStageTime(this.stageTimes, stage, now - this.#stageBegun);
    this.stageEnded(stage, this.#stageBegun, now);
    this.#stageBegun = now;
  }

  /** For traces, as `ended` is: a server without them has no exchange that does something here. */
  protected stageEnded(_stage: Stage, _begun: number, _now: number): void {}

  statement(text: string): void {
    this.statementText = text;
  }

  /** The answer has left, or never will. */
  ended(_status: number): void {}

  /** Sent only on request: it would lengthen every response. */
  batched(reads: number): void {
    if (this.headers.prefer !== '' && /\btiming\b/.test(this.headers.prefer)) this.#batch = reads;
  }

  /**
   * The Server-Timing header. It ends the last stage. The times reveal what is cached, and how
   * many rows the caller may not see. So only administrators get them, unless the option allows more callers.
   */
  serverTiming(): string {
    if (this.stageTimes === null) return '';
    this.staged('reply');
    const { timingFor } = this.hooks;
    const isSent = timingFor === 'administrators' ? this.fromAdministrator : timingFor === 'true';
    return isSent ? serverTiming(this.stageTimes, this.#batch) : '';
  }

  /** The template of its route; '' if none matched. */
  get route(): string {
    return this.routeStats?.path ?? '';
  }

  /** Whether the body was collected, and is JSON or empty. */
  get hasJsonBody(): boolean {
    if (this.#body === null || this.unread) return false;
    return this.received === null || this.received.length === 0 || isJson(this.headers.contentType);
  }

  /** The body as JSON; a missing body is `undefined`. Routes whose numbers are data bring a parser that keeps their digits. */
  async json(parse: (text: string) => unknown = JSON.parse): Promise<unknown> {
    const body = await (this.#body ?? Promise.resolve(Buffer.alloc(0)));
    if (body.length === 0) return undefined;
    const { contentType } = this.headers;
    if (!isJson(contentType)) throw unsupportedMediaType(mediaType(contentType), 'Content-Type header');
    return parseBody(body, parse, this);
  }

  /** Chunks are only borrowed for the time of the callback: they are copied. */
  #collect(maxBytes: number, timeoutMs: number): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let size = 0;
      const timer = setTimeout(() => {
        this.unread = true;
        const exceeded = { option: 'BODY_TIMEOUT', limit: timeoutMs };
        reject(invalidPayload(`The body did not arrive within ${timeoutMs} ms`, exceeded));
      }, timeoutMs).unref();
      this.onAbort(() => {
        clearTimeout(timer);
        reject(invalidPayload('The client disconnected'));
      });
      (this.heldBody ?? this.response).onData((chunk, last) => {
        size += chunk.byteLength;
        if (size > maxBytes) {
          chunks.length = 0;
          this.unread = true;
          reject(invalidPayload('request entity too large', { option: 'MAX_PAYLOAD_SIZE', limit: maxBytes }));
          return;
        }
        chunks.push(Buffer.from(Buffer.from(chunk)));
        if (!last) return;
        clearTimeout(timer);
        const [first] = chunks;
        this.received = first && chunks.length === 1 ? first : Buffer.concat(chunks);
        resolve(this.received);
      });
    });
  }
}

const EVENT_STREAM = 'text/event-stream';

/** A quality of 0 in the first type of an Accept header. */
const REFUSED = /^[^,]*;\s*q=0(?:\.0*)?\s*(?:,|;|$)/i;

/** uWebSockets recognizes `Connection: close` by its length alone. */
const CLOSE_LENGTH = 'close'.length;

type Writable<Type> = { -readonly [Name in keyof Type]: Type[Name] };

/** All headers of a request that the service knows. If a header is repeated, the first one counts. */
interface ReadHeaders extends Writable<Headers>, Framing {
  acceptEncoding: string;
  connection: string;
  requestId: string;
  forwarded: string;
  forwardedProtocol: string;
}

/** One call into the server reads all headers: a call for each would take longer than most other parts of a small read. */
function readHeaders(
  request: ServerRequest,
  { method, path }: Pick<Exchange, 'method' | 'path'>,
  hooks: ServerHooks,
): ReadHeaders {
  const read: ReadHeaders = {
    authorization: '',
    viewAs: '',
    accept: '',
    contentType: '',
    origin: '',
    requestMethod: '',
    prefer: '',
    cacheControl: '',
    position: '',
    ifNoneMatch: '',
    ifMatch: '',
    range: '',
    ifRange: '',
    ifModifiedSince: '',
    lastEventId: '',
    idempotencyKey: '',
    mcpSession: '',
    mcpVersion: '',
    cookie: '',
    userAgent: '',
    host: '',
    fetchSite: '',
    acceptEncoding: '',
    connection: '',
    contentLength: null,
    transferEncoding: null,
    hasHost: false,
    ambiguity: '',
    requestId: '',
    forwarded: '',
    forwardedProtocol: '',
  };
  target = read;
  forwardedName = hooks.clientAddress.header;
  request.forEach(readHeader);
  const isRead = method === 'GET' || method === 'HEAD';
  if (isRead) forgetHeadersOfWrites(read, hooks);
  if (!isRead || !path.startsWith('/assets/')) read.range = read.ifRange = read.ifModifiedSince = '';
  if (hooks.positions === null) read.position = '';
  if (!read.accept.startsWith(EVENT_STREAM)) read.lastEventId = '';
  return read;
}

/** These headers have no meaning for reads. */
function forgetHeadersOfWrites(read: ReadHeaders, { answersOrigins }: ServerHooks): void {
  read.contentType = read.requestMethod = read.ifMatch = read.idempotencyKey = '';
  read.userAgent = read.host = read.fetchSite = '';
  if (!answersOrigins) read.origin = '';
  if (read.cookie !== '' && hasBearerScheme(read.authorization)) read.cookie = '';
}

/** Where `readHeader` writes: a function for each request would cost more. */
let target: ReadHeaders;
let forwardedName = '';

const FIELDS: ReadonlyMap<string, Exclude<keyof ReadHeaders, keyof Framing>> = new Map([
  ['authorization', 'authorization'],
  ['lateral-view-as', 'viewAs'],
  ['accept', 'accept'],
  ['content-type', 'contentType'],
  ['origin', 'origin'],
  ['access-control-request-method', 'requestMethod'],
  ['prefer', 'prefer'],
  ['cache-control', 'cacheControl'],
  ['lateral-position', 'position'],
  ['if-none-match', 'ifNoneMatch'],
  ['if-match', 'ifMatch'],
  ['range', 'range'],
  ['if-range', 'ifRange'],
  ['if-modified-since', 'ifModifiedSince'],
  ['last-event-id', 'lastEventId'],
  ['idempotency-key', 'idempotencyKey'],
  ['mcp-session-id', 'mcpSession'],
  ['mcp-protocol-version', 'mcpVersion'],
  ['cookie', 'cookie'],
  ['user-agent', 'userAgent'],
  ['host', 'host'],
  ['sec-fetch-site', 'fetchSite'],
  ['accept-encoding', 'acceptEncoding'],
  ['connection', 'connection'],
  ['x-request-id', 'requestId'],
]);

function readHeader(name: string, value: string): void {
  const field = FIELDS.get(name);
  if (field !== undefined && target[field] === '') target[field] = value;
  if (name === 'host' && !target.hasHost) target.hasHost = true;
  else if (name === 'host' || name === 'content-length' || name === 'transfer-encoding')
    noteFraming(target, name, value);
  if (forwardedName === '') return;
  if (name === forwardedName && target.forwarded === '') target.forwarded = value;
  if (name === 'x-forwarded-proto' && target.forwardedProtocol === '') target.forwardedProtocol = value;
}

function mediaType(contentType: string): string {
  return contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

function isJson(contentType: string): boolean {
  const type = mediaType(contentType);
  return type === 'application/json' || /^application\/[a-z0-9.+-]+\+json$/.test(type);
}

function hasBearerScheme(authorization: string): boolean {
  return authorization.startsWith('Bearer ') || /^bearer /i.test(authorization);
}

/** The value of a cookie. If two cookies have the name, the first is the more specific one. */
function readCookie(header: string, name: string): string {
  for (const pair of header.split(';')) {
    const at = pair.indexOf('=');
    if (at > 0 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim();
  }
  return '';
}

/** The query string without its access token, and the token. */
function takeAccessToken(query: string): [queryString: string, accessToken: string] {
  const parameters = query.split('&');
  const carries = (parameter: string): boolean => parameter.startsWith('access_token=');
  const tokens = parameters.filter(carries).map((each) => decodeToken(each.slice('access_token='.length)));
  return [parameters.filter((each) => !carries(each)).join('&'), tokens.find((each) => each !== '') ?? ''];
}

function decodeToken(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

/** Milliseconds by the position of the stage; negative for a stage that the request did not pass. */
type StageTimes = number[];

function noStageTimes(): StageTimes {
  return [-1, -1, -1, -1, -1, -1, -1];
}

const POSITIONS = Object.fromEntries(STAGES.map((stage, position) => [stage, position])) as Record<Stage, number>;

/** A stage may be passed several times, as by a retry: its times are added up. */
function addStageTime(times: StageTimes, stage: Stage, milliseconds: number): void {
  const position = POSITIONS[stage];
  const before = times[position] ?? -1;
  times[position] = before < 0 ? milliseconds : before + milliseconds;
}

/** A read that travelled in a batch says with how many: `batch;desc="7"`. */
function serverTiming(times: StageTimes, batch = 1): string {
  let text = '';
  for (let position = 0; position < STAGES.length; position++) {
    const milliseconds = times[position] ?? -1;
    if (milliseconds < 0) continue;
    const entry = entryOf(position, Math.round(milliseconds * 100));
    text = text === '' ? entry : `${text}, ${entry}`;
  }
  return batch === 1 ? text : text + batchEntry(batch);
}

const BATCH_ENTRIES: string[] = [];

function batchEntry(batch: number): string {
  BATCH_ENTRIES[batch] ??= `, batch;desc="${batch}"`;
  return BATCH_ENTRIES[batch];
}

/** By stage and hundredths of a millisecond: short durations come again and again. */
const MAX_CACHED_HUNDREDTHS = 2_000;
const ENTRIES: readonly string[][] = STAGES.map(() => new Array(MAX_CACHED_HUNDREDTHS));

function entryOf(position: number, hundredths: number): string {
  const entries = ENTRIES[position] ?? [];
  const known = entries[hundredths];
  if (known !== undefined) return known;
  const text = `${STAGES[position]};dur=${(hundredths / 100).toFixed(2)}`;
  if (hundredths < MAX_CACHED_HUNDREDTHS) entries[hundredths] = text;
  return text;
}
