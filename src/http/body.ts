/** A body piece by piece, for routes that take more than memory should hold. */
import { invalidPayload } from '../base/errors.js';
import type { Exchange } from './exchange.js';

/** With more that waits to be read the client is paused. */
const HIGH_WATER_BYTES = 1_048_576;

export interface BodyLimits {
  readonly bytes: number;
  /** Which option says so. */
  readonly option: string;
  /** For the next piece to arrive. */
  readonly pauseMs: number;
}

interface Body {
  limits: BodyLimits;
  readonly next: () => Promise<Buffer | null>;
}

const bodies = new WeakMap<Exchange, Body>();

/** To be called before anything is awaited, unless the body is held already, since data that nobody reads is lost. */
export function openBody(exchange: Exchange, limits: BodyLimits): AsyncGenerator<Buffer> {
  const body = holdBody(exchange);
  body.limits = limits;
  return (async function* pieces() {
    for (let piece = await body.next(); piece !== null; piece = await body.next()) yield piece;
  })();
}

/** Begins to read the body before it is opened: a small part, then the client is paused. */
export function holdBody(exchange: Exchange): Body {
  const cached = bodies.get(exchange);
  if (cached) return cached;
  const { response } = exchange;
  exchange.unread = true;
  const waiting: Buffer[] = [];
  let bytes = 0;
  let total = 0;
  let ended = false;
  let failure: Error | null = null;
  let paused = false;
  let wake: (() => void) | null = null;
  const notify = (): void => {
    wake?.();
    wake = null;
  };
  exchange.onAbort(() => {
    failure = invalidPayload('The client disconnected');
    notify();
  });
  response.onData((chunk, last) => {
    total += chunk.byteLength;
    ended = last;
    if (last) exchange.unread = false;
    if (exchange.replied) return;
    if (total <= body.limits.bytes) {
      // The chunk is only borrowed for the time of the callback.
      waiting.push(Buffer.from(Buffer.from(chunk)));
      bytes += chunk.byteLength;
      if (bytes > HIGH_WATER_BYTES && !ended && !paused) {
        paused = true;
        response.pause();
      }
    }
    notify();
  });
  const next = async (): Promise<Buffer | null> => {
    for (;;) {
      const { bytes: maxBytes, option, pauseMs } = body.limits;
      if (total > maxBytes)
        throw invalidPayload(`The file is larger than ${maxBytes} bytes`, { option, limit: maxBytes });
      if (failure) throw failure;
      const piece = waiting.shift();
      if (piece) {
        bytes -= piece.length;
        if (paused && bytes < HIGH_WATER_BYTES / 2 && !exchange.aborted && !exchange.replied) {
          paused = false;
          response.resume();
        }
        return piece;
      }
      if (ended) return null;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          failure = invalidPayload(`Nothing arrived within ${pauseMs} ms`, { option: 'BODY_TIMEOUT', limit: pauseMs });
          resolve();
        }, pauseMs).unref();
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  };
  const body: Body = { limits: { bytes: Number.POSITIVE_INFINITY, option: '', pauseMs: 0 }, next };
  bodies.set(exchange, body);
  return body;
}
