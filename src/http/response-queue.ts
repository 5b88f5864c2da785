/**
 * Replies that are ready at the same time leave right behind one another. Whoever reads them is woken by the first and finds
 * the others while still at work: to wake a reader costs more than to write to one. So all that can be done before or after is
 * done before or after, and the bytes of the headers are made beforehand.
 */
import { type PendingResponse, write } from './write-reply.js';

/** Bytes for the headers of the replies that wait; what finds no room travels as text, which takes longer. */
const ROOM = 65_536;

export class ResponseQueue {
  readonly #sent: (letter: PendingResponse) => void;
  readonly #failed: (letter: PendingResponse, error: unknown) => void;
  #letters: PendingResponse[] = [];
  readonly #room = Buffer.allocUnsafeSlow(ROOM);
  #used = 0;
  readonly #empty = (): void => this.#send();

  /** Every letter is either sent, which is when its body has left if that is large, or has failed: then it cannot be answered any more. */
  constructor(sent: (letter: PendingResponse) => void, failed: (letter: PendingResponse, error: unknown) => void) {
    this.#sent = sent;
    this.#failed = failed;
  }

  /** It leaves when what runs now has come to its end, before the event loop goes on: what is lent is lent until then. */
  add(letter: PendingResponse): void {
    if (this.#letters.length === 0) void SOON.then(this.#empty);
    const start = this.#used;
    if (typeof letter.head === 'string' && start + letter.head.length <= ROOM) {
      this.#used += this.#room.write(letter.head, start, 'latin1');
      letter.head = this.#room.subarray(start, this.#used);
    }
    this.#letters.push(letter);
  }

  #send(): void {
    const letters = this.#letters;
    this.#letters = [];
    const outcomes: Attempt[] = [];
    for (const letter of letters) outcomes.push(attempt(letter));
    // Nobody adds one while others are written; if somebody did, the bytes of its headers would be there.
    if (this.#letters.length === 0) this.#used = 0;
    for (let position = 0; position < letters.length; position++) {
      const letter = letters[position] as PendingResponse;
      const outcome = outcomes[position];
      if (outcome === undefined) this.#sent(letter);
      else if (outcome instanceof Promise) void outcome.then(() => this.#sent(letter));
      else this.#failed(letter, outcome.error);
    }
  }
}

type Attempt = Promise<void> | undefined | { readonly error: unknown };

function attempt(letter: PendingResponse): Attempt {
  try {
    return write(letter);
  } catch (error) {
    return { error };
  }
}

const SOON = Promise.resolve();
