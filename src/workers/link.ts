/** A worker's side of the conversation: it asks, is told, and follows the mirror of the main thread. */
import type { MessagePort } from 'node:worker_threads';
import type { LoginLimit } from '../http/limiter.js';
import type { Leader } from '../mirror/follow.js';
import { type Event, type Observer, withPlainError } from '../observe.js';
import type { News } from '../serving.js';
import { errorOf, type Failure, type FromWorker, type Question, type ToWorker } from './messages.js';

/** What a worker does when it is told to. */
export interface Orders {
  news(news: Extract<ToWorker, { kind: 'news' }>['news']): void;
  listen(port: number, url: string): void;
  stop(): void;
  abandon(): void;
}

export class Link {
  readonly #port: MessagePort;
  readonly #waiting = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  #questions = 0;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  /** What was sent before waits until now. */
  follow(orders: Orders): void {
    this.#port.on('message', (message: ToWorker) => this.#receive(message, orders));
  }

  send(message: FromWorker): void {
    this.#port.postMessage(message);
  }

  /** Logged by the main thread. */
  readonly observe: Observer = (event: Event) => this.send({ kind: 'event', event: withPlainError(event) });

  readonly leader: Leader = {
    adopt: (structure) => this.#ask({ kind: 'adopt', structure }),
    refresh: (certain) => this.#ask({ kind: 'refresh', certain }),
  };

  readonly counter = {
    requests: (address: string): Promise<void> => this.#ask({ kind: 'count-request', address }),
    logins: {
      attempt: (address) => this.#ask({ kind: 'count-login', address }),
      forgive: (address) => this.#ask({ kind: 'forgive-login', address }),
    } satisfies LoginLimit,
  };

  tell(news: News): Promise<void> {
    return this.#ask({ kind: 'tell', news });
  }

  accessChanged(): Promise<void> {
    return this.#ask({ kind: 'access-changed' });
  }

  #ask(question: Question): Promise<void> {
    const number = ++this.#questions;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.send({ kind: 'question', number, question });
    });
  }

  #receive(message: ToWorker, orders: Orders): void {
    switch (message.kind) {
      case 'news':
        orders.news(message.news);
        this.send({ kind: 'taken', number: message.number });
        break;
      case 'answer':
        this.#settle(message.number, message.failure);
        break;
      case 'listen':
        orders.listen(message.port, message.url);
        break;
      case 'stop':
        orders.stop();
        break;
      case 'abandon':
        orders.abandon();
        break;
    }
  }

  #settle(number: number, failure: Failure | null): void {
    const waiting = this.#waiting.get(number);
    this.#waiting.delete(number);
    if (failure) waiting?.reject(errorOf(failure));
    else waiting?.resolve();
  }
}
