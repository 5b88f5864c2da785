/** A worker's channel to the main thread: its requests, the broadcasts it applies, and the mirror it follows. */
import type { MessagePort } from 'node:worker_threads';
import type { LoginLimit } from '../../accounts/login-backoff.js';
import type { Metric } from '../../api/server/metrics.js';
import { assertNever } from '../../base/assert-never.js';
import { type Event, type Observer, withPlainError } from '../../base/observe.js';
import type { ShapeReport } from '../../batching/shape-stats.js';
import type { Leader } from '../../mirror/follow.js';
import type { Health } from '../../postgres/health.js';
import type { Broadcast } from '../app.js';
import { errorOf, type FromWorker, type Reports, type ToWorker, type WorkerRequest } from './messages.js';
import type { MainBroadcast } from './threads.js';

/** What the main thread can have a worker do. */
export interface WorkerCommands {
  apply(broadcast: MainBroadcast): void;
  listen(port: number, url: string): void;
  readonly report: { readonly [About in keyof Reports]: () => Promise<Reports[About]> };
  drain(): void;
  stop(): void;
  abandon(): void;
}

export class MainChannel {
  readonly #port: MessagePort;
  readonly #pending = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();
  #requests = 0;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  /** What was sent before waits until now. */
  follow(commands: WorkerCommands): void {
    this.#port.on('message', (message: ToWorker) => this.#receive(message, commands));
  }

  send(message: FromWorker): void {
    this.#port.postMessage(message);
  }

  /** Logged by the main thread. */
  readonly observe: Observer = (event: Event) => this.send({ kind: 'event', event: withPlainError(event) });

  readonly leader: Leader = {
    adopt: ({ text, digest }) => this.#ask({ kind: 'adopt', text, digest }),
    refresh: (certain) => this.#ask({ kind: 'refresh', certain }),
  };

  readonly counter = {
    requests: (address: string): Promise<void> => this.#ask({ kind: 'count-request', address }),
    logins: {
      attempt: (address) => this.#ask({ kind: 'count-login', address }),
      forgive: (address) => this.#ask({ kind: 'forgive-login', address }),
      enter: (attempt) => this.#ask({ kind: 'enter-login', attempt }),
      settle: (attempt, outcome) => this.#ask({ kind: 'settle-login', attempt, outcome }),
    } satisfies LoginLimit,
    registrations: (address: string): Promise<void> => this.#ask({ kind: 'count-registration', address }),
  };

  broadcast(message: Broadcast): Promise<void> {
    return this.#ask({ kind: 'broadcast', broadcast: message });
  }

  accessChanged(): Promise<void> {
    return this.#ask({ kind: 'access-changed' });
  }

  gather(): Promise<readonly (readonly Metric[])[]> {
    return this.#ask({ kind: 'gather' });
  }

  shapes(): Promise<readonly ShapeReport[]> {
    return this.#ask({ kind: 'shapes' });
  }

  health(): Promise<Health> {
    return this.#ask({ kind: 'health' });
  }

  /** The main thread answers each kind of request with one type. */
  #ask<Answer>(request: WorkerRequest): Promise<Answer> {
    const number = ++this.#requests;
    return new Promise((resolve, reject) => {
      this.#pending.set(number, { resolve: (answer) => resolve(answer as Answer), reject });
      this.send({ kind: 'request', number, request });
    });
  }

  #receive(message: ToWorker, commands: WorkerCommands): void {
    switch (message.kind) {
      case 'broadcast':
        commands.apply(message.broadcast);
        this.send({ kind: 'applied', number: message.number });
        break;
      case 'response':
        this.#onResponse(message);
        break;
      case 'listen':
        commands.listen(message.port, message.url);
        break;
      case 'report':
        void this.#report(message, commands);
        break;
      case 'drain':
        commands.drain();
        break;
      case 'stop':
        commands.stop();
        break;
      case 'abandon':
        commands.abandon();
        break;
      default:
        assertNever(message);
    }
  }

  async #report({ number, about }: Extract<ToWorker, { kind: 'report' }>, commands: WorkerCommands): Promise<void> {
    // A thread that cannot say what it has counted is no reason to end.
    const report = await commands.report[about]().catch(() => (about === 'health' ? {} : []));
    this.send({ kind: 'reported', number, report });
  }

  #onResponse({ number, failure, result }: Extract<ToWorker, { kind: 'response' }>): void {
    const pending = this.#pending.get(number);
    this.#pending.delete(number);
    if (failure) pending?.reject(errorOf(failure));
    else pending?.resolve(result);
  }
}
