/**
 * The indexes of the served tables with their size and use, and their check constraints: how they are found in the catalog, created and
 * dropped.
 */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import { requireObject } from '../../compiler/request/write.js';
import { constraintName } from '../../compiler/sql/constraint-name.js';
import { complaintAbout } from '../../compiler/sql/vet.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { Draft } from '../../server/schema/change/change.js';
import type { Alteration, DdlStatement } from '../../server/schema/change/ddl-statement.js';
import { addIndex } from '../../server/schema/change/plan-columns.js';
import { checkNewName, requireCollection } from '../../server/schema/change/plan-names.js';

interface TablePart {
  readonly schema: string;
  readonly table: string;
  readonly name: string;
}

/** The parts of a kind (indexes or checks) of one collection, or of all that have a table, each with the name of its collection. */
async function findParts<Part extends TablePart>(
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

const INDEXES = readSql('features', 'database-objects', 'indexes.sql');

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

/** The indexes of one collection, or of all that have a table. */
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

const CHECKS = readSql('features', 'database-objects', 'checks.sql');

interface CheckFacts extends TablePart {
  readonly columns: readonly string[];
  readonly expression: string;
  readonly valid: boolean;
  readonly inherited: boolean;
}

interface CheckObject {
  readonly collection: string;
  readonly name: string;
  readonly fields: readonly string[];
  readonly expression: string;
  /** False if PostgreSQL has not checked the existing rows (`not valid`). */
  readonly is_valid: boolean;
}

/** The check constraints of one collection, or of all that have a table. */
export async function describeChecks(
  draft: Draft,
  model: Model,
  collection: string | null,
): Promise<readonly CheckObject[]> {
  const checks = await findParts<CheckFacts>(draft, model, CHECKS, collection);
  return checks.map(({ collection, name, columns, expression, valid }) => ({
    collection,
    name,
    fields: columns,
    expression,
    is_valid: valid,
  }));
}

interface NewCheck {
  readonly expression: string;
  readonly name: string | null;
}

export function parseCheck(body: unknown): NewCheck {
  const { expression, name = null, ...rest } = requireObject(body, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed: the body takes expression, name`);
  if (typeof expression !== 'string' || expression.trim() === '')
    throw invalidPayload('"expression" must be a condition, such as "views >= 0"');
  if (name !== null && typeof name !== 'string') throw invalidPayload('"name" must be a string');
  return { expression, name };
}

export async function createCheck(draft: Draft, collection: string, check: NewCheck): Promise<CheckObject> {
  const model = await draft.model();
  const before = await describeChecks(draft, model, collection);
  const step = planCheck(requireCollection(model, collection), check, new Set(before.map(({ name }) => name)));
  await draft.execute([step]);
  const created = (await describeChecks(draft, await draft.model(), collection)).find(({ name }) => name === step.name);
  if (!created) throw new Error(`the check ${step.name} was created and not found`);
  return created;
}

function planCheck(
  collection: Collection,
  { expression, name }: NewCheck,
  taken: ReadonlySet<string>,
): Alteration & { readonly kind: 'add-check' } {
  checkTable(collection);
  const columns = [...collection.fields.values()].flatMap(({ column, computed }) =>
    column && !computed ? [column.name] : [],
  );
  const complaint = complaintAbout(expression, columns);
  if (complaint !== null) throw invalidPayload(`The check cannot be used: ${complaint}`);
  if (name !== null) checkNewName(name);
  return {
    kind: 'add-check',
    table: collection.name,
    name:
      name ??
      freeName(
        collection.name,
        columns.filter((column) => isNamed(expression, column)),
        taken,
      ),
    text: expression,
  };
}

function checkTable({ name, kind, system }: Collection): void {
  if (kind === 'view') throw invalidPayload(`"${name}" is a view: it has no checks`);
  if (system) throw invalidPayload(`"${name}" belongs to the service: its checks cannot be changed`);
}

/** A guess for the name of the check alone: a string that holds the name of a column is no harm. */
function isNamed(expression: string, column: string): boolean {
  return expression.split(/\W+/).includes(column);
}

/** As PostgreSQL names checks, with a number if there is one of that name already. */
function freeName(table: string, columns: readonly string[], taken: ReadonlySet<string>): string {
  for (let number = 0; ; number++) {
    const name = constraintName(table, [...columns, ...(number ? [number] : [])].join('_'), 'check');
    if (!taken.has(name)) return name;
  }
}

export async function dropCheck(draft: Draft, collection: string, name: string): Promise<void> {
  const model = await draft.model();
  const owner = requireCollection(model, collection);
  const checks = await findParts<CheckFacts>(draft, model, CHECKS, collection);
  const facts = checks.find((each) => each.name === name);
  if (!facts) throw forbidden(`The collection "${collection}" has no check "${name}".`);
  checkTable(owner);
  if (facts.inherited) throw invalidPayload(`The table inherits the check "${name}": drop it from the parent table`);
  await draft.execute([{ kind: 'drop-constraint', table: collection, name }]);
}
