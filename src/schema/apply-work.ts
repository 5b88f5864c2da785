/** What two snapshots say of the same collections, fields and relations, side by side, and what leaves, comes or is made anew. */
import { isColumn, isRegenerated } from './apply-columns.js';
import { keyOf } from './difference.js';
import type { FieldEntry, RelationEntry, Snapshot } from './parse-snapshot.js';

export interface Pair<Entry> {
  readonly before: Entry | null;
  readonly after: Entry | null;
}

export interface Work {
  readonly wanted: Snapshot;
  readonly collections: readonly Pair<Snapshot['collections'][number]>[];
  readonly fields: readonly Pair<FieldEntry>[];
  readonly relations: readonly Pair<RelationEntry>[];
  /** Collections whose table leaves, or comes. */
  readonly dropped: ReadonlySet<string>;
  readonly made: ReadonlySet<string>;
  /** Columns that change their type: a reference from or to them is taken off for the time being. */
  readonly retyped: ReadonlySet<string>;
  /** Whatever leaves is forgotten everywhere, also by rows that stay: then these are written again. */
  readonly rewrites: boolean;
}

export function compareEntries(current: Snapshot, wanted: Snapshot): Work {
  const collections = pairs(current.collections, wanted.collections);
  const fields = pairs(current.fields, wanted.fields);
  const dropped = collections.filter(({ before, after }) => before?.schema && !after?.schema);
  const made = collections.filter(({ before, after }) => after?.schema && !before?.schema);
  const leaves = ({ before, after }: Pair<unknown>): boolean => before !== null && after === null;
  return {
    wanted,
    collections,
    fields,
    relations: pairs(current.relations, wanted.relations),
    dropped: new Set(dropped.map(({ before }) => before?.collection ?? '')),
    made: new Set(made.map(({ after }) => after?.collection ?? '')),
    retyped: new Set(fields.flatMap((pair) => (isRetyped(pair) && pair.after ? [keyOf(pair.after)] : []))),
    rewrites: collections.some(leaves) || fields.some(leaves),
  };
}

function pairs<Entry extends { readonly collection: string; readonly field?: string }>(
  before: readonly Entry[],
  after: readonly Entry[],
): Pair<Entry>[] {
  const former = new Map(before.map((entry) => [keyOf(entry), entry]));
  const list: Pair<Entry>[] = after.map((entry) => ({ before: former.get(keyOf(entry)) ?? null, after: entry }));
  for (const entry of after) former.delete(keyOf(entry));
  return [...list, ...[...former.values()].map((entry) => ({ before: entry, after: null }))];
}

function isRetyped({ before, after }: Pair<FieldEntry>): boolean {
  return Boolean(before?.schema && after?.schema && before.schema.data_type !== after.schema.data_type);
}

/** An alias becomes a column or the other way round, or the expression of a generated column changes. */
export function isReplaced({ before, after }: Pair<FieldEntry>): boolean {
  if (!before || !after) return false;
  if (isColumn(before) && isColumn(after)) return isRegenerated(before.schema, after.schema);
  return isColumn(before) !== isColumn(after);
}

/** The column goes on its own, not with its table. */
export function isGone(pair: Pair<FieldEntry>, { dropped }: Work): boolean {
  const { before, after } = pair;
  return before !== null && !dropped.has(before.collection) && (after === null || isReplaced(pair));
}
