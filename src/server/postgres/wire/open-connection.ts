/**
 * Opens a connection whose bytes are ours: the driver does it, on a socket that we made, within a time limit; and after a failure
 * not before a pause.
 */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../../base/narrow.js';
import { closed, unanswered } from './connection-errors.js';
import type { ConnectionOptions, DriverClient } from './connection-options.js';
import { failingSocket, openSocket, type Receiver, reportHangUp } from './socket.js';

/** Milliseconds between attempts to open a connection: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 250;

/** The owner of the connection. */
export interface Owner {
  /** It receives all bytes that arrive. */
  readonly receiver: Receiver;
  isEnded(): boolean;
  /** Takes what is there so far, which is its own to end. */
  begin(client: DriverClient): void;
  /** False if the client was given up in the meantime. */
  attach(client: DriverClient, socket: Socket): boolean;
  /** Whether the socket is still the one that is being opened. */
  isOpening(socket: Socket): boolean;
  /** A socket that was attached has closed. */
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
    let abandon: (reason: Error) => void = () => {};
    const abandoned = new Promise<never>((_, reject) => {
      abandon = reject;
    });
    const { limits, choice } = this.options;
    const timer = setTimeout(() => abandon(unanswered()), limits.connect);
    const forget = choice?.onLeave(() => abandon(closed()));
    let attached: Socket | null = null;
    try {
      if (owner.isEnded()) throw closed();
      const client: DriverClient = this.options.open(async () => {
        try {
          attached = await this.#connect(client, owner, abandon);
          return attached;
        } catch (error) {
          abandon(asError(error));
          return failingSocket(asError(error));
        }
      });
      owner.begin(client);
      await Promise.race([this.#prepare(client), abandoned]);
      if (choice) await Promise.race([choice.accept(client), abandoned]);
      if (attached === null || !owner.isOpening(attached) || owner.isEnded()) throw closed();
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

  /** The driver opens the connection for a statement. */
  async #prepare(client: DriverClient): Promise<void> {
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

  async #connect(client: DriverClient, owner: Owner, abandon: (reason: Error) => void): Promise<Socket> {
    const { target } = this.options;
    const socket = await openSocket(target, owner.receiver);
    if (!owner.attach(client, socket)) {
      socket.destroy();
      throw closed();
    }
    const isHungUp = (): boolean => !target.target_session_attrs && owner.isOpening(socket);
    socket.once('close', () => {
      if (isHungUp()) abandon(closed());
      else owner.close(socket);
    });
    reportHangUp(socket, isHungUp);
    return socket;
  }
}
