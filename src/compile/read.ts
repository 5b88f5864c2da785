/**
 * Read plan → one `select` whose single cell is the body of the response.
 *
 * Each level is a page first (filter, order and limit over the bare table) and what is shown of it second: output
 * expressions and lateral joins then run for the rows of the page alone. The page of a to-one relation keeps its `limit 1`,
 * a fence: without it the planner joins the whole related table and builds JSON for all of it.
 */
import type { Collection, Field } from '../mirror/model.js';
import type { Level, LimitPlan, OffsetPlan, Order, Output, ReadPlan } from '../plan/plan.js';
import { alias, type Fragment, identifier, integer, join, nothing, parameter, sql } from '../sql/fragment.js';
import { type Statement, statement } from '../sql/statement.js';
import { keyEquals, outputExpression } from './value.js';

export function compileRead(plan: ReadPlan): Statement {
  const scope = new Scope();
  const level = compileLevel(plan.level, scope, null);
  const body =
    plan.result === 'list' ? sql`coalesce(json_agg(${level.row})::text, '[]')` : sql`row_to_json(${level.row})::text`;
  return statement(sql`select '{"data":' || ${body} || '}' from (${level.query}) ${level.row}`);
}

/** Numbers the aliases of one statement. */
class Scope {
  #levels = 0;

  next(): number {
    return ++this.#levels;
  }
}

interface CompiledLevel {
  /** Yields the rows to show, in order. */
  readonly query: Fragment;
  /** The name under which the query is to be selected from. */
  readonly row: Fragment;
}

/** `condition` ties the level to the row of the level above; it gets the alias of the level's table. */
function compileLevel(level: Level, scope: Scope, condition: ((table: Fragment) => Fragment) | null): CompiledLevel {
  const number = scope.next();
  const page = compilePage(level, number, scope, condition);
  const outputs: Fragment[] = [];
  const joins: Fragment[] = [];
  for (const output of level.outputs) {
    const { value, from } = compileOutput(output, level, page.name, scope);
    outputs.push(sql`${value} as ${identifier(output.name)}`);
    if (from) joins.push(from);
  }
  const order = page.order.length > 0 ? sql` order by ${join(page.order, sql`, `)}` : nothing;
  const query = sql`select ${join(outputs, sql`, `)} from (${page.query}) ${page.name}${join(joins, nothing)}${order}`;
  return { query, row: alias(`r${number}`) };
}

interface Page {
  readonly query: Fragment;
  readonly name: Fragment;
  /** The order again, over the columns of the page: joins behind the page are not bound to keep it. */
  readonly order: readonly Fragment[];
}

function compilePage(
  level: Level,
  number: number,
  scope: Scope,
  condition: ((table: Fragment) => Fragment) | null,
): Page {
  const table = alias(`t${number}`);
  const name = alias(`p${number}`);
  const columns = new Map<string, Fragment>();
  for (const field of neededColumns(level)) columns.set(field.name, sql`${table}.${columnName(field)}`);

  const conditions: Fragment[] = [];
  if (condition) conditions.push(condition(table));
  if (level.key !== null)
    conditions.push(
      keyEquals(sql`${table}.${columnName(level.collection.primaryKey)}`, level.collection.primaryKey, level.key),
    );

  const joins: Fragment[] = [];
  const inner: Fragment[] = [];
  const outer: Fragment[] = [];
  level.order.forEach((order, position) => {
    const source = followOrder(order, table, scope, joins);
    const expression = sql`${source}.${columnName(order.field)}`;
    const direction = order.descending ? sql` desc` : nothing;
    inner.push(sql`${expression}${direction}`);
    const own = order.through.length === 0;
    const shown = own ? columnName(order.field) : alias(`s${position}`);
    columns.set(own ? order.field.name : `%s${position}`, own ? expression : sql`${expression} as ${shown}`);
    outer.push(sql`${name}.${shown}${direction}`);
  });

  const where = conditions.length > 0 ? sql` where ${join(conditions, sql` and `)}` : nothing;
  const ordered = inner.length > 0 ? sql` order by ${join(inner, sql`, `)}` : nothing;
  const query = sql`select ${join([...columns.values()], sql`, `)} from ${tableName(level.collection)} ${table}${join(joins, nothing)}${where}${ordered}${limitClause(level.limit)}${offsetClause(level.offset)}`;
  return { query, name, order: outer };
}

