/** One connection of GraphQL over WebSockets: who speaks, and the operations that have not ended. */
import type { Identity } from '../../access/identity.js';
import type { LastingCredentials } from '../../access/lasting-credentials.js';
import { requestsExceeded, ServiceError } from '../../base/errors.js';
import { isObject, writeJson } from '../../base/exact-json.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { MaybePromise } from '../../engine/pipeline.js';
import type { RequestClient } from '../../engine/stages.js';
import { publicError } from '../../http/reply.js';
import type { Socket, SocketClient } from '../../http/websocket.js';
import type { EventHandle } from '../../live/events/event-subscriber.js';
import type { Input } from '../../request/parse-context.js';
import { checkParameters, type Parameters } from '../graphql/http.js';
import type { Feed } from './graphql-feeds.js';
import {
  failureText,
  type GraphqlSocketServices,
  isUnauthorized,
  type OperationTarget,
  runOperation,
} from './graphql-operation.js';
import type { KeptConnection } from './heartbeat.js';
import { credentialsOf, ifRefused, isSomebody, nameConnection, requestClientOf } from './socket-identity.js';
import { readMessage } from './socket-message.js';

/** Operations of a connection that begin, or are answered, at the same time: the others wait for their turn, all while the client does not read. */
const MAX_RUNNING = 100;
/** Characters of all operations that have not ended. */
const MAX_CHARACTERS = 16_777_216;
/** Each answer repeats it. */
const MAX_ID_LENGTH = 1_000;
/** A ping may carry a payload, which its answer repeats. */
const MAX_PONG_LENGTH = 1_000;

const PING = '{"type":"ping"}';

/** As the protocol names them. */
const BAD_REQUEST = 4400;
const UNAUTHORIZED = 4401;
const FORBIDDEN = 4403;
const INITIALISATION_TIMEOUT = 4408;
const SUBSCRIBER_EXISTS = 4409;
const TOO_MANY_INITIALISATIONS = 4429;

export class GraphqlConnection implements KeptConnection {
  readonly socket: Socket;
  readonly from: SocketClient;
  readonly client: RequestClient;
  readonly name = nameConnection();
  readonly #services: GraphqlSocketServices;
  readonly #onClosed: () => void;
  readonly #operations = new Map<string, Operation>();
  readonly #turns: Turn[] = [];
  readonly slow = new Set<Feed>();
  /** Whether something waits until the client reads. */
  #isHeld = false;
  #pong: string | null = null;
  #credentials: LastingCredentials;
  #hasBegun = false;
  #isAcknowledged = false;
  readonly #deadline: NodeJS.Timeout;
  #running = 0;
  #characters = 0;
  #hasSpoken = true;

