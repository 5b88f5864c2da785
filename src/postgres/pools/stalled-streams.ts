/**
 * Streams that are read slowly while others wait for a connection: the one that was not read from for longest is broken off.
 * A client that holds more than a fair share of the connections must read faster than the others. As long as nobody waits, everybody
 * may take their time.
 */
import type { Relieve } from './pool.js';
import type { StreamSession } from './stream-session.js';

/** Milliseconds in which a batch, of half a megabyte at most, must be read: with more than a fair share, and with less. */
const GREEDY_LIMIT_MS = 2_000;
const MODEST_LIMIT_MS = 20_000;

/** `most` connections, for which others wait so many milliseconds at most. */
export function breakOffStalled(most: number, waitTimeout: number): Relieve<StreamSession> {
  const modest = Math.min(MODEST_LIMIT_MS, (waitTimeout * 2) / 3);
  return (inUse, waiting) => {
    const share = most / new Set([...inUse.values(), ...waiting]).size;
    const inUseBy = new Map<string, number>();
    for (const user of inUse.values()) inUseBy.set(user, (inUseBy.get(user) ?? 0) + 1);
    const now = performance.now();
    const late = [...inUse]
      .map(([connection, user]) => {
        const limit = (inUseBy.get(user) ?? 0) > share ? Math.min(GREEDY_LIMIT_MS, modest) : modest;
        return { connection, stalled: connection.stalled(now), limit };
      })
      .filter(({ stalled, limit }) => stalled >= limit);
    late.sort((one, other) => other.stalled - one.stalled);
    late[0]?.connection.breakOff();
  };
}
