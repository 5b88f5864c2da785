/**
 * The steps of a schema change: definitions of the database and rows of the metadata tables. All
 * names are those of the model, or new ones that were checked; steps are data, to be compiled one statement each.
 */
import type { FieldType, ForeignKeyBehaviour } from '../../mirror/model.js';
import type { TypeName } from '../../sql/type-name.js';
import type { Meta } from './parse-meta.js';

export type DdlStatement = Definition | MetadataStep;

/** `table` and `target` are names of collections; new tables go to the first schema, unless `qualifiedName` is given. */
export type Definition =
  | {
      readonly kind: 'create-table';
      readonly table: string;
      readonly qualifiedName: QualifiedName | null;
      readonly columns: readonly ColumnDefinition[];
      /** The columns of a composite primary key, in its order; empty where `primaryKey` of a column says it. */
      readonly key: readonly string[];
    }
  | { readonly kind: 'drop-table'; readonly table: string; readonly view: boolean }
  | { readonly kind: 'comment-table'; readonly table: string; readonly comment: string | null }
  | { readonly kind: 'add-column'; readonly table: string; readonly column: ColumnDefinition }
  | { readonly kind: 'drop-column'; readonly table: string; readonly column: string }
  | {
      readonly kind: 'comment-column';
      readonly table: string;
      readonly column: string;
      readonly comment: string | null;
    }
  | {
      readonly kind: 'change-type';
      readonly table: string;
      readonly column: string;
      readonly type: ColumnType | ExactType;
      readonly conversion: Conversion;
    }
  | {
      readonly kind: 'set-default';
      readonly table: string;
      readonly column: string;
      readonly initial: ColumnDefault | null;
    }
  | { readonly kind: 'set-nullable'; readonly table: string; readonly column: string; readonly nullable: boolean }
  | { readonly kind: 'drop-expression'; readonly table: string; readonly column: string }
  | { readonly kind: 'add-identity'; readonly table: string; readonly column: string }
  | { readonly kind: 'drop-identity'; readonly table: string; readonly column: string }
  /** Sets the sequence of a new identity column past the existing values. */
  | { readonly kind: 'advance-identity'; readonly table: string; readonly column: string }
  | { readonly kind: 'drop-sequence'; readonly schema: string; readonly name: string }
  | { readonly kind: 'widen-sequence'; readonly schema: string; readonly name: string }
  | {
      readonly kind: 'add-unique';
      readonly table: string;
      readonly columns: readonly string[];
      readonly name: string;
    }
  | {
      readonly kind: 'create-index';
      readonly table: string;
      readonly columns: readonly string[];
      readonly name: string;
    }
  | { readonly kind: 'drop-constraint'; readonly table: string; readonly name: string }
  | { readonly kind: 'drop-index'; readonly table: string; readonly name: string }

  /** `schema`: null for the first one. */
  | {
      readonly kind: 'create-enum';
      readonly schema: string | null;
      readonly type: string;
      readonly values: readonly string[];
    }
  /** Next to an existing value: one of `before` and `after` is set. */
  | {
      readonly kind: 'add-enum-value';
      readonly schema: string | null;
      readonly type: string;
      readonly value: string;
      readonly before: string | null;
      readonly after: string | null;
    }
  | {
      readonly kind: 'add-foreign-key';
      readonly table: string;
      readonly columns: readonly string[];
      readonly name: string;
      readonly target: string;
      /** The columns that are referred to, in the same order. */
      readonly key: readonly string[];
      readonly behaviour: ForeignKeyBehaviour;
    };

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
  /** Of a generated column; may name the columns of its table. */
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
export type ColumnDefault =
  | { readonly kind: 'constant'; readonly text: string }
  | { readonly kind: 'expression'; readonly text: string };

/** How the values of a column become those of its new type. */
export type Conversion = 'cast' | 'through-text' | 'number-to-boolean' | 'boolean-to-number';

export type MetadataStep =
  | { readonly kind: 'save-collection'; readonly collection: string; readonly values: Meta }
  | { readonly kind: 'save-field'; readonly collection: string; readonly field: string; readonly values: Meta }
  | { readonly kind: 'add-relation'; readonly values: Meta }
  | { readonly kind: 'change-relation'; readonly collection: string; readonly field: string; readonly values: Meta }
  | { readonly kind: 'forget-relation'; readonly collection: string; readonly field: string }
  /** Removes the field from all rows of metadata. */
  | { readonly kind: 'forget-field'; readonly collection: string; readonly field: string }
  | { readonly kind: 'forget-collection'; readonly collection: string }
  /** Deletes the row of metadata alone. */
  | { readonly kind: 'drop-collection-row'; readonly collection: string }
  | { readonly kind: 'drop-field-row'; readonly collection: string; readonly field: string }
  | { readonly kind: 'save-function'; readonly name: string; readonly values: Meta }
  | { readonly kind: 'drop-function-row'; readonly name: string };
