/** One connection to /websocket: who speaks, what they have subscribed to, and the answers to their messages. */
import { isBearer } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { LastingCredentials } from '../../access/lasting-credentials.js';
import { login, refresh } from '../../accounts/authentication.js';
import { invalidPayload, requestsExceeded, type ServiceError } from '../../base/errors.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { MaybePromise } from '../../engine/pipeline.js';
import { publicError } from '../../http/reply.js';
import type { Socket, SocketClient, SocketHandler } from '../../http/websocket.js';
import type { EventHandle } from '../../live/events/event-subscriber.js';
import type { Input } from '../../request/parse-context.js';
import { readEmail, readText } from '../body-fields.js';
import { runItems } from './directus-items.js';
import { subscribeTo } from './directus-subscriptions.js';
import { SocketOutbox } from './message-queue.js';
import {
  credentialsOf,
  ifRefused,
  NO_UID,
  nameConnection,
  readUid,
  type Speaker,
  socketTurns,
  type Uid,
  type WebsocketServices,
} from './socket-identity.js';
import { readMessage } from './socket-message.js';

/** Messages of a connection that are worked on at the same time, or whose answers wait. */
const MAX_RUNNING = 100;

const PING = '{"type":"ping"}';

/** As clients know them. */
const AUTH_ERRORS = {
  AUTH_FAILED: 'Authentication handshake failed.',
  AUTH_TIMEOUT: 'Authentication handshake timed out.',
  TOKEN_EXPIRED: 'Token expired.',
} as const;

export class SocketConnection implements SocketHandler, Speaker {
  readonly client: SocketClient;
  readonly socket: Socket;
  readonly #name = nameConnection();
  readonly #services: WebsocketServices;
  readonly #onClosed: () => void;
  readonly outbox: SocketOutbox;
  readonly #subscriptions = new Map<string, EventHandle>();
  #credentials: LastingCredentials;
  /** Until it is over, other messages wait: they may need it. It never rejects: one that fails is the end of that one alone. */
  #signingIn: Promise<void> = Promise.resolve();
  #isSignedIn: boolean;
  #deadline: NodeJS.Timeout | null = null;
  #running = 0;
  #hasSpoken = true;
  #unnamed = 0;

