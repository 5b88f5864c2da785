/**
 * Write plans. A payload of any depth is taken apart into one list of rows per table and verb; rows refer to each other by
 * their numbers. The plan says which lists there are and which columns they have: that is the shape of the statement. The
 * rows themselves are its one parameter.
 */
import type { Collection, Field } from '../mirror/model.js';

export interface WritePlan {
  readonly kind: 'write';
  readonly collection: Collection;
  readonly nodes: readonly WriteNode[];
  readonly releases: readonly Release[];
  /** Whether the keys of the root are made by the statement: they are then its answer. */
  readonly makesKeys: boolean;
}

/** All rows of one table that are to be inserted, updated, or inserted unless they exist (`upsert`). */
export interface WriteNode {
  readonly collection: Collection;
  readonly verb: Verb;
  readonly columns: readonly WriteColumn[];
}

export type Verb = 'insert' | 'update' | 'upsert';

export interface WriteColumn {
  readonly field: Field;
  /** Some rows leave the column out: it keeps its value, or gets its default. */
  readonly mixed: boolean;
  /** Whether rows bring values of their own. */
  readonly holdsValues: boolean;
  /** Tables whose new rows the column may refer to. */
  readonly references: readonly string[];
  /** Rows may go behind the last one that this column ties to the same parent. */
  readonly endOf: Field | null;
  /** Filled by the service only when a row is made, or only when it is changed. */
  readonly only: 'insert' | 'update' | null;
}

/** Rows that leave a relation: their reference is cleared, or they are deleted. */
export interface Release {
  readonly collection: Collection;
  readonly field: Field;
  /** The collection they leave. */
  readonly from: Collection;
  readonly action: 'nullify' | 'delete';
}

/**
 * The one parameter. A row has `n` its number, `k` its key, and for the column at position i: `ci` its value, `pi` whether
 * it is present where that differs between rows, `ri_j` the number of the new row of the j-th table it refers to,
 * `ei` how far behind the last row of its parent it goes.
 */
export interface WriteInput {
  readonly nodes: readonly (readonly Readonly<Record<string, unknown>>[])[];
  readonly releases: readonly (readonly { readonly parent: unknown; readonly child: unknown }[])[];
  /** Numbers of the root's rows, in the order of the payload. */
  readonly root: readonly number[];
}

export interface PlannedWrite {
  readonly plan: WritePlan;
  readonly input: WriteInput;
  readonly shape: string;
  /** Keys of the root where they are known beforehand. */
  readonly keys: readonly (string | number)[] | null;
}
