/** Committed changes as a program learns them. */

/** A committed change of an item, by whatever program. `resync`: changes of the collection, or of all, may have been missed. */
export interface ChangeEvent {
  /** The collection, or null if changes of all collections may have been missed. */
  readonly collection: string | null;
  readonly action: 'create' | 'update' | 'delete' | 'resync';
  readonly key: string | null;
}
