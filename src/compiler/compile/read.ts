/**
 * Read plan → one `select` whose single cell is the body of the response, or whose rows are the items of a stream.
 *
 * Each level is a page first (filter, order and limit over the bare table) and what is shown of it second: output
 * expressions and lateral joins then run for the rows of the page alone.
 */
import { assertNever } from '../../base/assert-never.js';
import { elementAt } from '../../base/narrow.js';
import type { LinkPlan } from '../plan/links.js';
import type { Level, OperationPlan, Output, ReadPlan, RowLevel } from '../plan/plan.js';
import {
  alias,
  type Fragment,
  integerLiteral,
  join,
  literal,
  nothing,
  parameter,
  type Statement,
  sql,
  statement,
  substitute,
} from '../sql/fragment.js';
import type { Parameter } from '../sql/parameter.js';
import { compileCondition } from './condition.js';
import { FromClause, Scope } from './from-clause.js';
import { compileGroups } from './groups.js';
import { typeName } from './identifiers.js';
import { JSON_COLUMN, jsonList, toJsonText } from './json.js';
import { commaList, unnest } from './key-columns.js';
import { combined, type LinkColumn, linkColumns, linksBefore, linksBelow } from './links.js';
import { type CompiledLevel, limitValue } from './page.js';
import { itemBody } from './row-tag.js';
import { compileRows, compileRowsWithCursor } from './rows.js';
import { KEYS_SETTING, keyPartSetting } from './write/write-input.js';

export function compileRead(plan: ReadPlan | OperationPlan, linked: LinkedForm | null = null): Statement {
  return statement(readFragment(plan, linked?.links), linked?.parameters);
}

/** The form in which the cell comes after a column with these links. Its parameters are those of the form without. */
export interface LinkedForm {
  readonly links: LinkPlan;
  readonly parameters: readonly Parameter[];
}

/**
 * The same read for many sets of values at once: a row per set, with its number and its cell. Each parameter of the read is
 * a list of texts here, one of each set. The lists are in sub-selects, which hide their lengths from the planner:
 * otherwise it would plan again for each length.
 */
export function compileBatchRead(plan: ReadPlan | OperationPlan, linked: LinkedForm | null = null): Statement {
  const fragment = readFragment(plan, linked?.links);
  const known = statement(fragment, linked?.parameters).parameters.map((each) => JSON.stringify(each));
  const [sets, number, result, cell] = [alias('q'), alias('n'), alias('c'), alias('b')] as const;
  const column = (slot: number): Fragment => alias(`v${slot}`);
  const lists = known.map((_, slot) => sql`(select ${parameter({ kind: 'text', slot })}::text[])`);
  const columns = [...known.map((_, slot) => column(slot)), number];
  const read = substitute(fragment, (each) => sql`${sets}.${column(known.indexOf(JSON.stringify(each)))}`);
  const cells = linked === null ? [cell] : [alias('x'), cell];
  const shown = cells.map((each) => sql`${result}.${each}`);
  return statement(
    sql`select ${sets}.${number}, ${commaList(shown)}
      from ${unnest(lists)} with ordinality as ${sets} (${commaList(columns)})
      left join lateral (${read}) ${result} (${commaList(cells)}) on true`,
  );
}

/**
 * A read of the items that a write has just written, in the same transaction. The write has stored their keys in a setting. The setting is
 * read in a sub-select, so that PostgreSQL reads and converts it once, not for every row.
 */
export function compileReadBack(plan: ReadPlan): Statement {
  const { key } = plan.level.collection;
  return statement(
    substitute(readFragment(plan), (each) => {
      if (!('slot' in each) || each.slot !== KEYS_SLOT) return parameter(each);
      const position = 'part' in each ? (each.part?.position ?? 0) : 0;
      const setting = key.length === 1 ? KEYS_SETTING : keyPartSetting(position);
      const keys = sql`current_setting(${setting})::${typeName(elementAt(key, position))}[]`;
      return each.kind === 'list' ? sql`(select ${keys})` : sql`(select (${keys})[1])`;
    }),
  );
}

/** The keys are the first value of a request that has some. */
const KEYS_SLOT = 0;

function readFragment(plan: ReadPlan | OperationPlan, links: LinkPlan | null = null): Fragment {
  const scope = new Scope(compileCondition, links);
  if (plan.kind === 'operation') return links ? linkedOperation(plan, scope) : operationFragment(plan, scope);
  switch (plan.result) {
    case 'item':
      return itemFragment(rowLevel(plan), scope);
    case 'singleton':
      if (rowLevel(plan).tagged)
        return sql`select coalesce((${itemFragment(rowLevel(plan), scope)}), '{"data":' || ${blankParameter(plan)} || '}')`;
      return sql`select '{"data":' || ${compilePart(plan, scope)} || '}'`;
    case 'optional':
      return sql`select '{"data":' || ${compilePart(plan, scope)} || '}'`;
    case 'list':
      if (plan.stream) return compileStream(plan, scope);
      return plan.cursor ? compilePageWithCursor(plan, scope) : compileWhole(plan, scope);
    default:
      return assertNever(plan.result);
  }
}

