/** A level of rows → SQL: the page, what is shown of its rows, and the lateral joins to the levels below. */
import type { Level, LimitPlan, OffsetPlan, Output, RowLevel } from '../plan/plan.js';
import { alias, type Fragment, identifier, integer, join, literal, nothing, parameter, sql } from '../sql/fragment.js';
import { compileCondition, compileCursor } from './condition.js';
import { compileGroups } from './groups.js';
import { compileOperand, showOperand } from './operand.js';
import { columnName, reference, refersTo, type Scope, Source, tableName } from './source.js';

export interface CompiledLevel {
  /** Yields the rows to show, in order. */
  readonly query: Fragment;
  /** The name under which the query is to be selected from. */
  readonly row: Fragment;
}

/** Ties a level to a row of the level above; gets the alias of the level's table. */
export type Tie = (table: Fragment) => Fragment;

export function compileRows(level: RowLevel, scope: Scope, tie: Tie | null): CompiledLevel {
  const number = scope.next();
  const page = compilePage(level, number, scope, tie);
  const { outputs, joins } = compileOutputs(level, page.name, scope);
  const query = sql`select ${outputs} from (${page.query}) ${page.name}${joins}${orderClause(page.order)}`;
  return { query, row: alias(`r${number}`) };
}

/** Each row as JSON beside the texts of its sort values. */
export function compileRowsWithCursor(level: RowLevel, scope: Scope): Fragment {
  const number = scope.next();
  const page = compilePage(level, number, scope, null);
  const { outputs, joins } = compileOutputs(level, page.name, scope);
  const row = alias(`r${number}`);
  const keys = join(
    page.order.map((each) => sql`${each.column}::text`),
    sql`, `,
  );
  const json = sql`(select row_to_json(${row}) from (select ${outputs}) ${row})`;
  return sql`select ${json} as ${alias('j')}, json_build_array(${keys})::text as ${alias('k')} from (${page.query}) ${page.name}${joins}${orderClause(page.order)}`;
}

interface PageOrder {
  readonly column: Fragment;
  readonly descending: boolean;
}

interface Page {
  readonly query: Fragment;
  readonly name: Fragment;
  /** The order again, over the columns of the page: joins behind the page are not bound to keep it. */
  readonly order: readonly PageOrder[];
}

function compilePage(level: RowLevel, number: number, scope: Scope, tie: Tie | null): Page {
  const source = new Source(alias(`t${number}`), scope);
  const name = alias(`p${number}`);
  const columns = new Map<string, Fragment>();
  for (const field of level.outputs.flatMap((output) => neededFields(output, level))) {
    columns.set(field.name, source.column([], field));
  }
  const conditions: Fragment[] = [];
  if (tie) conditions.push(tie(source.alias));
  const where = compileCondition(level.where, source);
  if (where) conditions.push(where);

  const sorted = level.order.map(({ operand, descending }) => compileOperand(operand, source, descending));
  if (level.after) conditions.push(compileCursor(level.after, level.order, sorted));
  const order = level.order.map(({ operand, descending }, position): PageOrder => {
    const expression = sorted[position] as Fragment;
    if (operand.kind === 'field' && operand.through.length === 0) {
      columns.set(operand.field.name, expression);
      return { column: sql`${name}.${columnName(operand.field)}`, descending };
    }
    const shown = alias(`s${position}`);
    columns.set(`%s${position}`, sql`${expression} as ${shown}`);
    return { column: sql`${name}.${shown}`, descending };
  });
  const inner = orderClause(
    level.order.map(({ descending }, position) => ({ column: sorted[position] as Fragment, descending })),
  );
  const query = sql`select ${join([...columns.values()], sql`, `)} from ${tableName(level.collection)} ${source.alias}${source.joins()}${whereClause(conditions)}${inner}${limitClause(level.limit)}${offsetClause(level.offset)}${level.locked ? sql` for update of ${source.alias}` : nothing}`;
  return { query, name, order };
}

function neededFields(output: Output, level: RowLevel): RowLevel['collection']['primaryKey'][] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return [level.collection.primaryKey];
      return output.operand.kind === 'aggregate' ? [] : [output.operand.field];
    case 'one':
      return [output.step.field];
    case 'any':
      return output.targets.flatMap(({ step }) => [step.field, step.collectionField]);
    default:
      return [level.collection.primaryKey];
  }
}

function compileOutputs(level: RowLevel, page: Fragment, scope: Scope): { outputs: Fragment; joins: Fragment } {
  const outputs: Fragment[] = [];
  const joins: Fragment[] = [];
  for (const output of level.outputs) {
    const { value, from } = compileOutput(output, level, page, scope);
    outputs.push(sql`${value} as ${identifier(output.name)}`);
    if (from) joins.push(from);
  }
  return { outputs: join(outputs, sql`, `), joins: join(joins, nothing) };
}

