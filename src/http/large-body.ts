/**
 * Large bodies of known length. `end` would copy all that the socket does not take at once into a buffer of uWebSockets';
 * here the socket takes what it can, straight from the bytes PostgreSQL wrote, and calls for the rest when it has room.
 */
import type { Exchange } from './exchange.js';

/** From this size on it pays: what is smaller mostly fits into the socket. */
export const LARGE_BODY_BYTES = 65_536;

/** To be called in a cork, behind the head. Resolves when the socket has taken everything, or the client has left. */
export function endLarge(exchange: Exchange, body: Buffer): Promise<void> {
  const { response } = exchange;
  return new Promise((resolve) => {
    const begun = response.getWriteOffset();
    const [, ended] = response.tryEnd(body, body.length);
    if (ended) return resolve();
    exchange.onAbort(resolve);
    response.onWritable((offset) => {
      const [accepted, complete] = response.tryEnd(body.subarray(offset - begun), body.length);
      if (complete) resolve();
      return accepted;
    });
  });
}
