/**
 * Sends an answer to all subscribers of a topic. Writing to ten thousand connections takes a tenth of a second, so it is done in slices,
 * between which requests are served and other topics get their turn. A newer answer replaces the one that is being sent: subscribers
 * that do not have that one yet get the newer one at once, the others in the next round. No subscriber waits longer than one round.
 */
import type { LiveAnswer } from '../subscriber.js';
import type { QuerySubscriber, Topic } from './topics.js';

/** Milliseconds of one slice. */
const SLICE_MS = 4;
/** Subscribers between two checks of the clock. */
const STRIDE = 16;

export class Publisher {
  /** In the order of their turns. */
  readonly #publications = new Map<Topic, Publication>();
  #next: NodeJS.Immediate | null = null;

  constructor(private readonly onSent: () => void) {}

  /** Calls back when every current subscriber has the answer, or a newer one. */
  publish(topic: Topic, answer: LiveAnswer, onDone: () => void): void {
    const running = this.#publications.get(topic);
    if (running) {
      running.replace(answer, onDone);
      return;
    }
    const publication = new Publication(topic, answer, onDone);
    // A small topic is served at once, unless others wait.
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
      // Its next turn comes after those that wait.
      if (!isDone) this.#publications.set(topic, publication);
      if (performance.now() > until) break;
    }
    if (this.#publications.size > 0) this.#next ??= setImmediate(() => this.#slice());
  }

  /** Returns whether it is done. */
  #advance(publication: Publication, until: number): boolean {
    for (let count = 1; ; count++) {
      const subscriber = publication.next();
      if (subscriber === null) return true;
      if (subscriber.send(publication.answer)) this.onSent();
      if (count % STRIDE === 0 && performance.now() > until) return false;
    }
  }
}

/** Visits the subscribers of a topic until all of them have its newest answer. */
class Publication {
  answer: LiveAnswer;
  /** The number of the read: subscribers that joined or were resolved since it began wait for the next one. */
  #read: number;
  #left: Iterator<QuerySubscriber>;
  /** Whether some of the visited subscribers have an older answer. */
  #isBehind = false;
  /** How many subscribers were visited. */
  #visited = 0;
  /** Callbacks, each with the count of visits after which all subscribers of its time were visited. */
  #waiting: { readonly until: number; readonly onDone: () => void }[];

  constructor(
    private readonly topic: Topic,
    answer: LiveAnswer,
    onDone: () => void,
  ) {
    this.answer = answer;
    this.#read = topic.reads;
    this.#left = topic.subscribers.values();
    this.#waiting = [{ until: topic.subscribers.size, onDone }];
  }

  replace(answer: LiveAnswer, onDone: () => void): void {
    this.answer = answer;
    this.#read = this.topic.reads;
    this.#isBehind = true;
    this.#waiting.push({ until: this.#visited + this.topic.subscribers.size, onDone });
  }

  /** The next subscriber that may get the answer, or null if there is none. */
  next(): QuerySubscriber | null {
    for (;;) {
      const { value: subscriber, done } = this.#left.next();
      if (done && !this.#isBehind) break;
      if (done) {
        this.#isBehind = false;
        this.#left = this.topic.subscribers.values();
        continue;
      }
      this.#visited++;
      this.#callBack(this.#visited);
      // After a change of rights, subscribers are resolved again and wait for the next read.
      if (subscriber.isResolved && subscriber.joinedAt < this.#read) return subscriber;
    }
    this.#callBack(Number.POSITIVE_INFINITY);
    return null;
  }

  #callBack(visited: number): void {
    for (let [first] = this.#waiting; first && first.until < visited; [first] = this.#waiting) {
      this.#waiting.shift();
      first.onDone();
    }
  }
}
