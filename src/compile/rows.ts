/** A level of rows → SQL: the page, what is shown of its rows, and the lateral joins to the levels below. */
import type { Field } from '../mirror/model.js';
import { isMasked, maskOf } from '../plan/access.js';
import type {
  Condition,
  Hop,
  Level,
  LimitPlan,
  OffsetPlan,
  OperandPlan,
  Output,
  RowLevel,
  Step,
} from '../plan/plan.js';
import { alias, type Fragment, identifier, integer, join, literal, nothing, parameter, sql } from '../sql/fragment.js';
import { compileCondition, compileCursor } from './condition.js';
import { compileGroups } from './groups.js';
import { compileOperand, showOperand } from './operand.js';
import { columnName, reference, refersTo, type Scope, Source } from './source.js';

export interface CompiledLevel {
  /** Yields the rows to show, in order. */
  readonly query: Fragment;
  /** The name under which the query is to be selected from. */
  readonly row: Fragment;
}

/** Ties a level to a row of the level above; gets the source of the level's rows. */
export type Tie = (source: Source) => Fragment;

export function compileRows(level: RowLevel, scope: Scope, tie: Tie | null): CompiledLevel {
  const number = scope.next();
  const page = compilePage(level, number, scope, tie);
  const { outputs, joins } = compileOutputs(level, page, scope);
  const query = sql`select ${outputs} from (${page.query}) ${page.name}${joins}${orderClause(page.order)}`;
  return { query, row: alias(`r${number}`) };
}

/** Each row as JSON beside the texts of its sort values. */
export function compileRowsWithCursor(level: RowLevel, scope: Scope): Fragment {
  const number = scope.next();
  const page = compilePage(level, number, scope, null);
  const { outputs, joins } = compileOutputs(level, page, scope);
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
  /** Columns that say whether a masked field of the row may be seen. */
  readonly flag: Flag;
  /** The order again, over the columns of the page: joins behind the page are not bound to keep it. */
  readonly order: readonly PageOrder[];
}

function compilePage(level: RowLevel, number: number, scope: Scope, tie: Tie | null): Page {
  const source = new Source(alias(`t${number}`), scope, level.collection);
  const name = alias(`p${number}`);
  const columns = new Map<string, Fragment>();
  for (const field of level.outputs.flatMap((output) => neededFields(output, level))) {
    columns.set(field.name, source.raw([], field));
  }
  const flags = compileFlags(level, source, name);
  for (const [flag, column] of flags.columns) columns.set(flag, column);
  const conditions: Fragment[] = [];
  if (tie) conditions.push(tie(source));
  const where = compileCondition(level.where, source);
  if (where) conditions.push(where);

  const sorted = level.order.map(({ operand, descending }) => compileOperand(operand, source, descending));
  if (level.after) conditions.push(compileCursor(level.after, level.order, sorted, level.collection));
  const order = level.order.map(({ operand, descending }, position): PageOrder => {
    const expression = sorted[position] as Fragment;
    if (isPlain(operand, level)) {
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
  const query = sql`select ${join([...columns.values()], sql`, `)} from ${source.from(...conditions)}${inner}${limitClause(level.limit)}${offsetClause(level.offset)}${level.locked ? sql` for update of ${source.alias}` : nothing}`;
  return { query, name, flag: flags.of, order };
}

type PlainOperand = Extract<OperandPlan, { kind: 'field' | 'key' }>;

/** Whether the operand is a column of the row as it stands. */
function isPlain(operand: OperandPlan, level: RowLevel): operand is PlainOperand {
  if (operand.kind === 'key') return true;
  return operand.kind === 'field' && operand.through.length === 0 && !isMasked(level.collection, operand.field);
}

type Flag = (field: Field) => Fragment | null;

/** One column per rule and not per field: a rule may be costly, and is found out once per row. */
function compileFlags(level: RowLevel, source: Source, page: Fragment): { columns: Map<string, Fragment>; of: Flag } {
  const columns = new Map<string, Fragment>();
  const names = new Map<Condition, Fragment>();
  for (const field of level.outputs.flatMap((output) => shownFields(output))) {
    const rule = maskOf(level.collection, field);
    const mask = names.has(rule) ? null : source.mask([], field);
    if (!mask) continue;
    const name = alias(`k${names.size}`);
    columns.set(`%k${names.size}`, sql`${mask} as ${name}`);
    names.set(rule, sql`${page}.${name}`);
  }
  return { columns, of: (field) => names.get(maskOf(level.collection, field)) ?? null };
}

/** The fields that an output shows, or shows something behind. */
function shownFields(output: Output): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return viaOf(output.operand.hop);
      return output.operand.kind === 'aggregate' ? [] : [output.operand.field];
    case 'one':
      return [output.step.field];
    case 'any':
      return output.targets.map(({ step }) => step.field);
    case 'constant':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => shownFields(each));
    default:
      return viaOf(output.hop);
  }
}

function viaOf({ via }: Hop): Field[] {
  return via ? [via] : [];
}

