/** The HTTP server: every request passes here, from the socket to its route, and its response back to the socket. */

import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { invalidPayload, invalidQuery, type ServiceError, serviceUnavailable } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { Identity } from '../access/identity.js';
import { viewWrites } from '../access/view-as.js';
import type { Config } from '../config/config.js';
import type { RequestEvent } from '../execute/hooks/api.js';
import { type ResponseMemory, UNCOUNTED_BYTES } from '../postgres/wire/response-memory.js';
import { holdBody as holdUpload } from './body.js';
import { type ClientAddressResolver, createClientAddressResolver } from './client-address.js';
import { type Compression, createCompression, negotiateEncoding } from './compress.js';
import { type Cookies, createCookies, positionCookies } from './cookies.js';
import { type Cors, createCors, createOriginCheck, type HeaderList } from './cors.js';
import { Exchange, type PositionCookies, type ServerHooks } from './exchange.js';
import { type HeldBody, holdBody } from './held-request.js';
import type { Limit } from './limiter.js';
import { MemoryRequest, MemoryResponse } from './memory-socket.js';
import {
  DEFERRED,
  errorReply,
  type NameMapping,
  noContent,
  type OpenListener,
  type OpenResponse,
  type Outcome,
  type Reply,
} from './reply.js';
import type { ReplyMemory } from './reply-memory.js';
import type { RequestRecorder } from './request-recorder.js';
import { CLIENT_LEFT_STATUS, type Handler, type Route, type Router, streamsBody } from './router.js';
import { openTraces, TracedExchange, type Traces } from './traces.js';
import type { HandleRequest, ListenAddress, ServerRequest, ServerResponse, Transport } from './transport.js';
import { type SocketProtocol, socketServer } from './websocket.js';
import { breakOff, headOf, OpenResponseWriter, ResponseQueue, streamBody, writeBody } from './write-reply.js';

/** Where a request comes from that the program passes on. */
export interface RequestSource {
  /** The address of the client; '' if it is not known. */
  readonly address: string;
  /** The caller, or null if the credentials of the request name it. */
  readonly caller: Identity | null;
  /** Identifies the caller again, for a response that stays open. */
  readonly renew?: (() => Promise<Identity>) | null;
}

export interface HttpServer {
  /** 0 without a port. */
  readonly port: number;
  /** Serves a request without a socket. */
  fetch(request: Request, source: RequestSource): Promise<Response>;
  /** Requests are answered from now on. Before, each of them gets a 503. */
  startServing(): void;
  /** Goes on accepting connections, but each answer closes its connection: the next request goes to another instance. */
  drain(): void;
  /** Stops accepting, waits for running requests up to the given time, then closes the other connections. */
  close(graceMs: number): Promise<void>;
  /** Closes all connections at once. */
  abandon(): void;
}

export type RequestListener = (request: RequestEvent) => void;

/** The server that takes requests, and its address. */
interface Listening {
  readonly transport: Transport;
  readonly address: ListenAddress;
}

interface HttpOptions {
  readonly config: Config;
  /** Memory for large responses: each has its part until it has left. */
  readonly responseMemory: ResponseMemory;
  readonly observe: Observer;
  /** Called after each request, or null. */
  readonly onRequest: RequestListener | null;
  /** The names that clients use, or null if they are those of the service. */
  readonly names: NameMapping | null;
  /** The server and its address, or null if only the program itself sends requests. */
  readonly listen: Listening | null;
  /** The limit of requests per client, or null for none. */
  readonly limit: Limit | null;
  /** The protocols over WebSockets. */
  readonly sockets: readonly SocketProtocol[];
  readonly recorder: RequestRecorder;
  /** Replies from memory. */
  readonly replies: ReplyMemory | null;
}

/** Milliseconds for requests on connections that were accepted last. */
const LAST_REQUESTS_MS = 100;

/** Milliseconds for the spans of the last requests to be sent. */
const LAST_SPANS_MS = 1_000;

