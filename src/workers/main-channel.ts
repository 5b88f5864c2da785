/** A worker's side of the conversation: it asks, is told, and follows the mirror of the main thread. */

import type { MessagePort } from 'node:worker_threads';
import { assertNever } from '../assert-never.js';
import type { LoginLimit } from '../http/limiter.js';
import type { Leader } from '../mirror/follow.js';
import { type Event, type Observer, withPlainError } from '../observe.js';
import type { Health } from '../postgres/health.js';
import type { Metric } from '../resources/metrics.js';
import type { Broadcast } from '../worker-app.js';
import { errorOf, type FromWorker, type Reports, type ToWorker, type WorkerRequest } from './messages.js';

/** What a worker does when it is told to. */
export interface WorkerCommands {
  news(news: Extract<ToWorker, { kind: 'news' }>['news']): void;
  listen(port: number, url: string): void;
  readonly report: { readonly [About in keyof Reports]: () => Promise<Reports[About]> };
  stop(): void;
  abandon(): void;
}

export class MainChannel {
  readonly #port: MessagePort;
  readonly #waiting = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();
  #questions = 0;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  /** What was sent before waits until now. */
  follow(orders: WorkerCommands): void {
    this.#port.on('message', (message: ToWorker) => this.#receive(message, orders));
  }

  send(message: FromWorker): void {
    this.#port.postMessage(message);
  }

  /** Logged by the main thread. */
  readonly observe: Observer = (event: Event) => this.send({ kind: 'event', event: withPlainError(event) });

  readonly leader: Leader = {
    adopt: ({ text, digest }) => this.#do({ kind: 'adopt', text, digest }),
    refresh: (certain) => this.#do({ kind: 'refresh', certain }),
  };

  readonly counter = {
    requests: (address: string): Promise<void> => this.#do({ kind: 'count-request', address }),
    logins: {
      attempt: (address) => this.#do({ kind: 'count-login', address }),
      forgive: (address) => this.#do({ kind: 'forgive-login', address }),
      enter: (attempt) => this.#do({ kind: 'enter-login', attempt }),
      settle: (attempt, outcome) => this.#do({ kind: 'settle-login', attempt, outcome }),
    } satisfies LoginLimit,
    registrations: (address: string): Promise<void> => this.#do({ kind: 'count-registration', address }),
  };

  broadcast(news: Broadcast): Promise<void> {
    return this.#do({ kind: 'tell', news });
  }

  accessChanged(): Promise<void> {
    return this.#do({ kind: 'access-changed' });
  }

  async gather(): Promise<readonly (readonly Metric[])[]> {
    return (await this.#ask({ kind: 'gather' })) as readonly (readonly Metric[])[];
  }

  async health(): Promise<Health> {
    return (await this.#ask({ kind: 'health' })) as Health;
  }

  #do(question: WorkerRequest): Promise<void> {
    return this.#ask(question) as Promise<void>;
  }

  #ask(question: WorkerRequest): Promise<unknown> {
    const number = ++this.#questions;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.send({ kind: 'question', number, question });
    });
  }

  #receive(message: ToWorker, orders: WorkerCommands): void {
    switch (message.kind) {
      case 'news':
        orders.news(message.news);
        this.send({ kind: 'taken', number: message.number });
        break;
      case 'answer':
        this.#settle(message);
        break;
      case 'listen':
        orders.listen(message.port, message.url);
        break;
      case 'report':
        void this.#report(message, orders);
        break;
      case 'stop':
        orders.stop();
        break;
      case 'abandon':
        orders.abandon();
        break;
      default:
        assertNever(message);
    }
  }

  async #report({ number, about }: Extract<ToWorker, { kind: 'report' }>, orders: WorkerCommands): Promise<void> {
    // A thread that cannot say what it has counted is no reason to end.
    const report = await orders.report[about]().catch(() => (about === 'metrics' ? [] : {}));
    this.send({ kind: 'reported', number, report });
  }

  #settle({ number, failure, result }: Extract<ToWorker, { kind: 'answer' }>): void {
    const waiting = this.#waiting.get(number);
    this.#waiting.delete(number);
    if (failure) waiting?.reject(errorOf(failure));
    else waiting?.resolve(result);
  }
}
