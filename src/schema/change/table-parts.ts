/** The parts of served tables that a query of the catalog finds: their indexes, or their checks. */
import { parseOwnJson } from '../../base/narrow.js';
import type { Model } from '../../mirror/model.js';
import type { Draft } from './change.js';
import { requireCollection } from './plan-names.js';

export interface TablePart {
  readonly schema: string;
  readonly table: string;
  readonly name: string;
}

/** Of one collection, or of all that have a table. Each part comes with the name of its collection. */
export async function findParts<Part extends TablePart>(
  draft: Draft,
  model: Model,
  query: string,
  collection: string | null,
): Promise<readonly (Part & { readonly collection: string })[]> {
  const names = new Map<string, string>();
  const wanted = collection === null ? model.collections.values() : [requireCollection(model, collection)];
  for (const { schema, table, name } of wanted) names.set(JSON.stringify([schema, table]), name);
  const parts = parseOwnJson<Part[]>(String(await draft.cell(query, [JSON.stringify(model.schemas)])));
  return parts.flatMap((part) => {
    const owner = names.get(JSON.stringify([part.schema, part.table]));
    return owner === undefined ? [] : [{ ...part, collection: owner }];
  });
}
