/** Two snapshots side by side: pairs of the same collection, field or relation, and what is created, dropped or recreated. */
import { groupBy } from '../../base/narrow.js';
import { flatMapSteps, mapSteps, type Steps } from '../../base/time-slices.js';
import { isColumn, isRegenerated } from './apply-columns.js';
import { keyOf } from './difference.js';
import type { FieldEntry, RelationEntry, Snapshot } from './parse-snapshot.js';

export interface Pair<Entry> {
  readonly before: Entry | null;
  readonly after: Entry | null;
}

export interface SnapshotPairs {
  readonly wanted: Snapshot;
  /** The fields of primary keys, by collection. */
  readonly wantedKeys: ReadonlyMap<string, readonly FieldEntry[]>;
  readonly collections: readonly Pair<Snapshot['collections'][number]>[];
  readonly fields: readonly Pair<FieldEntry>[];
  readonly relations: readonly Pair<RelationEntry>[];
  /** Collections whose table is dropped, or created. */
  readonly dropped: ReadonlySet<string>;
  readonly created: ReadonlySet<string>;
  /** Columns that change their type: foreign keys from or to them are dropped meanwhile. */
  readonly retyped: ReadonlySet<string>;
  /** Columns that are dropped by themselves, not with their table, by `keyOf`. */
  readonly gone: ReadonlySet<string>;
  /** Deleting a collection or field also clears rows of metadata that name it: those that stay are then written again. */
  readonly rewrites: boolean;
}

export function* compareEntries(current: Snapshot, wanted: Snapshot): Steps<SnapshotPairs> {
  const collections = yield* pairs(current.collections, wanted.collections);
  const fields = yield* pairs(current.fields, wanted.fields);
  const dropped = collections.filter(({ before, after }) => before?.schema && !after?.schema);
  const created = collections.filter(({ before, after }) => after?.schema && !before?.schema);
  const leaves = ({ before, after }: Pair<unknown>): boolean => before !== null && after === null;
  const droppedNames = new Set(dropped.map(({ before }) => before?.collection ?? ''));
  const isGone = (pair: Pair<FieldEntry>): boolean =>
    !droppedNames.has(pair.before?.collection ?? '') && (pair.after === null || isReplaced(pair));
  return {
    wanted,
    wantedKeys: groupBy(
      wanted.fields.filter(({ schema }) => schema?.is_primary_key),
      ({ collection }) => collection,
    ),
    collections,
    fields,
    relations: yield* pairs(current.relations, wanted.relations),
    dropped: droppedNames,
    gone: new Set(yield* flatMapSteps(fields, (pair) => (pair.before && isGone(pair) ? [keyOf(pair.before)] : []))),
    created: new Set(created.map(({ after }) => after?.collection ?? '')),
    retyped: new Set(yield* flatMapSteps(fields, (pair) => (isRetyped(pair) && pair.after ? [keyOf(pair.after)] : []))),
    rewrites: collections.some(leaves) || fields.some(leaves),
  };
}

function* pairs<Entry extends { readonly collection: string; readonly field?: string }>(
  before: readonly Entry[],
  after: readonly Entry[],
): Steps<Pair<Entry>[]> {
  const former = new Map(yield* mapSteps(before, (entry) => [keyOf(entry), entry] as const));
  const kept = new Set<Entry>();
  const list = yield* mapSteps(after, (entry): Pair<Entry> => {
    const other = former.get(keyOf(entry)) ?? null;
    if (other) kept.add(other);
    return { before: other, after: entry };
  });
  const left = [...former.values()].filter((entry) => !kept.has(entry));
  return [...list, ...left.map((entry) => ({ before: entry, after: null }))];
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

/** Those of collections that are in the database now, by name. */
export function presentPairs({
  collections,
}: SnapshotPairs): ReadonlyMap<string, SnapshotPairs['collections'][number]> {
  return new Map(collections.flatMap((pair) => (pair.before ? [[pair.before.collection, pair] as const] : [])));
}