interface CompiledOutput {
  readonly value: Fragment;
  readonly from: Fragment | null;
}

function compileOutput(output: Output, level: RowLevel, page: Fragment, scope: Scope): CompiledOutput {
  switch (output.kind) {
    case 'value':
      return {
        value: showOperand(output.operand, compileOperand(output.operand, new Source(page, scope))),
        from: null,
      };
    case 'one': {
      const related = compileRelated(output.level, output.step, page, scope);
      return lateral(sql`row_to_json(${related.row})`, related, scope);
    }
    case 'many': {
      const related = compileChildren(output.level, output.hop, level, page, scope);
      return lateral(sql`coalesce(json_agg(${related.row}), '[]')`, related, scope);
    }
    case 'keys': {
      const key = output.level.collection.primaryKey;
      const shown: RowLevel = {
        ...output.level,
        outputs: [{ kind: 'value', name: key.name, operand: { kind: 'field', through: [], field: key } }],
      };
      const related = compileChildren(shown, output.hop, level, page, scope);
      return lateral(sql`coalesce(json_agg(${related.row}.${identifier(key.name)}), '[]')`, related, scope);
    }
    case 'any': {
      // A case, not a join per target: keys of several types lie in one column, and only the named target may read it.
      const [first] = output.targets;
      if (!first) return { value: sql`null::json`, from: null };
      const cases = output.targets.map(
        ({ step, level: target }) =>
          sql` when ${literal(step.target.name)} then ${anyTarget(target, step, page, scope)}`,
      );
      return {
        value: sql`case ${page}.${columnName(first.step.collectionField)}::text${join(cases, nothing)} end`,
        from: null,
      };
    }
  }
}

function anyTarget(level: RowLevel, step: Parameters<typeof reference>[0], page: Fragment, scope: Scope): Fragment {
  const key = level.collection.primaryKey;
  if (level.outputs.length > 0) {
    const related = compileRelated(level, step, page, scope);
    return sql`(select row_to_json(${related.row}) from (${related.query}) ${related.row})`;
  }
  const shown: RowLevel = {
    ...level,
    outputs: [{ kind: 'value', name: key.name, operand: { kind: 'field', through: [], field: key } }],
  };
  const related = compileRelated(shown, step, page, scope);
  return sql`(select to_json(${related.row}.${identifier(key.name)}) from (${related.query}) ${related.row})`;
}

/** The page of a to-one relation keeps its `limit 1`, a fence: without it the planner joins the whole related table. */
function compileRelated(
  level: RowLevel,
  step: Parameters<typeof reference>[0],
  page: Fragment,
  scope: Scope,
): CompiledLevel {
  const key = level.collection.primaryKey;
  return compileRows(level, scope, (table) => sql`${table}.${columnName(key)} = ${reference(step, page)}`);
}

function compileChildren(
  children: Level,
  hop: Parameters<typeof refersTo>[0],
  parent: RowLevel,
  page: Fragment,
  scope: Scope,
): CompiledLevel {
  const key = sql`${page}.${columnName(parent.collection.primaryKey)}`;
  const tie: Tie = (table) => refersTo(hop, table, key);
  return children.kind === 'rows' ? compileRows(children, scope, tie) : compileGroups(children, scope, tie);
}

function lateral(json: Fragment, related: CompiledLevel, scope: Scope): CompiledOutput {
  const name = alias(`l${scope.next()}`);
  return {
    value: sql`${name}.${alias('j')}`,
    from: sql` left join lateral (select ${json} as ${alias('j')} from (${related.query}) ${related.row}) ${name} on true`,
  };
}

export function whereClause(conditions: readonly Fragment[]): Fragment {
  return conditions.length > 0 ? sql` where ${join(conditions, sql` and `)}` : nothing;
}

export function orderClause(order: readonly PageOrder[]): Fragment {
  if (order.length === 0) return nothing;
  const keys = order.map(({ column, descending }) => (descending ? sql`${column} desc` : column));
  return sql` order by ${join(keys, sql`, `)}`;
}

export function limitClause(limit: LimitPlan): Fragment {
  return limit.kind === 'all' ? nothing : sql` limit ${limitValue(limit)}`;
}

export function limitValue(limit: LimitPlan): Fragment {
  switch (limit.kind) {
    case 'all':
      throw new Error('there is no limit');
    case 'constant':
      return integer(limit.value);
    case 'slot':
      return sql`${parameter({ kind: 'limit', slot: limit.slot })}::bigint`;
  }
}

export function offsetClause(offset: OffsetPlan | null): Fragment {
  return offset ? sql` offset ${parameter(offset)}::bigint` : nothing;
}
