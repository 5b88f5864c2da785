/** A level of groups → SQL: aggregates over a collection, by groups, with a page of the groups. */
import { assertNever } from '../../base/assert-never.js';
import type { AggregatePlan, GroupLevel, GroupOutput, OperandPlan } from '../plan/plan.js';
import { alias, type Fragment, join, nothing, sql } from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { FromClause, type Scope } from './from-clause.js';
import { type Entry, JSON_COLUMN, type JsonValue, jsonObject } from './json.js';
import { compileAggregate, compileOperand, showAggregate, showOperand } from './operand.js';
import { type CompiledLevel, type JoinCondition, limitClause, offsetClause, orderClause } from './page.js';

export function compileGroups(level: GroupLevel, scope: Scope, joinedBy: JoinCondition | null): CompiledLevel {
  const number = scope.next();
  const source = new FromClause(alias(`t${number}`), scope, level.collection);
  source.assume(level.where);
  const joined = joinedBy?.(source);
  const name = alias(`p${number}`);
  const groups = level.groups.map(({ operand }) => compileOperand(operand, source));
  const aggregates = level.aggregates.map((aggregate) => compileAggregate(aggregate, source));
  const columns = [
    ...groups.map((group, position) => sql`${group} as ${alias(`g${position}`)}`),
    ...aggregates.map((aggregate, position) => sql`${aggregate} as ${alias(`a${position}`)}`),
  ];
  const sorted = level.order.map(({ operand, descending }) => ({ column: sortedColumn(operand, level), descending }));
  const conditions = [joined, compileCondition(level.where, source)];
  const having = compileCondition(level.having, source);
  const names = groups.map((_, position) => alias(`g${position}`));
  const grouping = groups.length > 0 ? sql` group by ${join(names, sql`, `)}` : nothing;
  const range = sql`${orderClause(sorted)}${limitClause(level.limit)}${offsetClause(level.offset)}`;
  const page = sql`select ${join(columns, sql`, `)}
    from ${source.from(...conditions)}${grouping}${having ? sql` having ${having}` : nothing}${range}`;
  const value = jsonObject(
    level.outputs
      ? level.outputs.map((output) => entryOf(output, level, name))
      : [...groupEntries(level, name), ...functionEntries(level.aggregates, name)],
  );
  const outer = orderClause(sorted.map(({ column, descending }) => ({ column: sql`${name}.${column}`, descending })));
  const query = sql`select ${value} as ${JSON_COLUMN} from (${page}) ${name}${outer}`;
  return { query, row: alias(`r${number}`), links: [] };
}

function groupEntries(level: GroupLevel, page: Fragment): Entry[] {
  return level.groups.map(({ name, operand }, position) => ({
    name,
    value: showOperand(operand, sql`${page}.${alias(`g${position}`)}`),
  }));
}

function entryOf(output: GroupOutput, level: GroupLevel, page: Fragment): Entry {
  return { name: output.name, value: showOutput(output, level, page) };
}

function showOutput(output: GroupOutput, level: GroupLevel, page: Fragment): JsonValue {
  switch (output.kind) {
    case 'constant':
      return { form: 'constant', constant: output.text };
    case 'groups':
      return level.groups.length === 0 ? { form: 'constant', constant: null } : object(groupEntries(level, page));
    case 'aggregate': {
      const position = level.aggregates.indexOf(output.aggregate);
      return showAggregate(output.aggregate, sql`${page}.${alias(`a${position}`)}`, output.as);
    }
    case 'object':
      return object(output.outputs.map((each) => entryOf(each, level, page)));
    default:
      return assertNever(output);
  }
}

function object(entries: readonly Entry[]): JsonValue {
  return { form: 'document', text: jsonObject(entries) };
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
function functionEntries(aggregates: readonly AggregatePlan[], page: Fragment): Entry[] {
  const byFunction = new Map<string, { key: string | null; value: JsonValue }[]>();
  aggregates.forEach((aggregate, position) => {
    const value = showAggregate(aggregate, sql`${page}.${alias(`a${position}`)}`);
    byFunction.set(aggregate.function, [...(byFunction.get(aggregate.function) ?? []), { key: aggregate.name, value }]);
  });
  return [...byFunction].map(([name, members]) => {
    const [only] = members;
    if (members.length === 1 && only?.key === null) return { name, value: only.value };
    return { name, value: object(members.map(({ key, value }) => ({ name: key ?? '*', value }))) };
  });
}
