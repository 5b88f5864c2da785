/** A row of a payload while the write is planned. */
import type { Collection, Field, Model } from '../../model/model.js';
import type { UpdateOperator } from '../../request/update-operators.js';
import type { Key } from '../../request/write.js';
import type { Access } from '../access.js';
import type { Author, ConflictTarget, Verb, WriteColumn } from './write.js';

export interface Row {
  readonly collection: Collection;
  readonly verb: Verb;
  readonly number: number;
  readonly key: Key | null;
  readonly columnValues: Map<string, ColumnValue>;
  /** Additional values if the row is new, and if it exists: for upserts. */
  readonly only: Readonly<Record<'insert' | 'update', Map<string, ColumnValue>>>;
  /** Fields that the caller has something to say about. */
  readonly fields: Set<string>;
  /** Whether the payload links, writes or removes items that refer to the row. The row then counts as changed. */
  writesRelated: boolean;
  /** Values of the payload for columns that are not written: parts of a known key, and values that the database makes. */
  claims: Map<string, ColumnValue> | null;
  readonly path: string;
}

/** A value, or the key of a row that the same statement makes. */
export type ColumnValue =
  | { readonly kind: 'value'; readonly value: unknown }
  | { readonly kind: 'caller'; readonly plan: CallerValue }
  /** The stored value, changed by an operator. */
  | { readonly kind: 'operated'; readonly operator: UpdateOperator; readonly operand: unknown }
  /** With `part`, of a key of several columns the one that is referred to. */
  | { readonly kind: 'reference'; readonly row: Row; readonly part?: Field }
  /** The value of the related row with this key in the column that is referred to. */
  | { readonly kind: 'lookup'; readonly key: Key; readonly of: KeyLookup }
  /** Values from several parts of the payload: they must be the same. */
  | { readonly kind: 'several'; readonly values: readonly ColumnValue[] }
  /** A position after the last row of the same parent. */
  | { readonly kind: 'end'; readonly position: number; readonly parent: Field };

type KeyLookup = NonNullable<WriteColumn['lookup']>;

export type CallerValue = NonNullable<WriteColumn['caller']>;

/** Values that the service itself writes: the user, and the time. */
export interface WriteVariables {
  readonly now: string;
  readonly user: string | null;
  readonly role: string | null;
  readonly roles: readonly string[];
  readonly policies: readonly string[];
}

export interface List {
  readonly collection: Collection;
  readonly verb: Verb;
  readonly rows: Row[];
  readonly byKey: Map<string, Row>;
  readonly conflict: ConflictTarget | null;
}

export type Payload = Readonly<Record<string, unknown>>;

/** In the payload that a hook returns: an item that its key links, with changes. It must exist, as with the key alone. */
export class LinkedItem {
  constructor(
    readonly key: unknown,
    readonly data: Payload,
  ) {}
}

export interface ItemChange {
  readonly key: Key;
  readonly data: Payload;
}

export interface WritePlanContext {
  readonly model: Model;
  /** Rows one request may write, nested ones included; null for no limit. */
  readonly maxRows: number | null;
  /** When the plan must be made, by the time of the host; absent for no limit. */
  readonly until?: number;
  readonly variables: WriteVariables;
  /** A random key for a new item. */
  readonly newUuid: () => string;
  readonly author: Author;
  /** The permissions, or null if the caller may write everything. */
  readonly access: Access | null;
  /** Items may lack required values: the plan only checks the values that they have, and is not executed. */
  readonly isPartial?: boolean;
  /** Where operators are allowed: in changes of existing items, or also in new ones. By default nowhere: `{"_increment": 1}` is a value. */
  readonly operators?: 'changes' | 'all';
  /** Whether all objects are values: operators are `Operated` then. */
  readonly isLiteral?: boolean;
}
