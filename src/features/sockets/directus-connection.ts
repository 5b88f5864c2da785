/** /websocket: the protocol of Directus over WebSockets, one JSON object per message. */

import { invalidPayload, invalidQuery, requestsExceeded, type ServiceError } from '../../base/errors.js';
import { Digits, isObject, writeJson } from '../../base/exact-json.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { quoteName } from '../../compiler/request/expression.js';
import { type Input, readObject } from '../../compiler/request/parse-context.js';
import { parseChanged, parseItem, parseSearch } from '../../compiler/request/rest.js';
import { readKey } from '../../compiler/request/write.js';
import { isBearer } from '../../server/access/identities.js';
import { login, refresh } from '../../server/accounts/authentication.js';
import { readEmail, readText } from '../../server/api/body-fields.js';
import { refuseSystem, wholeAnswers } from '../../server/api/items/items.js';
import { publicError } from '../../server/http/reply.js';
import type { SocketClient } from '../../server/http/transport.js';
import type { Socket, SocketProtocol } from '../../server/http/websocket.js';
import type { ChangedItems, EventHandle, EventListener } from '../live/event-subscriber.js';
import type { Rights } from '../live/subscribers.js';
import { CHANGES, type Change } from '../live/table-log.js';
import { MAX_VISIBLE_KEYS } from '../live/visible-keys.js';
import {
  Connection,
  checkUpgrade,
  credentialsOf,
  keepConnections,
  MAX_RUNNING,
  PING,
  readMessage,
  socketTurns,
} from './connection.js';
import { runItems, type SocketSession, type WebsocketServices } from './directus-items.js';
import { type EventOwner, OutgoingQueue } from './message-queue.js';

export function websocketProtocol(services: WebsocketServices): SocketProtocol {
  const { config, identities } = services;
  return {
    path: '/websocket',
    connections: config.WEBSOCKETS_REST_CONN_LIMIT,
    cookieName: config.SESSION_COOKIE_NAME,
    maxMessageBytes: config.WEBSOCKETS_MAX_FRAME_SIZE,
    accept: async (client) => {
      await checkUpgrade(client, config.WEBSOCKETS_REST_AUTH === 'strict', identities);
      return '';
    },
    ...keepConnections(
      config.WEBSOCKETS_HEARTBEAT_PERIOD,
      (socket, client, onClosed) => new DirectusConnection(socket, client, services, onClosed),
    ),
  };
}

/** As clients know them. */
const AUTH_ERRORS = {
  AUTH_FAILED: 'Authentication handshake failed.',
  AUTH_TIMEOUT: 'Authentication handshake timed out.',
  TOKEN_EXPIRED: 'Token expired.',
} as const;

class DirectusConnection extends Connection<WebsocketServices> implements SocketSession {
  protected readonly path = '/websocket';
  readonly outbox: OutgoingQueue;
  readonly #subscriptions = new Map<string, EventHandle>();
  /** Other messages wait for the sign-in before them. It never rejects: a failed one does not affect the next. */
  #signingIn: Promise<void> = Promise.resolve();
  protected isAccepted: boolean;
  #unnamed = 0;

  constructor(socket: Socket, client: SocketClient, services: WebsocketServices, onClosed: () => void) {
    super(socket, client, services, onClosed);
    this.outbox = new OutgoingQueue(socket, () => this.drained());
    const mode = services.config.WEBSOCKETS_REST_AUTH;
    // A token of the upgrade was checked before the connection opened, and is valid in every mode.
    this.isAccepted = mode !== 'handshake' || isBearer(client.authorization);
    if (!this.isAccepted) this.#awaitSignIn();
  }

  protected receive(text: string): void {
    this.resume();
    if (this.outbox.isFull || this.running + this.outbox.replies >= MAX_RUNNING) {
      const exceeded = { option: 'messages at the same time', limit: MAX_RUNNING };
      this.#fail('server', requestsExceeded(exceeded, 1_000), NO_UID);
      return;
    }
    this.running++;
    this.#handle(text)
      .catch((error: unknown) => {
        this.report(error);
        this.socket.end(1011, 'An unexpected error occurred.');
      })
      .finally(() => this.running--);
  }

  protected resume(): void {
    this.outbox.resume();
  }

  drained(): void {
    if (!this.outbox.isReady) return;
    const [any] = this.#subscriptions.values();
    any?.wake();
  }

