/** Results in memory, as those who answer requests with them see them. */
import type { LogPosition } from '../../postgres/pools/sessions.js';

/** An answer in memory, which is not borrowed. */
export interface KeptAnswer {
  readonly body: Buffer | null;
  /** Whether it may have changed. */
  readonly isDropped: boolean;
  /**
   * Takes memory for something that a caller needs with it, such as a reply. Returns null if there is no room. Calls `onGone` if the
   * answer is dropped, or the memory is needed for something else.
   */
  reserve(bytes: number, caller: string, onGone: () => void): KeptMemory | null;
  /** Whether it is recent enough now for a caller, who has seen the database at that position of the log. */
  serves(user: string | null, seen: LogPosition, now: number): boolean;
  /** It is used once more. */
  hit(now: number): void;
}

/** Memory that is kept with an answer. */
export interface KeptMemory {
  /** It is still used. */
  touch(): void;
  release(): void;
}
