/**
 * The row part of an entity tag: the transaction that wrote the row or, where rows have no xmin, a digest of what the caller may read
 * (docs/decisions/entity-tags.md).
 */

import { digestedFields } from '../model/item-key.js';
import type { Collection } from '../model/model.js';
import { restrictionOf } from '../plan/access.js';
import type { RowLevel } from '../plan/plan.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../sql/fragment.js';
import { FromClause } from './from-clause.js';
import { JSON_COLUMN } from './json.js';

/** The name of the column that holds the row part. */
export const ROW_TAG: Fragment = alias('e');

/** Whether the row part is read: behind the body, or as a field. */
export function readsTag({ tagged, outputs }: RowLevel): boolean {
  return tagged === true || outputs.some(({ kind }) => kind === 'tag');
}

/** The body of a response with one item, followed by the row part of its entity tag. The service cuts that off: see http/etag.ts. */
export function itemBody({ tagged }: RowLevel, row: Fragment): Fragment {
  const end = tagged ? sql`('}' || ${row}.${ROW_TAG})` : sql`'}'`;
  return sql`'{"data":' || ${row}.${JSON_COLUMN} || ${end}`;
}

/** An entity tag of the row part alone, escaped as in JSON. */
export function quotedTag(tag: Fragment): Fragment {
  return sql`${literal('\\"')} || ${tag} || ${literal('\\"')}`;
}

/** As text. */
export function rowTag(source: FromClause): Fragment {
  return source.collection.rowTag === 'xmin' ? transactionOf(source.alias) : digestOf(source);
}

/** The transaction that wrote a row of a table. */
export function transactionOf(row: Fragment): Fragment {
  return sql`textin(xidout(${row}.xmin))`;
}

/** The items that a write may change only if they have one of the entity tags. */
export interface Matched {
  /** The collection as the caller may read it, or null if nothing of it may be read. */
  readonly readable: Collection | null;
}

/**
 * Whether the row has one of the tags, and the joins that this takes. A digest is compared only if the caller may read the row: otherwise the
 * values of the row could be found by trial.
 */
export function matchesTag({ readable }: Matched, row: FromClause, tags: Fragment): readonly [Fragment, Fragment] {
  const isAny = (tag: Fragment): Fragment => sql`${tag} = any(${tags}::text[])`;
  if (row.collection.rowTag === 'xmin') return [isAny(transactionOf(row.alias)), nothing];
  if (!readable || row.collection.rowTag === null) return [sql`false`, nothing];
  const source = new FromClause(row.alias, row.scope, readable);
  const rule = restrictionOf(readable)?.rows;
  const isVisible = rule ? source.holds(rule) : null;
  const matches = isAny(digestOf(source));
  return [isVisible ? sql`coalesce(${isVisible} and ${matches}, false)` : matches, source.joins()];
}

function digestOf(source: FromClause): Fragment {
  const values = digestedFields(source.collection).map((field) => source.column([], field));
  return sql`textin(int8out(hashtextextended(row(${join(values, sql`, `)})::text, 0)))`;
}
