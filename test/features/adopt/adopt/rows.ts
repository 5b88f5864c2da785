/** What an adoption has to make of each row of the plain data of Directus, column by column, and what it has made. */
import type { Sql } from '../../../support/service.js';

type Row = Readonly<Record<string, unknown>>;

export interface Adopted {
  readonly table: string;
  readonly expected: readonly unknown[];
  readonly found: readonly unknown[];
}

/** Rows of which nothing is to be had here, and columns that are another thing here. */
interface Difference {
  readonly isLeft?: (row: Row, rows: readonly Row[]) => boolean;
  readonly change?: (row: Row) => Row;
}

const TABLES: Readonly<Record<string, Difference>> = {
  // The number of attempts that Directus has by default is none here: attempts are slowed down instead.
  settings: { change: ({ id: _, ...row }) => ({ ...row, auth_login_attempts: null }) },
  folders: { change: (row) => (row['parent'] === row['id'] ? { ...row, parent: null } : row) },
  translations: { isLeft: (row, rows) => row !== rows.find((each) => isSame(row, each, ['key', 'language'])) },
  dashboards: {},
  panels: {},
  comments: {},
  // Keys that are numbers are given anew.
  presets: { change: ({ id: _, ...row }) => row },
  notifications: { change: ({ id: _, ...row }) => row },
  versions: {
    // Digests are made in another way, and who saved a change and when is not part of it.
    change: (row) => ({ ...row, hash: null, delta: withoutStamps(row['delta']) }),
  },
  shares: {},
};

export async function adoptedRows(sql: Sql): Promise<Adopted[]> {
  const tables: Adopted[] = [];
  for (const [table, { isLeft, change }] of Object.entries(TABLES)) {
    const columns = await sharedColumns(sql, table);
    const theirs = await rowsOf(sql, `directus_${table}`, columns);
    const ours = await rowsOf(sql, `service_${table}`, columns);
    const wanted = theirs.filter((row) => !isLeft?.(row, theirs)).map((row) => renamed(change ? change(row) : row));
    const without = ours.map((row) => ('id' in (wanted[0] ?? row) ? row : withoutKey(row)));
    tables.push({ table, expected: sorted(wanted), found: sorted(without) });
  }
  return tables;
}

async function sharedColumns(sql: Sql, table: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select column_name as name from information_schema.columns theirs
    where table_name = ${`directus_${table}`} and exists (
      select from information_schema.columns ours
      where ours.table_name = ${`service_${table}`} and ours.column_name = theirs.column_name)`;
  return rows.map(({ name }) => name);
}

async function rowsOf(sql: Sql, table: string, columns: readonly string[]): Promise<Row[]> {
  const list = columns.map((name) => `"${name}"`).join(', ');
  const rows = await sql.unsafe(`select to_json(picked) as row from (select ${list} from ${table}) picked`);
  return rows.map((each) => each['row'] as Row).sort(order);
}

function renamed(row: Row): Row {
  const { collection } = row;
  return typeof collection === 'string' ? { ...row, collection: collection.replace(/^directus_/, 'service_') } : row;
}

function withoutKey({ id: _, ...row }: Row): Row {
  return row;
}

function withoutStamps(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutStamps);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([name]) => name !== '_user' && name !== '_date');
  return Object.fromEntries(kept.map(([name, each]) => [name, withoutStamps(each)]));
}

function isSame(one: Row, other: Row, names: readonly string[]): boolean {
  return names.every((name) => one[name] === other[name]);
}

function sorted(rows: readonly Row[]): Row[] {
  return [...rows].sort(order);
}

function order(left: Row, right: Row): number {
  return canonical(left) < canonical(right) ? -1 : 1;
}

/** jsonb has its own order of names. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, each]) => `${name}:${canonical(each)}`)
    .sort()}}`;
}
