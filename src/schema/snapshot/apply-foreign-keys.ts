/** Foreign keys over several columns: they go before anything else is changed, and come once everything is there. */
import { behaviourIn } from '../../mirror/model.js';
import type { DdlStatement } from '../change/ddl-statement.js';
import { constraintName } from '../change/plan-names.js';
import { canonical, keyOf } from './difference.js';
import type { CollectionEntry } from './parse-snapshot.js';
import type { SnapshotForeignKey } from './parse-table.js';
import { type Pair, presentPairs, type SnapshotPairs } from './snapshot-pairs.js';
import type { Details, ForeignKeyDetail } from './snapshot-scope.js';

/** One that no snapshot describes stays, unless it would keep a table from leaving. */
export function dropForeignKeys(work: SnapshotPairs, { foreignKeys }: Details): DdlStatement[] {
  const present = presentPairs(work);
  return foreignKeys.flatMap((key): DdlStatement[] => {
    const { collection: table, name, related_collection } = key;
    const pair = present.get(table);
    if (!pair) return [];
    const leaves = work.dropped.has(table) || work.dropped.has(related_collection);
    const isCarried = holds(pair.before, key);
    const stays = isCarried ? keeps(pair, key, work) : !leaves;
    return stays ? [] : [{ kind: 'drop-constraint', table, name }];
  });
}

export function addForeignKeys(work: SnapshotPairs): DdlStatement[] {
  return work.collections.flatMap((pair) =>
    (pair.after?.schema?.foreign_keys ?? []).flatMap((key): DdlStatement[] => {
      const table = pair.after?.collection ?? '';
      if (keeps(pair, key, work)) return [];
      const { fields, related_collection: target, related_fields } = key;
      // Several over the same columns have different names.
      const name = constraintName(table, `${fields.join()},${target}(${related_fields.join()})`, 'foreign');
      return [
        {
          kind: 'add-foreign-key',
          table,
          columns: fields,
          name,
          target,
          key: related_fields,
          behaviour: behaviourIn(key),
        },
      ];
    }),
  );
}

function keeps({ before, after }: Pair<CollectionEntry>, key: SnapshotForeignKey, work: SnapshotPairs): boolean {
  return holds(before, key) && holds(after, key) && !mustBeRecreated(after?.collection ?? '', key, work);
}

function holds(entry: CollectionEntry | null, key: SnapshotForeignKey | ForeignKeyDetail): boolean {
  const text = textOf(key);
  return entry?.schema?.foreign_keys?.some((each) => textOf(each) === text) ?? false;
}

function textOf(key: SnapshotForeignKey): string {
  return canonical([key.fields, key.related_collection, key.related_fields, behaviourIn(key)]);
}

/** One of the tables or columns is dropped, recreated or changes its type: the constraint cannot stay meanwhile. */
function mustBeRecreated(collection: string, key: SnapshotForeignKey, work: SnapshotPairs): boolean {
  const { fields, related_collection: related, related_fields } = key;
  if ([collection, related].some((name) => work.created.has(name) || work.dropped.has(name))) return true;
  const isAltered = (key: string): boolean => work.gone.has(key) || work.retyped.has(key);
  return (
    fields.some((field) => isAltered(keyOf({ collection, field }))) ||
    related_fields.some((field) => isAltered(keyOf({ collection: related, field })))
  );
}
