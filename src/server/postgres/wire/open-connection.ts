/**
 * Opens a connection whose bytes are ours within a time limit: it is logged in, the driver prepares the session, then the socket is taken
 * from it. After a failure there is a pause.
 */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { clientOn } from './client.js';
import { closed, unanswered } from './connection-errors.js';
import type { ConnectionOptions, DriverClient } from './connection-options.js';
import { openSession } from './open-session.js';
import type { Receiver } from './socket.js';

/** Milliseconds between attempts to open a connection: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 250;

/** The owner of the connection. */
export interface Owner {
  /** It receives all bytes that arrive. */
  readonly receiver: Receiver;
  isEnded(): boolean;
  /** Takes a socket that is tried. */
  attach(socket: Socket): void;
  /** Takes the client of the driver, which is its own to end. */
  begin(client: DriverClient): void;
  /** Whether the socket is still the one that is being opened. */
  isOpening(socket: Socket): boolean;
  /** The socket of the connection has closed. */
  close(socket: Socket): void;
}

export class Opening {
  /** Attempts that have failed since the last success, and when the next may be made. */
  #failures = 0;
  #resting = 0;

  constructor(private readonly options: ConnectionOptions) {}

  async open(owner: Owner): Promise<void> {
    const rest = this.#resting - performance.now();
    if (rest > 0) await sleep(rest);
    let reason: Error | null = null;
    let tried: Socket | null = null;
    let abandon: (why: Error) => void = () => {};
    const abandoned = new Promise<never>((_, reject) => {
      abandon = (why) => {
        reason = why;
        reject(why);
        tried?.destroy();
      };
    });
    const { limits, choice } = this.options;
    const timer = setTimeout(() => abandon(unanswered()), limits.connect);
    const forget = choice?.onLeave(() => abandon(closed()));
    const attach = (socket: Socket): boolean => {
      if (reason !== null || owner.isEnded()) return false;
      tried = socket;
      owner.attach(socket);
      return true;
    };
    try {
      await Promise.race([this.#prepare(owner, attach), abandoned]);
      this.#failures = 0;
    } catch (error) {
      choice?.suspect();
      this.#resting = performance.now() + Math.min(FIRST_PAUSE_MS * 2 ** this.#failures++, MAX_PAUSE_MS);
      throw error;
    } finally {
      clearTimeout(timer);
      forget?.();
    }
  }

  async #prepare(owner: Owner, attach: (socket: Socket) => boolean): Promise<void> {
    if (owner.isEnded()) throw closed();
    const { target, parameters, choice } = this.options;
    const receive = (chunk: Buffer, size: number): void => owner.receiver.receive(chunk, size);
    const socket = await openSession(target(), parameters, { attach, receive });
    if (!owner.isOpening(socket)) throw closed();
    socket.once('close', () => owner.close(socket));
    const client = clientOn(socket);
    owner.begin(client);
    await this.#set(client);
    await choice?.accept(client);
    if (!owner.isOpening(socket) || owner.isEnded()) throw closed();
  }

  async #set(client: DriverClient): Promise<void> {
    const { pooler, settings, limits } = this.options;
    if (pooler === 'none')
      await client.unsafe(`set idle_in_transaction_session_timeout = ${Math.ceil(limits.transaction)}`);
    else if (pooler === 'transaction') await client.unsafe('select 1');
    else {
      const names = Object.keys(settings).map(
        (name, position) => `pg_catalog.set_config('${name}', $${position + 1}, false)`,
      );
      await client.unsafe(`select ${names.join(', ')}`, Object.values(settings));
    }
  }
}
