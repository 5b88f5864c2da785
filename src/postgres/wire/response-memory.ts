/**
 * Memory for answers that are not small: one may take so much, all of them together so much. What is asked for beyond that is
 * refused before its bytes are taken in.
 */
import { invalidQuery, serviceUnavailable } from '../../base/errors.js';

/** Bytes up to which an answer is not counted: there are only as many of them as there are connections. */
export const UNCOUNTED_BYTES = 65_536;

/** Bytes that a stream asks for at a time, once its batch is larger than usual. */
const STREAM_STEP_BYTES = 4_194_304;

export class ResponseMemory {
  readonly #total: number;
  #used = 0;

  /** In bytes, of one response and of all of them. */
  constructor(
    readonly largest: number = Number.POSITIVE_INFINITY,
    total: number = Number.POSITIVE_INFINITY,
  ) {
    this.#total = Math.max(total, largest);
  }

  /** Answers why there is not enough, or takes it. */
  take(bytes: number): Error | null {
    if (bytes > this.largest) {
      const reason = `The response is larger than ${this.largest} bytes: request fewer items or fields, or a streamed list`;
      return invalidQuery(reason, { option: 'MAX_RESPONSE_SIZE', limit: this.largest });
    }
    if (this.#used + bytes > this.#total)
      return serviceUnavailable('answers', 'Too many large responses are being sent: try again');
    this.#used += bytes;
    return null;
  }

  /** For what already exists; answers how to give it back. */
  reserve(bytes: number): () => void {
    this.#used += bytes;
    return () => this.release(bytes);
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}

/** What a stream takes of it for the batch at hand. */
export class BatchMemory {
  #received = 0;
  reserved = 0;

  constructor(private readonly memory: ResponseMemory) {}

  /** Bytes have arrived; answers why there must not be more. */
  receive(bytes: number): Error | null {
    this.#received += bytes;
    if (this.#received > this.memory.largest) return this.memory.take(this.#received);
    while (this.#received > this.reserved + STREAM_STEP_BYTES) {
      const refused = this.memory.take(Math.min(STREAM_STEP_BYTES, this.memory.largest));
      if (refused) return refused;
      this.reserved += Math.min(STREAM_STEP_BYTES, this.memory.largest);
    }
    return null;
  }

  /** The batch has been handed on. */
  clear(): void {
    this.memory.release(this.reserved);
    this.#received = 0;
    this.reserved = 0;
  }
}
