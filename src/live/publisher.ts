/**
 * Hands an answer to all who read the same. To write to ten thousand connections takes a tenth of a second: it is done in slices, between
 * which requests are served, and a topic is not read again before all have its answer. So the more a publication costs, the
 * longer the interval is, and what was committed meanwhile goes out together.
 */
import type { LiveAnswer } from './subscriber.js';
import type { Subscriber, Topic } from './topic.js';

/** Milliseconds of one slice. */
const SLICE_MS = 4;
/** Subscribers between two looks at the clock. */
const STRIDE = 16;

export interface PublisherHost {
  /** Grows when rights change. */
  readonly generation: number;
}

interface Publication {
  readonly answer: LiveAnswer;
  /** Of the rights under which it was read: when they change, all begin anew. */
  readonly generation: number;
  readonly left: Iterator<Subscriber>;
  /** Which read of the topic it is: who has joined since then waits for the next. */
  readonly read: number;
  readonly onDone: () => void;
}

export class Publisher {
  readonly #host: PublisherHost;
  readonly #onSent: () => void;
  #publications: Publication[] = [];
  #next: NodeJS.Immediate | null = null;

  constructor(host: PublisherHost, onSent: () => void) {
    this.#host = host;
    this.#onSent = onSent;
  }

  /** Calls back when all have it who may: the others have not been looked at since rights have changed. */
  publish(topic: Topic, answer: LiveAnswer, onDone: () => void): void {
    const { generation } = this.#host;
    const publication = { answer, generation, left: topic.subscribers.values(), read: topic.reads, onDone };
    // Few are served at once; where others wait, in turn.
    if (topic.subscribers.size <= STRIDE && this.#publications.length === 0) {
      this.#advance(publication, Number.POSITIVE_INFINITY);
      return;
    }
    this.#publications.push(publication);
    this.#next ??= setImmediate(() => this.#slice());
  }

  #slice(): void {
    const until = performance.now() + SLICE_MS;
    let [first] = this.#publications;
    while (first && this.#advance(first, until)) {
      this.#publications.shift();
      [first] = this.#publications;
    }
    this.#next = first ? setImmediate(() => this.#slice()) : null;
  }

  /** Answers whether it is done. */
  #advance({ answer, generation, left, read, onDone }: Publication, until: number): boolean {
    for (let count = 1; ; count++) {
      const { value: subscriber, done } = left.next();
      if (done || generation !== this.#host.generation) break;
      const mayHave = subscriber.generation === generation && subscriber.joinedAt < read;
      if (mayHave && subscriber.send(answer)) this.#onSent();
      if (count % STRIDE === 0 && performance.now() > until) return false;
    }
    onDone();
    return true;
  }
}
