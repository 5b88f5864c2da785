/** Who speaks over a WebSocket: its messages carry no headers, so what counts is the token of its request, or of its sign-in. */
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import { LastingCredentials } from '../../access/lasting-credentials.js';
import type { AuthenticationServices } from '../../accounts/authentication.js';
import { invalidCredentials, invalidPayload, ServiceError } from '../../base/errors.js';
import { Digits, writeJson } from '../../base/exact-json.js';
import type { Observer } from '../../base/observe.js';
import { TurnQueue } from '../../base/time-slices.js';
import type { Config } from '../../config/config.js';
import type { MaybePromise } from '../../engine/pipeline.js';
import { NO_CLIENT, type RequestClient } from '../../engine/stages.js';
import type { Limit } from '../../http/limiter.js';
import type { Socket, SocketClient } from '../../http/websocket.js';
import type { Mirror } from '../../mirror/watch.js';
import type { ItemsServices } from '../items/item-reads.js';
import type { SocketOutbox } from './message-queue.js';

export interface WebsocketServices extends ItemsServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly authentication: AuthenticationServices;
  /** Null where messages are not limited. */
  readonly limit: Limit | null;
  readonly observe: Observer;
}

/** Who sends the messages of a connection. */
export interface Speaker {
  readonly socket: Socket;
  readonly client: SocketClient;
  readonly outbox: SocketOutbox;
  identify(): MaybePromise<Identity>;
}

/**
 * One message that is worked on per turn of the event loop, and one connection after the other: a burst of messages on one connection must not
 * keep others waiting.
 */
export const socketTurns = new TurnQueue();

let connections = 0;

/** For `socketTurns`. */
export function nameConnection(): string {
  return String(++connections);
}

/** Presented again with each message, as a client would with each request. */
export function credentialsOf({
  authorization,
  address,
}: Pick<SocketClient, 'authorization' | 'address'>): LastingCredentials {
  return new LastingCredentials({
    headers: { authorization, viewAs: '' },
    accessToken: '',
    address,
    cookie: () => '',
  });
}

/** Calls back where the credentials do not count any more; a database that does not answer says nothing of them. */
export function ifRefused(identify: () => MaybePromise<Identity>, refused: () => void): void {
  const settle = (error: unknown): void => {
    if (error instanceof ServiceError && error.status < 500) refused();
  };
  try {
    const caller = identify();
    if (caller instanceof Promise) caller.catch(settle);
  } catch (error) {
    settle(error);
  }
}

/** Throws for who may not connect: a token must count, and where one is needed it must be somebody's. */
export async function checkUpgrade(client: SocketClient, mustSignIn: boolean, identities: Identities): Promise<void> {
  if (mustSignIn && client.authorization === '') throw invalidCredentials();
  if (client.authorization === '') return;
  const caller = await identities.identify(credentialsOf(client));
  // An Authorization header of another scheme than Bearer identifies nobody: the caller is the public.
  if (mustSignIn && !isSomebody(caller)) throw invalidCredentials();
}

export function isSomebody({ user, share }: Identity): boolean {
  return user !== null || share !== undefined;
}

/** A message, as the pipelines see it. */
export function requestClientOf(socket: Socket, { address }: SocketClient): RequestClient {
  return {
    ...NO_CLIENT,
    address,
    get aborted() {
      return !socket.isOpen;
    },
  };
}

/** What a client calls a message, or a subscription. */
export interface Uid {
  /** A string, also where a number was sent; null for none. */
  readonly name: string | null;
  /** For the answer, as it was sent: `,"uid":...`, or nothing. */
  readonly text: string;
}

export const NO_UID: Uid = { name: null, text: '' };

/** Each answer, and each event of a subscription, repeats it. */
const MAX_UID_LENGTH = 1_000;

/** Written once: an answer that says what is wrong must not fail with the same. */
export function readUid(uid: unknown): Uid {
  if (uid === undefined || uid === null) return NO_UID;
  if (typeof uid !== 'string' && typeof uid !== 'number' && !(uid instanceof Digits))
    throw invalidPayload('"uid" must be a string or a number');
  const name = String(uid);
  if (name.length > MAX_UID_LENGTH) throw invalidPayload(`"uid" is longer than ${MAX_UID_LENGTH} characters`);
  return { name, text: `,"uid":${writeJson(uid)}` };
}
