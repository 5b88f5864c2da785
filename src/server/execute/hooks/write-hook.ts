/** The interface of write hooks: what they learn of a write, and when they are called. */
import { invalidPayload } from '../../../base/errors.js';
import { type Collection, isStamped, type Model } from '../../../compiler/model/model.js';
import type { PlannedWrite, WriteColumn } from '../../../compiler/plan/write/write.js';
import type { Key } from '../../../compiler/request/write.js';
import type { TransactionContext } from '../reads/session-reads.js';
import type { HookCalls } from './joined-writes.js';

/** Rows of one collection that a write changes in one way, nested ones included. */
export interface Change {
  readonly collection: Collection;
  /** `upsert` creates or updates, `unlink` clears the reference to an item that the rows leave. */
  readonly action: 'create' | 'update' | 'upsert' | 'unlink' | 'delete';
  readonly columns: readonly WriteColumn[];
  /** In the form of `WriteInput`. Empty for `unlink` and `delete`, whose rows only the statement knows. */
  readonly rows: readonly ChangedRow[];
}

export type ChangedRow = Readonly<Record<string, unknown>>;

/** A write in its transaction, with the changes that concern the hook. */
export interface HookedWrite extends TransactionContext {
  readonly model: Model;
  readonly changes: readonly Change[];
  /** The plan, or null for a request that deletes items. */
  readonly planned: PlannedWrite | null;
  /** The keys of the items that a request deletes. */
  readonly deleted?: ReadonlyMap<string, Key>;
  /** Invalidates cached permissions; to be called after the commit. */
  readonly accessChanged: () => Promise<void>;
  /** How hooks of users take part, or null if none are called. */
  readonly calls: HookCalls | null;
}

export interface WriteHook {
  /** Other writes do not call the hook. */
  concerns(change: Change, model: Model): boolean;
  /** Checks payloads without a transaction, so that the write remains one round trip. */
  validate?(changes: readonly Change[]): void;
  /** The callbacks for one write; variables of the closure last from `beforeWrite` to `afterCommit`. */
  open?(write: HookedWrite): WriteCallbacks;
}

/** An error of the first two undoes the transaction. A retry calls all of them again. */
interface WriteCallbacks {
  beforeWrite?(): Promise<void>;
  afterWrite?(): Promise<void>;
  /** The answer waits for it. Several writes of one transaction call the same function once. */
  readonly afterCommit?: () => Promise<void>;
}

/** Whether the change brings rows: its payload can be checked. */
export function bringsRows({ action }: Change): boolean {
  return action !== 'unlink' && action !== 'delete';
}

/** The values of a row by the names of its fields, without those that the service fills in by itself. */
export function valuesOf({ columns }: Change, row: ChangedRow): ReadonlyMap<string, unknown> {
  const entries = columns.flatMap(({ field }, index) => {
    const value = row[`c${index}`];
    return value === undefined || isStamped(field) ? [] : [[field.name, value] as const];
  });
  return new Map(entries);
}

/** The user who created a row has permissions on it. */
export const CREATOR = 'user_created';

/** The checks of new and changed rows differ, and an upsert is both: it could move a row to another item. */
export function refuseUpserts({ collection, action, columns }: Change): void {
  if (action === 'upsert')
    throw invalidPayload(`Rows of "${collection.name}" are created or updated: they cannot be upserted`);
  if (action === 'update' && columns.some(({ field }) => field.name === CREATOR))
    throw invalidPayload(`"${CREATOR}" cannot be changed`);
}
