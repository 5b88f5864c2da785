/** Names that the parts of a write chain share. */
import type { WriteColumn, WriteNode } from '../plan/write.js';
import { alias, type Fragment, identifier, parameter, sql } from '../sql/fragment.js';

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

/** Whether the row at hand has the column, where that differs between rows; for one of the two if it says something else to each. */
export function present(node: WriteNode, column: WriteColumn, verb: 'insert' | 'update' | null = null): Fragment {
  const index = node.columns.indexOf(column);
  const named = sql`${alias('i')}.${identifier(`p${index}`)}`;
  if (!column.onlyInSome || verb === null) return named;
  const other = verb === 'insert' ? sql`'update'` : sql`'insert'`;
  return sql`(${named} and ${alias('i')}.${identifier(`o${index}`)} is distinct from ${other})`;
}

/** Where a chain leaves the keys that it made, for the rest of its transaction. */
export const KEYS_SETTING = sql`'lateral.keys'`;
