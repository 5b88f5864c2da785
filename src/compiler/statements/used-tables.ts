/** The collections whose tables a statement names, and the check that a statement names no others. */
import { type Collection, holdsTable, type Model } from '../model/model.js';
import type { Statement } from '../sql/fragment.js';
import { qualify } from '../sql/qualify.js';
import { namesInStatement, type StatementKind, verify } from '../sql/verify.js';

/** The statement, read by PostgreSQL's grammar: it touches tables of the model alone. */
export function checked(statement: Statement, kind: StatementKind, model: Model): Statement {
  verify(statement.text, kind, (schema, name) => holdsTable(model, schema, name));
  return statement;
}

/** The same with the names of the service's functions, which are in a schema that is known with the model. */
export function qualified({ text, parameters }: Statement, kind: StatementKind, model: Model): Statement {
  return checked({ text: qualify(text, model.system), parameters }, kind, model);
}

/** The collections whose tables a query names; undefined for a table that is none. */
export function collectionsIn(text: string, model: Model): readonly (Collection | undefined)[] {
  const byTable = tablesOf(model);
  return namesInStatement(text).tables.flatMap(({ schema, name }) =>
    schema === undefined ? [] : [byTable.get(tableKey(schema, name))],
  );
}

/** The collections whose tables a statement names. */
export function usedCollections(text: string, model: Model): readonly Collection[] {
  return collectionsIn(text, model).filter((collection) => collection !== undefined);
}

const tables = new WeakMap<Model, ReadonlyMap<string, Collection>>();

function tablesOf(model: Model): ReadonlyMap<string, Collection> {
  const known = tables.get(model);
  if (known) return known;
  const byTable = new Map([...model.collections.values()].map((each) => [tableKey(each.schema, each.table), each]));
  tables.set(model, byTable);
  return byTable;
}

function tableKey(schema: string, name: string): string {
  return `${schema}\0${name}`;
}
