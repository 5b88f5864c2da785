/** A body that is produced piece by piece, for a consumer that takes it piece by piece: each waits for the other. */
import { PassThrough } from 'node:stream';
import { type Produce, publicError } from '../../http/reply.js';

const HELD_BYTES = 262_144;

export async function* piecesOf(produce: Produce, address: string): AsyncIterable<Buffer> {
  const pipe = new PassThrough({ highWaterMark: HELD_BYTES });
  const whenClosed = new Set<() => void>();
  pipe.on('close', () => {
    for (const listener of whenClosed) listener();
  });
  const write = (piece: Buffer): boolean | Promise<boolean> => {
    if (pipe.destroyed) return false;
    if (pipe.write(piece)) return true;
    return new Promise((resolve) => {
      const settle = (): void => {
        pipe.off('drain', settle);
        whenClosed.delete(settle);
        resolve(!pipe.destroyed);
      };
      pipe.on('drain', settle);
      whenClosed.add(settle);
    });
  };
  const sink = { address, write, onAbort: (listener: () => void) => void whenClosed.add(listener) };
  produce(sink).then(
    () => {
      whenClosed.clear();
      pipe.end();
    },
    // An error of the database would otherwise count as one of the storage.
    (error: unknown) => pipe.destroy(publicError(error)),
  );
  for await (const piece of pipe) yield piece as Buffer;
}
