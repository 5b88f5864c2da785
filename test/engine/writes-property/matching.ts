/**
 * Compares the rows of the database with those of the oracle. Keys that the database made are stand-ins there: a row with
 * such a key is found by its label and by whatever else is known of it, and its key is then put wherever it is referred to.
 */
import { countsUp } from './database.js';
import { type Model, type Row, type Table, tableNamed, type Value } from './model.js';
import { isStandIn, type State } from './oracle.js';

export interface Comparison {
  readonly difference: string | null;
  /** The keys behind the stand-ins. */
  readonly made: ReadonlyMap<string, Value>;
}

export function compareStates(model: Model, before: State, expected: State, found: State): Comparison {
  const made = matchMade(model, expected, found);
  for (const table of model.tables) {
    const wanted = new Map(
      [...rowsOf(expected, table).values()].map((row) => {
        const resolved = resolve(row, made);
        return [String(resolved[table.key.name]), resolved];
      }),
    );
    const difference = compareRows(table, wanted, rowsOf(found, table)) ?? compareKeys(table, before, made, expected);
    if (difference !== null) return { difference, made };
  }
  return { difference: null, made };
}

function compareRows(table: Table, wanted: ReadonlyMap<string, Row>, found: ReadonlyMap<string, Row>): string | null {
  for (const [key, row] of wanted) {
    const other = found.get(key);
    if (!other) return `${table.name} has no row ${JSON.stringify(row)}`;
    for (const { name } of table.columns) {
      if (row[name] !== other[name])
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

interface Search {
  readonly table: Table;
  readonly key: string;
  readonly row: Row;
}

function matchMade(model: Model, expected: State, found: State): ReadonlyMap<string, Value> {
  const made = new Map<string, Value>();
  const taken = new Set<string>();
  let open: Search[] = [...expected].flatMap(([name, rows]) =>
    [...rows].flatMap(([key, row]) => (isStandIn(key) ? [{ table: tableNamed(model, name), key, row }] : [])),
  );
  const byLabel = new Map<string, Row[]>();
  for (const [name, rows] of found) {
    for (const row of rows.values()) {
      const label = `${name}/${row['label']}`;
      byLabel.set(label, [...(byLabel.get(label) ?? []), row]);
    }
  }
  const candidates = ({ table, row }: Search): Row[] =>
    (byLabel.get(`${table.name}/${row['label']}`) ?? []).filter(
      (other) => !taken.has(`${table.name}/${other[table.key.name]}`) && isPossible(table, resolve(row, made), other),
    );
  const settle = ({ table, key }: Search, actual: Row): void => {
    made.set(key, actual[table.key.name] ?? null);
    taken.add(`${table.name}/${actual[table.key.name]}`);
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

function resolve(row: Row, made: ReadonlyMap<string, Value>): Row {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      const actual = isStandIn(value) ? made.get(value as string) : undefined;
      // A many-to-any reference is the text of a key.
      return [name, actual === undefined ? value : name === 'item' ? String(actual) : actual];
    }),
  );
}

function rowsOf(state: State, table: Table): ReadonlyMap<string, Row> {
  return state.get(table.name) ?? new Map();
}
