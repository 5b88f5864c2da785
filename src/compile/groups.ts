/** A level of groups → SQL: aggregates over a collection, by groups, with a page of the groups. */
import type { AggregatePlan, GroupLevel, GroupOutput, OperandPlan } from '../plan/plan.js';
import { alias, type Fragment, identifier, join, literal, nothing, sql } from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { compileAggregate, compileOperand, showAggregate, showOperand } from './operand.js';
import { type CompiledLevel, limitClause, offsetClause, orderClause, type Tie } from './rows.js';
import { type Scope, Source } from './source.js';

export function compileGroups(level: GroupLevel, scope: Scope, tie: Tie | null): CompiledLevel {
  const number = scope.next();
  const source = new Source(alias(`t${number}`), scope, level.collection);
  const name = alias(`p${number}`);
  const groups = level.groups.map(({ operand }) => compileOperand(operand, source));
  const aggregates = level.aggregates.map((aggregate) => compileAggregate(aggregate, source));
  const columns = [
    ...groups.map((group, position) => sql`${group} as ${alias(`g${position}`)}`),
    ...aggregates.map((aggregate, position) => sql`${aggregate} as ${alias(`a${position}`)}`),
  ];
  const sorted = level.order.map(({ operand, descending }) => ({ column: sortedColumn(operand, level), descending }));
  const conditions = [tie?.(source), compileCondition(level.where, source)];
  const having = compileCondition(level.having, source);
  const names = groups.map((_, position) => alias(`g${position}`));
  const grouping = groups.length > 0 ? sql` group by ${join(names, sql`, `)}` : nothing;
  const page = sql`select ${join(columns, sql`, `)} from ${source.from(...conditions)}${grouping}${having ? sql` having ${having}` : nothing}${orderClause(sorted)}${limitClause(level.limit)}${offsetClause(level.offset)}`;
  const outputs = level.outputs
    ? level.outputs.map((output) => sql`${shownOutput(output, level, name, scope)} as ${identifier(output.name)}`)
    : [...groupOutputs(level, name), ...functionOutputs(level.aggregates, name, scope)];
  const outer = orderClause(sorted.map(({ column, descending }) => ({ column: sql`${name}.${column}`, descending })));
  return { query: sql`select ${join(outputs, sql`, `)} from (${page}) ${name}${outer}`, row: alias(`r${number}`) };
}

function groupOutputs(level: GroupLevel, page: Fragment): Fragment[] {
  return level.groups.map(
    ({ name, operand }, position) =>
      sql`${showOperand(operand, sql`${page}.${alias(`g${position}`)}`)} as ${identifier(name)}`,
  );
}

function shownOutput(output: GroupOutput, level: GroupLevel, page: Fragment, scope: Scope): Fragment {
  const object = (columns: readonly Fragment[]): Fragment => {
    const row = alias(`f${scope.next()}`);
    return sql`(select row_to_json(${row}) from (select ${join(columns, sql`, `)}) ${row})`;
  };
  switch (output.kind) {
    case 'constant':
      return sql`${literal(output.text)}::text`;
    case 'groups':
      return level.groups.length === 0 ? sql`null::json` : object(groupOutputs(level, page));
    case 'aggregate': {
      const position = level.aggregates.indexOf(output.aggregate);
      return showAggregate(output.aggregate, sql`${page}.${alias(`a${position}`)}`, output.as);
    }
    case 'object':
      return object(
        output.outputs.map((each) => sql`${shownOutput(each, level, page, scope)} as ${identifier(each.name)}`),
      );
  }
}

/** Groups and aggregates are sorted by the columns that show them. */
function sortedColumn(operand: OperandPlan, level: GroupLevel): Fragment {
  const group = level.groups.findIndex((each) => each.operand === operand);
  if (group >= 0) return alias(`g${group}`);
  const aggregate = level.aggregates.findIndex((each) => operand.kind === 'aggregate' && operand.aggregate === each);
  if (aggregate < 0) throw new Error('groups are sorted by what they show');
  return alias(`a${aggregate}`);
}

/** One key per function: a number, or an object with a key per field. */
function functionOutputs(aggregates: readonly AggregatePlan[], page: Fragment, scope: Scope): Fragment[] {
  const byFunction = new Map<string, { aggregate: AggregatePlan; position: number }[]>();
  aggregates.forEach((aggregate, position) => {
    byFunction.set(aggregate.function, [...(byFunction.get(aggregate.function) ?? []), { aggregate, position }]);
  });
  return [...byFunction].map(([name, members]) => {
    const shown = members.map(({ aggregate, position }) => ({
      key: aggregate.name,
      value: showAggregate(aggregate, sql`${page}.${alias(`a${position}`)}`),
    }));
    const [only] = shown;
    if (shown.length === 1 && only?.key === null) return sql`${only.value} as ${identifier(name)}`;
    const row = alias(`f${scope.next()}`);
    const columns = shown.map(({ key, value }) => sql`${value} as ${identifier(key ?? '*')}`);
    return sql`(select row_to_json(${row}) from (select ${join(columns, sql`, `)}) ${row}) as ${identifier(name)}`;
  });
}
