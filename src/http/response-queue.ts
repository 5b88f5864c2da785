/**
 * Responses that are ready at the same time are written right behind one another: a client that reads them is woken by the first
 * and finds the others while it still runs, and to wake it costs more than to write. So everything else is done before or after,
 * and the bytes of the headers are made beforehand.
 */
import { type PendingResponse, writeBody } from './write-reply.js';

/** For the headers of the responses that wait; what does not fit is written as text, which takes longer. */
const HEADER_BUFFER_BYTES = 65_536;

export class ResponseQueue {
  readonly #onSent: (response: PendingResponse) => void;
  readonly #onFailed: (response: PendingResponse, error: unknown) => void;
  #pending: PendingResponse[] = [];
  readonly #headers = Buffer.allocUnsafeSlow(HEADER_BUFFER_BYTES);
  #used = 0;
  readonly #flush = (): void => this.#send();

  /** Each is either sent, for a large body when all of it has left, or has failed: then the request cannot be answered any more. */
  constructor(
    onSent: (response: PendingResponse) => void,
    onFailed: (response: PendingResponse, error: unknown) => void,
  ) {
    this.#onSent = onSent;
    this.#onFailed = onFailed;
  }

  /** It is written when what runs now has ended, before the event loop goes on: until then borrowed memory is valid. */
  add(response: PendingResponse): void {
    if (this.#pending.length === 0) void RESOLVED.then(this.#flush);
    const start = this.#used;
    if (typeof response.head === 'string' && start + response.head.length <= HEADER_BUFFER_BYTES) {
      this.#used += this.#headers.write(response.head, start, 'latin1');
      response.head = this.#headers.subarray(start, this.#used);
    }
    this.#pending.push(response);
  }

  #send(): void {
    const responses = this.#pending;
    this.#pending = [];
    const outcomes: Attempt[] = [];
    for (const response of responses) outcomes.push(attempt(response));
    // None is added while others are written; if one were, the bytes of its headers would be there.
    if (this.#pending.length === 0) this.#used = 0;
    for (let position = 0; position < responses.length; position++) {
      const response = responses[position];
      if (response === undefined) continue;
      const outcome = outcomes[position];
      if (outcome === undefined) this.#onSent(response);
      else if (outcome instanceof Promise) void outcome.then(() => this.#onSent(response));
      else this.#onFailed(response, outcome.error);
    }
  }
}

type Attempt = Promise<void> | undefined | { readonly error: unknown };

function attempt(response: PendingResponse): Attempt {
  try {
    return writeBody(response);
  } catch (error) {
    return { error };
  }
}

const RESOLVED = Promise.resolve();
