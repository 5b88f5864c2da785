/**
 * The last check before a new statement may run: PostgreSQL's own grammar must parse it as exactly one statement of the expected
 * kind that names only tables of the model. The check finds mistakes of the compilers. User input never becomes SQL text, so a
 * statement that fails here is a defect of the service.
 */
import { LRUCache } from 'lru-cache';
import { isRecord, messageOf, propertiesOf } from '../../base/narrow.js';
import { parseSqlExpression, parseStatements, parseTree } from './grammar.js';

/** A read changes nothing; a write is a query whose common table expressions change tables. */
export type StatementKind = 'read' | 'write';

const ALLOWED: Readonly<Record<StatementKind, ReadonlySet<string>>> = {
  read: new Set(['SelectStmt']),
  write: new Set(['SelectStmt', 'InsertStmt', 'UpdateStmt', 'DeleteStmt']),
};

/** `tables` answers whether a schema and a name belong to the model. */
export function verify(text: string, kind: StatementKind, tables: (schema: string, name: string) => boolean): void {
  const names = namesInStatement(text);
  for (const query of names.queries) verify(query, 'read', tables);
  // A common table expression of a select may hold a write.
  for (const other of names.kinds) {
    if (!ALLOWED[kind].has(other)) throw new Error(`a compiled statement is a ${kind} that holds a ${other}`);
  }
  for (const table of names.tables) {
    if (table.schema === undefined ? !names.local.has(table.name) : !tables(table.schema, table.name)) {
      throw new Error(`a compiled statement touches "${table.schema ?? ''}"."${table.name}"`);
    }
  }
}

/** The names in statements of the same tokens, by the numbers of identifiers. */
const known = new LRUCache<string, Names>({
  max: 2_000,
  maxSize: 4_194_304,
  sizeCalculation: ({ tables }, tokens) => 256 + tokens.length + 128 * tables.length,
});

/** The names in a statement that is exactly one select. */
export function namesInStatement(text: string): Names {
  const shape = text.includes('service_estimate') ? null : tokenShapeOf(text);
  if (!shape) return namesInTree(guarded(() => parseTree(text)));
  let names = known.get(shape.tokens);
  if (!names) {
    names = namesInTree(guarded(() => parseTree(numberedText(shape))));
    known.set(shape.tokens, names);
  }
  const tables = names.tables.map(({ schema, name }) => ({
    schema: schema === undefined ? undefined : nameIn(shape, schema),
    name: nameIn(shape, name),
  }));
  return { ...names, tables, local: new Set([...names.local].map((name) => nameIn(shape, name))) };
}

function namesInTree(tree: string): Names {
  return scanTree(tree) ?? readTree(tree);
}

/** The names in the tree of one select. */
export function readTree(tree: string): Names {
  const { stmts = [] }: { stmts?: readonly { stmt?: object }[] } = JSON.parse(tree);
  const [only, ...others] = stmts;
  if (others.length > 0 || !only?.stmt) throw new Error('a compiled text is not exactly one statement');
  if (!('SelectStmt' in only.stmt)) throw new Error('a compiled statement is no SelectStmt');
  const names = noNames();
  collect(only.stmt, names);
  return names;
}

const CHANGES: ReadonlySet<string> = new Set([
  ...[
    'CreateStmt',
    'AlterTableStmt',
    'AlterSeqStmt',
    'IndexStmt',
    'DropStmt',
    'CommentStmt',
    'CreateEnumStmt',
    'AlterEnumStmt',
  ],
  ...['SelectStmt', 'InsertStmt', 'UpdateStmt', 'DeleteStmt'],
]);

/** The same gate for a change of the schema: one statement, in these schemas, that reads no table but by `setval`. */
export function verifyChange(text: string, schemas: readonly string[]): void {
  const [only, ...others] = guarded(() => parseStatements<{ stmt?: object }>(text));
  const [kind] = Object.keys(only?.stmt ?? {});
  if (others.length > 0 || !kind || !CHANGES.has(kind)) throw new Error(`a compiled change is a ${kind ?? 'nothing'}`);
  const names = noNames();
  collect(only, names);
  for (const other of names.kinds) {
    if (other !== kind && !(kind === 'InsertStmt' && other === 'SelectStmt'))
      throw new Error(`a compiled change is a ${kind} that holds a ${other}`);
  }
  const unknownName = names.tables.find((table) => !schemas.includes(table.schema ?? ''));
  if (unknownName) throw new Error(`a compiled change touches "${unknownName.schema ?? ''}"."${unknownName.name}"`);
}