export async function startHttpServer(router: Router, options: HttpOptions): Promise<HttpServer> {
  const { config, listen } = options;
  const traces = await openTraces(config, options.observe);
  const cors = createCors(config);
  const responder = new Responder(router, cors, traces !== null, options);
  const serve = createHandler(router, cors, options);
  const serveProgram = createHandler(router, cors, { ...options, limit: null });
  let isServing = false;
  const admit = (): void => {
    if (!isServing) throw starting();
  };
  const receivers = createReceivers(responder, traces, (exchange) => {
    admit();
    return exchange.caller === null ? serve(exchange) : serveProgram(exchange);
  });
  const socket = listen && (await openSocket({ ...options, listen }, { responder, admit, receivers }));
  return {
    port: socket?.port ?? 0,
    fetch: (request, source) => fetchFrom(receivers.any, request, source),
    startServing: () => {
      isServing = true;
    },
    drain: () => {
      responder.closing = true;
      for (const protocol of options.sockets) protocol.stop();
    },
    close: async (graceMs) => {
      responder.closing = true;
      await socket?.refuseOthers(graceMs);
      await responder.idle(graceMs);
      socket?.close();
      await traces?.close(Math.min(LAST_SPANS_MS, graceMs));
    },
    abandon: () => socket?.close(),
  };
}

/** Serves a request. The source is null for a request of a socket, whose credentials name the caller. */
type Receive = (request: ServerRequest, response: ServerResponse, source: RequestSource | null) => void;

interface Receivers {
  readonly any: Receive;
  /** For GET requests of a socket. */
  readonly get: HandleRequest;
}

interface ListeningSocket {
  readonly port: number;
  /** Stops accepting connections. */
  refuseOthers(graceMs: number): Promise<void>;
  close(): void;
}

async function openSocket(
  { config, limit, sockets, listen }: HttpOptions & { readonly listen: Listening },
  { responder, admit, receivers }: { responder: Responder; admit: () => void; receivers: Receivers },
): Promise<ListeningSocket> {
  const refuse = (exchange: Exchange, error: unknown): void => responder.refuse(exchange, error);
  const options = { config, hooks: responder, limit, admit, refuse };
  const opened = await listen.transport.open(listen.address, {
    get: receivers.get,
    any: (response, request) => receivers.any(request, response, null),
    sockets: sockets.map((protocol) => socketServer(protocol, options)),
  });
  return {
    port: opened.port,
    refuseOthers: async (graceMs) => {
      // After the loop's turn for sockets, when all waiting connections are accepted: a listener that closes resets the others.
      await new Promise((resolve) => setImmediate(resolve));
      opened.refuse();
      // A client that has connected is about to send a request.
      if (config.DRAIN_DELAY > 0 || config.REUSE_PORT) await sleep(Math.min(LAST_REQUESTS_MS, graceMs));
    },
    close: opened.close,
  };
}

async function fetchFrom(receive: Receive, request: Request, source: RequestSource): Promise<Response> {
  if (request.signal.aborted) throw request.signal.reason;
  const response = new MemoryResponse(request, source.address);
  receive(new MemoryRequest(request), response, source);
  return response.response;
}

function createReceivers(responder: Responder, traces: Traces | null, handle: Handler): Receivers {
  const { kept } = responder;
  // Chosen once: without traces no request asks whether there are any.
  const exchangeOf =
    traces === null
      ? (request: ServerRequest, response: ServerResponse, path: string) =>
          new Exchange(request, response, responder, path)
      : (request: ServerRequest, response: ServerResponse) => new TracedExchange(request, response, responder, traces);
  const any: Receive = (request, response, source) => {
    const exchange = exchangeOf(request, response, request.getUrl());
    if (kept !== null) exchange.revision = kept.revision;
    if (source !== null) {
      exchange.caller = source.caller;
      exchange.renewCaller = source.renew ?? null;
    }
    serveExchange(exchange, responder, handle);
  };
  if (kept === null) return { any, get: (response, request) => any(request, response, null) };
  const anyHeld: Receive = (request, response, source) => {
    const held = source !== null || responder.closing ? null : kept.hold(request.getUrl(), request);
    if (held === null) {
      any(request, response, source);
      return;
    }
    responder.begin();
    const { revision } = kept;
    const serve = (body: HeldBody): void => {
      const exchange = exchangeOf(held.request, response, held.request.getUrl());
      exchange.keptHeaders = held.headers;
      exchange.revision = revision;
      exchange.heldBody = body;
      exchange.isCorked = !body.isLate;
      serveExchange(exchange, responder, handle);
    };
    holdBody(
      response,
      (body) => kept.answerHeld(held, body, response),
      serve,
      () => responder.end(),
    );
  };
  return {
    any: anyHeld,
    get: (response, request) => {
      const path = request.getUrl();
      const keptHeaders = responder.closing ? null : kept.answer(path, request, response);
      if (keptHeaders === true) return;
      const exchange = exchangeOf(request, response, path);
      exchange.keptHeaders = keptHeaders;
      exchange.revision = kept.revision;
      serveExchange(exchange, responder, handle);
    },
  };
}