  protected release(): void {
    this.outbox.close();
    for (const subscription of this.#subscriptions.values()) subscription.close();
    this.#subscriptions.clear();
  }

  protected sendPing(): void {
    this.outbox.reply(PING);
  }

  protected expire(): void {
    this.#signInAs('');
    this.#refuseAuth('TOKEN_EXPIRED', NO_UID);
    if (this.services.config.WEBSOCKETS_REST_AUTH !== 'public') this.#awaitSignIn();
  }

  #signInAs(authorization: string): void {
    this.authorize(authorization);
    for (const subscription of this.#subscriptions.values()) subscription.renew();
  }

  #awaitSignIn(): void {
    this.setDeadline(this.services.config.WEBSOCKETS_REST_AUTH_TIMEOUT, () => {
      this.#refuseAuth(this.isAccepted ? 'AUTH_TIMEOUT' : 'AUTH_FAILED', NO_UID);
      this.socket.end();
    });
  }

  async #handle(text: string): Promise<void> {
    const { limit } = this.services;
    let type = 'server';
    let uid = NO_UID;
    try {
      const message = readTyped(text);
      uid = readUid(message['uid']);
      const isAuth = message['type'] === 'auth';
      if (!isAuth) await this.#signingIn;
      if (!this.socket.isOpen) return;
      if (!this.isAccepted && !isAuth) return this.#refuse(uid);
      if (isAuth) return await this.#signInNext(message, uid);
      await limit?.(this.client.address);
      if (message['type'] === 'subscribe' || message['type'] === 'items') type = message['type'];
      await this.#answer(message, uid);
    } catch (error) {
      const known = publicError(error);
      if (known.status >= 500) this.report(error);
      this.#fail(known.code === 'REQUESTS_EXCEEDED' && type !== 'subscribe' ? 'server' : type, known, uid);
    }
  }

  async #answer(message: Input, uid: Uid): Promise<void> {
    switch (message['type']) {
      case 'ping':
        return this.outbox.reply(`{"type":"pong"${uid.text}}`);
      case 'subscribe':
        return this.#subscribe(message, uid);
      case 'unsubscribe':
        return this.#unsubscribe(uid);
      case 'items':
        return socketTurns.run(this.name, () => this.#answerItems(message, uid));
      default:
        // As Directus does: newer clients may send unknown types.
        return;
    }
  }

  async #answerItems(message: Input, uid: Uid): Promise<void> {
    this.outbox.reply(`{"type":"items",${await runItems(message, this, this.services)}${uid.text}}`);
  }

  async #subscribe(message: Input, uid: Uid): Promise<void> {
    const name = uid.name ?? ` ${++this.#unnamed}`;
    const { LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: limit } = this.services.config;
    if (this.#subscriptions.size >= limit && !this.#subscriptions.has(name))
      throw requestsExceeded({ option: 'LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION', limit }, 1_000);
    let isRenewed = false;
    const renew = (): void => {
      isRenewed = true;
    };
    // One with the same name replaces it, even while it begins.
    const pending: EventHandle = { close: () => {}, wake: () => {}, renew };
    let current = pending;
    const isWanted = (): boolean => this.#subscriptions.get(name) === current && !isRenewed;
    this.#replace(name, pending);
    try {
      const begin = (): Promise<EventHandle> => subscribeTo(message, { name: uid.name, isWanted }, this, this.services);
      const handle = await socketTurns.run(this.name, begin);
      if (this.#subscriptions.get(name) !== pending || !this.socket.isOpen) return handle.close();
      this.#subscriptions.set(name, handle);
      current = handle;
      // The client has signed in as another user since the subscription began.
      if (isRenewed) handle.renew();
      isRenewed = false;
    } catch (error) {
      if (this.#subscriptions.get(name) === pending) this.#subscriptions.delete(name);
      throw error;
    }
  }

  #replace(name: string, handle: EventHandle): void {
    this.#subscriptions.get(name)?.close();
    this.#subscriptions.set(name, handle);
  }

  #unsubscribe({ name }: Uid): void {
    for (const [each, subscription] of this.#subscriptions)
      if (name === null || each === name) {
        this.#subscriptions.delete(each);
        subscription.close();
      }
    const text = name === null ? '' : `,"uid":${JSON.stringify(name)}`;
    this.outbox.reply(`{"type":"subscription","event":"unsubscribe"${text}}`);
  }

  #signInNext(message: Input, uid: Uid): Promise<void> {
    const signedIn = this.#signingIn.then(async () => {
      await this.services.limit?.(this.client.address);
      await this.#signIn(message, uid);
    });
    this.#signingIn = signedIn.catch(() => {});
    return signedIn;
  }

  async #signIn(message: Input, uid: Uid): Promise<void> {
    try {
      const { accessToken, refreshToken } = await this.#tokensOf(message);
      const authorization = `Bearer ${accessToken}`;
      await this.services.identities.identify(credentialsOf({ authorization, address: this.client.address }));
      if (!this.socket.isOpen) return;
      this.clearDeadline();
      this.isAccepted = true;
      this.#signInAs(authorization);
      const more = refreshToken === null ? '' : `,"refresh_token":${JSON.stringify(refreshToken)}`;
      this.outbox.reply(`{"type":"auth","status":"ok"${uid.text}${more}}`);
    } catch (error) {
      if (publicError(error).status >= 500) throw error;
      this.#signInAs('');
      this.#refuse(uid);
    }
  }

  async #tokensOf(message: Input): Promise<{ readonly accessToken: string; readonly refreshToken: string | null }> {
    const { authentication } = this.services;
    const { socket } = this;
    const { address: ip, userAgent, origin } = this.client;
    const client = {
      ip,
      userAgent,
      origin,
      get aborted() {
        return !socket.isOpen;
      },
    };
    if (message['email'] !== undefined) {
      const otp = message['otp'] === undefined ? null : readText(message, 'otp');
      const credentials = { email: readEmail(message), password: readText(message, 'password'), otp };
      return login(credentials, 'refresh', client, authentication);
    }
    if (message['refresh_token'] !== undefined)
      return refresh('refresh', readText(message, 'refresh_token'), client, authentication);
    const accessToken = readText(message, 'access_token');
    if (/\s/.test(accessToken)) throw invalidPayload('"access_token" must be a token');
    return { accessToken, refreshToken: null };
  }

  #refuse(uid: Uid): void {
    this.#refuseAuth('AUTH_FAILED', uid);
    if (this.services.config.WEBSOCKETS_REST_AUTH !== 'public') this.socket.end();
  }

  /** Sent at once: the connection may end right after it. */
  #refuseAuth(code: keyof typeof AUTH_ERRORS, uid: Uid): void {
    this.outbox.hurry();
    const error = JSON.stringify({ code, message: AUTH_ERRORS[code] });
    this.socket.send(`{"type":"auth","status":"error","error":${error}${uid.text}}`);
  }

  #fail(type: string, known: ServiceError, uid: Uid): void {
    const { code, message } = this.socket.translate(known);
    const error = JSON.stringify({ code, message });
    this.outbox.reply(`{"type":"${type}","status":"error","error":${error}${uid.text}}`);
  }
}

