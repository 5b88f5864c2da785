/** The services of one thread, without HTTP. */

import type { Policies } from '../access/policies.js';
import type { Changes } from '../changes/changes.js';
import type { Reads } from '../execute/reads/reads.js';
import type { Writes } from '../execute/writes/writes.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import type { Database } from '../postgres/pools/database.js';
import type { SchemaChanges } from '../schema/change/change.js';

/** Everything behind HTTP: the database, the model and the policies, and the reads, writes and schema changes over them. */
export interface Core {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly writes: Writes;
  /** The stream of changes, or null if there is none. */
  readonly changes: Changes | null;
  readonly schemaChanges: SchemaChanges;
}
