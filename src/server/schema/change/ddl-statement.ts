/**
 * The steps of a schema change: definitions of the database and rows of the metadata tables. All
 * names are those of the model, or new ones that were checked; steps are data, to be compiled one statement each.
 */

import type { Meta } from '../../../compiler/model/metadata.js';
import type { FieldType, ForeignKeyBehaviour } from '../../../compiler/model/model.js';
import type { TypeName } from '../../../compiler/sql/type-name.js';

export type DdlStatement = Definition | MetadataStep | ObjectStep;

/** A statement about an object, in PostgreSQL's words. `node` is what the grammar calls statements of its kind. */
export type ObjectStep = Readonly<{ kind: 'define-object'; name: string; node: string; text: string }>;

/** `table` and `target` are names of collections; new tables go to the first schema, unless `qualifiedName` is given. */
export type Definition =
  | Alteration
  | Readonly<{
      kind: 'create-table';
      table: string;
      qualifiedName: QualifiedName | null;
      columns: readonly ColumnDefinition[];
      /** The columns of a composite primary key, in its order; empty if `primaryKey` of a column says it. */
      key: readonly string[];
    }>
  | Readonly<{ kind: 'drop-table'; table: string; view: boolean }>
  | Readonly<{ kind: 'comment-table'; table: string; comment: string | null }>
  | Readonly<{ kind: 'comment-column'; table: string; column: string; comment: string | null }>
  /** Sets the sequence of a new identity column past the existing values. */
  | Readonly<{ kind: 'advance-identity'; table: string; column: string }>
  | Readonly<{ kind: 'drop-sequence' | 'widen-sequence'; schema: string; name: string }>
  | Readonly<{ kind: 'create-index'; table: string; columns: readonly string[]; name: string }>
  | Readonly<{ kind: 'drop-index'; table: string; name: string }>
  /** `schema`: null for the first one. */
  | Readonly<{ kind: 'create-enum'; schema: string | null; type: string; values: readonly string[] }>
  /** Next to an existing value: one of `before` and `after` is set. */
  | Readonly<{
      kind: 'add-enum-value';
      schema: string | null;
      type: string;
      value: string;
      before: string | null;
      after: string | null;
    }>;

/** Definitions that compile to `alter table`. */
export type Alteration =
  | Readonly<{ kind: 'add-column'; table: string; column: ColumnDefinition }>
  | Readonly<{ kind: 'drop-column'; table: string; column: string }>
  | Readonly<{
      kind: 'change-type';
      table: string;
      column: string;
      type: ColumnType | ExactType;
      conversion: Conversion;
    }>
  | Readonly<{ kind: 'set-default'; table: string; column: string; initial: ColumnDefault | null }>
  | Readonly<{ kind: 'set-nullable'; table: string; column: string; nullable: boolean }>
  | Readonly<{ kind: 'drop-expression' | 'add-identity' | 'drop-identity'; table: string; column: string }>
  | Readonly<{ kind: 'add-unique'; table: string; columns: readonly string[]; name: string }>
  /** `text` is an expression that was vetted. */
  | Readonly<{ kind: 'add-check'; table: string; name: string; text: string }>
  | Readonly<{ kind: 'drop-constraint'; table: string; name: string }>
  | Readonly<{
      kind: 'add-foreign-key';
      table: string;
      columns: readonly string[];
      name: string;
      target: string;
      /** The columns that are referred to, in the same order. */
      key: readonly string[];
      behaviour: ForeignKeyBehaviour;
    }>;

/** Where a collection's table is. */
export interface QualifiedName {
  readonly schema: string;
  readonly name: string;
}

export interface ColumnDefinition {
  readonly name: string;
  readonly type: ColumnType | ExactType;
  readonly autoIncrement: boolean;
  readonly primaryKey: boolean;
  readonly nullable: boolean;
  readonly initial: ColumnDefault | null;
  /** The expression of a generated column, which may name the columns of its table. */
  readonly generated: { readonly text: string; readonly columns: readonly string[] } | null;
}

/** A column of a type of the service. */
export interface ColumnType {
  readonly type: Exclude<FieldType, 'alias' | 'unknown'>;
  readonly length: number | null;
  readonly precision: number | null;
  readonly scale: number | null;
  /** `character(n)` stays what it is when only its length changes. */
  readonly padded: boolean;
}

/** A column of a type of the database, as a snapshot names it. */
export interface ExactType {
  readonly type: 'exact';
  readonly name: TypeName;
}

/** A default: a constant as the text of its value, or an expression that was vetted. */
export interface ColumnDefault {
  readonly kind: 'constant' | 'expression';
  readonly text: string;
}

/** How the values of a column become those of its new type. */
export type Conversion = 'cast' | 'through-text' | 'number-to-boolean' | 'boolean-to-number';

export type MetadataStep =
  | Readonly<{ kind: 'save-collection'; collection: string; values: Meta }>
  | Readonly<{ kind: 'save-field'; collection: string; field: string; values: Meta }>
  | Readonly<{ kind: 'add-relation'; values: Meta }>
  | Readonly<{ kind: 'change-relation'; collection: string; field: string; values: Meta }>
  | Readonly<{ kind: 'forget-relation'; collection: string; field: string }>
  /** Removes the field from all rows of metadata. */
  | Readonly<{ kind: 'forget-field'; collection: string; field: string }>
  | Readonly<{ kind: 'forget-collection'; collection: string }>
  /** Deletes only the row of metadata. */
  | Readonly<{ kind: 'drop-collection-row'; collection: string }>
  | Readonly<{ kind: 'drop-field-row'; collection: string; field: string }>
  | Readonly<{ kind: 'save-function'; name: string; values: Meta }>
  | Readonly<{ kind: 'drop-function-row'; name: string }>
  | PolicyStep;

/** A row of service_permissions, without its policy. */
export interface PolicyPermission {
  readonly collection: string;
  readonly action: string;
  /** The fields, or null if there are none. */
  readonly fields: readonly string[] | null;
  readonly permissions: Readonly<Record<string, unknown>> | null;
  readonly validation: Readonly<Record<string, unknown>> | null;
  readonly presets: Readonly<Record<string, unknown>> | null;
}

/** The name of a policy identifies it. */
export type PolicyStep =
  | Readonly<{ kind: 'create-policy'; name: string; values: Meta }>
  | Readonly<{ kind: 'change-policy'; name: string; values: Meta }>
  | Readonly<{ kind: 'drop-policy'; name: string }>
  | Readonly<{ kind: 'save-policy-permissions'; name: string; permissions: readonly PolicyPermission[] }>
  | Readonly<{ kind: 'save-policy-holders'; name: string; holders: PolicyHolders }>;

interface PolicyHolders {
  readonly public: boolean;
  /** Names of roles. */
  readonly roles: readonly string[];
  /** Email addresses of users, in lower case. */
  readonly users: readonly string[];
}