  constructor(socket: Socket, client: SocketClient, services: WebsocketServices, onClosed: () => void) {
    this.socket = socket;
    this.client = client;
    this.#services = services;
    this.#onClosed = onClosed;
    this.#credentials = credentialsOf(client);
    this.outbox = new SocketOutbox(socket, () => this.drained());
    const mode = services.config.WEBSOCKETS_REST_AUTH;
    // A token of the upgrade was checked before the connection opened, and counts in every mode.
    this.#isSignedIn = mode !== 'handshake' || isBearer(client.authorization);
    if (!this.#isSignedIn) this.#await();
  }

  identify(): MaybePromise<Identity> {
    return this.#services.identities.identify(this.#credentials);
  }

  message(text: string): void {
    this.#hasSpoken = true;
    this.outbox.look();
    if (this.outbox.isFull || this.#running + this.outbox.replies >= MAX_RUNNING) {
      const exceeded = { option: 'messages at the same time', limit: MAX_RUNNING };
      this.#fail('server', requestsExceeded(exceeded, 1_000), NO_UID);
      return;
    }
    this.#running++;
    this.#handle(text)
      .catch((error: unknown) => {
        this.#report(error);
        this.socket.end(1011, 'An unexpected error occurred.');
      })
      .finally(() => this.#running--);
  }

  drained(): void {
    if (!this.outbox.isReady) return;
    const [any] = this.#subscriptions.values();
    any?.wake();
  }

  closed(): void {
    if (this.#deadline) clearTimeout(this.#deadline);
    this.outbox.close();
    for (const subscription of this.#subscriptions.values()) subscription.close();
    this.#subscriptions.clear();
    this.#onClosed();
  }

  /** The service stops: clients come back, elsewhere. */
  end(): void {
    this.socket.end(1001, 'The service stops');
  }

  /** A client that has sent nothing since the last ping is gone. */
  beat(): void {
    if (!this.#isSignedIn) return;
    if (!this.#hasSpoken) this.socket.end();
    this.#hasSpoken = false;
    this.outbox.reply(PING);
  }

  /** Tokens expire, and are withdrawn, without anybody saying so. */
  look(): void {
    this.outbox.look();
    if (this.#credentials.headers.authorization === '') return;
    const credentials = this.#credentials;
    ifRefused(
      () => this.identify(),
      () => {
        if (credentials === this.#credentials) this.#expire();
      },
    );
  }

  #expire(): void {
    this.#become('');
    this.#tellAuth('TOKEN_EXPIRED', NO_UID);
    if (this.#services.config.WEBSOCKETS_REST_AUTH !== 'public') this.#await();
  }

  #become(authorization: string): void {
    this.#credentials = credentialsOf({ authorization, address: this.client.address });
    for (const subscription of this.#subscriptions.values()) subscription.renew();
  }

  /** Ends the connection of who does not sign in in time. */
  #await(): void {
    if (this.#deadline) clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => {
      this.#tellAuth(this.#isSignedIn ? 'AUTH_TIMEOUT' : 'AUTH_FAILED', NO_UID);
      this.socket.end();
    }, this.#services.config.WEBSOCKETS_REST_AUTH_TIMEOUT).unref();
  }

  async #handle(text: string): Promise<void> {
    const { limit } = this.#services;
    let type = 'server';
    let uid = NO_UID;
    try {
      const message = readTyped(text);
      uid = readUid(message['uid']);
      const isAuth = message['type'] === 'auth';
      if (!isAuth) await this.#signingIn;
      if (!this.socket.isOpen) return;
      if (!this.#isSignedIn && !isAuth) return this.#refuse(uid);
      if (isAuth) return await this.#signInNext(message, uid);
      await limit?.(this.client.address);
      if (message['type'] === 'subscribe' || message['type'] === 'items') type = message['type'];
      await this.#answer(message, uid);
    } catch (error) {
      const known = publicError(error);
      if (known.status >= 500) this.#report(error);
      this.#fail(known.code === 'REQUESTS_EXCEEDED' && type !== 'subscribe' ? 'server' : type, known, uid);
    }
  }

  #report(error: unknown): void {
    const request = { id: '', method: 'WEBSOCKET', path: '/websocket' };
    this.#services.observe({ kind: 'request-failed', ...request, error, unavailable: isUnavailable(error) });
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
        return socketTurns.run(this.#name, () => this.#answerItems(message, uid));
      default:
        // As the family does: newer clients may send what is not known here.
        return;
    }
  }

  async #answerItems(message: Input, uid: Uid): Promise<void> {
    this.outbox.reply(`{"type":"items",${await runItems(message, this, this.#services)}${uid.text}}`);
  }

  async #subscribe(message: Input, uid: Uid): Promise<void> {
    const name = uid.name ?? ` ${++this.#unnamed}`;
    const { LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: limit } = this.#services.config;
    if (this.#subscriptions.size >= limit && !this.#subscriptions.has(name))
      throw requestsExceeded({ option: 'LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION', limit }, 1_000);
    let isRenewed = false;
    const renew = (): void => {
      isRenewed = true;
    };
    // One with the same name takes its place, also while it begins.
    const pending: EventHandle = { close: () => {}, wake: () => {}, renew };
    let current = pending;
    const isWanted = (): boolean => this.#subscriptions.get(name) === current && !isRenewed;
    this.#replace(name, pending);
    try {
      const begin = (): Promise<EventHandle> => subscribeTo(message, uid.name, this, this.#services, isWanted);
      const handle = await socketTurns.run(this.#name, begin);
      if (this.#subscriptions.get(name) !== pending || !this.socket.isOpen) return handle.close();
      this.#subscriptions.set(name, handle);
      current = handle;
      // Somebody else speaks now than when it began.
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
      await this.#services.limit?.(this.client.address);
      await this.#signIn(message, uid);
    });
    this.#signingIn = signedIn.catch(() => {});
    return signedIn;
  }

  async #signIn(message: Input, uid: Uid): Promise<void> {
    try {
      const { accessToken, refreshToken } = await this.#tokensOf(message);
      const authorization = `Bearer ${accessToken}`;
      await this.#services.identities.identify(credentialsOf({ authorization, address: this.client.address }));
      if (!this.socket.isOpen) return;
      if (this.#deadline) clearTimeout(this.#deadline);
      this.#deadline = null;
      this.#isSignedIn = true;
      this.#become(authorization);
      const more = refreshToken === null ? '' : `,"refresh_token":${JSON.stringify(refreshToken)}`;
      this.outbox.reply(`{"type":"auth","status":"ok"${uid.text}${more}}`);
    } catch (error) {
      if (publicError(error).status >= 500) throw error;
      this.#become('');
      this.#refuse(uid);
    }
  }

  async #tokensOf(message: Input): Promise<{ readonly accessToken: string; readonly refreshToken: string | null }> {
    const { authentication } = this.#services;
    const { address: ip, userAgent, origin } = this.client;
    const client = { ip, userAgent, origin, hasLeft: () => !this.socket.isOpen };
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
    this.#tellAuth('AUTH_FAILED', uid);
    if (this.#services.config.WEBSOCKETS_REST_AUTH !== 'public') this.socket.end();
  }

  /** At once: the connection may end right behind it. */
  #tellAuth(code: keyof typeof AUTH_ERRORS, uid: Uid): void {
    this.outbox.hurry();
    const error = JSON.stringify({ code, message: AUTH_ERRORS[code] });
    this.socket.send(`{"type":"auth","status":"error","error":${error}${uid.text}}`);
  }

  #fail(type: string, known: ServiceError, uid: Uid): void {
    const { code, message } = this.socket.told(known);
    const error = JSON.stringify({ code, message });
    this.outbox.reply(`{"type":"${type}","status":"error","error":${error}${uid.text}}`);
  }
}

function readTyped(text: string): Input {
  const message = readMessage(text, invalidPayload);
  if (typeof message['type'] !== 'string') throw invalidPayload('"type" must be a string');
  return message;
}
