/**
 * Read plan → one `select` whose single cell is the body of the response, or whose rows are the items of a stream.
 *
 * Each level is a page first (filter, order and limit over the bare table) and what is shown of it second: output
 * expressions and lateral joins then run for the rows of the page alone.
 */
import type { Level, ReadPlan, RowLevel } from '../plan/plan.js';
import { alias, type Fragment, join, literal, parameter, sql, substitute } from '../sql/fragment.js';
import { type Statement, statement } from '../sql/statement.js';
import { KEYS_SETTING } from './chain.js';
import { compileCondition } from './condition.js';
import { compileGroups } from './groups.js';
import { type CompiledLevel, compileRows, compileRowsWithCursor, limitValue } from './rows.js';
import { Scope, Source, typeName } from './source.js';

export function compileRead(plan: ReadPlan): Statement {
  return statement(readFragment(plan));
}

/**
 * The same read for many sets of values at once: a row per set, with its number and its cell. Each parameter of the read is
 * a list of texts here, one of each set. The lists stand in sub-selects, where the planner does not look at their lengths:
 * it would plan anew for each.
 */
export function compileCohort(plan: ReadPlan): Statement {
  const fragment = readFragment(plan);
  const known = statement(fragment).parameters.map((each) => JSON.stringify(each));
  const [sets, number, result, cell] = [alias('q'), alias('n'), alias('c'), alias('b')] as const;
  const column = (slot: number): Fragment => alias(`v${slot}`);
  const comma = sql`, `;
  const lists = known.map((_, slot) => sql`(select ${parameter({ kind: 'text', slot })}::text[])`);
  const columns = [...known.map((_, slot) => column(slot)), number];
  const read = substitute(fragment, (each) => sql`${sets}.${column(known.indexOf(JSON.stringify(each)))}`);
  return statement(
    sql`select ${sets}.${number}, ${result}.${cell} from unnest(${join(lists, comma)}) with ordinality as ${sets} (${join(columns, comma)}) left join lateral (${read}) ${result} (${cell}) on true`,
  );
}

/**
 * A read of the items that the write before it has made, in one transaction: their keys are where the write left them. In a
 * sub-select they are looked up and converted once, not for every row.
 */
export function compileReadBack(plan: ReadPlan): Statement {
  const keys = sql`current_setting(${KEYS_SETTING})::${typeName(plan.level.collection.primaryKey)}[]`;
  return statement(
    substitute(readFragment(plan), (each) => {
      if (!('slot' in each) || each.slot !== KEYS_SLOT) return parameter(each);
      return each.kind === 'list' ? sql`(select ${keys})` : sql`(select (${keys})[1])`;
    }),
  );
}

/** The keys are the first value of a request that has some. */
const KEYS_SLOT = 0;

function readFragment(plan: ReadPlan): Fragment {
  const scope = new Scope();
  switch (plan.result) {
    case 'item': {
      const rows = compileRows(rowLevel(plan), scope, null);
      return sql`select '{"data":' || row_to_json(${rows.row})::text || '}' from (${rows.query}) ${rows.row}`;
    }
    case 'singleton': {
      const rows = compileRows(rowLevel(plan), scope, null);
      const found = sql`(select row_to_json(${rows.row})::text from (${rows.query}) ${rows.row})`;
      return sql`select '{"data":' || coalesce(${found}, ${parameter({ kind: 'constant', value: blankItem(rowLevel(plan)) })}::text) || '}'`;
    }
    case 'list':
      if (plan.stream) return compileStream(plan, scope);
      return plan.cursor ? compilePageWithCursor(plan, scope) : compileWhole(plan, scope);
  }
}

function compileLevel({ level }: ReadPlan, scope: Scope): CompiledLevel {
  return level.kind === 'rows' ? compileRows(level, scope, null) : compileGroups(level, scope, null);
}

function compileWhole(plan: ReadPlan, scope: Scope): Fragment {
  const level = compileLevel(plan, scope);
  return sql`select ${opening(plan, scope)} || coalesce(json_agg(${level.row})::text, '[]') || '}' from (${level.query}) ${level.row}`;
}

/** One row per item. With counts, the first row is what stands before the items. */
function compileStream(plan: ReadPlan, scope: Scope): Fragment {
  const rows = compileLevel(plan, scope);
  const items = sql`select row_to_json(${rows.row})::text from (${rows.query}) ${rows.row}`;
  return plan.meta.length === 0 ? items : sql`select ${opening(plan, scope)} || '[' union all (${items})`;
}

/** The cursor of the next page: the sort values of the last row, where the page is full. */
function compilePageWithCursor(plan: ReadPlan, scope: Scope): Fragment {
  const level = rowLevel(plan);
  const rows = compileRowsWithCursor(level, scope);
  const row = alias('c');
  const last = sql`(array_agg(${row}.${alias('k')}))[count(*)]`;
  const encoded = sql`translate(encode(convert_to(${last}, 'UTF8'), 'base64'), E'+/=\\n', '-_')`;
  const cursor = sql`coalesce(to_json(case when count(*) = ${limitValue(level.limit)} then ${encoded} end)::text, 'null')`;
  const counts = join([...metaCounts(plan, scope), sql`'"next_cursor":' || ${cursor}`], sql` || ',' || `);
  return sql`select '{"meta":{' || ${counts} || '},"data":' || coalesce(json_agg(${row}.${alias('j')})::text, '[]') || '}' from (${rows}) ${row}`;
}

/** Everything before the items. */
function opening(plan: ReadPlan, scope: Scope): Fragment {
  const counts = metaCounts(plan, scope);
  return counts.length === 0 ? sql`'{"data":'` : sql`'{"meta":{' || ${join(counts, sql` || ',' || `)} || '},"data":'`;
}

function metaCounts(plan: ReadPlan, scope: Scope): Fragment[] {
  return plan.meta.map((name) => {
    const count = countRows(plan.level, name === 'filter_count', scope);
    return sql`${literal(`"${name}":`)} || ${count}`;
  });
}

function countRows(level: Level, filtered: boolean, scope: Scope): Fragment {
  const source = new Source(alias(`t${scope.next()}`), scope, level.collection);
  const where = filtered ? compileCondition(level.where, source) : null;
  return sql`(select count(*) from ${source.from(where)})`;
}

function rowLevel(plan: ReadPlan): RowLevel {
  if (plan.level.kind !== 'rows') throw new Error('groups have no rows to show one by one');
  return plan.level;
}

/** A singleton that was never written: its key is null, its columns have their defaults. */
function blankItem(level: RowLevel): string {
  const entries = level.outputs.map((output): [string, unknown] => {
    if (output.kind === 'many' || output.kind === 'keys') return [output.name, []];
    const field = output.kind === 'value' && output.operand.kind === 'field' ? output.operand.field : null;
    const column = field?.column ?? null;
    return [output.name, column && !column.is_primary_key ? (column.default_value ?? null) : null];
  });
  return JSON.stringify(Object.fromEntries(entries));
}
