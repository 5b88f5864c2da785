/** Which collection, and which item of it, the path of a request names. */
import type { Identities } from '../access/identity.js';
import type { Reads } from '../engine/reads.js';
import type { Writes } from '../engine/writes.js';
import type { ParseLimits } from '../request/parse-context.js';

export interface ItemsServices {
  readonly identities: Identities;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly limits: ParseLimits;
}

/** What the path of a request names: a collection, or an item of it. */
export interface ItemPath {
  readonly collection: string;
  /** Null for the collection. */
  readonly key: string | null;
}
