/**
 * No name in a statement of the service is looked up where others may create one. The rule (docs/decisions/qualified-names.md), of every
 * file in sql and every golden statement: an operator or function has its schema, or is one of those that are provably PostgreSQL's own.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { parseSync } from 'libpg-query';
import t from 'tap';
import { packagePath } from '../../src/files.js';
import { isRecord } from '../../src/narrow.js';
import { withCatalog } from '../../src/sql/catalog-names.js';
import { loadGrammar } from '../../src/sql/grammar.js';
import { GOLDEN_FOLDERS, goldenNames, readGolden } from '../support/golden.js';

await loadGrammar();

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

/** Columns that hold texts: JSON of a row, and texts of the catalog. */
const TEXT_COLUMNS = /^%([jdk]|i\d+)$/;
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
  /^(rel(kind|name|persistence|replident)|con(type|deferrable)|typ(type|category|name)|pro(kind|volatile)|att(identity|generated|name)|nspname|contype|prokind|provolatile|pubname|polcmd|tgenabled|deptype|schemaname|tablename|extname|lanname|evtname|evtenabled|ev_type|ev_enabled)$/;

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
    if (Array.isArray(node)) for (const each of node) visit(each);
    if (!isRecord(node)) return;
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
  if (kind === 'CaseExpr' && node['arg'] && !isText(node['arg'])) complain('case of what is no text');
  if (kind === 'JoinExpr' && node['usingClause']) complain('join using');
  if (kind === 'SubLink' && /ANY|ALL/.test(String(node['subLinkType'])) && names(node['operName']).length < 2)
    complain('in (select)');
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
    // Those of the folder system define functions, and are sent as they are.
    const sent = file.startsWith('system/') ? text : withCatalog(text);
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

function files(folder: string): string[] {
  return readdirSync(packagePath('sql', folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    return entry.isDirectory() ? files(path) : [path];
  });
}
