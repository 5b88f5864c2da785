/** The interface of hooks of reads: they add conditions to what a caller may read. */
import type { Collection } from '../../../compiler/model/model.js';
import type { Identity } from '../../access/identity.js';
import type { CompiledRead } from '../reads/compiled-read.js';
import type { RequestOrigin } from '../stages.js';

export interface ReadHooks {
  /** Whether there are any: other reads pay nothing. */
  readonly exist: boolean;
  /** Grows whenever there may be other hooks. */
  readonly revision: number;
  /** Whether a hook adds conditions to reads of the collection. */
  concern(collection: Collection): boolean;
  /** Refuses a read for which no hook was called: live queries, events, content versions and shares. */
  check(compiled: CompiledRead, caller: Identity): CompiledRead;
  /**
   * The caller with the conditions for a read of these collections. `compile` compiles it without conditions, if only its statement says
   * which collections it uses.
   */
  conditioned(
    caller: Identity,
    collections: readonly string[],
    origin: RequestOrigin,
    compile: () => Promise<CompiledRead> | CompiledRead,
  ): Promise<Identity>;
  /** The caller with the conditions for all reads that belong to a write of the collection, or of any if it is null. */
  conditionedFor(caller: Identity, collection: string | null, origin: RequestOrigin): Promise<Identity>;
}