function neededFields(output: Output, level: RowLevel): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return [level.collection.primaryKey];
      return output.operand.kind === 'aggregate' ? [] : [output.operand.field];
    case 'one':
      return [output.step.field];
    case 'constant':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => neededFields(each, level));
    case 'any':
      return output.targets.flatMap(({ step }) => [step.field, step.collectionField]);
    default:
      return [level.collection.primaryKey];
  }
}

interface CompiledOutputs {
  readonly outputs: Fragment;
  readonly joins: Fragment;
}

function compileOutputs(level: RowLevel, page: Page, scope: Scope): CompiledOutputs {
  return compileEach(level.outputs, level, new Source(page.name, scope, level.collection, { flag: page.flag }));
}

function compileEach(list: readonly Output[], level: RowLevel, rows: Source): CompiledOutputs {
  const outputs: Fragment[] = [];
  const joins: Fragment[] = [];
  for (const output of list) {
    const { value, from } = compileOutput(output, level, rows);
    outputs.push(sql`${value} as ${identifier(output.name)}`);
    if (from) joins.push(from);
  }
  return { outputs: join(outputs, sql`, `), joins: join(joins, nothing) };
}

interface CompiledOutput {
  readonly value: Fragment;
  readonly from: Fragment | null;
}

function compileOutput(output: Output, level: RowLevel, page: Source): CompiledOutput {
  const { scope } = page;
  switch (output.kind) {
    case 'value':
      return {
        value: showOperand(output.operand, compileOperand(output.operand, page), output.as),
        from: null,
      };
    case 'constant':
      return { value: sql`${literal(output.text)}::text`, from: null };
    case 'object': {
      const { outputs, joins } = compileEach(output.outputs, level, page);
      const row = alias(`f${scope.next()}`);
      return { value: sql`(select row_to_json(${row}) from (select ${outputs}) ${row})`, from: joins };
    }
    case 'one': {
      const related = compileRelated(output.level, output.step, page);
      return lateral(sql`row_to_json(${related.row})`, related, scope);
    }
    case 'many': {
      const related = compileChildren(output.level, output.hop, level, page);
      return listed(output.hop, page, lateral(sql`coalesce(json_agg(${related.row}), '[]')`, related, scope));
    }
    case 'keys': {
      const key = output.level.collection.primaryKey;
      const shown: RowLevel = {
        ...output.level,
        outputs: [{ kind: 'value', name: key.name, operand: { kind: 'field', through: [], field: key } }],
      };
      const related = compileChildren(shown, output.hop, level, page);
      const keys = sql`coalesce(json_agg(${related.row}.${identifier(key.name)}), '[]')`;
      return listed(output.hop, page, lateral(keys, related, scope));
    }
    case 'any': {
      // A case, not a join per target: keys of several types lie in one column, and only the named target may read it.
      const [first] = output.targets;
      if (!first) return { value: sql`null::json`, from: null };
      const cases = output.targets.map(
        ({ step, level: target }) =>
          sql` when ${literal(step.target.name)} then ${anyTarget(target, step, output.keys, page)}`,
      );
      return {
        value: sql`case ${page.raw([], first.step.collectionField)}::text${join(cases, nothing)} end`,
        from: null,
      };
    }
  }
}

/** A list, null where the caller may not see the field that shows it. */
function listed(hop: Hop, page: Source, { value, from }: CompiledOutput): CompiledOutput {
  const mask = hop.via && page.mask([], hop.via);
  return { value: mask ? sql`case when ${mask} then ${value} end` : value, from };
}

function anyTarget(level: RowLevel, step: Step, keys: boolean, page: Source): Fragment {
  const key = level.collection.primaryKey;
  if (level.outputs.length > 0 || !keys) {
    const related = compileRelated(level, step, page);
    return sql`(select row_to_json(${related.row}) from (${related.query}) ${related.row})`;
  }
  const shown: RowLevel = {
    ...level,
    outputs: [{ kind: 'value', name: key.name, operand: { kind: 'field', through: [], field: key } }],
  };
  const related = compileRelated(shown, step, page);
  return sql`(select to_json(${related.row}.${identifier(key.name)}) from (${related.query}) ${related.row})`;
}

/** The page of a to-one relation keeps its `limit 1`, a fence: without it the planner joins the whole related table. */
function compileRelated(level: RowLevel, step: Step, page: Source): CompiledLevel {
  const named = step.kind === 'any' ? page.raw([], step.collectionField) : nothing;
  const referred = reference(step, page.column([], step.field), named);
  const tie: Tie = (related) => sql`${related.raw([], level.collection.primaryKey)} = ${referred}`;
  return compileRows(level, page.scope, tie);
}

function compileChildren(children: Level, hop: Hop, parent: RowLevel, page: Source): CompiledLevel {
  const key = page.raw([], parent.collection.primaryKey);
  const tie: Tie = (child) => refersTo(hop, child, key);
  return children.kind === 'rows' ? compileRows(children, page.scope, tie) : compileGroups(children, page.scope, tie);
}

function lateral(json: Fragment, related: CompiledLevel, scope: Scope): CompiledOutput {
  const name = alias(`l${scope.next()}`);
  return {
    value: sql`${name}.${alias('j')}`,
    from: sql` left join lateral (select ${json} as ${alias('j')} from (${related.query}) ${related.row}) ${name} on true`,
  };
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
