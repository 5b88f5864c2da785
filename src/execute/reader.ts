/** Puts the messages of PostgreSQL together from the pieces in which they arrive, in memory that is used again. */

/** Messages up to this size that arrive in pieces are put together in memory that is used again. */
const SCRATCH = 65_536;

/** Is told of each whole message: where it begins and ends; `owned` says that its memory is used by nobody else. */
export type Handle = (message: Buffer, start: number, end: number, owned: boolean) => void;

export class MessageReader {
  readonly #handle: Handle;
  /** The one that is filled next, and the one whose cells are lent. */
  #scratch = Buffer.allocUnsafeSlow(SCRATCH);
  #lent = Buffer.allocUnsafeSlow(SCRATCH);
  /** A message of which a part has arrived. */
  #partial: Buffer | null = null;
  #present = 0;

  constructor(handle: Handle) {
    this.#handle = handle;
  }

  /** What arrives next begins with a message: the connection is another one. */
  reset(): void {
    this.#partial = null;
  }

  take(chunk: Buffer, size: number): void {
    let at = this.#partial === null ? 0 : this.#complete(chunk, size);
    while (size - at >= 5) {
      const end = at + 1 + chunk.readUInt32BE(at + 1);
      if (end > size) break;
      this.#handle(chunk, at, end, false);
      at = end;
    }
    if (at < size) this.#keep(chunk, at, size);
  }

  /** Keeps the beginning of a message whose rest is on its way. */
  #keep(chunk: Buffer, at: number, size: number): void {
    const present = size - at;
    const length = present < 5 ? 5 : 1 + chunk.readUInt32BE(at + 1);
    this.#partial = length <= SCRATCH ? this.#scratch.subarray(0, length) : Buffer.allocUnsafeSlow(length);
    this.#present = chunk.copy(this.#partial, 0, at, size);
  }

  /** Answers where in the chunk the next message begins. */
  #complete(chunk: Buffer, size: number): number {
    let at = 0;
    let partial = this.#partial as Buffer;
    while (at < size) {
      const taken = chunk.copy(partial, this.#present, at, Math.min(size, at + partial.length - this.#present));
      at += taken;
      this.#present += taken;
      if (this.#present < partial.length) return at;
      const length = 1 + partial.readUInt32BE(1);
      if (length === partial.length) {
        const owned = partial.buffer !== this.#scratch.buffer;
        this.#partial = null;
        [this.#scratch, this.#lent] = [this.#lent, this.#scratch];
        this.#handle(partial, 0, length, owned);
        return at;
      }
      // Only the head of the message had arrived.
      const whole = length <= SCRATCH ? this.#scratch.subarray(0, length) : Buffer.allocUnsafeSlow(length);
      partial.copy(whole, 0, 0, 5);
      partial = whole;
      this.#partial = whole;
    }
    return at;
  }
}
