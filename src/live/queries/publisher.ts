/**
 * Hands an answer to all who read the same. To write to ten thousand connections takes a tenth of a second: it is done in slices, between
 * which requests are served and other topics have their turn. A newer answer of the topic takes the place of the one that is being
 * handed out: who has not got that one gets the newer one at once, the others in the next round. So nobody waits longer than one round.
 */
import type { LiveAnswer } from '../subscriber.js';
import type { Subscriber, Topic } from './topic.js';

/** Milliseconds of one slice. */
const SLICE_MS = 4;
/** Subscribers between two looks at the clock. */
const STRIDE = 16;

export interface PublisherHost {
  /** Grows when rights change. */
  readonly generation: number;
}

export class Publisher {
  readonly #host: PublisherHost;
  readonly #onSent: () => void;
  /** In the order of their turns. */
  readonly #publications = new Map<Topic, Publication>();
  #next: NodeJS.Immediate | null = null;

  constructor(host: PublisherHost, onSent: () => void) {
    this.#host = host;
    this.#onSent = onSent;
  }

  /** Calls back when all have it, or a newer one, who may: the others have not been looked at since rights have changed. */
  publish(topic: Topic, answer: LiveAnswer, onDone: () => void): void {
    const running = this.#publications.get(topic);
    if (running) {
      running.replace(answer, this.#host.generation, onDone);
      return;
    }
    const publication = new Publication(topic, answer, this.#host.generation, onDone);
    // Few are served at once; where others wait, in turn.
    const isSmall = topic.subscribers.size <= STRIDE && this.#publications.size === 0;
    if (isSmall && this.#advance(publication, Number.POSITIVE_INFINITY)) return;
    this.#publications.set(topic, publication);
    this.#next ??= setImmediate(() => this.#slice());
  }

  #slice(): void {
    const until = performance.now() + SLICE_MS;
    this.#next = null;
    for (const [topic, publication] of this.#publications) {
      const isDone = this.#advance(publication, until);
      this.#publications.delete(topic);
      // Behind those who have waited for a turn meanwhile.
      if (!isDone) this.#publications.set(topic, publication);
      if (performance.now() > until) break;
    }
    if (this.#publications.size > 0) this.#next ??= setImmediate(() => this.#slice());
  }

  /** Answers whether it is done. */
  #advance(publication: Publication, until: number): boolean {
    for (let count = 1; ; count++) {
      const subscriber = publication.next(this.#host.generation);
      if (subscriber === null) return true;
      if (subscriber.send(publication.answer)) this.#onSent();
      if (count % STRIDE === 0 && performance.now() > until) return false;
    }
  }
}

/** Goes round the subscribers of a topic until all have its newest answer. */
class Publication {
  readonly #topic: Topic;
  answer: LiveAnswer;
  /** Of the rights under which it was read: when they change, all begin anew. */
  #generation: number;
  /** Which read of the topic it is: who has joined since then waits for the next. */
  #read: number;
  #left: Iterator<Subscriber>;
  /** Whether some before this place have an older answer. */
  #isBehind = false;
  /** Subscribers that were passed. */
  #passed = 0;
  /** Who waits until all have what there was when they asked. */
  #waiting: { readonly until: number; readonly onDone: () => void }[];

  constructor(topic: Topic, answer: LiveAnswer, generation: number, onDone: () => void) {
    this.#topic = topic;
    this.answer = answer;
    this.#generation = generation;
    this.#read = topic.reads;
    this.#left = topic.subscribers.values();
    this.#waiting = [{ until: topic.subscribers.size, onDone }];
  }

  replace(answer: LiveAnswer, generation: number, onDone: () => void): void {
    this.answer = answer;
    this.#generation = generation;
    this.#read = this.#topic.reads;
    this.#isBehind = true;
    this.#waiting.push({ until: this.#passed + this.#topic.subscribers.size, onDone });
  }

  /** The next who may have the answer; null where there is nobody more. */
  next(generation: number): Subscriber | null {
    while (generation === this.#generation) {
      const { value: subscriber, done } = this.#left.next();
      if (done) {
        if (!this.#isBehind) break;
        this.#isBehind = false;
        this.#left = this.#topic.subscribers.values();
        continue;
      }
      this.#passed++;
      this.#settle(this.#passed);
      if (subscriber.generation === generation && subscriber.joinedAt < this.#read) return subscriber;
    }
    this.#settle(Number.POSITIVE_INFINITY);
    return null;
  }

  #settle(passed: number): void {
    for (let [first] = this.#waiting; first && first.until < passed; [first] = this.#waiting) {
      this.#waiting.shift();
      first.onDone();
    }
  }
}