function readTyped(text: string): Input {
  const message = readMessage(text, invalidPayload);
  if (typeof message['type'] !== 'string') throw invalidPayload('"type" must be a string');
  return message;
}

/** The name that a client gives to a message or a subscription. */
interface Uid {
  /** A string, even if a number was sent, or null if there is none. */
  readonly name: string | null;
  /** For the answer, as it was sent: `,"uid":...`, or empty. */
  readonly text: string;
}

const NO_UID: Uid = { name: null, text: '' };

/** Each answer, and each event of a subscription, repeats it. */
const MAX_UID_LENGTH = 1_000;

/** The text is written once: an error about the message must not fail with the same error. */
function readUid(uid: unknown): Uid {
  if (uid === undefined || uid === null) return NO_UID;
  if (typeof uid !== 'string' && typeof uid !== 'number' && !(uid instanceof Digits))
    throw invalidPayload('"uid" must be a string or a number');
  const name = String(uid);
  if (name.length > MAX_UID_LENGTH) throw invalidPayload(`"uid" is longer than ${MAX_UID_LENGTH} characters`);
  return { name, text: `,"uid":${writeJson(uid)}` };
}

/** Subscriptions to items have no aggregates: live queries over HTTP have. */
const WITHOUT_ITEMS = ['aggregate', 'groupBy', 'having', 'export'];

/** A subscription, as its client names it. */
interface SubscribedClient {
  readonly name: string | null;
  /** Whether the client still has this subscription. */
  readonly isWanted: () => boolean;
}

async function subscribeTo(
  message: Input,
  client: SubscribedClient,
  connection: SocketSession,
  { live, limits: given, dialect }: WebsocketServices,
): Promise<EventHandle> {
  const { collection, query, change, item } = readSubscription(message);
  const limits = wholeAnswers(given);
  const initial = (): Parsed | null => {
    if (change !== null) return null;
    return item === null ? parseSearch(collection, { query }, '', limits) : parseItem(collection, item, query, limits);
  };
  const source = {
    address: connection.client.address,
    arrival: null,
    collection,
    item,
    change,
    identify: () => connection.identify(),
    parseChanged: () => parseChanged(collection, query, limits),
    parseInitial: initial,
    parseKeys: (_: unknown, key: readonly string[]) => {
      const { filter, search } = query;
      const keys = { fields: key.map(quoteName), filter, search, limit: MAX_VISIBLE_KEYS, alias: query['alias'] };
      return parseSearch(collection, { query: keys }, '', wholeAnswers({ ...given, pageSize: null }));
    },
  };
  const shape = { isItem: item !== null, isEach: dialect !== null };
  const listener = new SocketListener(connection, client, shape, live);
  const handle = await live.events.subscribe(source, listener, (error) => listener.end(error));
  return {
    close: () => {
      handle.close();
      listener.drop();
    },
    wake: () => handle.wake(),
    renew: () => {
      listener.drop();
      handle.renew();
    },
  };
}

