/**
 * Where the values of a row come from: its table, and the rows that to-one relations lead to. Those are joined when they are
 * first needed, once per path; the joins keep rows without a counterpart and never multiply rows.
 *
 * Queries read tables through a `FromClause` alone, so what a caller may not see is left out here, for all of them: rows by
 * `from` and by the joins, values by `column`.
 */
import { elementAt } from '../../base/narrow.js';
import type { Collection, Computation, Field } from '../model/model.js';
import { isMasked, maskOf, restrictionOf, unrestrictedCollection } from '../plan/access.js';
import { calledCollection, callOf } from '../plan/call.js';
import type { LinkPlan } from '../plan/links.js';
import { type Condition, type ToManyJoin, type ToOneJoin, typedValue } from '../plan/plan.js';
import { alias, type Fragment, identifier, join, literal, nothing, parameter, sql } from '../sql/fragment.js';
import { calledRows } from './call.js';
import { areEqual, operatorOf } from './compare.js';
import { columnName, tableName, typeName } from './identifiers.js';
import { keyParameters } from './key-columns.js';
import { isKeyText, isReferred, keyOfTarget } from './reference.js';

/** The state of one statement: the numbers of its aliases, and the compiler of its conditions, which in turn reads rows from here. */
export class Scope {
  #last = 0;

  /** `links`: the values that come with the answer, or null for none. */
  constructor(
    readonly compileCondition: (condition: Condition, source: FromClause) => Fragment | null,
    readonly links: LinkPlan | null = null,
  ) {}

  next(): number {
    return ++this.#last;
  }
}

/** Rows that do not come from a table, and how their values are found. */
interface Derived {
  /** Whether a masked field may be seen, where that was found out before. */
  readonly flag?: (field: Field) => Fragment | null;
  /** The value of a field. */
  readonly value?: (field: Field) => Fragment;
  /** The rows that these come from: conditions that hold for them hold for these. */
  readonly rows?: FromClause;
  /** Replaces the table, under the alias. */
  readonly table?: (row: Fragment) => Fragment;
}

/** How rows were joined to those of another source: columns that have the same values, pair by pair. */
interface JoinedTo {
  readonly parent: FromClause;
  readonly through: readonly ToOneJoin[];
  readonly columns: readonly Field[];
  readonly parentColumns: readonly Field[];
}

/** The column that counts the rows of a function. */
const ORDINAL = alias('n');

export class FromClause {
  readonly #joined = new Map<string, Fragment>();
  /** The rows at hand as they are, by their aliases: all rules about a row share what they join. */
  readonly #unrestricted = new Map<Fragment, FromClause>();
  /** Shared by the sources of the rows that are joined. */
  #joins: Fragment[] = [];
  #counted = false;
  #joinedTo: JoinedTo | null = null;
  #assumed: Condition | null = null;

  constructor(
    readonly alias: Fragment,
    readonly scope: Scope,
    readonly collection: Collection,
    private readonly derived: Derived = {},
  ) {}

  /** Notes a condition that holds for every row that is read from here. */
  assume(condition: Condition): void {
    this.#assumed = condition;
  }

  /**
   * Says which rows these are joined to. Answers what follows for the column that says on which server a row is: a condition to stand behind that of
   * the join, or nothing.
   */
  joinedTo(joined: JoinedTo): Fragment {
    this.#joinedTo = joined;
    return this.onShard([], this.alias, this.collection);
  }

