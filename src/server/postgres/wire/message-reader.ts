/** Puts the messages of PostgreSQL together from the pieces in which they arrive, in memory that is used again. */

/** Messages up to this size that arrive in pieces are put together in memory that is used again. */
const SCRATCH_BYTES = 65_536;

/** Called with each complete message: where it begins and ends; `owned` says that its memory is used by nobody else. */
type Handle = (message: Buffer, start: number, end: number, owned: boolean) => void;

/** Is asked before memory is taken for a large message; one that is not admitted is skipped. */
interface Gate {
  admit(type: number, length: number): boolean;
  /** It was handled, or will never arrive in full. */
  release(length: number): void;
}

export class MessageReader {
  /** Bytes of a message that was not admitted. */
  #skipped = 0;
  /** Bytes of the large message that is being taken in. */
  #admitted = 0;
  /** The one that is filled next, and the one whose cells may still be read. */
  #scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  #borrowed = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  /** A message of which a part has arrived. */
  #partial: Buffer | null = null;
  #present = 0;

  constructor(
    private readonly handle: Handle,
    private readonly gate: Gate,
  ) {}

  /** The next bytes begin with a message: the connection is another one. */
  reset(): void {
    this.#partial = null;
    this.#skipped = 0;
    this.#release();
  }

  take(chunk: Buffer, size: number): void {
    let at = Math.min(this.#skipped, size);
    this.#skipped -= at;
    if (this.#partial !== null) at = this.#complete(chunk, size);
    while (size - at >= 5) {
      const end = at + 1 + chunk.readUInt32BE(at + 1);
      if (end > size) break;
      this.handle(chunk, at, end, false);
      at = end;
    }
    if (at < size) this.#keep(chunk, at, size);
  }

  /** Keeps the beginning of a message whose rest is on its way. */
  #keep(chunk: Buffer, at: number, size: number): void {
    const present = size - at;
    const length = present < 5 ? 5 : 1 + chunk.readUInt32BE(at + 1);
    const memory = this.#memoryFor(chunk[at] as number, length);
    if (memory === null) this.#skipped = length - present;
    else this.#present = chunk.copy(memory, 0, at, size);
    this.#partial = memory;
  }

  /** Returns null if the message is not wanted. */
  #memoryFor(type: number, length: number): Buffer | null {
    if (length <= SCRATCH_BYTES) return this.#scratch.subarray(0, length);
    if (!this.gate.admit(type, length)) return null;
    this.#admitted = length;
    return Buffer.allocUnsafeSlow(length);
  }

  #release(): void {
    if (this.#admitted > 0) this.gate.release(this.#admitted);
    this.#admitted = 0;
  }

  /** Answers where in the chunk the next message begins. */
  #complete(chunk: Buffer, size: number): number {
    let at = 0;
    let partial = this.#partial as Buffer;
    while (at < size) {
      const copied = chunk.copy(partial, this.#present, at, Math.min(size, at + partial.length - this.#present));
      at += copied;
      this.#present += copied;
      if (this.#present < partial.length) return at;
      const length = 1 + partial.readUInt32BE(1);
      if (length === partial.length) {
        const owned = partial.buffer !== this.#scratch.buffer;
        this.#partial = null;
        [this.#scratch, this.#borrowed] = [this.#borrowed, this.#scratch];
        try {
          this.handle(partial, 0, length, owned);
        } finally {
          if (owned) this.#release();
        }
        return at;
      }
      // Only the head of the message had arrived.
      const whole = this.#memoryFor(partial[0] as number, length);
      if (whole === null) {
        this.#partial = null;
        this.#skipped = length - 5;
        const skipped = Math.min(this.#skipped, size - at);
        this.#skipped -= skipped;
        return at + skipped;
      }
      partial.copy(whole, 0, 0, 5);
      partial = whole;
      this.#partial = whole;
    }
    return at;
  }
}
