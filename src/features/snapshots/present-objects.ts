/** The objects of the connected database: those that its snapshot has as entries, those that its fields imply, and those left out. */
import { constraintName } from '../../compiler/sql/constraint-name.js';
import { complaintAboutObject, type ObjectEntry, splitName } from './objects.js';
import { enumKey, enumNameOf, type FieldEntry } from './parse-snapshot.js';
import type { Omission } from './snapshot.js';
import type { SnapshotScope } from './snapshot-scope.js';

/** A row of sql/features/snapshots/objects.sql. */
interface ObjectRow {
  readonly kind: string;
  readonly name: string;
  readonly definition: string;
  readonly comment?: string;
  readonly schema?: string;
  /** The table, or the view itself. */
  readonly relation?: string;
  readonly field?: string;
  /** The columns of a constraint or index, if it has no expressions. */
  readonly fields?: readonly string[];
  /** Whether fields and relations can say all of it, except the name. */
  readonly plain: boolean;
  /** The letter of a constraint; `i` for a unique index; `kept` for a view with grants or triggers. */
  readonly shape?: string;
  /** The names of the tables and views that a view reads. */
  readonly needs?: readonly string[];
  /** The columns of tables that it uses, with the names of these. */
  readonly columns?: readonly string[];
  /** An object that it needs, and that no snapshot contains. */
  readonly cause?: string;
}

export interface ObjectRows {
  readonly objects: readonly ObjectRow[];
  readonly left_out: readonly Omission[];
}

export interface PresentObject {
  readonly entry: ObjectEntry;
  /** Whether the snapshot has it as an entry. Otherwise fields or relations imply it. */
  readonly isEntry: boolean;
  readonly collection: string | null;
  readonly table: string | null;
  /** The name that the service gives a constraint or index of these columns, if fields and relations can describe it. */
  readonly usualName: string | null;
  readonly needs: readonly string[];
  /** Whether dropping it would lose grants or triggers. */
  readonly isKept: boolean;
}

export interface PresentObjects {
  readonly objects: readonly PresentObject[];
  readonly omissions: readonly Omission[];
}

export function presentObjects(rows: ObjectRows, scope: SnapshotScope, fields: readonly FieldEntry[]): PresentObjects {
  const { model } = scope;
  const collections = new Map([...model.collections.values()].map((each) => [keyOf(each.schema, each.table), each]));
  const columns = new Map(fields.map((each) => [keyOf(each.collection, each.field), each]));
  const enums = new Set(fields.flatMap(({ schema }) => (schema?.enum_values ? [enumOf(schema.data_type)] : [])));
  const objects: PresentObject[] = [];
  const omissions: Omission[] = [...rows.left_out];
  /** Views that are left out. */
  const missing = new Set<string>();
  const isThere = (path: string): boolean => {
    const names = splitName(path) ?? [];
    const [table = '', field = ''] = names.slice(-2);
    const collection = collections.get(keyOf(names.length > 2 ? (names[0] ?? '') : model.schema, table));
    return collection !== undefined && (collection.system || columns.has(keyOf(collection.name, field)));
  };
  const missingOf = ({ needs = [], columns: used = [] }: ObjectRow): string | undefined =>
    needs.find((name) => missing.has(name)) ?? used.find((path) => !isThere(path));
  for (const row of rows.objects) {
    const { kind, comment = null } = row;
    const cause = row.cause ?? missingOf(row);
    const collection = collections.get(keyOf(row.schema ?? '', row.relation ?? ''));
    const isView = /view$/.test(kind);
    if (collection && !isView && collection.kind !== 'view' && (collection.system || !scope.isIncluded(collection)))
      continue;
    const column = row.field === undefined ? null : columns.get(keyOf(collection?.name ?? '', row.field));
    if (column === undefined) continue;
    const entry = { name: `${kind} ${row.name}`, definition: row.definition, comment };
    const complaint = cause === undefined ? complaintAboutObject(entry) : `it needs ${cause}`;
    const usualName = row.plain && collection ? usualNameOf(row, collection.name, scope) : null;
    const isImplied =
      comment === null &&
      (kind === 'enum'
        ? enums.has(enumOf(row.name))
        : kind === 'default' || kind === 'generated'
          ? isSaid(column, row)
          : row.plain && (kind === 'identity' || usualName === ownName(row.name)));
    if (complaint !== null && !isImplied) {
      omissions.push({ name: entry.name, reason: complaint });
      if (isView) missing.add(row.name);
      continue;
    }
    objects.push({
      entry,
      isEntry: !isImplied,
      collection: collection?.name ?? null,
      table: row.relation === undefined ? null : keyOf(row.schema ?? '', row.relation),
      usualName,
      needs: row.needs ?? [],
      isKept: row.shape === 'kept',
    });
  }
  return { objects, omissions };
}

/** All rows as entries, also of what fields and relations imply. */
export function entriesOf({ objects }: ObjectRows): ObjectEntry[] {
  return objects.map(({ kind, name, definition, comment = null }) => ({
    name: `${kind} ${name}`,
    definition,
    comment,
  }));
}

/** Whether the field itself says the same default or expression. */
function isSaid(field: FieldEntry | null, { kind, definition, plain }: ObjectRow): boolean {
  const column = field?.schema;
  if (!column) return false;
  if (kind === 'generated') return column.generation_expression !== null;
  const { default_value: value, default_expression: text } = column;
  if (value === null) return text !== null;
  if (typeof value === 'number') return definition === String(value) || definition === `'${value}'::integer`;
  // PostgreSQL keeps the text of this type.
  if (/::json$/.test(definition)) return definition === `'${JSON.stringify(value)}'::json`;
  return plain;
}

function usualNameOf(
  { kind, name, fields = [], shape }: ObjectRow,
  collection: string,
  { details }: SnapshotScope,
): string | null {
  if (kind === 'index') return constraintName(collection, fields.join(','), 'index');
  switch (shape) {
    case 'p':
      return ownName(name);
    case 'u':
      return constraintName(collection, fields.join(','), 'unique');
    case 'f': {
      if (fields.length === 1) return constraintName(collection, fields.join(), 'foreign');
      const key = details.foreignKeys.find((each) => each.collection === collection && each.name === ownName(name));
      return key
        ? constraintName(
            collection,
            `${fields.join()},${key.related_collection}(${key.related_fields.join()})`,
            'foreign',
          )
        : null;
    }
    default:
      return null;
  }
}

function ownName(path: string): string {
  return splitName(path)?.at(-1) ?? path;
}

function enumOf(type: string): string {
  return enumKey(enumNameOf(type) ?? { schema: null, name: type });
}

export function keyOf(...names: readonly string[]): string {
  return JSON.stringify(names);
}
