/** What somebody may see, found by looking at every row: a model with nothing else in it, for the oracle of reads to work on. */
import type { Model, Relation, Row, Table } from '../../items/property/model.js';
import { type Drawn, grants, holds, type Rule, rulesOf } from './policies.js';

export function viewOf(model: Model, drawn: Drawn): Model {
  const seen = model.tables.filter(({ name }) => rulesOf(drawn, 'read', name).length > 0);
  const names = new Set(seen.map(({ name }) => name));
  return { ...model, tables: seen.map((table) => viewTable(table, model, drawn, names)) };
}

function viewTable(table: Table, model: Model, drawn: Drawn, names: ReadonlySet<string>): Table {
  const rules = rulesOf(drawn, 'read', table.name);
  const matching = (row: Row | null): Rule[] => rules.filter((rule) => holds(model, rule, drawn.person, table, row));
  const isGranted = (field: string): boolean => rules.some((rule) => grants(rule, field));
  const columns = table.columns.filter(({ name }) => isGranted(name));
  const wholes = new Map<Row, Row>();
  const rows = table.rows.flatMap((row) => {
    const found = matching(row);
    if (found.length === 0) return [];
    const shown = Object.fromEntries(
      columns.map(({ name }) => [name, found.some((rule) => grants(rule, name)) ? (row[name] ?? null) : null]),
    );
    wholes.set(shown, row);
    return [shown];
  });
  const whole = (row: Row): Row => wholes.get(row) ?? row;
  const granted = table.relations.filter(({ name }) => isGranted(name));
  const leads = (relation: Relation): boolean =>
    relation.kind === 'any' ? relation.targets.some((name) => names.has(name)) : names.has(relation.target);
  // Rules about the same rows are one; where all of them grant a field, or one about all rows, it is in every row.
  const textOf = ({ where }: Rule): string => (where === null || isAlways(where) ? '{}' : JSON.stringify(where));
  const isMasked = (name: string): boolean => {
    const granting = new Set(rules.filter((rule) => grants(rule, name)).map(textOf));
    return !granting.has('{}') && granting.size < new Set(rules.map(textOf)).size;
  };
  return {
    ...table,
    columns,
    rows,
    relations: granted.filter(leads).map((each) => narrowed(each, drawn, names)),
    sortField: table.sortField !== null && isGranted(table.sortField) ? table.sortField : null,
    searchField: table.searchField !== null && isGranted(table.searchField) ? table.searchField : null,
    view: {
      whole,
      lists: (row, relation) => {
        if (!isMasked(relation)) return true;
        return matching(row && whole(row)).some((rule) => grants(rule, relation));
      },
      cut: granted.filter((each) => !leads(each)),
      isMasked,
    },
  };
}

/** A filter without a condition. */
function isAlways(filter: object): boolean {
  return Object.entries(filter).every(([key, value]) => {
    if (key === '_and') return (value as object[]).every(isAlways);
    return key === '_or' && ((value as object[]).length === 0 || (value as object[]).some(isAlways));
  });
}

/** Only to what may be seen, in an order that may be known. */
function narrowed(relation: Relation, drawn: Drawn, names: ReadonlySet<string>): Relation {
  if (relation.kind === 'any') return { ...relation, targets: relation.targets.filter((name) => names.has(name)) };
  if (relation.kind === 'one' || relation.sortField === null) return relation;
  const { sortField } = relation;
  const rules = rulesOf(drawn, 'read', relation.target);
  return { ...relation, sortField: rules.some((rule) => grants(rule, sortField)) ? sortField : null };
}
