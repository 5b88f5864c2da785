/** The HTTP server: every request passes here, from the socket to its route and back. */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { viewWrites } from '../access/view-as.js';
import { invalidPayload, invalidQuery, type ServiceError, serviceUnavailable } from '../base/errors.js';
import type { Event, Observer } from '../base/observe.js';
import { isUnavailable } from '../base/sqlstate.js';
import type { Config } from '../config/config.js';
import { type ResponseMemory, UNCOUNTED_BYTES } from '../postgres/wire/response-memory.js';
import { holdBody } from './body.js';
import { createClientAddressResolver } from './client-address.js';
import { createCompression } from './compress.js';
import { createCookies, positionCookies } from './cookies.js';
import { type Cors, createCors } from './cors.js';
import { createOriginCheck } from './csrf.js';
import { negotiateEncoding } from './encoding.js';
import { Exchange } from './exchange.js';
import type { Limit } from './limiter.js';
import { type ListenAddress, loadSockets, openPort } from './listen.js';
import { OpenResponseWriter } from './open-response.js';
import {
  DEFERRED,
  type EdgeNames,
  errorReply,
  noContent,
  type OpenListener,
  type OpenResponse,
  type Outcome,
  type Reply,
} from './reply.js';
import { CLIENT_LEFT_STATUS } from './route-stats.js';
import { type Handler, type Route, type Router, streamsBody } from './router.js';
import { openTraced } from './traced-exchange.js';
import { openTraces } from './traces.js';
import { type SocketProtocol, serveSockets } from './websocket.js';
import { headOf, ResponseQueue, stream, writeBody } from './write-reply.js';

export interface HttpServer {
  readonly port: number;
  /** From now on requests are answered: before, each of them is 503. */
  open(): void;
  /** Goes on accepting, but each answer closes its connection: the next request goes to another instance. */
  drain(): void;
  /** Stops accepting, waits for running requests up to the given time, then closes what is left. */
  close(graceMs: number): Promise<void>;
  /** Closes everything at once. */
  abandon(): void;
}

export interface HttpOptions {
  readonly config: Config;
  readonly address: ListenAddress;
  /** Null for none. */
  readonly limit: Limit | null;
  /** Memory for large responses: each has its part until it has left. */
  readonly responseMemory: ResponseMemory;
  readonly observe: Observer;
  /** Null where clients use the names that there are. */
  readonly names: EdgeNames | null;
  /** What is spoken over WebSockets. */
  readonly sockets: readonly SocketProtocol[];
}

