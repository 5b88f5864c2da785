/**
 * Compares the rows of the database with those of the oracle. Keys that the database made are stand-ins there: a row with
 * such a key is found by its label and by whatever else is known of it, and its key is then put wherever it is referred to.
 */
import { countsUp } from './database.js';
import { keyOf, type Model, type Row, type Table, tableNamed, type Value } from './model.js';
import { isStandIn, type State } from './oracle.js';

export interface Comparison {
  readonly difference: string | null;
  /** The keys behind the stand-ins. */
  readonly made: ReadonlyMap<string, Value>;
}

export function compareStates(model: Model, before: State, expected: State, found: State): Comparison {
  const made = matchMade(model, expected, found);
  for (const table of model.tables) {
    const rows = [...rowsOf(expected, table).values()].map((row) => resolve(row, made));
    const wanted = byKey(table, rows);
    const actual = byKey(table, [...rowsOf(found, table).values()]);
    const isDangling = danglingIn(table, expected, found);
    const difference = compareRows(table, wanted, actual, isDangling) ?? compareKeys(table, before, made, expected);
    if (difference !== null) return { difference, made };
  }
  return { difference: null, made };
}

/** Rows without a key have no order either: PostgreSQL puts one that a foreign key has changed behind the others. */
function byKey(table: Table, rows: readonly Row[]): ReadonlyMap<string, Row> {
  if (table.key.kind !== 'none') return new Map(rows.map((row) => [String(keyOf(table, row)), row]));
  const textOf = (row: Row): string => JSON.stringify(table.columns.map(({ name }) => row[name]));
  const sorted = rows.toSorted((one, other) => (textOf(one) < textOf(other) ? -1 : 1));
  return new Map(sorted.map((row, position) => [`row ${position}`, row]));
}

type IsDangling = (column: string, wanted: Value, actual: Value) => boolean;

/** A reference to a new row that is gone at the end, where no constraint forbids it: of its key nothing is known but that nobody has it. */
function danglingIn(table: Table, expected: State, found: State): IsDangling {
  return (column, wanted, actual) => {
    const relation = table.relations.find(
      (each) => each.kind === 'one' && each.columns.some((pair) => pair.column === column),
    );
    if (relation?.kind !== 'one' || relation.constrained || !isStandIn(wanted) || actual === null) return false;
    const keys = [...(expected.get(relation.target)?.keys() ?? [])];
    return !keys.some((key) => key.includes(String(wanted))) && !found.get(relation.target)?.has(String(actual));
  };
}

function compareRows(
  table: Table,
  wanted: ReadonlyMap<string, Row>,
  found: ReadonlyMap<string, Row>,
  isDangling: IsDangling,
): string | null {
  for (const [key, row] of wanted) {
    const other = found.get(key);
    if (!other) return `${table.name} has no row ${JSON.stringify(row)}`;
    for (const { name } of table.columns) {
      const [value = null, actual = null] = [row[name], other[name]];
      if (value !== actual && !isDangling(name, value, actual))
        return `${table.name} ${key}: "${name}" is ${JSON.stringify(other[name])}, expected ${JSON.stringify(row[name])}`;
    }
  }
  for (const [key, row] of found)
    if (!wanted.has(key)) return `${table.name} has a row too many: ${JSON.stringify(row)}`;
  return null;
}

/** A key that was made is ahead of all that were there. */
function compareKeys(table: Table, before: State, made: ReadonlyMap<string, Value>, expected: State): string | null {
  if (!countsUp(table)) return null;
  const highest = Math.max(0, ...[...rowsOf(before, table).keys()].map(Number));
  for (const key of rowsOf(expected, table).keys()) {
    const actual = made.get(key);
    if (actual !== undefined && Number(actual) <= highest)
      return `${table.name}: the key ${actual} was made, though ${highest} was there`;
  }
  return null;
}

/** A row with a stand-in in the column of its key that the database fills. */
interface Search {
  readonly table: Table;
  readonly column: string;
  readonly row: Row;
}

function matchMade(model: Model, expected: State, found: State): ReadonlyMap<string, Value> {
  const made = new Map<string, Value>();
  const taken = new Set<string>();
  let open: Search[] = [...expected].flatMap(([name, rows]) => {
    const table = tableNamed(model, name);
    const column = table.columns.find(({ counts }) => counts)?.name ?? table.key.name;
    return [...rows.values()].flatMap((row) => (isStandIn(row[column]) ? [{ table, column, row }] : []));
  });
  const byLabel = new Map<string, Row[]>();
  for (const [name, rows] of found) {
    for (const row of rows.values()) {
      const label = `${name}/${row['label']}`;
      byLabel.set(label, [...(byLabel.get(label) ?? []), row]);
    }
  }
  const candidates = ({ table, row }: Search): Row[] =>
    (byLabel.get(`${table.name}/${row['label']}`) ?? []).filter(
      (other) => !taken.has(`${table.name}/${keyOf(table, other)}`) && isPossible(table, resolve(row, made), other),
    );
  const settle = ({ table, column, row }: Search, actual: Row): void => {
    made.set(String(row[column]), actual[column] ?? null);
    taken.add(`${table.name}/${keyOf(table, actual)}`);
  };
  while (open.length > 0) {
    const rest = open.filter((search) => {
      const [first, ...others] = candidates(search);
      if (first === undefined || others.length > 0) return true;
      settle(search, first);
      return false;
    });
    if (rest.length === open.length) {
      // None is certain: those that are left are alike, or one of them is wrong and shows so in the comparison.
      const search = rest.find((each) => candidates(each).length > 0);
      if (!search) return made;
      settle(search, candidates(search)[0] as Row);
      rest.splice(rest.indexOf(search), 1);
    }
    open = rest;
  }
  return made;
}

function isPossible(table: Table, wanted: Row, other: Row): boolean {
  return table.columns.every(({ name }) => isStandIn(wanted[name]) || wanted[name] === other[name]);
}

export function resolve(row: Row, made: ReadonlyMap<string, Value>): Row {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      if (name === 'item') return [name, resolveText(value ?? null, made)];
      const actual = isStandIn(value) ? made.get(value as string) : undefined;
      return [name, actual === undefined ? value : actual];
    }),
  );
}

function rowsOf(state: State, table: Table): ReadonlyMap<string, Row> {
  return state.get(table.name) ?? new Map();
}

/** A many-to-any reference is the text of a key, of which parts may be stand-ins. */
function resolveText(text: Value, made: ReadonlyMap<string, Value>): Value {
  if (typeof text !== 'string') return text;
  return text.replace(/made:\d+/g, (found) => String(made.get(found) ?? found));
}