function itemFragment(level: RowLevel, scope: Scope): Fragment {
  const rows = compileRows(level, scope, null);
  return sql`select ${linksBefore(scope, linksBelow(rows.links, rows.row))}${itemBody(level, rows.row)} from (${rows.query}) ${rows.row}`;
}

/** Several reads as one statement, and so one snapshot; its cell is the whole response, errors of missing items included. */
function operationFragment(plan: OperationPlan, scope: Scope): Fragment {
  const items: Fragment[] = [];
  const body = operationBody(plan, (part, position) => {
    const value = compilePart(part.plan, scope);
    if (part.missing === null) return value;
    const item = alias(`i${position}`);
    items.push(sql`${value} as ${item}`);
    return item;
  });
  // The offset is a fence: the items are used twice, and must not be read twice.
  const from = items.length === 0 ? nothing : sql` from (select ${join(items, sql`, `)} offset 0) ${alias('o')}`;
  return sql`select ${body}${from}`;
}

/** The same with links: each part is a join, since a sub-select has one column. The offsets are fences. */
function linkedOperation(plan: OperationPlan, scope: Scope): Fragment {
  const joins: Fragment[] = [];
  const links: LinkColumn[] = [];
  const body = operationBody(plan, ({ plan: read }, position) => {
    if (read.result !== 'list' && read.result !== 'item') return compilePart(read, scope);
    const level = compileLevel(read, scope);
    const isList = read.result === 'list';
    const row = alias(`o${position}`);
    const list = sql`select ${jsonList(level.row)} as ${JSON_COLUMN}${linkColumns(combined(level))} from (${level.query}) ${level.row}`;
    joins.push(sql` left join lateral (${isList ? list : level.query} offset 0) ${row} on true`);
    links.push(...linksBelow(level.links, row));
    return sql`${row}.${JSON_COLUMN}`;
  });
  return sql`select ${linksBefore(scope, links)}${body} from (select) ${alias('o')}${join(joins, nothing)}`;
}

/** `textOf` gives the text of a part: an expression that may be used twice if the part may be missing. */
function operationBody({ parts }: OperationPlan, textOf: (part: ReadPart, position: number) => Fragment): Fragment {
  const errors: Fragment[] = [];
  const entries = parts.map((part, position) => {
    const key = literal(`${position === 0 ? '' : ','}${JSON.stringify(part.name)}:`);
    if (part.kind === 'json') {
      if (part.error !== null) errors.push(jsonParameter(part.error));
      return sql`${key} || ${jsonParameter(part.value)}`;
    }
    const value = textOf(part, position);
    if (part.missing === null) return sql`${key} || ${value}`;
    errors.push(sql`case when ${value} is null then ${jsonParameter(part.missing)} end`);
    return sql`${key} || coalesce(${value}, 'null')`;
  });
  const data = join([sql`'{"data":{'`, ...entries], sql` || `);
  if (errors.length === 0) return sql`${data} || '}}'`;
  return sql`${data} || '}' || coalesce(',"errors":[' || nullif(concat_ws(',', ${join(errors, sql`, `)}), '') || ']', '') || '}'`;
}

type ReadPart = Extract<OperationPlan['parts'][number], { kind: 'read' }>;

function jsonParameter(slot: number): Fragment {
  return sql`${parameter({ kind: 'text', slot })}::text`;
}

/** The text of one result; null for an item that is missing. */
function compilePart(plan: ReadPlan, scope: Scope): Fragment {
  if (plan.result === 'list') {
    const level = compileLevel(plan, scope);
    return sql`(select ${jsonList(level.row)} from (${level.query}) ${level.row})`;
  }
  const level = rowLevel(plan);
  const rows = compileRows(level, scope, null);
  if (plan.result === 'item') return sql`(${rows.query})`;
  // A function that shows nothing may return several rows: all of them are asked for, so that it runs to its end.
  if (plan.result === 'optional' && level.outputs.length === 0)
    return sql`coalesce((select max(${rows.row}.${JSON_COLUMN}) from (${rows.query}) ${rows.row}), 'null')`;
  return sql`coalesce((${rows.query}), ${plan.result === 'optional' ? sql`'null'` : blankParameter(plan)})`;
}

function blankParameter(plan: ReadPlan): Fragment {
  return sql`${parameter({ kind: 'constant', value: JSON.stringify(blankItem(rowLevel(plan).outputs)) })}::text`;
}

function compileLevel({ level }: ReadPlan, scope: Scope): CompiledLevel {
  return level.kind === 'rows' ? compileRows(level, scope, null) : compileGroups(level, scope, null);
}

function compileWhole(plan: ReadPlan, scope: Scope): Fragment {
  const level = compileLevel(plan, scope);
  const { row, query } = level;
  const body = plan.meta.length === 0 ? jsonList(row, '{"data":', '}') : afterMeta(metaCounts(plan, scope), row);
  return sql`select ${linksBefore(scope, combined(level))}${body} from (${query}) ${row}`;
}

