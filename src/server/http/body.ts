/** A body piece by piece, for routes that take more than memory should hold. */
import { invalidPayload } from '../../base/errors.js';
import type { Exchange } from './exchange.js';

/** Bytes that may wait to be read: with more, the client is paused. */
const HIGH_WATER_BYTES = 1_048_576;

export interface BodyLimits {
  readonly bytes: number;
  /** The option with this limit. */
  readonly option: string;
  /** Milliseconds until the next piece must arrive. */
  readonly pauseMs: number;
}

/** To be called before anything is awaited, unless the body is held already: data without a reader is lost. */
export function openBody(exchange: Exchange, limits: BodyLimits): AsyncGenerator<Buffer> {
  const body = holdBody(exchange);
  body.limits = limits;
  return body.pieces();
}

const bodies = new WeakMap<Exchange, HeldBody>();

/** Begins to read the body before it is opened: a small part, then the client is paused. */
export function holdBody(exchange: Exchange): HeldBody {
  const held = bodies.get(exchange) ?? new HeldBody(exchange);
  bodies.set(exchange, held);
  return held;
}

class HeldBody {
  limits: BodyLimits = { bytes: Number.POSITIVE_INFINITY, option: '', pauseMs: 0 };
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #total = 0;
  #hasEnded = false;
  #isPaused = false;
  #failure: Error | null = null;
  #wake: (() => void) | null = null;

  constructor(private readonly exchange: Exchange) {
    exchange.unread = true;
    exchange.onAbort(() => {
      this.#failure = invalidPayload('The client disconnected');
      this.#notify();
    });
    exchange.response.onData((chunk, last) => this.#receive(chunk, last));
  }

  async *pieces(): AsyncGenerator<Buffer> {
    for (;;) {
      const { bytes, option } = this.limits;
      if (this.#total > bytes) throw invalidPayload(`The file is larger than ${bytes} bytes`, { option, limit: bytes });
      if (this.#failure) throw this.#failure;
      const piece = this.#waiting.shift();
      if (piece) {
        this.#resumeAfter(piece);
        yield piece;
      } else if (this.#hasEnded) return;
      else await this.#next();
    }
  }

  #receive(chunk: ArrayBuffer, last: boolean): void {
    this.#total += chunk.byteLength;
    this.#hasEnded = last;
    if (last) this.exchange.unread = false;
    if (this.exchange.replied) return;
    if (this.#total <= this.limits.bytes) {
      // The chunk is only borrowed for the time of the callback.
      this.#waiting.push(Buffer.from(Buffer.from(chunk)));
      this.#waitingBytes += chunk.byteLength;
      if (this.#waitingBytes > HIGH_WATER_BYTES && !last && !this.#isPaused) {
        this.#isPaused = true;
        this.exchange.response.pause();
      }
    }
    this.#notify();
  }

  #resumeAfter({ length }: Buffer): void {
    const { aborted, replied, response } = this.exchange;
    this.#waitingBytes -= length;
    if (!this.#isPaused || this.#waitingBytes >= HIGH_WATER_BYTES / 2 || aborted || replied) return;
    this.#isPaused = false;
    response.resume();
  }

  /** Resolves when something has arrived, or nothing in time. */
  #next(): Promise<void> {
    const { pauseMs } = this.limits;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        const exceeded = { option: 'BODY_TIMEOUT', limit: pauseMs };
        this.#failure = invalidPayload(`Nothing arrived within ${pauseMs} ms`, exceeded);
        resolve();
      }, pauseMs).unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = null;
  }
}