function serveExchange(exchange: Exchange, responder: Responder, handle: Handler): void {
  const { compression } = responder;
  if (compression) exchange.encoding = compression.negotiate(exchange.acceptEncoding);
  // The files of the Explorer are stored compressed, even if answers are not compressed.
  else if (exchange.path.startsWith('/explorer'))
    exchange.encoding = negotiateEncoding(exchange.acceptEncoding, ['brotli']);
  responder.begin();
  if (exchange.ambiguity !== '') {
    responder.refuseAmbiguous(exchange);
    return;
  }
  let outcome: Outcome | null = null;
  try {
    outcome = handle(exchange);
  } catch (error) {
    responder.respondError(exchange, error);
  }
  if (outcome !== null) responder.respond(exchange, outcome);
  if (!exchange.replied) exchange.outlive();
}

/** For requests that arrive before the first administrator is made. The port is open by then: a start that fails must not leave an account. */
function starting(): ServiceError {
  return serviceUnavailable('lateral', 'It is starting');
}

function createHandler(router: Router, cors: Cors | null, { config, limit, names }: HttpOptions): Handler {
  const checkOrigin = createOriginCheck(config);
  const maxUrl = config.MAX_URL_SIZE;
  /** Finds the route and begins to read the body. Nothing may be awaited before: data of a body without a reader is lost. */
  const accept = (exchange: Exchange): Route => {
    // The parser's own limit binds only a request head that arrives in pieces.
    if (exchange.path.length + exchange.queryString.length >= maxUrl) {
      throw invalidQuery(`The URL is longer than ${maxUrl} bytes`, { option: 'MAX_URL_SIZE', limit: maxUrl });
    }
    const route = router.find(exchange, names);
    if (!isRead(exchange)) {
      if (exchange.headers.viewAs !== '' && !route.mayRead) throw viewWrites();
      if (!route.isConditional) refuseConditions(exchange);
    }
    const { method } = exchange;
    if (method !== 'GET' && method !== 'HEAD' && !streamsBody(route, exchange))
      exchange.collect(config.MAX_PAYLOAD_SIZE, config.BODY_TIMEOUT);
    if (exchange.headers.cookie !== '') checkOrigin(exchange);
    return route;
  };
  const handleLimited = async (exchange: Exchange, limit: Limit): Promise<Reply | typeof DEFERRED> => {
    const route = attempt(() => accept(exchange));
    if ('result' in route && streamsBody(route.result, exchange)) holdUpload(exchange);
    await limit(exchange.address);
    if ('error' in route) throw route.error;
    return route.result.handle(exchange);
  };
  return (exchange) => {
    if (cors?.isPreflight(exchange)) return noContent;
    if (limit) return handleLimited(exchange, limit);
    return accept(exchange).handle(exchange);
  };
}

/** A condition that would have no effect is refused, not dropped. */
function refuseConditions({ headers: { ifMatch, ifNoneMatch } }: Exchange): void {
  if (ifMatch !== '' || ifNoneMatch !== '')
    throw invalidQuery('"If-Match" and "If-None-Match" apply to writes of one item');
}

function isRead({ method }: Exchange): boolean {
  return method === 'GET' || method === 'HEAD' || method === 'SEARCH';
}

/** A bad request is counted by the limits before it is refused. */
function attempt<Result>(work: () => Result): { readonly result: Result } | { readonly error: unknown } {
  try {
    return { result: work() };
  } catch (error) {
    return { error };
  }
}

