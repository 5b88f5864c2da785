/**
 * The consistency of reads from replicas and from memory: by default a read sees all that its caller has written. The log position
 * after a write goes to the client, which may send it back, and is stored for the caller.
 */

import { invalidQuery, isOutcomeUnknown } from '../../base/errors.js';
import type { Identity } from '../access/identity.js';
import { type LogPosition, NO_POSITION, UNKNOWN_POSITION } from '../postgres/pools/sessions.js';
import type { RequestClient } from './stages.js';
import type { WrittenBy } from './writer.js';

/** `eventual`: any replica answers. `session`: one that has replayed the caller's own writes. `strong`: the primary. */
const CONSISTENCIES = ['eventual', 'session', 'strong'] as const;
export type ConsistencyLevel = (typeof CONSISTENCIES)[number];

/** The log position that a replica must have replayed to serve a read. */
export interface ReadNeed extends LogPosition {
  /** A hash of the caller: pages of one list are read from the same replica by it. */
  readonly callerHash: number;
}

/** The value of `Prefer: consistency=...`, or null if the header does not have it. */
export function consistencyOf(prefer: string): ConsistencyLevel | null {
  const [, wanted] = /(?:^|,)\s*consistency\s*=\s*"?([^",;\s]*)/i.exec(prefer) ?? [];
  if (wanted === undefined) return null;
  const consistency = CONSISTENCIES.find((each) => each === wanted.toLowerCase());
  if (!consistency)
    throw invalidQuery(`"Prefer: consistency" must be one of ${CONSISTENCIES.join(', ')}, not "${wanted}"`);
  return consistency;
}

/** Determines which server may answer a read: by default one that has all writes of the caller. */
export interface Consistency {
  /** Returns null if only the primary may answer. A promise if another server may have become the primary: it is searched for. */
  needOf(client: RequestClient, caller: Identity, level: ConsistencyLevel): ReadNeed | null | Promise<ReadNeed | null>;
  /** A write of the caller was committed: to be called before it is answered. */
  committed(client: RequestClient, caller: Identity): void | Promise<void>;
  /** It is unknown whether a write of the caller was committed: until the primary is asked again, only the primary may answer. */
  mayHaveCommitted(client: RequestClient, caller: Identity): void;
  /** Earlier writes of the caller may be anywhere up to the current position. */
  askAgain(client: RequestClient, caller: Identity): Promise<void>;
}

export function positionText({ position, timeline }: LogPosition): string {
  return `${position.toString(36)}-${timeline.toString(36)}`;
}

/** '' is the position of clients that have seen nothing. */
export function readPosition(text: string): LogPosition {
  if (text === '') return NO_POSITION;
  const [, digits = '', timeline = '0'] = /^([0-9a-z]{1,11})(?:-([0-9a-z]{1,6}))?$/.exec(text) ?? [];
  const position = Number.parseInt(digits, 36);
  if (!(position < UNKNOWN_POSITION))
    throw invalidQuery('"Lateral-Position" must be the value of that header in an earlier response');
  return { position, timeline: Number.parseInt(timeline, 36) };
}

/** The later of two positions that a request brings. An invalid one throws. */
export function laterPosition(first: string, second: string): string {
  if (first === '' || second === '') return first || second;
  const [a, b] = [readPosition(first), readPosition(second)];
  if (a.timeline !== b.timeline && a.timeline > 0 && b.timeline > 0) return a.timeline > b.timeline ? first : second;
  return a.position >= b.position ? first : second;
}

/** Later reads of the caller, from replicas or from memory, must see the write. `consistency` is null if there are neither. */
export async function noteCommit<Result>(
  consistency: Consistency | null,
  written: Promise<Result>,
  { writer, client }: WrittenBy,
): Promise<Result> {
  try {
    const result = await written;
    await consistency?.committed(client, writer.caller);
    return result;
  } catch (error) {
    if (isOutcomeUnknown(error)) consistency?.mayHaveCommitted(client, writer.caller);
    throw error;
  }
}