/** To-one joins on a key never multiply rows. */
function followOrder(order: Order, table: Fragment, scope: Scope, joins: Fragment[]): Fragment {
  let source = table;
  for (const { field, target } of order.through) {
    const next = alias(`t${scope.next()}`);
    joins.push(
      sql` left join ${tableName(target)} ${next} on ${next}.${columnName(target.primaryKey)} = ${source}.${columnName(field)}`,
    );
    source = next;
  }
  return source;
}

function neededColumns(level: Level): Field[] {
  return level.outputs.map((output) =>
    output.kind === 'column' || output.kind === 'one' ? output.field : level.collection.primaryKey,
  );
}

interface CompiledOutput {
  readonly value: Fragment;
  readonly from: Fragment | null;
}

function compileOutput(output: Output, level: Level, page: Fragment, scope: Scope): CompiledOutput {
  switch (output.kind) {
    case 'column':
      return { value: outputExpression(sql`${page}.${columnName(output.field)}`, output.field), from: null };
    case 'one': {
      const foreignKey = sql`${page}.${columnName(output.field)}`;
      const target = output.level.collection.primaryKey;
      const related = compileLevel(output.level, scope, (table) => sql`${table}.${columnName(target)} = ${foreignKey}`);
      return lateral(sql`row_to_json(${related.row})`, related, scope);
    }
    case 'many': {
      const related = compileChildren(output.relation.manyField, output.level, level, page, scope);
      return lateral(sql`coalesce(json_agg(${related.row}), '[]')`, related, scope);
    }
    case 'keys': {
      const target = output.level.collection.primaryKey;
      const shown: Level = { ...output.level, outputs: [{ kind: 'column', name: target.name, field: target }] };
      const related = compileChildren(output.relation.manyField, shown, level, page, scope);
      return lateral(sql`coalesce(json_agg(${related.row}.${identifier(target.name)}), '[]')`, related, scope);
    }
  }
}

function compileChildren(
  manyField: string,
  children: Level,
  parent: Level,
  page: Fragment,
  scope: Scope,
): CompiledLevel {
  const key = sql`${page}.${columnName(parent.collection.primaryKey)}`;
  const foreignKey = fieldOf(children.collection, manyField);
  return compileLevel(children, scope, (table) => sql`${table}.${columnName(foreignKey)} = ${key}`);
}

function lateral(json: Fragment, related: CompiledLevel, scope: Scope): CompiledOutput {
  const name = alias(`l${scope.next()}`);
  return {
    value: sql`${name}.${alias('j')}`,
    from: sql` left join lateral (select ${json} as ${alias('j')} from (${related.query}) ${related.row}) ${name} on true`,
  };
}

function limitClause(limit: LimitPlan): Fragment {
  switch (limit.kind) {
    case 'all':
      return nothing;
    case 'constant':
      return sql` limit ${integer(limit.value)}`;
    case 'slot':
      return sql` limit ${parameter({ kind: 'limit', slot: limit.slot })}::bigint`;
  }
}

function offsetClause(offset: OffsetPlan | null): Fragment {
  return offset ? sql` offset ${parameter(offset)}::bigint` : nothing;
}

function tableName(collection: Collection): Fragment {
  return identifier(collection.schema, collection.name);
}

function columnName(field: Field): Fragment {
  if (!field.column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  return identifier(field.column.name);
}

function fieldOf(collection: Collection, name: string): Field {
  const field = collection.fields.get(name);
  if (!field) throw new Error(`the collection "${collection.name}" has no field "${name}"`);
  return field;
}