/** One row per item. With counts, the first row is the text before the items. */
function compileStream(plan: ReadPlan, scope: Scope): Fragment {
  const { query } = compileLevel(plan, scope);
  if (plan.meta.length === 0) return query;
  return sql`select '{"meta":{' || ${joined(metaCounts(plan, scope))} || '},"data":[' union all (${query})`;
}

/** The cursor of the next page: the sort values of the last row, where the page is full. */
function compilePageWithCursor(plan: ReadPlan, scope: Scope): Fragment {
  const level = rowLevel(plan);
  const rows = compileRowsWithCursor(level, scope);
  const row = alias('c');
  const last = sql`(array_agg(${row}.${alias('k')}))[count(*)]`;
  const encoded = sql`translate(encode(convert_to(${last}, 'UTF8'), 'base64'), E'+/=\\n', '-_')`;
  const cursor = toJsonText({
    form: 'quoted',
    text: sql`case when count(*) = ${limitValue(level.limit)} then ${encoded} end`,
  });
  const meta = [...metaCounts(plan, scope), sql`'"next_cursor":' || ${cursor}`];
  return sql`select ${afterMeta(meta, row)} from (${rows}) ${row}`;
}

function afterMeta(meta: readonly Fragment[], row: Fragment): Fragment {
  return sql`'{"meta":{' || ${joined(meta)} || ${jsonList(row, '},"data":', '}')}`;
}

function joined(entries: readonly Fragment[]): Fragment {
  return join(entries, sql` || ',' || `);
}

function metaCounts(plan: ReadPlan, scope: Scope): Fragment[] {
  return plan.meta.map((name) => {
    const count =
      name === 'estimated_count'
        ? estimateRows(plan.level, scope)
        : compileCount(plan.level, name === 'filter_count', scope);
    return sql`${literal(`"${name}":`)} || ${count}::text`;
  });
}

function rowLevel(plan: ReadPlan): RowLevel {
  if (plan.level.kind !== 'rows') throw new Error('groups have no rows to show one by one');
  return plan.level;
}

/** A singleton that was never written: its key is null, its columns have their defaults. */
function blankItem(outputs: readonly Output[]): Record<string, unknown> {
  const entries = outputs.map((output): [string, unknown] => {
    if (output.kind === 'many' || output.kind === 'keys') return [output.name, []];
    if (output.kind === 'constant') return [output.name, output.text];
    if (output.kind === 'object') return [output.name, blankItem(output.outputs)];
    const field = output.kind === 'value' && output.operand.kind === 'field' ? output.operand.field : null;
    const column = field?.column ?? null;
    return [output.name, column && !column.is_primary_key ? (column.default_value ?? null) : null];
  });
  return Object.fromEntries(entries);
}

/** If a request asks for an estimate, up to this number of rows is counted. */
const EXACT_ROWS = 10_000;

/** The number of rows that may be seen, or with `filtered` of those that also match the request. */
function compileCount(level: Level, filtered: boolean, scope: Scope): Fragment {
  return sql`(select count(*) from ${rowsOf(level, filtered, scope)})`;
}

/**
 * Counts up to EXACT_ROWS. If there are more, a function of the service asks the planner, inside the statement, for an estimate of the
 * same rows. The query is a constant of the statement, and its values are the elements of one parameter.
 */
function estimateRows(level: Level, scope: Scope): Fragment {
  const [some, counted, number] = [alias(`t${scope.next()}`), alias(`t${scope.next()}`), alias('n')];
  const bounded = sql`select from ${rowsOf(level, true, scope)} limit ${integerLiteral(EXACT_ROWS + 1)}`;
  const { query, values } = asText(sql`select from ${rowsOf(level, true, scope)}`);
  const estimate = sql`greatest(service_estimate(${literal(query)}, array[${values}]::text[]), ${integerLiteral(EXACT_ROWS + 1)})`;
  const chosen = sql`case when ${counted}.${number} <= ${integerLiteral(EXACT_ROWS)} then ${counted}.${number} else ${estimate} end`;
  return sql`(select ${chosen} from (select count(*) as ${number} from (${bounded}) ${some}) ${counted})`;
}

function rowsOf(level: Level, filtered: boolean, scope: Scope): Fragment {
  const source = new FromClause(alias(`t${scope.next()}`), scope, level.collection);
  return source.from(filtered ? compileCondition(level.where, source) : null);
}

/** A query as a string whose only parameter is the list of its values. */
function asText(fragment: Fragment): { query: string; values: Fragment } {
  const { parameters } = statement(fragment);
  const texts = parameters.map((each) => JSON.stringify(each));
  const query = substitute(fragment, (each) => {
    const position = integerLiteral(texts.indexOf(JSON.stringify(each)) + 1);
    return sql`($1)[${position}]`;
  });
  const values = parameters.map((each) => sql`${parameter(each)}::text`);
  return { query: statement(query).text, values: join(values, sql`, `) };
}
