/** /graphql over WebSockets: the protocol `graphql-transport-ws`, for queries, mutations, live queries and events. */

import { requestsExceeded, ServiceError } from '../../base/errors.js';
import { isObject, writeJson } from '../../base/exact-json.js';
import type { Input } from '../../compiler/request/parse-context.js';
import type { Identity } from '../../server/access/identity.js';
import { checkParameters, type Parameters } from '../../server/api/graphql/http.js';
import type { MaybePromise } from '../../server/execute/pipeline.js';
import type { RequestClient } from '../../server/execute/stages.js';
import { publicError } from '../../server/http/reply.js';
import type { SocketClient } from '../../server/http/transport.js';
import type { Socket, SocketProtocol } from '../../server/http/websocket.js';
import type { Arrival, EventHandle } from '../live/event-subscriber.js';
import { Connection, checkUpgrade, isSomebody, keepConnections, MAX_RUNNING, PING, readMessage } from './connection.js';
import {
  type Feed,
  failureText,
  type GraphqlSocketServices,
  isUnauthorized,
  type OperationTarget,
  runOperation,
} from './graphql-operation.js';

const SUBPROTOCOL = 'graphql-transport-ws';

export function graphqlSocketProtocol(services: GraphqlSocketServices): SocketProtocol {
  const { config, identities } = services;
  return {
    path: '/graphql',
    connections: config.WEBSOCKETS_GRAPHQL_CONN_LIMIT,
    cookieName: config.SESSION_COOKIE_NAME,
    maxMessageBytes: config.WEBSOCKETS_MAX_FRAME_SIZE,
    accept: async (client) => {
      await checkUpgrade(client, config.WEBSOCKETS_GRAPHQL_AUTH === 'strict', identities);
      return client.protocols.includes(SUBPROTOCOL) ? SUBPROTOCOL : '';
    },
    ...keepConnections(config.WEBSOCKETS_HEARTBEAT_PERIOD, (socket, client, onClosed) => {
      const connection = new GraphqlConnection(socket, client, services, onClosed);
      if (!client.protocols.includes(SUBPROTOCOL)) socket.end(4406, 'Subprotocol not acceptable');
      return connection;
    }),
  };
}

/** Characters of all operations that have not ended. */
const MAX_CHARACTERS = 16_777_216;
/** Each answer repeats it. */
const MAX_ID_LENGTH = 1_000;
/** A ping may carry a payload, which its answer repeats. */
const MAX_PONG_LENGTH = 1_000;

/** Close codes of the protocol. */
const BAD_REQUEST = 4400;
const UNAUTHORIZED = 4401;
const FORBIDDEN = 4403;
const INITIALISATION_TIMEOUT = 4408;
const SUBSCRIBER_EXISTS = 4409;
const TOO_MANY_INITIALISATIONS = 4429;

class GraphqlConnection extends Connection<GraphqlSocketServices> {
  protected readonly path = '/graphql';
  readonly #operations = new Map<string, Operation>();
  /** Operations that wait: `MAX_RUNNING` may begin or be answered at a time, and none while the client does not read. */
  readonly #turns: Turn[] = [];
  readonly slow = new Set<Feed>();
  /** Whether something waits until the client reads. */
  #isHeld = false;
  #pong: string | null = null;
  #hasBegun = false;
  protected isAccepted = false;
  #characters = 0;

  constructor(socket: Socket, client: SocketClient, services: GraphqlSocketServices, onClosed: () => void) {
    super(socket, client, services, onClosed);
    this.setDeadline(services.config.WEBSOCKETS_GRAPHQL_AUTH_TIMEOUT, () =>
      socket.end(INITIALISATION_TIMEOUT, 'Connection initialisation timeout'),
    );
  }

  protected receive(text: string): void {
    if (!this.socket.isOpen) return;
    this.resume();
    try {
      this.#handle(readMessage(text, refused), text.length);
    } catch (error) {
      const known = publicError(error);
      if (known.status < 500) this.socket.end(BAD_REQUEST, known.message);
      else this.#break(error);
    }
  }

