/** The parts of served tables that a query of the catalog finds: their indexes, or their checks. */

import { forbidden, invalidPayload } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Collection, Model } from '../../mirror/model.js';
import { requireObject } from '../../request/write.js';
import { readSql } from '../../sql/read-sql.js';
import type { Draft } from './change.js';
import type { DdlStatement } from './ddl-statement.js';
import { addIndex } from './plan-columns.js';
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

const INDEXES = readSql('indexes.sql');

interface IndexFacts extends TablePart {
  /** In the order of the index, with null for an expression. */
  readonly columns: readonly (string | null)[];
  readonly method: string;
  readonly definition: string;
  readonly unique: boolean;
  readonly primary: boolean;
  /** The kind of the constraint that it belongs to, or null. */
  readonly constraint: 'p' | 'u' | 'x' | null;
  readonly valid: boolean;
  readonly bytes: number | null;
  readonly scans: number;
}

interface IndexObject {
  readonly collection: string;
  readonly name: string;
  readonly fields: readonly (string | null)[];
  readonly method: string;
  readonly definition: string;
  readonly is_unique: boolean;
  readonly is_primary_key: boolean;
  readonly is_constraint: boolean;
  readonly is_valid: boolean;
  /** In bytes, or null for a partitioned table. */
  readonly size: number | null;
  readonly scans: number;
}

/** Those of one collection, or of all that have a table. */
export async function describeIndexes(
  draft: Draft,
  model: Model,
  collection: string | null,
): Promise<readonly IndexObject[]> {
  const indexes = await findParts<IndexFacts>(draft, model, INDEXES, collection);
  return indexes.map((facts) => ({
    collection: facts.collection,
    name: facts.name,
    fields: facts.columns,
    method: facts.method,
    definition: facts.definition,
    is_unique: facts.unique,
    is_primary_key: facts.primary,
    is_constraint: facts.constraint !== null,
    is_valid: facts.valid,
    size: facts.bytes,
    scans: facts.scans,
  }));
}

interface NewIndex {
  readonly fields: readonly string[];
  readonly isUnique: boolean;
}

export function parseIndex(body: unknown): NewIndex {
  const { fields, is_unique: isUnique = false, ...rest } = requireObject(body, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed: the body takes fields, is_unique`);
  const isList = Array.isArray(fields) && fields.every((each) => typeof each === 'string');
  if (!isList || fields.length === 0 || new Set(fields).size < fields.length)
    throw invalidPayload('"fields" must be a list of fields, each once');
  if (typeof isUnique !== 'boolean') throw invalidPayload('"is_unique" must be true or false');
  return { fields, isUnique };
}

export async function createIndex(draft: Draft, collection: string, index: NewIndex): Promise<IndexObject> {
  const step = planIndex(requireCollection(await draft.model(), collection), index);
  await draft.execute([step]);
  const indexes = await describeIndexes(draft, await draft.model(), collection);
  const created = indexes.find(({ name }) => name === step.name);
  if (!created) throw new Error(`the index ${step.name} was created and not found`);
  return created;
}

function planIndex(collection: Collection, { fields, isUnique }: NewIndex): DdlStatement & { readonly name: string } {
  if (collection.kind === 'view') throw invalidPayload(`"${collection.name}" is a view: it has no indexes`);
  const columns = fields.map((name) => {
    const field = collection.fields.get(name);
    if (!field?.column || field.computed) throw invalidPayload(`"${collection.name}" has no column "${name}"`);
    return field.column.name;
  });
  return addIndex(collection.name, columns, isUnique ? 'unique' : 'index');
}

export async function dropIndex(draft: Draft, collection: string, name: string): Promise<void> {
  const indexes = await findParts<IndexFacts>(draft, await draft.model(), INDEXES, collection);
  const facts = indexes.find((each) => each.name === name);
  if (!facts) throw forbidden(`The collection "${collection}" has no index "${name}".`);
  if (facts.constraint === 'p') throw invalidPayload('The index of the primary key cannot be dropped');
  if (facts.constraint === 'x') throw invalidPayload(`The index "${name}" belongs to an exclusion constraint`);
  await draft.execute([{ kind: facts.constraint === 'u' ? 'drop-constraint' : 'drop-index', table: collection, name }]);
}