interface Subscription {
  readonly collection: string;
  readonly query: Input;
  readonly change: Change | null;
  readonly item: string | null;
}

function readSubscription({ collection, event, item, query }: Input): Subscription {
  if (typeof collection !== 'string') throw invalidPayload('"collection" must be a string');
  refuseSystem(collection);
  const change = event === undefined || event === null ? null : CHANGES.find((each) => each === event);
  if (change === undefined) throw invalidPayload(`"event" must be one of ${CHANGES.join(', ')}`);
  const key = item === undefined || item === null ? null : readKey(item);
  if (item !== undefined && item !== null && key === null) throw invalidPayload('"item" must be a key');
  if (query !== undefined && query !== null && !isObject(query)) throw invalidPayload('"query" must be an object');
  const read = readObject(query, 'query');
  const unfit = WITHOUT_ITEMS.find((name) => read[name] !== undefined && read[name] !== null);
  if (unfit !== undefined) throw invalidQuery(`"${unfit}" cannot be used in a subscription: only items have events`);
  return { collection, query: read, change, item: key === null ? null : String(key) };
}

interface EventShape {
  /** Whether the data of an event is the item, or else a list. */
  readonly isItem: boolean;
  /** Whether each new item has a message of its own, as in Directus. */
  readonly isEach: boolean;
}

class SocketListener implements EventListener, EventOwner {
  readonly #tail: string;
  #hasLost = false;

  constructor(
    private readonly connection: SocketSession,
    private readonly client: SubscribedClient,
    private readonly shape: EventShape,
    private readonly rights: Rights,
  ) {
    this.#tail = client.name === null ? '}' : `,"uid":${JSON.stringify(client.name)}}`;
  }

  get generation(): number {
    return this.rights.generation;
  }

  lose(): void {
    this.#hasLost = true;
  }

  /** Drops the events that wait. */
  drop(): void {
    if (this.connection.outbox.withdraw(this)) this.#hasLost = true;
  }

  withdraw(isSame: boolean): boolean {
    if (!isSame) this.drop();
    const hasLost = this.#hasLost;
    this.#hasLost = false;
    return hasLost;
  }

  isReady(): boolean {
    return this.connection.outbox.isReady;
  }

  initial(body: Buffer | null, isResync: boolean): void {
    if (!this.client.isWanted()) {
      this.lose();
      return;
    }
    const data = body === null ? '' : `,${String(body).slice(1, -1)}`;
    const resync = isResync ? ',"resync":true' : '';
    this.connection.outbox.event(`{"type":"subscription","event":"init"${data}${resync}${this.#tail}`, this);
  }

  changed({ change, keys, items }: ChangedItems): void {
    if (change === 'delete') this.#event(change, this.#keys(keys));
    else if (change === 'create' && this.#sendsEach(items)) for (const item of items) this.#event(change, `[${item}]`);
    else this.#event(change, this.#items(items));
  }

  #event(change: Change, data: string): void {
    this.connection.outbox.event(`{"type":"subscription","event":"${change}","data":${data}${this.#tail}`, this);
  }

  /** Many messages that wait would delay everything after them, and too many end the connection: then the items share one. */
  #sendsEach(items: readonly Buffer[]): boolean {
    const characters = items.reduce((sum, { length }) => sum + length + this.#tail.length, 0);
    return this.shape.isEach && items.length > 1 && this.connection.outbox.hasRoom(items.length, characters);
  }

  end(error: unknown): void {
    const { code, message } = this.connection.socket.translate(publicError(error));
    const text = JSON.stringify({ code, message });
    this.connection.outbox.reply(`{"type":"subscribe","status":"error","error":${text}${this.#tail}`);
  }

  #keys(keys: readonly string[]): string {
    return this.shape.isItem ? JSON.stringify(keys[0]) : JSON.stringify(keys);
  }

  #items(items: readonly Buffer[]): string {
    return this.shape.isItem ? String(items[0]) : `[${items.join()}]`;
  }
}
