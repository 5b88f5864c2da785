/**
 * Rows that name an item by its collection and its key, as comments do. No foreign key can say so, and whoever writes such a row must be
 * able to read the item: the answer would tell whether it exists, and others would find the row beside it.
 */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { servedCollection } from '../../plan/read.js';
import { checkKey } from '../../plan/write/key.js';
import type { PlannedWrite } from '../../plan/write/write.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { Parsed } from '../../request/ast.js';
import type { ParseLimits } from '../../request/parse-context.js';
import { parseCountOfKeys } from '../../request/rest.js';
import type { Key } from '../../request/write.js';
import { billWriter } from '../caller-budget.js';
import type { Reads } from '../reads/reads.js';
import type { Writer } from '../writer.js';

/** Content versions, which need more, have checks of their own (versions.ts). */
export const NAMING_ITEMS: ReadonlySet<string> = new Set(['service_comments']);

/** Each collection that is named takes a statement of its own. */
const MAX_COLLECTIONS = 20;

/**
 * In the transaction of the write: what was made before may be named. Administrators read everything, and may comment on what is not there
 * yet.
 */
export async function checkNamedItems(
  planned: PlannedWrite,
  writer: Writer,
  { reads, limits }: { readonly reads: Reads; readonly limits: { readonly parse: ParseLimits } },
  session: Session,
): Promise<void> {
  const { caller } = writer;
  if (caller.administrator || !planned.plan.nodes.some(({ collection }) => NAMING_ITEMS.has(collection.name))) return;
  if (caller.user === null) throw forbidden();
  const named = namedItems(planned);
  if (named.size > MAX_COLLECTIONS)
    throw invalidPayload(`One request can name items of at most ${MAX_COLLECTIONS} collections`);
  for (const [name, items] of named) {
    const queryOf = (keys: readonly Key[]): Parsed => parseCountOfKeys(name, keys, limits.parse);
    // First of all whether the collection may be read: what is wrong with a key tells that there is one.
    const compiled = reads.compile(queryOf([...items]), caller, null, billWriter(writer));
    const collection = servedCollection(planned.model, name);
    // Two texts of one key are one item.
    const keys = [...new Set([...items].map((key) => checkKey(collection, key)))];
    const { text, parameters, prepare } = reads.bind({ query: queryOf(keys), compiled, caller });
    const cell = await session.cell(text, parameters, prepare);
    if (!String(cell).includes(`"count":${keys.length}}`)) throw forbidden();
  }
}

/** Keys by collection. A row that is changed names an item with both fields or with none. */
function namedItems({ plan, input }: PlannedWrite): ReadonlyMap<string, ReadonlySet<string>> {
  const named = new Map<string, Set<string>>();
  plan.nodes.forEach(({ collection, columns, verb }, position) => {
    if (!NAMING_ITEMS.has(collection.name)) return;
    const indexes = (name: string): number[] =>
      columns.flatMap(({ field }, index) => (field.name === name ? index : []));
    const [collections, items] = [indexes('collection'), indexes('item')];
    for (const row of input.nodes[position] ?? []) {
      const isSet = [...collections, ...items].some((index) => `c${index}` in row || `v${index}` in row);
      if (verb === 'update' && !isSet) continue;
      const valueIn = (of: readonly number[]): unknown =>
        of.map((index) => row[`c${index}`]).find((value) => value != null);
      const [name, key] = [valueIn(collections), valueIn(items)];
      if (typeof name !== 'string' || typeof key !== 'string') throw forbidden();
      named.set(name, (named.get(name) ?? new Set()).add(key));
    }
  });
  return named;
}
