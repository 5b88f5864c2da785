/**
 * Tests wait for conditions (`waitFor`), not for time. A fixed wait is allowed only if time itself is tested, such as an expiry
 * or a while in which nothing may happen, and it says so here. test/program/waits.test.ts holds this.
 */
import { setTimeout as sleep } from 'node:timers/promises';

/** `why` is for the reader. */
export async function passTime(milliseconds: number, why: string): Promise<void> {
  if (why === '') throw new Error('say why time has to pass');
  await sleep(milliseconds);
}
