/** Names that the parts of a write chain share. */
import type { Field } from '../mirror/model.js';
import type { WriteColumn, WriteNode } from '../plan/write.js';
import { alias, type Fragment, identifier, literal, parameter, sql } from '../sql/fragment.js';

/** The one parameter with all rows. */
export const DOCUMENT = sql`${parameter({ kind: 'text', slot: 0 })}::json`;

/** The rows of a list as they came, with their keys. */
export function input(position: number): Fragment {
  return alias(`i${position}`);
}

/** The statement that writes a list. */
export function written(position: number): Fragment {
  return alias(`w${position}`);
}

/** Whether the row at hand has the column, where that differs between rows. */
export function present(node: WriteNode, column: WriteColumn): Fragment {
  return sql`${alias('i')}.${identifier(`p${node.columns.indexOf(column)}`)}`;
}

/** What is written to the field where a row is made, or changed. */
export function columnOf(node: WriteNode, field: Field | null, verb: 'insert' | 'update'): WriteColumn | undefined {
  return node.columns.find((column) => column.field === field && (column.only ?? verb) === verb);
}

/** Where a chain leaves the keys that it made, for the rest of its transaction. */
export const KEYS_SETTING = sql`'lateral.keys'`;

/** The same for one part of keys of several columns. */
export function keyPartSetting(position: number): Fragment {
  return literal(`lateral.key${position}`);
}
