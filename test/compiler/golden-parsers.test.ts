/**
 * Every golden statement is read by two parsers that were built apart from each other: libpg-query, which the service uses,
 * with the grammar of PostgreSQL 18, and pg-query-emscripten with that of PostgreSQL 16. Both have to understand the same.
 * The older grammar refuses none of them, which matters for servers of PostgreSQL 15 and 16.
 */
import { isDeepStrictEqual } from 'node:util';
import { loadModule, parseSync as parseNewer } from 'libpg-query';
import SecondParser from 'pg-query-emscripten';
import t from 'tap';
import { loadGrammar, parseTree } from '../../src/compiler/sql/grammar.js';
import { namesInStatement, numberedText, readTree, scanTree, tokenShapeOf } from '../../src/compiler/sql/verify.js';
import { GOLDEN_FOLDERS, goldenNames, readGolden } from '../support/golden.js';

await loadGrammar();
await loadModule();
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

const TEXTS = [...(await goldenTexts('reads')), ...(await goldenTexts('writes'))];

t.test('a statement of known tokens names what its own tree names', async (t) => {
  let shaped = 0;
  for (const text of [...TEXTS, ...DISGUISES]) {
    const shape = tokenShapeOf(text);
    if (!shape) continue;
    shaped++;
    const expected = sorted(readTree(parseTree(text)));
    t.strictSame(sorted(namesInStatement(text)), expected, text.slice(0, 200));
    t.strictSame(sorted(namesInStatement(text)), expected, 'again');
    const trees = [text, numberedText(shape)].map((each) => skeletonOf(parseTree(each)));
    t.equal(trees[0], trees[1], 'the same tree but for identifiers and constants');
  }
  t.ok(shaped > TEXTS.length * 0.8, `${shaped} of ${TEXTS.length}`);
  const from = (schema: string, table: string): unknown =>
    sorted(namesInStatement(`select 1 from "${schema}"."${table}"`));
  t.match(from('public', 'articles'), { tables: ['["public","articles"]'] });
  t.match(from('public', 'secrets'), { tables: ['["public","secrets"]'] }, 'of the same tokens, by its own names');
  t.match(from('a""b', '%0'), { tables: ['["a\\"b","%0"]'] });
  t.match(sorted(namesInStatement('with "%1" as (select 2) select 1 from "%0"')), {
    local: ['%1'],
    tables: ['[null,"%0"]'],
  });
});

t.test('texts whose quotes may mean something else have no tokens here', async (t) => {
  const texts = [
    "select E'a\\'; drop table x; --'",
    `select U&"a", 'b'`,
    "select N'a', B'1', X'1'",
    'select $$ " $$',
    `select 1 -- it's\n; drop table x; '`,
    `select 1 /* " */ , "a"`,
    `select "a`,
    `select 'a`,
    'select "" from a',
    "select 'a' \0",
  ];
  for (const text of texts) t.equal(tokenShapeOf(text), null, text);
});

t.test('names found in a tree without reading it are those that reading it finds', async (t) => {
  const texts = [...TEXTS, ...DISGUISES];
  let scanned = 0;
  for (const text of texts) {
    const tree = parseTree(text);
    const found = scanTree(tree);
    if (!found) continue;
    scanned++;
    t.strictSame(sorted(found), sorted(readTree(tree)), text.slice(0, 200));
  }
  t.ok(scanned > texts.length / 2, `${scanned} of ${texts.length}`);
});

/** Names and constants that look like parts of a tree. */
const DISGUISES = [
  'select 1',
  `select '"relname":"secrets"', '"stmt":', '"lockedRels":', 'InsertStmt":{', '"intoClause":'`,
  'select "relname", "schemaname", "ctename", "InsertStmt" from "public"."relname"',
  'select * from "public"."a"",""relname"":""articles"',
  'select * from "a"",""relname"":""b"."articles"',
  'select * from "a"",""schemaname"":""public"."articles"',
  'select * from "a:"."articles", "schemaname:"."x" "schemaname"',
  'select * from "\\"."articles\\", "ü😀"."Straße"',
  'with "CommonTableExpr" as (select 1), "a""b" as (select 2) select * from "CommonTableExpr", "a""b"',
  'with a as (insert into "public"."t" select 1 returning *), b as (delete from "public"."u" using "public"."v" returning *) select from a, b',
  'select * into "public"."copies" from "public"."articles"',
  'select * from "db"."public"."articles"',
  'select * from "public"."articles" for update of "articles"',
  "select service_estimate('select from public.secrets', $1)",
  'select * from only "public"."articles" tablesample system (1) join lateral (table "public"."x") y on true',
];

/** Without the values of identifiers and constants, and places. */
function skeletonOf(tree: string): string {
  return JSON.stringify(JSON.parse(tree), (key, value: unknown) =>
    PLACES.has(key) || typeof value === 'string' ? undefined : value,
  );
}

async function goldenTexts(folder: (typeof GOLDEN_FOLDERS)[number]): Promise<string[]> {
  const texts = await Promise.all((await goldenNames(folder)).map((name) => readGolden(folder, name)));
  // Some files hold several statements of one request.
  return texts.map((text) => text.replace(/^--.*\n/gm, '')).filter((text) => parseNewer(text).stmts?.length === 1);
}

function sorted({ tables, local, kinds, queries }: ReturnType<typeof readTree>): unknown {
  const names = tables.map(({ schema, name }) => JSON.stringify([schema, name]));
  return { tables: names.sort(), local: [...local].sort(), kinds: [...kinds].sort(), queries };
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