  drained(): void {
    this.#isHeld = false;
    for (const feed of this.slow) {
      if (this.mustWait() || !feed.flush()) return;
      this.slow.delete(feed);
    }
    if (this.mustWait()) return;
    if (this.#pong !== null) this.socket.send(this.#pong);
    this.#pong = null;
    for (const { handle } of this.#operations.values()) handle?.wake();
    this.#next();
  }

  protected resume(): void {
    if (this.#isHeld && !this.socket.isSlow) this.drained();
  }

  mustWait(): boolean {
    const { isSlow } = this.socket;
    if (isSlow) this.#isHeld = true;
    return isSlow;
  }

  protected release(): void {
    for (const operation of this.#operations.values()) operation.close();
    this.#operations.clear();
    this.#turns.length = 0;
    this.slow.clear();
  }

  protected sendPing(): void {
    if (!this.socket.isSlow) this.socket.send(PING);
  }

  /** The protocol has no second sign-in: clients connect again, with a new token if they have one. */
  protected expire(): void {
    this.socket.end(FORBIDDEN, 'Forbidden');
  }

  #handle(message: Input, length: number): void {
    const { type, payload } = message;
    if (payload !== undefined && payload !== null && !isObject(payload)) throw refused('"payload" must be an object');
    switch (type) {
      case 'connection_init':
        this.#begin(payload ?? {});
        break;
      case 'ping':
        this.#answerPing(payload ?? null);
        break;
      case 'pong':
        break;
      case 'subscribe':
        if (!isObject(payload)) throw refused('"payload" must be an object');
        this.#subscribe(readId(message), checkParameters(payload), length);
        break;
      case 'complete':
        this.#leave(readId(message));
        break;
      default:
        throw refused('"type" must be a type of message of graphql-transport-ws');
    }
  }

  #begin(payload: Input): void {
    if (this.#hasBegun) this.socket.end(TOO_MANY_INITIALISATIONS, 'Too many initialisation requests');
    else this.#initialise(payload).catch((error: unknown) => this.#break(error));
    this.#hasBegun = true;
  }

  async #initialise({ access_token: token }: Input): Promise<void> {
    const isPublic = this.services.config.WEBSOCKETS_GRAPHQL_AUTH === 'public';
    if (token !== undefined && token !== null) {
      if (typeof token !== 'string' || !/^\S+$/.test(token)) return this.expire();
      this.authorize(`Bearer ${token}`);
    }
    try {
      await this.services.limit?.(this.client.address);
      const caller = await this.identify();
      if (!isPublic && !isSomebody(caller)) return this.expire();
    } catch (error) {
      if (publicError(error).status >= 500) throw error;
      return this.expire();
    }
    this.clearDeadline();
    this.isAccepted = true;
    this.socket.send('{"type":"connection_ack"}');
  }

  /** While the client does not read, one pong answers all pings. */
  #answerPing(payload: Input | null): void {
    const text = payload === null ? '' : writeJson(payload);
    const pong = text === '' || text.length > MAX_PONG_LENGTH ? '' : `,"payload":${text}`;
    const answer = `{"type":"pong"${pong}}`;
    if (this.mustWait()) this.#pong = answer;
    else this.socket.send(answer);
  }

  #subscribe(id: string, parameters: Parameters, length: number): void {
    if (!this.isAccepted) this.socket.end(UNAUTHORIZED, 'Unauthorized');
    else if (this.#operations.has(id)) this.socket.end(SUBSCRIBER_EXISTS, `Subscriber for ${id} already exists`);
    if (!this.socket.isOpen) return;
    const operation = new Operation(this, id, length);
    const { LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: limit } = this.services.config;
    if (this.#operations.size >= limit || this.#characters + length > MAX_CHARACTERS) {
      const many = { option: 'LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION', limit };
      const large = { option: 'characters of all operations', limit: MAX_CHARACTERS };
      this.#sendError(operation, requestsExceeded(this.#operations.size >= limit ? many : large, 1_000));
      return;
    }
    if (mayFollow(parameters)) operation.arrival = this.services.live.events.arrive();
    this.#operations.set(id, operation);
    this.#characters += length;
    this.#turns.push({ operation, parameters });
    this.#next();
  }

  #next(): void {
    while (this.#turns.length > 0 && this.running < MAX_RUNNING && !this.mustWait()) {
      const turn = this.#turns.shift();
      if (!turn || !this.isOpen(turn.operation)) continue;
      this.running++;
      void this.#run(turn).finally(() => {
        this.running--;
        this.#next();
      });
    }
  }

  async #run({ operation, parameters }: Turn): Promise<void> {
    try {
      const handle = await runOperation(parameters, operation, this.services);
      if (this.isOpen(operation)) operation.handle = handle;
      else handle.close();
    } catch (error) {
      this.fail(operation, error);
    } finally {
      operation.begun();
    }
  }

  isOpen(operation: Operation): boolean {
    return this.#operations.get(operation.id) === operation;
  }

  complete(operation: Operation): void {
    this.#leave(operation.id);
    this.socket.send(`{"id":${JSON.stringify(operation.id)},"type":"complete"}`);
  }

  #leave(id: string): void {
    const operation = this.#operations.get(id);
    if (!operation) return;
    this.#operations.delete(id);
    this.#characters -= operation.length;
    operation.close();
    // Operations that a slow client begins and ends again must not pile up.
    const waiting = this.#turns.findIndex((turn) => turn.operation === operation);
    if (waiting >= 0) this.#turns.splice(waiting, 1);
  }

  fail(operation: Operation, error: unknown): void {
    if (!this.isOpen(operation)) return;
    this.#leave(operation.id);
    // All operations would fail: the client has to connect again with a valid token.
    if (isUnauthorized(error)) this.expire();
    else this.#sendError(operation, error);
  }

  #sendError({ id }: Operation, error: unknown): void {
    const { errors, isOurs } = failureText(error);
    if (isOurs) this.report(error);
    this.socket.send(`{"id":${JSON.stringify(id)},"type":"error","payload":${errors}}`);
  }

  /** Clients try again after this code. */
  #break(error: unknown): void {
    this.report(error);
    this.socket.end(1013, 'Try again later');
  }
}