export async function startHttpServer(router: Router, options: HttpOptions): Promise<HttpServer> {
  const { config, address, limit, responseMemory, observe, names, sockets } = options;
  const uws = await loadSockets(config.MAX_URL_SIZE);
  const traces = await openTraces(config, observe);
  const app = uws.App();
  const cors = createCors(config);
  const cookies = createCookies(config);
  const compression = createCompression(config);
  const usual = createHandler(router, cors, config, limit, names);
  let handle: Handler = refuseWhileStarting;
  const running: Running = { count: 0, closing: false, idle: null };
  const reportFailure = (exchange: Exchange, error: unknown): void =>
    observe({
      kind: 'request-failed',
      id: exchange.id,
      method: exchange.method,
      path: exchange.path,
      error,
      unavailable: isUnavailable(error),
    });
  const isCounting = config.METRICS !== 'off';
  const isLogging = config.REQUEST_LOG || config.LOG_LEVEL === 'debug' || config.LOG_LEVEL === 'trace';
  const done = (exchange: Exchange): void => {
    exchange.onDone?.();
    exchange.ended(statusOf(exchange));
    if (isCounting) count(exchange, router);
    if (isLogging) observe(completed(exchange));
    if (--running.count === 0) running.idle?.();
  };
  const responses = new ResponseQueue(
    ({ exchange }) => done(exchange),
    ({ exchange }, error) => {
      reportFailure(exchange, error);
      breakOff(exchange);
      done(exchange);
    },
  );
  const send = (exchange: Exchange, reply: Reply): void => {
    const headers = cors.headers(exchange);
    const close = running.closing || exchange.unread;
    if (typeof reply.body !== 'function' || exchange.method === 'HEAD')
      responses.add({ exchange, reply, head: headOf(exchange, reply, headers, close), close });
    else
      stream(exchange, reply, reply.body, { headers, close, reportFailure }).then(
        () => done(exchange),
        (error: unknown) => respondError(exchange, error),
      );
  };
  const reply = (exchange: Exchange, answer: Reply): void => {
    const plain = names === null ? answer : names.reply(answer);
    const { body } = plain;
    if (typeof body === 'object' && body.length > UNCOUNTED_BYTES)
      exchange.onDone = responseMemory.reserve(body.length);
    const encoded = compression ? compression.encode(exchange, plain) : plain;
    if (!(encoded instanceof Promise)) send(exchange, encoded);
    else
      encoded.then(
        (compressed) => send(exchange, compressed),
        (error: unknown) => {
          reportFailure(exchange, error);
          send(exchange, errorReply(error));
        },
      );
  };
  const respond = (exchange: Exchange, outcome: Outcome): void => {
    if (outcome === DEFERRED) return;
    if (!(outcome instanceof Promise)) reply(exchange, outcome);
    else
      outcome.then(
        (next) => respond(exchange, next),
        (error: unknown) => respondError(exchange, error),
      );
  };
  const respondError = (exchange: Exchange, error: unknown): void => {
    const failure = errorReply(error);
    if (failure.status >= 500) reportFailure(exchange, error);
    if (!exchange.cookieRefused) reply(exchange, failure);
    else {
      const headers = { ...failure.headers, 'Set-Cookie': cookies.clear(exchange, 'session') };
      reply(exchange, { ...failure, headers });
    }
  };
  const hooks = {
    clientAddress: createClientAddressResolver(config),
    timing: config.SERVER_TIMING !== 'false' || traces !== null,
    timingFor: config.SERVER_TIMING,
    answersOrigins: config.CORS_ENABLED,
    names,
    positions: config.DATABASE_REPLICA_URLS.length > 0 ? positionCookies(cookies) : null,
    respond,
    respondError,
    open: (exchange: Exchange, reply: Reply, listener: OpenListener): OpenResponse => {
      const close = running.closing || exchange.unread;
      const head = headOf(exchange, reply, cors.headers(exchange), close);
      return new OpenResponseWriter(exchange, reply, listener, { head, close, onDone: done });
    },
  };
  // Chosen once: without traces no request asks whether there are any.
  const open =
    traces === null
      ? (request: HttpRequest, response: HttpResponse) => new Exchange(request, response, hooks)
      : openTraced(traces, hooks);
  const refuse = (exchange: Exchange, error: unknown): void => {
    running.count++;
    respondError(exchange, error);
  };
  const admit = (): void => {
    if (handle !== usual) throw starting();
  };
  for (const protocol of sockets) serveSockets(app, protocol, { config, hooks, limit, admit, refuse });
  app.any('/*', (response, request) => {
    const exchange = open(request, response);
    if (compression) exchange.encoding = compression.negotiate(request.getHeader('accept-encoding'));
    // Its files are compressed already, whatever is done with answers.
    else if (exchange.path.startsWith('/explorer'))
      exchange.encoding = negotiateEncoding(request.getHeader('accept-encoding'), ['brotli']);
    running.count++;
    if (exchange.ambiguous) return refuseAmbiguous(exchange, done);
    let outcome: Outcome;
    try {
      outcome = handle(exchange);
    } catch (error) {
      return respondError(exchange, error);
    }
    respond(exchange, outcome);
  });
  const socket = await openPort(app, address);
  return {
    port: uws.us_socket_local_port(socket),
    open: () => {
      handle = usual;
    },
    drain: () => {
      running.closing = true;
      for (const protocol of sockets) protocol.stop();
    },
    close: async (graceMs) => {
      running.closing = true;
      // Right behind the loop's turn for sockets, when all connections that wait were accepted: a listener that closes resets them.
      await new Promise((resolve) => setImmediate(resolve));
      uws.us_listen_socket_close(socket);
      // A client that has connected is about to send a request.
      if (config.DRAIN_DELAY > 0 || config.REUSE_PORT) await sleep(Math.min(LAST_REQUESTS_MS, graceMs));
      if (running.count > 0) await becomeIdle(running, graceMs);
      app.close();
      await traces?.close(Math.min(LAST_SPANS_MS, graceMs));
    },
    abandon: () => void app.close(),
  };
}

