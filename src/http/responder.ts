/** The way of an answer: from the outcome of a handler to the queue of responses, with what is counted and logged at its end. */
import { performance } from 'node:perf_hooks';
import { invalidPayload } from '../base/errors.js';
import type { Observer } from '../base/observe.js';
import { isUnavailable } from '../base/sqlstate.js';
import type { Config } from '../config/config.js';
import { type ResponseMemory, UNCOUNTED_BYTES } from '../postgres/wire/response-memory.js';
import { type ClientAddressResolver, createClientAddressResolver } from './client-address.js';
import { type Compression, createCompression } from './compress.js';
import { type Cookies, createCookies, positionCookies } from './cookies.js';
import type { Cors } from './cors.js';
import type { Exchange, PositionCookies, ServerHooks } from './exchange.js';
import {
  DEFERRED,
  type EdgeNames,
  errorReply,
  type OpenListener,
  type OpenResponse,
  type Outcome,
  type Reply,
} from './reply.js';
import { CLIENT_LEFT_STATUS } from './route-stats.js';
import type { Router } from './router.js';
import { breakOff, headOf, OpenResponseWriter, ResponseQueue, streamBody, writeBody } from './write-reply.js';

export interface ResponderOptions {
  readonly config: Config;
  /** Memory for large responses: each has its part until it has left. */
  readonly responseMemory: ResponseMemory;
  readonly observe: Observer;
  /** The names that clients use, or null if they are those of the service. */
  readonly names: EdgeNames | null;
}

export class Responder implements ServerHooks {
  readonly clientAddress: ClientAddressResolver;
  readonly timing: boolean;
  readonly timingFor: ServerHooks['timingFor'];
  readonly answersOrigins: boolean;
  readonly names: EdgeNames | null;
  readonly positions: PositionCookies | null;
  readonly compression: Compression | null;
  /** Whether each answer closes its connection. */
  closing = false;
  readonly #cookies: Cookies;
  readonly #isCounting: boolean;
  readonly #isLogging: boolean;
  readonly #queue = new ResponseQueue(
    ({ exchange }) => this.#done(exchange),
    ({ exchange }, error) => this.#fail(exchange, error),
  );
  readonly #onDone = (exchange: Exchange): void => this.#done(exchange);
  #running = 0;
  #onIdle: (() => void) | null = null;

  constructor(
    private readonly router: Router,
    private readonly cors: Cors,
    isTraced: boolean,
    private readonly options: ResponderOptions,
  ) {
    const { config } = options;
    this.#cookies = createCookies(config);
    this.#isCounting = config.METRICS !== 'off';
    this.#isLogging = config.REQUEST_LOG || config.LOG_LEVEL === 'debug' || config.LOG_LEVEL === 'trace';
    this.compression = createCompression(config);
    this.names = options.names;
    this.clientAddress = createClientAddressResolver(config);
    this.timing = config.SERVER_TIMING !== 'false' || isTraced;
    this.timingFor = config.SERVER_TIMING;
    this.answersOrigins = config.CORS_ENABLED;
    this.positions = config.DATABASE_REPLICA_URLS.length > 0 ? positionCookies(this.#cookies) : null;
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
    this.respondError(exchange, error);
  }

  openResponse(exchange: Exchange, reply: Reply, listener: OpenListener): OpenResponse {
    const close = this.closing || exchange.unread;
    const head = headOf(exchange, reply, this.cors.headers(exchange), close);
    return new OpenResponseWriter(exchange, reply, listener, { head, close, onDone: this.#onDone });
  }

  /**
   * Answered at once, before the parser takes what follows for another request. A response that is smaller than the buffer of
   * uWebSockets (16 kB) stays there until all that has arrived was parsed. More goes to the socket, which is then closed: so the
   * body ends with spaces.
   */
  refuseAmbiguous(exchange: Exchange): void {
    const refused = errorReply(invalidPayload('The request has several Content-Length headers that differ'));
    const reply = { ...refused, body: String(refused.body).padEnd(UWS_BUFFER_BYTES, ' ') };
    void writeBody({ exchange, reply, head: headOf(exchange, reply, [], true), close: true });
    this.#done(exchange);
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
    const headers = this.cors.headers(exchange);
    const close = this.closing || exchange.unread;
    if (typeof reply.body !== 'function' || exchange.method === 'HEAD')
      this.#queue.add({ exchange, reply, head: headOf(exchange, reply, headers, close), close });
    else
      streamBody({ exchange, reply, headers, close }, reply.body, (error) => this.#report(exchange, error)).then(
        () => this.#done(exchange),
        (error: unknown) => this.respondError(exchange, error),
      );
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
    if (this.#isLogging) this.#log(exchange, status);
    if (--this.#running === 0) this.#onIdle?.();
  }

  #log({ id, method, routeStats, begun }: Exchange, status: number): void {
    const ms = Math.round((performance.now() - begun) * 100) / 100;
    this.options.observe({ kind: 'request-completed', id, method, route: routeStats?.path ?? null, status, ms });
  }
}

const UWS_BUFFER_BYTES = 20_000;
