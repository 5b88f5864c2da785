/**
 * What a caller sees of the model: everything the schema is built from. Callers with the same rights share one schema, so
 * the key stands for all of it.
 */
import type { Collection, Field, Model } from '../mirror/model.js';

export interface SchemaAccess {
  /** Equal where what is seen is equal, for one model. */
  readonly key: string;
  /** The model as far as it may be read: what is not readable is not in it. */
  readonly readable: Model;
  /** The whole model: what is written need not be readable. */
  readonly model: Model;
  /** The fields that may be written, null where the action is not allowed at all. */
  writable(collection: Collection, action: 'create' | 'update'): ReadonlySet<string> | 'all' | null;
  mayDelete(collection: Collection): boolean;
  /** Whether a readable field is readable in every readable row. */
  isCertain(collection: Collection, field: Field): boolean;
}

/** Which root fields there are: those of the users' own collections, or those of the service's. */
export type RootScope = 'items' | 'system';