/** From the outcome of a handler to the queue of responses. Counts and logs each request at its end. */
class Responder implements ServerHooks {
  readonly clientAddress: ClientAddressResolver;
  timing: boolean;
  readonly timingFor: ServerHooks['timingFor'];
  readonly answersOrigins: boolean;
  readonly names: NameMapping | null;
  readonly positions: PositionCookies | null;
  readonly caches: boolean;
  /** Replies from memory, or null if every request passes through the stages. */
  readonly kept: ReplyMemory | null;
  readonly compression: Compression | null;
  /** Whether each answer closes its connection. */
  closing = false;
  readonly #cookies: Cookies;
  readonly #isCounting: boolean;
  readonly #onRequest: RequestListener | null;
  readonly #queue = new ResponseQueue(
    ({ exchange }) => this.#done(exchange),
    ({ exchange }, error) => this.#fail(exchange, error),
  );
  readonly #onDone = (exchange: Exchange): void => this.#done(exchange);
  #running = 0;
  #onIdle: (() => void) | null = null;

  constructor(
    private readonly router: Router,
    private readonly cors: Cors | null,
    isTraced: boolean,
    private readonly options: HttpOptions,
  ) {
    const { config } = options;
    this.#cookies = createCookies(config);
    this.#isCounting = config.METRICS !== 'off';
    const isLogged = config.REQUEST_LOG || config.LOG_LEVEL === 'debug' || config.LOG_LEVEL === 'trace';
    this.#onRequest = listenerOf(options, isLogged);
    this.compression = createCompression(config);
    this.names = options.names;
    this.clientAddress = createClientAddressResolver(config);
    const isTimed = config.SERVER_TIMING !== 'false' || isTraced;
    this.timing = isTimed;
    options.recorder.onChange(() => {
      this.timing = isTimed || options.recorder.current !== null;
    });
    this.timingFor = config.SERVER_TIMING;
    this.answersOrigins = config.CORS_ENABLED;
    this.caches = config.READ_CACHE_SIZE > 0;
    const isPlain = this.#onRequest === null && !isTraced && options.limit === null;
    this.kept = isPlain ? options.replies : null;
    const hasPositions = this.caches || config.DATABASE_REPLICA_URLS.length > 0;
    this.positions = hasPositions ? positionCookies(this.#cookies) : null;
  }

  /** Counts a request that will be answered. */
  begin(): void {
    this.#running++;
  }

  respond(exchange: Exchange, outcome: Outcome): void {
    if (outcome === DEFERRED) return;
    if (!(outcome instanceof Promise)) this.#reply(exchange, outcome);
    else
      outcome.then(
        (next) => this.respond(exchange, next),
        (error: unknown) => this.respondError(exchange, error),
      );
  }

  respondError(exchange: Exchange, error: unknown): void {
    exchange.withdrawPreferences();
    const failure = errorReply(error);
    if (failure.status >= 500) this.#report(exchange, error);
    if (!exchange.cookieRefused) this.#reply(exchange, failure);
    else {
      const headers = { ...failure.headers, 'Set-Cookie': this.#cookies.clear(exchange, 'session') };
      this.#reply(exchange, { ...failure, headers });
    }
  }

  /** Answers a request that was not begun, as that of a WebSocket. */
  refuse(exchange: Exchange, error: unknown): void {
    this.begin();
    if (exchange.ambiguity === '') this.respondError(exchange, error);
    else this.refuseAmbiguous(exchange);
  }

  openResponse(exchange: Exchange, reply: Reply, listener: OpenListener): OpenResponse {
    const close = this.closing || exchange.unread;
    const head = headOf(exchange, reply, this.#commonHeaders(exchange), close);
    return new OpenResponseWriter(exchange, reply, listener, { head, close, onDone: this.#onDone });
  }

  /**
   * Answered at once, before the parser takes what follows for another request. A response that is smaller than the buffer of
   * uWebSockets (16 kB) stays there until all that has arrived was parsed. More goes to the socket, which is then closed: so the
   * body ends with spaces. A response to HEAD has no body. It leaves a turn later, when uWebSockets has closed the connection if
   * something followed.
   */
  refuseAmbiguous(exchange: Exchange): void {
    const refused = errorReply(invalidPayload(`The request ${exchange.ambiguity}`));
    const send = (reply: Reply): void => {
      void writeBody({ exchange, reply, head: headOf(exchange, reply, [], true), close: true });
      this.#done(exchange);
    };
    if (exchange.method !== 'HEAD') send({ ...refused, body: String(refused.body).padEnd(UWS_BUFFER_BYTES, ' ') });
    else {
      if (exchange.isCorked) exchange.outlive();
      setImmediate(() => send({ ...refused, body: produceNothing }));
    }
  }

  /** Resolves when the last request is answered, or after the given time. */
  idle(graceMs: number): Promise<void> {
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #reply(exchange: Exchange, given: Reply): void {
    const reply = this.names === null ? given : this.names.reply(given);
    const { body } = reply;
    if (this.options.recorder.current !== null && typeof body !== 'function')
      exchange.sentBytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
    if (typeof body === 'object' && body.length > UNCOUNTED_BYTES)
      exchange.onDone = this.options.responseMemory.reserve(body.length);
    const encoded = this.compression === null ? reply : this.compression.encode(exchange, reply);
    if (!(encoded instanceof Promise)) this.#send(exchange, encoded);
    else
      encoded.then(
        (compressed) => this.#send(exchange, compressed),
        (error: unknown) => {
          this.#report(exchange, error);
          this.#send(exchange, errorReply(error));
        },
      );
  }

  #send(exchange: Exchange, reply: Reply): void {
    const headers = this.#commonHeaders(exchange);
    const close = this.closing || exchange.unread;
    if (typeof reply.body !== 'function' || exchange.method === 'HEAD') {
      if (this.caches && this.names !== null && isMissed(exchange, reply)) exchange.showCache('MISS');
      const head = headOf(exchange, reply, headers, close);
      if ((exchange.kept !== null || reply.isConstant) && !close)
        this.kept?.keep(exchange, reply, head.slice(exchange.id.length));
      this.#queue.add({ exchange, reply, head, close }, this.#running === 1);
    } else
      streamBody({ exchange, reply, headers, close }, reply.body, (error) => this.#report(exchange, error)).then(
        () => this.#done(exchange),
        (error: unknown) => this.respondError(exchange, error),
      );
  }

  #commonHeaders(exchange: Exchange): HeaderList {
    return this.cors === null ? NO_HEADERS : this.cors.headers(exchange);
  }

  #fail(exchange: Exchange, error: unknown): void {
    this.#report(exchange, error);
    breakOff(exchange);
    this.#done(exchange);
  }

  #report({ id, method, path }: Exchange, error: unknown): void {
    this.options.observe({ kind: 'request-failed', id, method, path, error, unavailable: isUnavailable(error) });
  }

  #done(exchange: Exchange): void {
    const status = exchange.aborted && !exchange.replied ? CLIENT_LEFT_STATUS : exchange.status;
    exchange.onDone?.();
    exchange.ended(status);
    if (this.#isCounting)
      (exchange.routeStats ?? this.router.unmatched).count(status, performance.now() - exchange.begun);
    if (this.#onRequest !== null) this.#onRequest(summaryOf(exchange, status));
    const { recorder } = this.options;
    if (recorder.current !== null) recorder.add(exchange, status, recorder.draw());
    this.end();
  }

  /** A request that was begun is answered, or no longer needs to be. */
  end(): void {
    if (--this.#running === 0) this.#onIdle?.();
  }
}

/** A reply to a read that memory could have given. */
function isMissed({ method, kept }: Exchange, { status, isConstant }: Reply): boolean {
  return kept === null && !isConstant && status < 400 && (method === 'GET' || method === 'SEARCH');
}

function summaryOf({ id, method, routeStats, begun }: Exchange, status: number): RequestEvent {
  const ms = Math.round((performance.now() - begun) * 100) / 100;
  return { id, method, route: routeStats?.path ?? null, status, ms };
}

function listenerOf({ onRequest, observe }: HttpOptions, isLogged: boolean): RequestListener | null {
  if (!isLogged) return onRequest;
  return (request) => {
    observe({ kind: 'request-completed', ...request });
    onRequest?.(request);
  };
}

const NO_HEADERS: HeaderList = [];

const UWS_BUFFER_BYTES = 20_000;

const produceNothing = (): Promise<void> => Promise.resolve();
