/**
 * No name in a statement of the service is looked up where others may create one. The rule (docs/decisions/qualified-names.md), of every
 * file in sql, every golden statement and every statement in the source: an operator or function has its schema, or is one of those
 * that are provably PostgreSQL's own.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { loadModule, parseSync } from 'libpg-query';
import t from 'tap';
import typescript from 'typescript-api';
import { isRecord } from '../../src/base/narrow.js';
import { packagePath } from '../../src/base/package-files.js';
import { withCatalog } from '../../src/compiler/sql/catalog-names.js';
import { loadGrammar } from '../../src/compiler/sql/grammar.js';
import { GOLDEN_FOLDERS, goldenNames, readGolden } from '../support/golden.js';

await loadGrammar();
await loadModule();

type Node = Readonly<Record<string, unknown>>;

function parse(text: string): unknown {
  return parseSync(text);
}

function propertyOf(node: unknown, name: string): unknown {
  return isRecord(node) ? node[name] : undefined;
}

function names(list: unknown): string[] {
  return Array.isArray(list) ? list.map((each) => String(propertyOf(propertyOf(each, 'String'), 'sval') ?? '*')) : [];
}

function elements(list: unknown): readonly unknown[] {
  return Array.isArray(list) ? list : [];
}

/** Columns that hold texts: JSON of a row, the links of a list, and texts of the catalog. */
const TEXT_COLUMNS = /^%([jdke]|[ix]\d+)$/;
const TEXT_FUNCTIONS =
  /^(textin|to_char|string_agg|encode|concat_ws|jsonb_typeof|json_typeof|array_to_string|max|replace|translate|substr|current_setting|lower|st_\w+)$/;

/** A text, so that PostgreSQL's operator for two texts is an exact match; a constant takes the type of the other side. */
function isText(node: unknown): boolean {
  if (!isRecord(node)) return false;
  const [[kind, value] = ['', null]] = Object.entries(node);
  if (!isRecord(value)) return false;
  switch (kind) {
    case 'A_Const':
      return 'sval' in value;
    case 'TypeCast':
      return (
        names(propertyOf(value['typeName'], 'names')).at(-1) === 'text' && !propertyOf(value['typeName'], 'arrayBounds')
      );
    case 'FuncCall':
      return TEXT_FUNCTIONS.test(names(value['funcname']).at(-1) ?? '');
    case 'CoalesceExpr':
      return elements(value['args']).every(isText);
    case 'CaseExpr':
      return [
        ...elements(value['args']).map((each) => propertyOf(propertyOf(each, 'CaseWhen'), 'result')),
        value['defresult'],
      ]
        .filter((each) => each !== undefined)
        .every((each) => isText(each) || propertyOf(propertyOf(each, 'A_Const'), 'isnull') === true);
    case 'ColumnRef':
      return TEXT_COLUMNS.test(names(value['fields']).at(-1) ?? '');
    case 'A_Expr':
      return isTextOperation(value);
    case 'SubLink': {
      const [target] = elements(propertyOf(propertyOf(value['subselect'], 'SelectStmt'), 'targetList'));
      return value['subLinkType'] === 'EXPR_SUBLINK' && isText(propertyOf(propertyOf(target, 'ResTarget'), 'val'));
    }
    default:
      return false;
  }
}

function isTextOperation({ kind, name, lexpr, rexpr }: Node): boolean {
  if (kind === 'AEXPR_NULLIF') return isText(lexpr);
  const symbol = names(name).at(-1) ?? '';
  return (symbol === '||' && isText(lexpr) && isText(rexpr)) || symbol === '->>' || symbol === '#>>';
}

/** Columns of the catalog whose type, `"char"` or `name`, has operators of its own. */
const CATALOG_COLUMNS =
  /^(rel(kind|name|persistence|replident)|con(type|deferrable|fupdtype)|typ(type|category|name)|pro(kind|volatile)|att(identity|generated|name)|nspname|contype|prokind|provolatile|pubname|polcmd|tgenabled|deptype|schemaname|tablename|extname|lanname|evtname|evtenabled|ev_type|ev_enabled)$/;

function isCatalogColumn(node: unknown): boolean {
  return CATALOG_COLUMNS.test(columnOf(node));
}

/** Columns of the service's tables that are compared in their definition with a column of the same type, or with a number. */
const EXACT_COLUMNS = /^(id|parent|role|version|auth_login_attempts|max_uses|expires|oid|\w+typid|objid|typarray)$/;

function columnOf(node: unknown): string {
  return names(propertyOf(propertyOf(node, 'ColumnRef'), 'fields')).at(-1) ?? '';
}

function isCount(node: unknown): boolean {
  return names(propertyOf(propertyOf(node, 'FuncCall'), 'funcname')).at(-1) === 'num_nonnulls';
}

function isInteger(node: unknown): boolean {
  return propertyOf(propertyOf(node, 'A_Const'), 'ival') !== undefined || propertyOf(node, 'FuncCall') !== undefined;
}