/**
 * The gate for an object that a snapshot defines in PostgreSQL's words: one statement of this kind, with one command if it alters a
 * table, and nothing inside it but queries.
 */
export function verifyDefinition(text: string, node: string): void {
  const [only, ...others] = parseStatements<{ stmt?: Readonly<Record<string, unknown>> }>(text);
  const [kind] = Object.keys(only?.stmt ?? {});
  if (others.length > 0 || kind !== node) throw new Error(`it is not exactly one ${node}`);
  const { cmds = [null] } = propertiesOf(only?.stmt?.[node]);
  if (!Array.isArray(cmds) || cmds.length !== 1) throw new Error('it changes a table in several ways');
  const names = noNames();
  collect(only?.stmt?.[node], names);
  const inner = [...names.kinds].find((each) => each !== 'SelectStmt');
  if (inner !== undefined) throw new Error(`it holds a ${inner}`);
}

/** The tables and views that a statement names. */
export function tablesIn(text: string): Names['tables'] {
  const names = noNames();
  collect(parseStatements(text), names);
  return names.tables;
}

/** Exactly one expression: no second column, no clause behind it, no sub-select. */
export function vetExpression(text: string): void {
  const target = parseSqlExpression(text);
  if (target === null || JSON.stringify(target).includes('"SubLink"'))
    throw new Error(`"${text}" is not a single expression`);
}

function guarded<Result>(parse: () => Result): Result {
  try {
    return parse();
  } catch (error) {
    throw new Error(`a compiled statement does not parse: ${messageOf(error)}`);
  }
}

/** The query that a call of `service_estimate` holds; null for other nodes. */
function estimatedQuery({ funcname, args }: Readonly<Record<string, unknown>>): string | null {
  if (!Array.isArray(funcname) || !Array.isArray(args)) return null;
  if (textAt(funcname.at(-1), ['String', 'sval']) !== 'service_estimate') return null;
  const query = textAt(args[0], ['A_Const', 'sval', 'sval']);
  if (query === null) throw new Error('a compiled statement asks for the estimate of what is no constant');
  return query;
}

function textAt(node: unknown, path: readonly string[]): string | null {
  const value = path.reduce<unknown>((inner, name) => propertiesOf(inner)[name], node);
  return typeof value === 'string' ? value : null;
}

function collect(node: unknown, names: Names): void {
  if (Array.isArray(node)) {
    for (const each of node) collect(each, names);
    return;
  }
  if (!isRecord(node)) return;
  const { schemaname, relname } = node;
  // Not every table is wrapped as a `RangeVar`: the target of a write is not.
  if (relname !== undefined)
    names.tables.push({ schema: schemaname === undefined ? undefined : String(schemaname), name: String(relname) });
  const query = estimatedQuery(node);
  if (query !== null) names.queries.push(query);
  for (const key in node) {
    const value = node[key];
    if (typeof value !== 'object') continue;
    if ((key.endsWith('Stmt') && /^[A-Z]/.test(key)) || key === 'intoClause') names.kinds.add(key);
    // Tables to be locked are named by their aliases.
    if (key === 'lockedRels') continue;
    if (key === 'CommonTableExpr') names.local.add(String(propertiesOf(value)['ctename']));
    collect(value, names);
  }
}

/**
 * A statement without its quoted identifiers and its constants: its tokens. PostgreSQL's grammar reads tokens, so statements of the
 * same tokens have the same tree, whatever the identifiers and constants in it are: one of them is parsed. A text that a lexer could
 * read differently has no shape, and is parsed as it is.
 */
interface TokenShape {
  readonly tokens: string;
  /** The quoted identifiers, in their order. */
  readonly identifiers: readonly string[];
}