/** Milliseconds for requests on connections that were accepted last. */
const LAST_REQUESTS_MS = 100;

/** Milliseconds for the spans of the last requests to be sent. */
const LAST_SPANS_MS = 1_000;

/** The port is taken before the first administrator is made: a start that fails must not leave an account. */
function refuseWhileStarting(): never {
  throw starting();
}

function starting(): ServiceError {
  return serviceUnavailable('lateral', 'It is starting');
}

interface Running {
  count: number;
  closing: boolean;
  idle: (() => void) | null;
}

function createHandler(
  router: Router,
  cors: Cors,
  config: Config,
  limit: Limit | null,
  names: EdgeNames | null,
): Handler {
  const checkOrigin = createOriginCheck(config);
  const maxUrl = config.MAX_URL_SIZE;
  /** Everything that has to happen before anything is awaited: data of a body that nobody reads is lost. */
  const open = (exchange: Exchange): Route => {
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
  const limited = async (exchange: Exchange, limit: Limit): Promise<Reply | typeof DEFERRED> => {
    const route = attempt(() => open(exchange));
    if ('result' in route && streamsBody(route.result, exchange)) holdBody(exchange);
    await limit(exchange.address);
    if ('error' in route) throw route.error;
    return route.result.handle(exchange);
  };
  return (exchange) => {
    if (cors.isPreflight(exchange)) return noContent;
    if (limit) return limited(exchange, limit);
    return open(exchange).handle(exchange);
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

/**
 * Answered at once, before the parser takes what follows for another request. What is smaller than the buffer of uWebSockets (16 kB) stays
 * there until all that has arrived was parsed; more goes to the socket, which is then closed. So the body ends with spaces.
 */
function refuseAmbiguous(exchange: Exchange, done: (exchange: Exchange) => void): void {
  const refused = errorReply(invalidPayload('The request has several Content-Length headers that differ'));
  const reply = { ...refused, body: String(refused.body).padEnd(UWS_BUFFER_BYTES, ' ') };
  void writeBody({ exchange, reply, head: headOf(exchange, reply, [], true), close: true });
  done(exchange);
}

const UWS_BUFFER_BYTES = 20_000;

/** Half of an answer may have left: no other can follow it. */
function breakOff(exchange: Exchange): void {
  exchange.status = 500;
  try {
    if (!exchange.aborted) exchange.response.close();
  } catch {
    // There is nothing left to close.
  }
}

function count(exchange: Exchange, router: Router): void {
  (exchange.routeStats ?? router.unmatched).count(statusOf(exchange), performance.now() - exchange.begun);
}

function completed(exchange: Exchange): Event {
  const { id, method, routeStats } = exchange;
  const ms = Math.round((performance.now() - exchange.begun) * 100) / 100;
  return { kind: 'request-completed', id, method, route: routeStats?.path ?? null, status: statusOf(exchange), ms };
}

function statusOf(exchange: Exchange): number {
  return exchange.aborted && !exchange.replied ? CLIENT_LEFT_STATUS : exchange.status;
}

/** Resolves when the last request is answered, or when their time is over. */
function becomeIdle(running: Running, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, graceMs);
    running.idle = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
