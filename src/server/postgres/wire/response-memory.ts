/**
 * Limits the memory of large responses: of each one, and of all together. A response beyond a limit is refused before its bytes are
 * read into memory.
 */
import { invalidQuery, serviceUnavailable } from '../../../base/errors.js';

/** Responses up to this size are not counted: there are at most as many of them as connections. */
export const UNCOUNTED_BYTES = 65_536;

/** Bytes that a stream asks for at a time, once its batch is larger than usual. */
const STREAM_STEP_BYTES = 4_194_304;

export class ResponseMemory {
  readonly #total: number;
  #used = 0;

  /** The limits in bytes: of one response, and of all together. */
  constructor(
    readonly largest: number = Number.POSITIVE_INFINITY,
    total: number = Number.POSITIVE_INFINITY,
  ) {
    this.#total = Math.max(total, largest);
  }

  /** Takes the bytes and returns null, or returns the error if they exceed a limit. */
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

  /** Counts memory that is already in use. Returns a function that releases it. */
  reserve(bytes: number): () => void {
    this.#used += bytes;
    return () => this.release(bytes);
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}

/** The memory that a stream takes for its current batch. */
export class BatchMemory {
  #received = 0;
  reserved = 0;

  constructor(private readonly memory: ResponseMemory) {}

  /** Counts received bytes. Returns null, or the error if they exceed a limit. */
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

  /** Called when the batch was passed on. */
  clear(): void {
    this.memory.release(this.reserved);
    this.#received = 0;
    this.reserved = 0;
  }
}