function complaintsAbout(tree: unknown): string[] {
  const complaints: string[] = [];
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) node.forEach(visit);
    if (Array.isArray(node) || !isRecord(node)) return;
    for (const [kind, value] of Object.entries(node)) {
      if (isRecord(value)) judge(kind, value, complaints);
      visit(value);
    }
  };
  visit(tree);
  return complaints;
}

function judge(kind: string, node: Node, complaints: string[]): void {
  const complain = (what: string): void =>
    void complaints.push(`${what}: ${JSON.stringify(withoutPlaces(node)).slice(0, 300)}`);
  if (kind === 'FuncCall') {
    const [name = '', ...rest] = names(node['funcname']);
    const { length } = elements(node['args']);
    // The service's own functions get their schema when it is known.
    if (name.startsWith('service_')) return;
    // Of several lists, `unnest` is part of the grammar; the argument of `nextval` has its exact type.
    if (rest.length === 0 && length > 0 && !(name === 'unnest' && length > 1) && !isSequence(name, node))
      complain(`function ${name}`);
  }
  if (kind === 'A_Expr') judgeOperator(node, complain);
  if (kind === 'CaseExpr' && node['arg'] && !isText(node['arg']) && !isOfBigints(node))
    complain('case of what is no text');
  if (kind === 'JoinExpr' && node['usingClause']) complain('join using');
  if (kind === 'SubLink' && /ANY|ALL/.test(String(node['subLinkType'])) && names(node['operName']).length < 2)
    complain('in (select)');
}

/** `case mod(…) when 24::int8`: the operator of two bigints is an exact match. */
function isOfBigints({ arg, args }: Node): boolean {
  const tests = elements(args).map((each) => propertyOf(propertyOf(each, 'CaseWhen'), 'expr'));
  const types = tests.map((each) => names(propertyOf(propertyOf(propertyOf(each, 'TypeCast'), 'typeName'), 'names')));
  const called = names(propertyOf(propertyOf(arg, 'FuncCall'), 'funcname'));
  return called.join('.') === 'pg_catalog.mod' && types.every((type) => type.join('.') === 'pg_catalog.int8');
}

function isSequence(name: string, node: Node): boolean {
  const [only] = elements(node['args']);
  const type = propertyOf(propertyOf(propertyOf(only, 'TypeCast'), 'typeName'), 'names');
  return /^(nextval|currval)$/.test(name) && names(type).at(-1) === 'regclass';
}

function judgeOperator({ kind, name, lexpr, rexpr }: Node, complain: (what: string) => void): void {
  if (names(name).length > 1) return;
  const [symbol = ''] = names(name);
  const right = elements(propertyOf(propertyOf(rexpr, 'List'), 'items'));
  const isPair = isText(lexpr) && (right.length > 0 ? right : [rexpr]).every(isText);
  const isExact =
    (EXACT_COLUMNS.test(columnOf(lexpr)) || isCount(lexpr)) &&
    (right.length > 0 ? right : [rexpr]).every((each) => EXACT_COLUMNS.test(columnOf(each)) || isInteger(each));
  const isListed = kind === 'AEXPR_IN' && isCatalogColumn(lexpr) && right.every(isText);
  if (!isPair && !isListed && !isExact) complain(`${String(kind).slice(6)} ${symbol}`);
}

const PLACES = /^(location|stmt_location|stmt_len|rexpr_list_start|rexpr_list_end|list_start|list_end)$/;

function withoutPlaces(node: unknown): unknown {
  return JSON.parse(JSON.stringify(node, (key, value) => (PLACES.test(key) ? undefined : value)));
}

/** The tree without the schema of operators: its shape tells how they bind. */
function shapeOf(text: string): string {
  return JSON.stringify(parse(text), (key, value) =>
    PLACES.test(key)
      ? undefined
      : key === 'sval' && typeof value === 'string'
        ? value.replace(OPERATOR, '$1')
        : /^(name|funcname|operName)$/.test(key)
          ? elements(value).at(-1)
          : value,
  );
}

const OPERATOR = /operator\(pg_catalog\.([^)]+)\)/g;

for (const file of files('')) {
  t.test(`sql/${file}`, async (t) => {
    const text = readFileSync(packagePath('sql', file), 'utf8');
    // Migrations define functions, and are sent as they are.
    const sent = /\/\d{3}_\w+\.sql$/.test(file) ? text : withCatalog(text);
    t.strictSame(complaintsAbout(parse(sent)), []);
    t.equal(shapeOf(sent.replace(OPERATOR, '$1')), shapeOf(sent), 'qualified operators bind as plain ones do');
  });
}