/** The last alternative is a quote that is never closed. */
const QUOTED = /"(?:[^"]|"")*"|'(?:[^']|'')*'|["']/g;

/** Comments, dollar quotes, and quotes that mean something else behind a letter or `&`. */
const OTHER_TOKENS = /--|\/\*|\$(?![0-9])|\\|[\w&$\u0080-\uffff]['"]|\0/;
const IDENTIFIER = '""';
const CONSTANT = "''";

export function tokenShapeOf(text: string): TokenShape | null {
  const identifiers: string[] = [];
  let isPlain = true;
  const tokens = text.replace(QUOTED, (quoted) => {
    if (quoted.length === 1 || quoted === '""') isPlain = false;
    if (quoted.startsWith("'")) return CONSTANT;
    identifiers.push(quoted.slice(1, -1).replaceAll('""', '"'));
    return IDENTIFIER;
  });
  if (!isPlain || OTHER_TOKENS.test(tokens)) return null;
  return { tokens, identifiers };
}

/** A statement of these tokens, each identifier of which is its number. */
export function numberedText({ tokens }: TokenShape): string {
  let number = 0;
  return tokens.replaceAll(IDENTIFIER, () => `"${MARK}${number++}"`);
}

/** Begins no identifier that stands without quotes. */
const MARK = '%';

/** The name that stood where a numbered statement has this one. */
function nameIn({ identifiers }: TokenShape, name: string): string {
  return name.startsWith(MARK) ? (identifiers[Number(name.slice(MARK.length))] ?? name) : name;
}

export interface Names {
  readonly tables: { readonly schema: string | undefined; readonly name: string }[];
  /** Names of common table expressions: a bare name may only mean one of these. */
  readonly local: Set<string>;
  /** Statements at any depth, and `intoClause`, which makes a read create a table. */
  readonly kinds: Set<string>;
  /** Queries in constants, which the planner is asked about. */
  readonly queries: string[];
}

function noNames(): Names {
  return { tables: [], local: new Set(), kinds: new Set(), queries: [] };
}

const ONE_SELECT = /^\{"version":\d+,"stmts":\[\{"stmt":\{"SelectStmt":\{/;
const KEY = /"(stmt|catalogname|lockedRels|intoClause|relname|schemaname|CommonTableExpr|[A-Z]\w*Stmt)":/g;

/**
 * Finds the names in the JSON of a tree without parsing it, because most of the time of a check would be spent on other nodes. In a
 * string of JSON a quote follows a backslash, so `"relname":` is always a key. Returns null if the tree has to be parsed: it is not one
 * select, names a database, locks rows or asks for an estimate.
 */
export function scanTree(tree: string): Names | null {
  if (!ONE_SELECT.test(tree) || tree.includes('service_estimate')) return null;
  const names = noNames();
  let statements = 0;
  let schema: string | undefined;
  for (const { 1: key = '', index } of tree.matchAll(KEY)) {
    const value = index + key.length + '"":'.length;
    switch (key) {
      case 'stmt':
        if (++statements > 1) return null;
        break;
      case 'catalogname':
      case 'lockedRels':
        return null;
      case 'schemaname': {
        const name = stringAt(tree, value);
        // Else it would have to be found out whose schema it is.
        if (name === null || !tree.startsWith(',"relname":', value + name.length + '""'.length)) return null;
        schema = name;
        break;
      }
      case 'relname': {
        const name = stringAt(tree, value);
        if (name === null) return null;
        names.tables.push({ schema, name });
        schema = undefined;
        break;
      }
      case 'CommonTableExpr': {
        const name = tree.startsWith(NAME, value) ? stringAt(tree, value + NAME.length) : null;
        if (name === null) return null;
        names.local.add(name);
        break;
      }
      default:
        names.kinds.add(key);
    }
  }
  return names;
}

const NAME = '{"ctename":';

/** Returns null unless a string without escapes is at this position. */
function stringAt(tree: string, start: number): string | null {
  if (tree[start] !== '"') return null;
  const text = tree.slice(start + 1, tree.indexOf('"', start + 1));
  return text.includes('\\') ? null : text;
}
