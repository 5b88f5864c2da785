/** How many rows there are: counted, or estimated by the planner where they are many. */
import type { Level } from '../plan/plan.js';
import {
  alias,
  type Fragment,
  integerLiteral,
  join,
  literal,
  parameter,
  sql,
  statement,
  substitute,
} from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { FromClause, type Scope } from './from-clause.js';

/** Up to so many rows are counted where an estimate is asked for. */
const EXACT_ROWS = 10_000;

/** `filtered`: only those that the request asks for, of those that may be seen. */
export function compileCount(level: Level, filtered: boolean, scope: Scope): Fragment {
  return sql`(select count(*) from ${rowsOf(level, filtered, scope)})`;
}

/**
 * Counts no further than EXACT_ROWS. Where there are more, a function of the service asks the planner, inside the statement, for the
 * same rows with the same values: the query is a constant of ours, its values are the elements of one parameter.
 */
export function estimateRows(level: Level, scope: Scope): Fragment {
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
