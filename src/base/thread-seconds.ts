/** The processor time of a thread: unlike the time that its event loop was busy, it does not grow while other programs use the processor. */
import { readFileSync } from 'node:fs';

/** The processor time of the calling thread. Null on systems other than Linux. */
export function threadSeconds(): number | null {
  try {
    return Number.parseInt(readFileSync('/proc/thread-self/schedstat', 'utf8'), 10) / 1e9;
  } catch {
    return null;
  }
}
