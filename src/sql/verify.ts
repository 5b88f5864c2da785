/**
 * The last gate before a new text may run: PostgreSQL's own grammar must read it as exactly one statement of the expected
 * kind that touches tables of the model alone. It guards against mistakes of our compilers, not against user input, which
 * never becomes text; so a refusal here is a broken invariant of ours.
 */
import Grammar from 'pg-query-emscripten';

interface Parser {
  parse(text: string): { parse_tree: { stmts: unknown[] }; error: { message: string; cursorpos: number } | null };
}

let parser: Parser | undefined;

/** Loads the grammar: 4 MB of WebAssembly, once per process. */
export async function loadGrammar(): Promise<void> {
  parser ??= await (new Grammar() as Promise<Parser>);
}

export type StatementKind = 'SelectStmt';

/** `tables` answers whether a schema and a name belong to the model. */
export function verify(text: string, kind: StatementKind, tables: (schema: string, name: string) => boolean): void {
  if (!parser) throw new Error('the grammar is not loaded');
  const { parse_tree: tree, error } = parser.parse(text);
  if (error) throw new Error(`a compiled statement does not parse: ${error.message} at ${error.cursorpos}`);
  const [only, ...others] = tree.stmts as { stmt?: Record<string, unknown> }[];
  if (others.length > 0 || !only?.stmt) throw new Error('a compiled text is not exactly one statement');
  if (!(kind in only.stmt)) throw new Error(`a compiled statement is no ${kind}`);
  const found: Names = { tables: [], local: new Set() };
  collect(only.stmt, found);
  for (const table of found.tables) {
    if (table.schema === undefined ? !found.local.has(table.name) : !tables(table.schema, table.name)) {
      throw new Error(`a compiled statement touches "${table.schema ?? ''}"."${table.name}"`);
    }
  }
}

interface Names {
  readonly tables: { schema: string | undefined; name: string }[];
  /** Names of common table expressions: a bare name may only mean one of these. */
  readonly local: Set<string>;
}

function collect(node: unknown, found: Names): void {
  if (Array.isArray(node)) {
    for (const each of node) collect(each, found);
    return;
  }
  if (node === null || typeof node !== 'object') return;
  for (const [key, value] of Object.entries(node)) {
    if (key === 'RangeVar') found.tables.push({ schema: value.schemaname, name: value.relname });
    if (key === 'CommonTableExpr') found.local.add(value.ctename);
    collect(value, found);
  }
}
