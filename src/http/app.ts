/** The HTTP server: every request passes here, from the socket to its route and back. */
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { viewWrites } from '../access/view-as.js';
import { invalidQuery, type ServiceError, serviceUnavailable } from '../base/errors.js';
import { holdBody } from './body.js';
import { type Cors, createCors, createOriginCheck } from './cors.js';
import { negotiateEncoding } from './encoding.js';
import { Exchange } from './exchange.js';
import type { Limit } from './limiter.js';
import { type ListenAddress, loadSockets, openPort } from './listen.js';
import { type DEFERRED, noContent, type Outcome, type Reply } from './reply.js';
import { Responder, type ResponderOptions } from './responder.js';
import { type Handler, type Route, type Router, streamsBody } from './router.js';
import { openTraces, TracedExchange, type Traces } from './traces.js';
import { type SocketProtocol, serveSockets } from './websocket.js';

export interface HttpServer {
  readonly port: number;
  /** Requests are answered from now on. Before, each of them gets a 503. */
  startServing(): void;
  /** Goes on accepting connections, but each answer closes its connection: the next request goes to another instance. */
  drain(): void;
  /** Stops accepting, waits for running requests up to the given time, then closes the other connections. */
  close(graceMs: number): Promise<void>;
  /** Closes all connections at once. */
  abandon(): void;
}

export interface HttpOptions extends ResponderOptions {
  readonly address: ListenAddress;
  /** The limit of requests per client, or null for none. */
  readonly limit: Limit | null;
  /** The protocols over WebSockets. */
  readonly sockets: readonly SocketProtocol[];
}

/** Milliseconds for requests on connections that were accepted last. */
const LAST_REQUESTS_MS = 100;

/** Milliseconds for the spans of the last requests to be sent. */
const LAST_SPANS_MS = 1_000;

export async function startHttpServer(router: Router, options: HttpOptions): Promise<HttpServer> {
  const { config, address, limit, sockets } = options;
  const uws = await loadSockets(config.MAX_URL_SIZE);
  const traces = await openTraces(config, options.observe);
  const app = uws.App();
  const cors = createCors(config);
  const responder = new Responder(router, cors, traces !== null, options);
  const serve = createHandler(router, cors, options);
  let handle: Handler = refuseWhileStarting;
  const admit = (): void => {
    if (handle !== serve) throw starting();
  };
  const refuse = (exchange: Exchange, error: unknown): void => responder.refuse(exchange, error);
  for (const protocol of sockets) serveSockets(app, protocol, { config, hooks: responder, limit, admit, refuse });
  serveRequests(app, responder, traces, (exchange) => handle(exchange));
  const socket = await openPort(app, address);
  return {
    port: uws.us_socket_local_port(socket),
    startServing: () => {
      handle = serve;
    },
    drain: () => {
      responder.closing = true;
      for (const protocol of sockets) protocol.stop();
    },
    close: async (graceMs) => {
      responder.closing = true;
      // After the loop's turn for sockets, when all waiting connections are accepted: a listener that closes resets the others.
      await new Promise((resolve) => setImmediate(resolve));
      uws.us_listen_socket_close(socket);
      // A client that has connected is about to send a request.
      if (config.DRAIN_DELAY > 0 || config.REUSE_PORT) await sleep(Math.min(LAST_REQUESTS_MS, graceMs));
      await responder.idle(graceMs);
      app.close();
      await traces?.close(Math.min(LAST_SPANS_MS, graceMs));
    },
    abandon: () => void app.close(),
  };
}

function serveRequests(app: TemplatedApp, responder: Responder, traces: Traces | null, handle: Handler): void {
  const { compression } = responder;
  // Chosen once: without traces no request asks whether there are any.
  const exchangeOf =
    traces === null
      ? (request: HttpRequest, response: HttpResponse) => new Exchange(request, response, responder)
      : (request: HttpRequest, response: HttpResponse) => new TracedExchange(request, response, responder, traces);
  app.any('/*', (response, request) => {
    const exchange = exchangeOf(request, response);
    if (compression) exchange.encoding = compression.negotiate(request.getHeader('accept-encoding'));
    // The files of the Explorer are stored compressed, even if answers are not compressed.
    else if (exchange.path.startsWith('/explorer'))
      exchange.encoding = negotiateEncoding(request.getHeader('accept-encoding'), ['brotli']);
    responder.begin();
    if (exchange.ambiguous) return responder.refuseAmbiguous(exchange);
    let outcome: Outcome;
    try {
      outcome = handle(exchange);
    } catch (error) {
      return responder.respondError(exchange, error);
    }
    responder.respond(exchange, outcome);
  });
}

/** The port is taken before the first administrator is made: a start that fails must not leave an account. */
function refuseWhileStarting(): never {
  throw starting();
}

function starting(): ServiceError {
  return serviceUnavailable('lateral', 'It is starting');
}

function createHandler(router: Router, cors: Cors, { config, limit, names }: HttpOptions): Handler {
  const checkOrigin = createOriginCheck(config);
  const maxUrl = config.MAX_URL_SIZE;
  /** Finds the route and begins to read the body. Nothing may be awaited before: data of a body without a reader is lost. */
  const accept = (exchange: Exchange): Route => {
    // The parser's own limit binds only a request head that arrives in pieces.
    if (exchange.path.length + exchange.queryString.length >= maxUrl) {
      throw invalidQuery(`The URL is longer than ${maxUrl} bytes`, { option: 'MAX_URL_SIZE', limit: maxUrl });
    }
    const route = router.find(exchange, names);
    if (exchange.headers.viewAs !== '' && !isRead(exchange) && !route.mayRead) throw viewWrites();
    if (!streamsBody(route, exchange)) exchange.collect(config.MAX_PAYLOAD_SIZE, config.BODY_TIMEOUT);
    checkOrigin(exchange);
    return route;
  };
  const handleLimited = async (exchange: Exchange, limit: Limit): Promise<Reply | typeof DEFERRED> => {
    const route = attempt(() => accept(exchange));
    if ('result' in route && streamsBody(route.result, exchange)) holdBody(exchange);
    await limit(exchange.address);
    if ('error' in route) throw route.error;
    return route.result.handle(exchange);
  };
  return (exchange) => {
    if (cors.isPreflight(exchange)) return noContent;
    if (limit) return handleLimited(exchange, limit);
    return accept(exchange).handle(exchange);
  };
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
