/**
 * Every golden statement is read by two parsers that were built apart from each other: libpg-query, which the service uses,
 * with the grammar of PostgreSQL 18, and pg-query-emscripten with that of PostgreSQL 16. Both have to understand the same.
 * The older grammar refuses none of them, which matters for servers of PostgreSQL 15 and 16.
 */
import { isDeepStrictEqual } from 'node:util';
import { parseSync as parseNewer } from 'libpg-query';
import SecondParser from 'pg-query-emscripten';
import t from 'tap';
import { loadGrammar } from '../../src/sql/grammar.js';
import { GOLDEN_FOLDERS, goldenNames, readGolden } from '../support/golden.js';

await loadGrammar();
const second = await new SecondParser();
// It puts each text on its stack and leaves it there, which ends in a corrupt memory: 0 stands for the heap, where it is freed.
second.ALLOC_STACK = 0;

/** Where something stands in the text: only one of the two says all of these. */
const PLACES = new Set([
  'location',
  'stmt_location',
  'stmt_len',
  'rexpr_list_start',
  'rexpr_list_end',
  'list_start',
  'list_end',
]);

for (const folder of GOLDEN_FOLDERS) {
  for (const name of await goldenNames(folder)) {
    t.test(`${folder}/${name}`, async (t) => {
      const text = await readGolden(folder, name);
      const { parse_tree: older, error } = second.parse(text);
      t.equal(error?.message, undefined);
      const newer = parseNewer(text);
      t.ok(newer.stmts?.length);
      t.strictSame(tablesOf(older), tablesOf(newer), 'the same tables');
      t.ok(isDeepStrictEqual(comparable(older.stmts), comparable(newer.stmts)), 'the same tree');
    });
  }
}

t.test('the second parser refuses what is no SQL, and has the older grammar', async (t) => {
  t.match(second.parse('select from where'), { error: { message: 'syntax error at or near "where"' } });
  const virtual = 'create table t (a int, b int generated always as (a) virtual)';
  t.match(second.parse(virtual), { error: { message: /syntax error/ } });
  t.equal(parseNewer(virtual).stmts?.length, 1);
});

/** Schema and name of each table that a tree names, once each. */
function tablesOf(tree: unknown): readonly string[] {
  const tables = new Set<string>();
  walk(tree, ({ relname, schemaname = '' }) => {
    if (relname !== undefined) tables.add(`${schemaname}.${relname}`);
  });
  return [...tables].sort();
}

interface TableNode {
  readonly relname?: string;
  readonly schemaname?: string;
}

function walk(node: unknown, visit: (node: TableNode) => void): void {
  if (node === null || typeof node !== 'object') return;
  if (!Array.isArray(node)) visit(node as TableNode);
  for (const value of Object.values(node)) walk(value, visit);
}

/** A tree without what differs between the two versions of the grammar for one and the same statement. */
function comparable(tree: unknown): unknown {
  return JSON.parse(JSON.stringify(tree), (key, value: unknown) => {
    if (PLACES.has(key)) return undefined;
    // The older parser does not write negative integers.
    if (key === 'ival' && Number(value) < 0) return undefined;
    // Said of every constraint since PostgreSQL 18, where it can be otherwise.
    if ((key === 'is_enforced' || key === 'initially_valid') && value === true) return undefined;
    // JSON is a keyword since PostgreSQL 17: the type is then named with its schema.
    if (key === 'names' && isJsonType(value)) return value.slice(-1);
    return isReturning(value) ? withReturningList(value) : value;
  });
}

interface Returning {
  readonly returningClause: { readonly exprs: unknown };
}

/** What is returned has a node of its own since PostgreSQL 18. */
function isReturning(value: unknown): value is Returning {
  return typeof value === 'object' && value !== null && 'returningClause' in value;
}

function withReturningList({ returningClause, ...node }: Returning): object {
  return { ...node, returningList: returningClause.exprs };
}

function isJsonType(names: unknown): names is readonly unknown[] {
  return JSON.stringify(names) === '[{"String":{"sval":"pg_catalog"}},{"String":{"sval":"json"}}]';
}
