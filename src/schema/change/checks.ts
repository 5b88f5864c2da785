/** The check constraints of the served tables, and the steps that create and drop one. */
import { forbidden, invalidPayload } from '../../base/errors.js';
import type { Collection, Model } from '../../mirror/model.js';
import { requireObject } from '../../request/write.js';
import { constraintName } from '../../sql/constraint-name.js';
import { readSql } from '../../sql/read-sql.js';
import { complaintAbout } from '../../sql/vet.js';
import type { Draft } from './change.js';
import type { Alteration } from './ddl-statement.js';
import { checkNewName, requireCollection } from './plan-names.js';
import { findParts, type TablePart } from './table-parts.js';

const CHECKS = readSql('checks.sql');

interface CheckFacts extends TablePart {
  readonly columns: readonly string[];
  readonly expression: string;
  readonly valid: boolean;
  readonly inherited: boolean;
}

export interface CheckObject {
  readonly collection: string;
  readonly name: string;
  readonly fields: readonly string[];
  readonly expression: string;
  /** False if PostgreSQL has not checked the existing rows (`not valid`). */
  readonly is_valid: boolean;
}

/** Those of one collection, or of all that have a table. */
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

export interface NewCheck {
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
