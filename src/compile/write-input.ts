/** The input of a list of rows in a write chain: its columns, and the values that are looked up by it. */
import type { Field } from '../mirror/model.js';
import type { WriteColumn, WriteNode } from '../plan/write.js';
import { alias, type Fragment, identifier, sql } from '../sql/fragment.js';
import { FromClause, type Scope } from './from-clause.js';
import { geometryOf, isGeometry } from './geometry.js';
import { typeName } from './identifiers.js';
import { areEqual, givenDefinitions, givenNames, keyColumns } from './key-columns.js';

/** With their types, as the one parameter has them. */
export function inputColumns(node: WriteNode): Fragment[] {
  const { collection } = node;
  const columns = [sql`n int4`, ...(makesParts(node) ? [] : givenDefinitions(collection, givenNames(collection)))];
  if (node.guard?.ruleBits === null) columns.push(sql`a text`);
  node.columns.forEach((column, index) => {
    if (column.holdsValues) columns.push(sql`${identifier(`c${index}`)} ${inputType(column.field)}`);
    if (column.mixed) columns.push(sql`${identifier(`p${index}`)} bool`);
    if (column.lookup) {
      const names = lookupNames(column.lookup, index).map((name) => identifier(name));
      columns.push(...givenDefinitions(column.lookup.collection, names));
    }
    if (column.endOf) columns.push(sql`${identifier(`e${index}`)} int4`);
    if (column.caller) columns.push(sql`${identifier(`v${index}`)} bool`);
    columns.push(...column.references.map((_, table) => sql`${identifier(`r${index}_${table}`)} int4`));
  });
  return columns;
}

/** Read from the row as it is; nothing can refer to a row that is not there, that has nothing there, or that may not be read. */
export function lookupValue(lookup: NonNullable<WriteColumn['lookup']>, index: number, scope: Scope): Fragment {
  const { collection, field } = lookup;
  const keys = lookupNames(lookup, index).map((name) => sql`${alias('i')}.${identifier(name)}`);
  const [key] = keys;
  const row = new FromClause(alias('h'), scope, collection);
  const shown = row.column([], field);
  const value = sql`(select ${shown} from ${row.from(areEqual(keyColumns(collection, row.alias), keys))})`;
  const missing = sql`case when service_raise('missing') then null::${typeName(field)} end`;
  return sql`case when ${key as Fragment} is not null then coalesce(${value}, ${missing}) end`;
}

function lookupNames({ collection: { key } }: NonNullable<WriteColumn['lookup']>, index: number): string[] {
  return key.length === 1 ? [`h${index}`] : key.map((_, part) => `h${index}_${part}`);
}

/** New rows whose key has several columns: its parts are columns of the payload, and become the key in the input. */
export function makesParts({ verb, collection, conflict }: WriteNode): boolean {
  return verb === 'insert' && collection.key.length > 1 && !conflict;
}

export function inputNames(node: WriteNode): string[] {
  const marks = node.guard?.ruleBits === null ? ['a'] : [];
  const names = node.columns.flatMap((column, index) => [
    ...(column.holdsValues ? [`c${index}`] : []),
    ...(column.mixed ? [`p${index}`] : []),
    ...(column.lookup ? lookupNames(column.lookup, index) : []),
    ...(column.endOf ? [`e${index}`] : []),
    ...(column.caller ? [`v${index}`] : []),
    ...column.references.map((_, table) => `r${index}_${table}`),
  ]);
  return [...marks, ...names];
}

function inputType(field: Field): Fragment {
  return isGeometry(field) ? sql`text` : typeName(field);
}

export function inputValue(field: Field, value: Fragment): Fragment {
  return isGeometry(field) ? geometryOf(value, field) : value;
}
