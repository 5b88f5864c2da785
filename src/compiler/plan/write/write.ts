/**
 * Write plans. A payload of any depth is taken apart into one list of rows per table and verb; rows refer to each other by
 * their numbers. The plan says which lists there are and which columns they have: that is the shape of the statement. The
 * rows themselves are its parameters, one for each list.
 */
import type { Collection, CollectionPrivileges, Field, Model } from '../../model/model.js';
import type { UpdateOperator } from '../../request/update-operators.js';
import type { Condition, ValuePlan } from '../plan.js';

export interface WritePlan {
  readonly kind: 'write';
  readonly collection: Collection;
  readonly nodes: readonly WriteNode[];
  readonly unlinks: readonly Unlink[];
  /** Whether the keys of the root are made by the statement: it then leaves them in the setting `lateral.keys`. */
  readonly makesKeys: boolean;
  /** Positions of lists whose new keys the statement leaves in the settings `lateral.made<position>`. */
  readonly keptKeys?: readonly number[];
}

/** All rows of one table that are to be inserted, updated, or inserted unless they exist (`upsert`). */
export interface WriteNode {
  readonly collection: Collection;
  readonly verb: Verb;
  readonly columns: readonly WriteColumn[];
  /** Whether the payload says a key of some row. */
  readonly keyed: boolean;
  /** Whether some row comes with its key, from the payload or made by the service. */
  readonly bringsKeys: boolean;
  /** The condition under which a row may be changed, or null if there is none. */
  readonly guard: RowGuard | null;
  readonly validations: readonly Validation[];
  /** The collection as the caller may read it, where values of items are compared; else null. */
  readonly readable: Collection | null;
  /** The privileges of the database role that the statement runs with, or null if it may do everything. */
  readonly privileges: CollectionPrivileges | null;
  /** How items that exist are found where not by their keys. */
  readonly conflict: ConflictTarget | null;
  /** Whether rows that exist are recorded as changed although none of their columns is: items that refer to them are written. */
  readonly writesRelated: boolean;
}

/** Items that have the same values in these fields, which a unique index covers: they are changed, or left alone. */
export interface ConflictTarget {
  readonly fields: readonly Field[];
  /** Whether null is a value like others: the index is `nulls not distinct`. */
  readonly equatesNulls: boolean;
  readonly resolution: 'merge' | 'ignore';
}

/** The conditions under which fields of an existing row may be written: for each field, one of the rules that grant it. */
export interface RowGuard {
  readonly needs: readonly Condition[];
  /** Which rules these are made of. */
  readonly key: string;
  /** Whether rows differ: each then has a digit per need that says whether it counts. */
  readonly perRow: boolean;
}

/** A condition of written values. It does not apply to fields that the payload leaves out. */
export interface Validation {
  /** The rows that are checked, or null if new and changed rows are. */
  readonly on: 'insert' | 'update' | null;
  readonly condition: Condition;
  /** For the error. */
  readonly field: string | null;
  readonly type: string;
  /** The constant that the value is compared with, or null if there is none. */
  readonly operand: unknown;
  readonly message: string | null;
}

export type Verb = 'insert' | 'update' | 'upsert';

export interface WriteColumn {
  readonly field: Field;
  /** Some rows leave the column out: it keeps its value, or gets its default. */
  readonly mixed: boolean;
  /** Whether rows have values for it, or operands. */
  readonly holdsValues: boolean;
  /** New rows that the column may refer to. */
  readonly references: readonly NewReference[];
  /** Rows may take the value of related rows in the column that is referred to. The collection is the one that the caller may read. */
  readonly lookup: { readonly collection: Collection; readonly field: Field } | null;
  /** Rows may go behind the last one that this column ties to the same parent. */
  readonly endOf: Field | null;
  /**
   * For rows that are made, or for rows that are changed; a field may have a column for each. `key`: for rows whose key is known, it is
   * compared and not written; so is `kept`, a value that the database makes.
   */
  readonly only: 'insert' | 'update' | 'key' | 'kept' | null;
  /** Whether rows have several of these for it, which must be the same. */
  readonly agrees: boolean;
  /** Rows may take a value of the caller's. */
  readonly caller: Extract<ValuePlan, { kind: 'caller' }> | null;
  /** Operators that rows apply to the stored value. Their operand is the value of the row. */
  readonly operators: readonly UpdateOperator[];
  /** Whether the operator differs between rows, or some rows have none. Then each row carries the name of its operator. */
  readonly choosesOperator: boolean;
}

/** A table whose new rows are referred to. There are several of one table if a row refers to several of its rows. */
export interface NewReference {
  readonly collection: string;
  /** The column of a composite key that is referred to, or null for the whole key. */
  readonly part: Field | null;
}

/** Rows that leave a relation: their reference is cleared, or they are deleted. */
export interface Unlink {
  readonly collection: Collection;
  readonly field: Field;
  /** The columns that hold the reference: the field's own or, of an alias field, several. */
  readonly columns: readonly Field[];
  /** The collection they leave, and the columns of it that they refer to. */
  readonly from: Collection;
  readonly key: readonly Field[];
  readonly action: 'nullify' | 'delete';
  /** Rows that the caller may let go; null for all. */
  readonly guard: Condition | null;
  /** Whether a row that is named must be one of them. */
  readonly strict: boolean;
}

/**
 * The parameters: a JSON document for each list, whose rows have short names, since there may be thousands of them. The number of a
 * row is its place in the list.
 *
 * | name | value |
 * |---|---|
 * | `k` | key; of several columns its parts: `k_0`, `k_1`, ... |
 * | `a` | which rules of the caller apply to the row, where that differs between rows |
 *
 * And for the column at position i:
 *
 * | name | value |
 * |---|---|
 * | `ci` | value, or operand |
 * | `oi` | name of the operator, where that differs between rows |
 * | `pi` | present, where that differs between rows |
 * | `ri_j` | reference: number of the new row that the column refers to, of the j-th of its references |
 * | `hi` | key of the row whose value is looked up |
 * | `ei` | end: how far behind the last row of its parent it goes |
 * | `vi` | variable: the value is one of the caller's |
 */
export interface WriteInput {
  readonly nodes: readonly (readonly Readonly<Record<string, unknown>>[])[];
  /** Keys of `parent` and `child`, in parts like those of rows. Without a child, all children of the parent are meant. */
  readonly unlinks: readonly (readonly Readonly<Record<string, unknown>>[])[];
  /** Numbers of the root's rows, in the order of the payload. */
  readonly root: readonly number[];
  /** For the record. */
  readonly by: Author;
}

/** The author of changes by the command line. */
export const NO_AUTHOR: Author = { user: null, ip: null, user_agent: null, origin: null };

/** The user and the client of a change, as the activity log records them. */
export interface Author {
  readonly user: string | null;
  readonly ip: string | null;
  readonly user_agent: string | null;
  readonly origin: string | null;
}

export interface PlannedWrite {
  /** The model that it was planned on, which may be outdated. */
  readonly model: Model;
  readonly plan: WritePlan;
  readonly input: WriteInput;
  readonly shape: string;
  /** The position of each row in the payload, for errors. */
  readonly paths: readonly (readonly string[])[];
  /** Keys of the root where they are known beforehand. */
  readonly keys: readonly (string | number)[] | null;
}