  /** The source of the rows at the end of the joins, under the alias. */
  onShard(through: readonly ToOneJoin[], row: Fragment, { shardColumn, fields }: Collection): Fragment {
    const field = shardColumn === null ? undefined : fields.get(shardColumn);
    const value = field ? (through.length > 0 ? this.fixed(through, field) : this.#implied(field)) : null;
    return field && value ? sql` and ${row}.${columnName(field)} ${operatorOf(field, '=')} ${value}` : nothing;
  }

  /** The value that a column of the row at the end of the joins is known to have, as SQL that names no row, or null if its value is unknown. */
  fixed(through: readonly ToOneJoin[], field: Field): Fragment | null {
    const last = through.at(-1);
    if (last) {
      const own = last.kind === 'one' ? last.columns[last.key.findIndex(({ name }) => name === field.name)] : undefined;
      return own && isSameType(own, field) ? this.fixed(through.slice(0, -1), own) : null;
    }
    if (this.derived.rows) return this.derived.rows.fixed([], field);
    for (const condition of [restrictionOf(this.collection)?.rows, this.#assumed]) {
      const value = condition ? fixedBy(condition, field.name) : null;
      if (value) return value;
    }
    return this.#implied(field);
  }

  #implied(field: Field): Fragment | null {
    if (!this.#joinedTo) return null;
    const { parent, through, columns, parentColumns } = this.#joinedTo;
    const other = parentColumns[columns.findIndex(({ name }) => name === field.name)];
    return other && isSameType(other, field) ? parent.fixed(through, other) : null;
  }

  /** The value, null if the caller may not see it. */
  column(through: readonly ToOneJoin[], field: Field): Fragment {
    const value = this.raw(through, field);
    return shownIf(this.mask(through, field), value);
  }

  /** The value for the statement's own use: keys that tie rows together, and sort values that are not shown. */
  raw(through: readonly ToOneJoin[], field: Field): Fragment {
    if (through.length === 0 && this.derived.value) return this.derived.value(field);
    if (field.computed) return this.#computed(through, field.computed);
    return sql`${this.at(through)}.${columnName(field)}`;
  }

  /** A computed field is a function of the row. Rows that another function returned may have lost their type on the way. */
  #computed(through: readonly ToOneJoin[], { schema, function: name }: Computation): Fragment {
    const row = this.at(through);
    const value = sql`${identifier(schema, name)}(${row})`;
    if (through.length > 0) return sql`case when not (${row} is null) then ${value} end`;
    if (!callOf(this.collection)) return value;
    const stored = [...unrestrictedCollection(this.collection).fields.values()].filter(
      ({ column, computed }) => column && !computed,
    );
    const values = stored.map((field) => sql`${row}.${columnName(field)}`);
    return sql`${identifier(schema, name)}(row(${join(values, sql`, `)})::${tableName(this.collection)})`;
  }

  /** The columns that hold a reference, null if the caller may not see its field. */
  reference(through: readonly ToOneJoin[], toOne: ToOneJoin): Fragment[] {
    const [only] = toOne.kind === 'one' ? toOne.columns : [toOne.field];
    if (only === toOne.field) return [this.column(through, toOne.field)];
    const mask = this.mask(through, toOne.field);
    return (toOne.kind === 'one' ? toOne.columns : []).map((field) => shownIf(mask, this.raw(through, field)));
  }

  /** The condition under which the field may be seen, or null if it always may. */
  mask(through: readonly ToOneJoin[], field: Field): Fragment | null {
    const collection = through.at(-1)?.target ?? this.collection;
    if (!isMasked(collection, field)) return null;
    const flag = through.length === 0 ? this.derived.flag?.(field) : null;
    return flag ?? this.#holds(maskOf(collection, field), this.at(through), collection);
  }

  /** The alias of the row at the end of the joins. */
  at(through: readonly ToOneJoin[]): Fragment {
    let key = '';
    let current = this.alias;
    through.forEach((toOne, position) => {
      const restricted = restrictionOf(toOne.target) ? '!' : '';
      key += `${JSON.stringify(toOne.field.name)}:${JSON.stringify(toOne.target.name)}${restricted}/`;
      const existing = this.#joined.get(key);
      const next = existing ?? alias(`t${this.scope.next()}`);
      if (!existing) {
        const before = through.slice(0, position);
        const named = toOne.kind === 'any' ? this.raw(before, toOne.collectionField) : nothing;
        const target = keyOfTarget(toOne).map((field) => sql`${next}.${columnName(field)}`);
        const same = isReferred(toOne, target, this.reference(before, toOne), named);
        const onShard = this.onShard(through.slice(0, position + 1), next, toOne.target);
        this.#joins.push(relatedRow(toOne, next, sql`${same}${onShard}`, this.scope));
        this.#joined.set(key, next);
      }
      current = next;
    });
    return current;
  }

  /** Joins something that is not a relation. */
  join(fragment: Fragment): void {
    this.#joins.push(fragment);
  }

  /** Behind `from`: the rows of the table that may be seen and meet the conditions. */
  from(...conditions: readonly (Fragment | null | undefined)[]): Fragment {
    const met = [this.#visibleRows(), ...conditions].filter((each) => each !== null && each !== undefined);
    const where = met.length > 0 ? sql` where ${join(met, sql` and `)}` : nothing;
    return sql`${this.#rows()}${this.joins()}${where}`;
  }

  /**
   * The place of a row in the result of a function, where joins may lose it; else null. Makes `from` count the rows. To be asked
   * after everything but `from` was compiled; `where` is the condition of the rows.
   */
  ordinal(where: Condition, isJoinedLater: boolean): Fragment | null {
    if (!callOf(this.collection)) return null;
    this.#visibleRows();
    const rules = restrictionOf(this.collection)?.rows;
    const isJoined = this.#joins.length > 0 || isJoinedLater || looksAtOthers(where) || (rules && looksAtOthers(rules));
    if (!isJoined) return null;
    this.#counted = true;
    return sql`${this.alias}.${ORDINAL}`;
  }

  /** The table, or the rows that a function returns. */
  #rows(): Fragment {
    if (this.derived.table) return this.derived.table(this.alias);
    const call = callOf(this.collection);
    if (!call) return sql`${tableName(this.collection)} ${this.alias}`;
    if (!this.#counted) return calledRows(call, this.collection, this.alias);
    const row = alias('o');
    return sql`(select ${row}.*, row_number() over () as ${ORDINAL}
      from ${calledRows(call, this.collection, row)}) ${this.alias}`;
  }

  /** To be read after everything that may need a join was compiled. */
  joins(): Fragment {
    return join(this.#joins, nothing);
  }

  /** Whether a rule holds for the row as it is stored. */
  holds(rule: Condition): Fragment | null {
    return this.#holds(rule, this.alias, this.collection);
  }

  #visibleRows(): Fragment | null {
    const restriction = restrictionOf(this.collection);
    return restriction ? this.#holds(restriction.rows, this.alias, restriction.unrestricted) : null;
  }

  /** A rule speaks of the whole collection, whatever the caller may see of it. */
  #holds(rule: Condition, row: Fragment, collection: Collection): Fragment | null {
    const existing = this.#unrestricted.get(row);
    const derived = row === this.alias ? { rows: this } : {};
    const source = existing ?? new FromClause(row, this.scope, wholeRows(collection), derived);
    if (!existing) {
      source.#joins = this.#joins;
      this.#unrestricted.set(row, source);
    }
    return this.scope.compileCondition(rule, source);
  }
}

/** A value that is null if the mask does not hold. */
export function shownIf(mask: Fragment | null, value: Fragment): Fragment {
  return mask ? sql`case when ${mask} then ${value} end` : value;
}

/** Whether rows are found by others that refer to them: PostgreSQL may begin with those. */
function looksAtOthers(condition: Condition): boolean {
  if (condition.kind === 'and' || condition.kind === 'or') return condition.conditions.some(looksAtOthers);
  return condition.kind === 'rule' ? looksAtOthers(condition.rule) : condition.kind === 'exists';
}

/** Also for rows of a function. */
function wholeRows(collection: Collection): Collection {
  const whole = unrestrictedCollection(collection);
  const call = callOf(collection);
  return call ? calledCollection(whole, call) : whole;
}

/** The row that a to-one join leads to; joins of its own rule stay inside the join. */
function relatedRow(toOne: ToOneJoin, name: Fragment, same: Fragment, scope: Scope): Fragment {
  const table = sql`${tableName(toOne.target)} ${name}`;
  const restriction = restrictionOf(toOne.target);
  if (!restriction) return sql` left join ${table} on ${same}`;
  const source = new FromClause(name, scope, restriction.unrestricted);
  const visible = scope.compileCondition(restriction.rows, source);
  const condition = visible ? sql`${same} and ${visible}` : same;
  const joins = source.joins();
  return joins.parts.length === 0
    ? sql` left join ${table} on ${condition}`
    : sql` left join (${table}${joins}) on ${condition}`;
}

function isSameType({ column: one }: Field, { column: other }: Field): boolean {
  return one?.base_type === other?.base_type && one?.base_schema === other?.base_schema;
}

/** The condition that a row of the joined collection refers to the row at the end of the joins from the parent. */
export function refersTo(
  toMany: ToManyJoin,
  child: FromClause,
  parent: FromClause,
  through: readonly ToOneJoin[] = [],
): Fragment {
  const key = toMany.key.map((field) => parent.raw(through, field));
  // A caller who names the column must be allowed to see it; the permission to read an alias field is enough for its rows.
  const mask = toMany.via ? null : child.mask([], toMany.field);
  const stored = toMany.columns.map((field) => shownIf(mask, child.raw([], field)));
  if (!toMany.named) {
    const onShard = child.joinedTo({ parent, through, columns: toMany.columns, parentColumns: toMany.key });
    return sql`${areEqual(stored, key, toMany.columns, toMany.key)}${onShard}`;
  }
  const same = isKeyText(toMany.origin.key, key, sql`${elementAt(stored, 0)}::text`);
  return sql`${same} and ${child.alias}.${columnName(toMany.named.field)} = ${literal(toMany.named.collection)}`;
}

/** The column of the row itself that has the value of the field: a reference has the value of the column that it refers to. */
function heldBy(through: readonly ToOneJoin[], field: Field): Field | undefined {
  const [toOne, ...others] = through;
  if (!toOne) return field;
  if (toOne.kind !== 'one' || others.length > 0) return undefined;
  const own = toOne.columns[toOne.key.findIndex(({ name }) => name === field.name)];
  return own?.column?.base_type === field.column?.base_type ? own : undefined;
}

/**
 * The value that a condition fixes a column to, or null if it does not fix it to one value. The value names no row, so it can be used
 * anywhere in the statement. Tables on several servers are read from one server only if the planner sees a value for their
 * distribution column: behind a page, which has a limit, it does not find that value by itself.
 */
function fixedBy(condition: Condition, name: string): Fragment | null {
  switch (condition.kind) {
    case 'and': {
      for (const each of condition.conditions) {
        const value = fixedBy(each, name);
        if (value) return value;
      }
      return null;
    }
    case 'rule':
      return fixedBy(condition.rule, name);
    case 'key': {
      const { key, slot, many, filter } = condition;
      if (many || (filter && (filter.negated || filter.through.length > 0))) return null;
      const position = key.findIndex((field) => field.name === name);
      return keyParameters(key, slot, 'value', filter ? 'filter' : 'key')[position] ?? null;
    }
    case 'compare': {
      const { operand, operator, value } = condition;
      if (operator !== 'eq' || value?.kind !== 'slot' || value.operator !== undefined) return null;
      if (operand.kind !== 'field' || heldBy(operand.through, operand.field)?.name !== name) return null;
      return sql`${parameter({ kind: 'value', ...typedValue(value) })}::${typeName(operand.field)}`;
    }
    default:
      return null;
  }
}