const TAIL = Buffer.from('}');

/** An operation that waits for its turn. */
interface Turn {
  readonly operation: Operation;
  readonly parameters: Parameters;
}

/** A connection may have ten thousand of them, so an operation holds no functions. */
class Operation implements OperationTarget {
  readonly #connection: GraphqlConnection;
  /** The text before the payload of an answer. */
  readonly #head: string;
  /** Null until it has begun. */
  handle: EventHandle | null = null;
  /** Null once it has begun. */
  arrival: Arrival | null = null;

  constructor(
    connection: GraphqlConnection,
    readonly id: string,
    readonly length: number,
  ) {
    this.#connection = connection;
    this.#head = `{"id":${JSON.stringify(id)},"type":"next","payload":`;
  }

  begun(): void {
    this.arrival?.close();
    this.arrival = null;
  }

  close(): void {
    this.begun();
    this.handle?.close();
  }

  get client(): RequestClient {
    return this.#connection.requestClient;
  }

  get from(): SocketClient {
    return this.#connection.client;
  }

  get connection(): string {
    return this.#connection.name;
  }

  identify(): MaybePromise<Identity> {
    return this.#connection.identify();
  }

  get isReady(): boolean {
    return !this.#connection.isOpen(this) || !this.#connection.mustWait();
  }

  next(payload: Buffer | string): void {
    if (!this.#connection.isOpen(this)) return;
    const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
    const message = Buffer.allocUnsafe(Buffer.byteLength(this.#head) + body.length + TAIL.length);
    const start = message.write(this.#head);
    body.copy(message, start);
    TAIL.copy(message, start + body.length);
    this.#connection.socket.send(message);
  }

  wait(feed: Feed): void {
    if (this.#connection.isOpen(this)) this.#connection.slow.add(feed);
  }

  fail(error: unknown): void {
    this.#connection.fail(this, error);
  }

  complete(): void {
    if (this.#connection.isOpen(this)) this.#connection.complete(this);
  }
}

/** Whether the document, if it was sent, may contain a subscription. */
function mayFollow({ query }: Parameters): boolean {
  return query === null || query.includes('subscription');
}

function refused(reason: string): ServiceError {
  return new ServiceError('INVALID_PAYLOAD', reason);
}

function readId({ id }: Input): string {
  if (typeof id !== 'string' || id === '') throw refused('"id" must be a string');
  if (id.length > MAX_ID_LENGTH) throw refused(`"id" is longer than ${MAX_ID_LENGTH} characters`);
  return id;
}
