/**
 * The part of the model that a caller sees: everything the schema is built from. Callers with the same permissions share one schema, so
 * the key stands for all of it.
 */
import type { Collection, Field, Model } from '../model/model.js';

export interface SchemaAccess {
  /** Equal for callers who see the same part of one model. */
  readonly key: string;
  /** The model as far as it may be read: what is not readable is not in it. */
  readonly readable: Model;
  /** The whole model: what is written need not be readable. */
  readonly model: Model;
  /** The fields that may be written, or null if the action is not allowed at all. */
  writable(collection: Collection, action: 'create' | 'update'): ReadonlySet<string> | 'all' | null;
  mayDelete(collection: Collection): boolean;
  /** Whether a readable field is readable in every readable row. */
  isCertain(collection: Collection, field: Field): boolean;
}

/** Which root fields there are: those of the users' own collections, or those of the service's. */
export type RootScope = 'items' | 'system';