  constructor(socket: Socket, from: SocketClient, services: GraphqlSocketServices, onClosed: () => void) {
    this.socket = socket;
    this.from = from;
    this.client = requestClientOf(socket, from);
    this.#services = services;
    this.#onClosed = onClosed;
    this.#credentials = credentialsOf(from);
    this.#deadline = setTimeout(
      () => socket.end(INITIALISATION_TIMEOUT, 'Connection initialisation timeout'),
      services.config.WEBSOCKETS_GRAPHQL_AUTH_TIMEOUT,
    ).unref();
  }

  message(text: string): void {
    this.#hasSpoken = true;
    if (!this.socket.isOpen) return;
    this.#goOn();
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

  /** Not every buffer that has emptied is told of. */
  #goOn(): void {
    if (this.#isHeld && !this.socket.isSlow) this.drained();
  }

  mustWait(): boolean {
    const { isSlow } = this.socket;
    if (isSlow) this.#isHeld = true;
    return isSlow;
  }

  closed(): void {
    clearTimeout(this.#deadline);
    for (const operation of this.#operations.values()) operation.handle?.close();
    this.#operations.clear();
    this.#turns.length = 0;
    this.slow.clear();
    this.#onClosed();
  }

  end(): void {
    this.socket.end(1001, 'The service stops');
  }

  beat(): void {
    if (!this.#isAcknowledged) return;
    if (!this.#hasSpoken) this.socket.end();
    this.#hasSpoken = false;
    if (!this.socket.isSlow) this.socket.send(PING);
  }

  look(): void {
    this.#goOn();
    if (this.#credentials.headers.authorization === '' || !this.#isAcknowledged) return;
    ifRefused(
      () => this.identify(),
      () => this.#forbid(),
    );
  }

  /** The protocol has no way to sign in anew: clients connect again, with a new token if they have one. */
  #forbid(): void {
    this.socket.end(FORBIDDEN, 'Forbidden');
  }

  identify(): MaybePromise<Identity> {
    return this.#services.identities.identify(this.#credentials);
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
    const isPublic = this.#services.config.WEBSOCKETS_GRAPHQL_AUTH === 'public';
    if (token !== undefined && token !== null) {
      if (typeof token !== 'string' || !/^\S+$/.test(token)) return this.#forbid();
      this.#credentials = credentialsOf({ authorization: `Bearer ${token}`, address: this.from.address });
    }
    try {
      await this.#services.limit?.(this.from.address);
      const caller = await this.identify();
      if (!isPublic && !isSomebody(caller)) return this.#forbid();
    } catch (error) {
      if (publicError(error).status >= 500) throw error;
      return this.#forbid();
    }
    clearTimeout(this.#deadline);
    this.#isAcknowledged = true;
    this.socket.send('{"type":"connection_ack"}');
  }

  /** While the client does not read, one answer stands for all. */
  #answerPing(payload: Input | null): void {
    const text = payload === null ? '' : writeJson(payload);
    const pong = text === '' || text.length > MAX_PONG_LENGTH ? '' : `,"payload":${text}`;
    const answer = `{"type":"pong"${pong}}`;
    if (this.mustWait()) this.#pong = answer;
    else this.socket.send(answer);
  }

  #subscribe(id: string, parameters: Parameters, length: number): void {
    if (!this.#isAcknowledged) this.socket.end(UNAUTHORIZED, 'Unauthorized');
    else if (this.#operations.has(id)) this.socket.end(SUBSCRIBER_EXISTS, `Subscriber for ${id} already exists`);
    if (!this.socket.isOpen) return;
    const operation = new Operation(this, id, length);
    const { LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: limit } = this.#services.config;
    if (this.#operations.size >= limit || this.#characters + length > MAX_CHARACTERS) {
      const many = { option: 'LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION', limit };
      const large = { option: 'characters of all operations', limit: MAX_CHARACTERS };
      this.#sendError(operation, requestsExceeded(this.#operations.size >= limit ? many : large, 1_000));
      return;
    }
    this.#operations.set(id, operation);
    this.#characters += length;
    this.#turns.push({ operation, parameters });
    this.#next();
  }

  #next(): void {
    while (this.#turns.length > 0 && this.#running < MAX_RUNNING && !this.mustWait()) {
      const turn = this.#turns.shift();
      if (!turn || !this.isOpen(turn.operation)) continue;
      this.#running++;
      void this.#run(turn).finally(() => {
        this.#running--;
        this.#next();
      });
    }
  }

  async #run({ operation, parameters }: Turn): Promise<void> {
    try {
      const handle = await runOperation(parameters, operation, this.#services);
      if (this.isOpen(operation)) operation.handle = handle;
      else handle.close();
    } catch (error) {
      this.fail(operation, error);
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
    operation.handle?.close();
    // What a client that does not read begins and ends again must not pile up.
    const waiting = this.#turns.findIndex((turn) => turn.operation === operation);
    if (waiting >= 0) this.#turns.splice(waiting, 1);
  }

  fail(operation: Operation, error: unknown): void {
    if (!this.isOpen(operation)) return;
    this.#leave(operation.id);
    // Others would fail as well: the client has to come back with a token that counts.
    if (isUnauthorized(error)) this.#forbid();
    else this.#sendError(operation, error);
  }

  #sendError({ id }: Operation, error: unknown): void {
    const { errors, isOurs } = failureText(error);
    if (isOurs) this.#report(error);
    this.socket.send(`{"id":${JSON.stringify(id)},"type":"error","payload":${errors}}`);
  }

  /** Clients try again after this code. */
  #break(error: unknown): void {
    this.#report(error);
    this.socket.end(1013, 'Try again later');
  }

  #report(error: unknown): void {
    const request = { id: '', method: 'WEBSOCKET', path: '/graphql' };
    this.#services.observe({ kind: 'request-failed', ...request, error, unavailable: isUnavailable(error) });
  }
}

const TAIL = Buffer.from('}');

/** An operation that waits for its turn. */
interface Turn {
  readonly operation: Operation;
  readonly parameters: Parameters;
}

/** There may be ten thousand of them: each holds no functions of its own. */
class Operation implements OperationTarget {
  readonly #connection: GraphqlConnection;
  readonly id: string;
  readonly length: number;
  /** What stands before the payload of an answer. */
  readonly #head: string;
  /** Null until it has begun. */
  handle: EventHandle | null = null;

  constructor(connection: GraphqlConnection, id: string, length: number) {
    this.#connection = connection;
    this.id = id;
    this.length = length;
    this.#head = `{"id":${JSON.stringify(id)},"type":"next","payload":`;
  }

  get client(): RequestClient {
    return this.#connection.client;
  }

  get from(): SocketClient {
    return this.#connection.from;
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

function refused(reason: string): ServiceError {
  return new ServiceError('INVALID_PAYLOAD', reason);
}

function readId({ id }: Input): string {
  if (typeof id !== 'string' || id === '') throw refused('"id" must be a string');
  if (id.length > MAX_ID_LENGTH) throw refused(`"id" is longer than ${MAX_ID_LENGTH} characters`);
  return id;
}