for (const folder of GOLDEN_FOLDERS) {
  for (const name of await goldenNames(folder)) {
    t.test(`${folder}/${name}`, async (t) => {
      const text = await readGolden(folder, name);
      t.strictSame(complaintsAbout(parse(text)), []);
      t.equal(shapeOf(text.replace(OPERATOR, '$1')), shapeOf(text), 'qualified operators bind as plain ones do');
    });
  }
}

t.test('statements in the source', async (t) => {
  const sources = readdirSync(packagePath('src'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => {
      const text = readFileSync(packagePath('src', path), 'utf8');
      return typescript.createSourceFile(path, text, typescript.ScriptTarget.Latest, true);
    });
  const constants = new Map(sources.flatMap(constantsOf));
  const statements = sources.flatMap((source) => statementsOf(source, constants));
  t.ok(statements.length > 60, `${statements.length} statements`);
  t.strictSame(
    statements.flatMap(({ place, text }) => complaintsAbout(parse(text)).map((complaint) => `${place} ${complaint}`)),
    [],
  );
  for (const { place, text } of statements) t.equal(shapeOf(text.replace(OPERATOR, '$1')), shapeOf(text), place);
});

interface SourceStatement {
  readonly place: string;
  /** As it is sent. */
  readonly text: string;
}

/** Texts that are sent, as far as they can be parsed alone. Templates of `sql` are checked by the golden statements. */
function statementsOf(source: typescript.SourceFile, constants: ReadonlyMap<string, string>): SourceStatement[] {
  const found: SourceStatement[] = [];
  const visit = (node: typescript.Node): void => {
    if (typescript.isTaggedTemplateExpression(node) && node.tag.getText() === 'sql') return;
    const text = textOf(node, constants);
    if (text !== undefined && STATEMENT.test(text) && !isAdvice(node)) {
      const sent = isQualified(node) ? withCatalog(text) : text;
      const { line } = source.getLineAndCharacterOfPosition(node.getStart());
      if (isSql(sent)) found.push({ place: `src/${source.fileName}:${line + 1}`, text: sent });
    }
    node.forEachChild(visit);
  };
  visit(source);
  return found;
}

const STATEMENT = /^\s*(select|insert into|update|delete from|with|values|merge|explain)\s/i;

function isSql(text: string): boolean {
  try {
    return parse(text) !== null;
  } catch {
    return false;
  }
}

/** A literal, with the constants that a template names in their places. */
function textOf(node: typescript.Node, constants: ReadonlyMap<string, string>): string | undefined {
  if (typescript.isStringLiteralLike(node)) return node.text;
  if (!typescript.isTemplateExpression(node)) return undefined;
  const rest = node.templateSpans.map(
    ({ expression, literal }) => (constants.get(expression.getText()) ?? 'x') + literal.text,
  );
  return node.head.text + rest.join('');
}

/** `const LOCK = withCatalog("…")`, by name. */
function constantsOf(source: typescript.SourceFile): [name: string, text: string][] {
  const found: [name: string, text: string][] = [];
  source.forEachChild((node) => {
    if (!typescript.isVariableStatement(node)) return;
    for (const { name, initializer } of node.declarationList.declarations) {
      const value = initializer && typescript.isCallExpression(initializer) ? initializer.arguments[0] : initializer;
      const text = value && textOf(value, new Map(found));
      if (text === undefined) continue;
      found.push([name.getText(), value === initializer ? text : withCatalog(text)]);
    }
  });
  return found;
}

/** `lateral doctor` prints it. */
function isAdvice({ parent }: typescript.Node): boolean {
  return typescript.isVariableDeclaration(parent) && parent.name.getText() === 'fix';
}

/** Whether the text is the argument of a function that qualifies it, by itself or as a constant that only such functions get. */
function isQualified(node: typescript.Node): boolean {
  const { parent } = node;
  if (isQualifiedArgument(node)) return true;
  if (!typescript.isVariableDeclaration(parent) || parent.initializer !== node) return false;
  const uses = usesOf(parent.name.getText(), parent.parent.parent.parent).filter((use) => use !== parent.name);
  return uses.length > 0 && uses.every(isQualifiedArgument);
}

function isQualifiedArgument(node: typescript.Node): boolean {
  const { parent } = node;
  if (!typescript.isCallExpression(parent)) return false;
  const called = parent.expression.getText();
  return parent.arguments[called === 'querySystem' ? 1 : 0] === node && QUALIFYING.test(called);
}

function usesOf(name: string, scope: typescript.Node): typescript.Node[] {
  const found: typescript.Node[] = [];
  const visit = (node: typescript.Node): void => {
    if (typescript.isIdentifier(node) && node.text === name) found.push(node);
    typescript.forEachChild(node, visit);
  };
  visit(scope);
  return found;
}

const QUALIFYING = /^(withCatalog|querySystem|this\.#(row|change))$|\bdatabase\.(rows|cell|qualified)$/;

function files(folder: string): string[] {
  return readdirSync(packagePath('sql', folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) return files(path);
    return path.endsWith('.sql') ? [path] : [];
  });
}
