/**
 * Write plan → one chain of common table expressions. For each list of rows: its input, read from the one parameter with the
 * keys of new rows allocated beforehand, then the statement that writes it. Children take the keys of their parents from
 * the parents' input, so correct parentage needs no order among the statements; each still waits for those it refers to,
 * because triggers read the tables. Checks raise errors inside the statement, so PostgreSQL undoes all of it.
 */
import { elementAt } from '../../../base/narrow.js';
import { isKey, singleKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import { mayReportSkipped } from '../../model/write-facts.js';
import type { WriteColumn, WriteNode, WritePlan } from '../../plan/write/write.js';
import {
  alias,
  type Fragment,
  identifier,
  join,
  literal,
  nothing,
  type Statement,
  sql,
  statement,
} from '../../sql/fragment.js';
import { areEqual, operatorOf } from '../compare.js';
import { compileCaller, compileCondition } from '../condition.js';
import { FromClause, Scope } from '../from-clause.js';
import { withSridOf } from '../geometry.js';
import { columnName, tableName, typeName } from '../identifiers.js';
import { commaList, hasInputKey, inputKeyColumns, inputKeyNames, keyColumns } from '../key-columns.js';
import { keyText } from '../reference.js';
import { type Matched, matchesTag } from '../row-tag.js';
import { type ActivityLog, type Recorded, record, snapshot } from './activity.js';
import { compileGuard, compileValidations } from './guard.js';
import { operatedValue } from './operators.js';
import {
  awaitedUnlinks,
  clearable,
  cleared,
  compileUnlinks,
  isUnique,
  missingUnlinks,
  recordedUnlinks,
  referenceColumn,
  unlessPresent,
  unlinkInput,
  unlinksOf,
} from './unlink.js';
import {
  AUTHOR,
  advanceSequence,
  andOnShard,
  behindSequence,
  hasKeyColumns,
  idempotencyRecord,
  initialValue,
  input,
  inputNames,
  inputRows,
  inputValue,
  isChanged,
  isLeftOut,
  keyParts,
  lookupValue,
  madeKey,
  makesParts,
  present,
  refuseFirst,
  slotOf,
  storedAtFirst,
  written,
} from './write-input.js';
import {
  andFound,
  columnList,
  compileExisting,
  generatedKeys,
  keptValues,
  keysOf,
  lostKeys,
  maxKeys,
  missingItems,
  otherKeys,
  returnedKeys,
  returnedValues,
  storeKeys,
  storeNewKeys,
} from './write-result.js';

interface WriteOptions {
  /** Where a request with an `Idempotency-Key` is recorded by the statement that writes: see sql/server/system/005_receipts.sql. */
  readonly records: Collection | null;
  readonly activityLog: ActivityLog;
  /** Whether the item of the request must have one of the entity tags. */
  readonly matched?: Matched | null;
  /** Whether it answers how many rows of its collection were written, behind the highest keys. */
  readonly counted?: boolean;
}

export function compileWrite(plan: WritePlan, options: WriteOptions): Statement {
  return statement(new Chain(plan, options).compile());
}

/** The number of a row of the input. References count from zero. */
const NUMBER = sql`${alias('x')}.n - 1 as n`;

/** Whether a locked row has one of the entity tags. */
const MATCHES = alias('m');

/** The rows of a list that are about to be changed, where their entity tags are compared. */
function lockedRows(position: number): Fragment {
  return alias(`l${position}`);
}

/** Inputs come before everything that is written. */
const NOTHING_AWAITED: ReadonlySet<number> = new Set();

class Chain {
  readonly #parts: Fragment[] = [];
  readonly #scope = new Scope(compileCondition);

  constructor(
    private readonly plan: WritePlan,
    private readonly options: WriteOptions,
  ) {}

  compile(): Fragment {
    const { nodes, unlinks } = this.plan;
    if (this.options.records) this.#parts.push(...idempotencyRecord(this.options.records));
    for (const [position, node] of nodes.entries())
      if (!makesParts(node))
        this.#parts.push(...advanceSequence(this.plan, node, position), this.#input(node, position));
    // The parts of their keys may be references to rows of the inputs before them.
    for (const position of inOrder(this.plan, (node) => makersOf(this.plan, keyParts(node)))) {
      const node = elementAt(nodes, position);
      if (makesParts(node))
        this.#parts.push(...advanceSequence(this.plan, node, position), this.#input(node, position));
    }
    this.#parts.push(...unlinks.flatMap((unlink, position) => unlinkInput(this.plan, unlink, position, this.#scope)));
    const unlink = (): void => {
      for (const action of ['delete', 'nullify'] as const)
        this.#parts.push(...compileUnlinks(this.plan, action, this.#scope));
    };
    // Where a reference is unique, the row that leaves makes place for the one that comes.
    const isAwaited = unlinks.some(isUnique);
    if (isAwaited) unlink();
    for (const position of inOrder(this.plan, (node) => awaitedBy(this.plan, node)))
      this.#write(elementAt(nodes, position), position);
    if (!isAwaited) unlink();
    const log = record(this.#recorded(), AUTHOR, this.options.activityLog);
    this.#parts.push(...log.parts);
    const checks = [
      ...nodes.flatMap((node, position) => this.#unmatched(node, position)),
      ...nodes.flatMap((node, position) => this.#differing(node, position)),
      ...nodes.flatMap(otherKeys),
      ...nodes.flatMap((node, position) => this.#validations(node, position)),
      ...nodes.flatMap((node, position) => this.#skipped(node, position)),
      ...nodes.flatMap(lostKeys),
      ...nodes.flatMap((node, position) =>
        node.verb === 'update' || (node.verb === 'upsert' && (node.guard || node.collection.hasRowSecurity))
          ? [missingItems(this.plan, node, position)]
          : [],
      ),
      ...nodes.flatMap((node, position) => keptValues(node, position, this.#changes(node), this.#scope)),
      ...nodes.flatMap(generatedKeys),
      ...missingUnlinks(this.plan),
    ];
    const kept = (this.plan.keptKeys ?? []).map((position) => storeNewKeys(elementAt(nodes, position), position));
    const keys = [...(this.plan.makesKeys ? [storeKeys(this.plan)] : []), ...kept];
    const columns = join(
      [sql`${maxKeys(this.plan, this.options.counted ?? false)}::text`, ...keys, ...log.columns, ...checks],
      sql`, `,
    );
    return sql`with ${join(this.#parts, sql`, `)} select ${columns}`;
  }

  #input(node: WriteNode, position: number): Fragment {
    const { collection } = node;
    const keyNames = inputKeyNames(collection);
    const rows = inputRows(node, position);
    const names = inputNames(node).map((name) => sql`, ${alias('x')}.${identifier(name)}`);
    const recorded = this.options.records ? sql` cross join ${alias('v')}` : nothing;
    const behind = behindSequence(this.plan, node, position);
    if (makesParts(node)) {
      const payloadKey = singleKey(collection) ? sql`, ${alias('x')}.k as g` : nothing;
      const payloadRows = sql`select ${NUMBER}${payloadKey}${join(names, nothing)} from ${rows}${recorded}`;
      const parts = collection.key.map(
        (field, part) => sql`, ${this.#newPart(node, field)} as ${elementAt(keyNames, part)}`,
      );
      return sql`${input(position)} as materialized (select ${alias('i')}.*${join(parts, nothing)}
        from (${payloadRows}) ${alias('i')}${this.#inputs(node, keyParts(node), NOTHING_AWAITED)}${behind}
        order by ${alias('i')}.n)`;
    }
    const generated = madeKey(node);
    const existing = compileExisting(node, position);
    const keys = inputKeyColumns(collection, alias('x')).map((each, part) => existing?.keys[part] ?? each);
    const [givenKey] = keys;
    const allocated = generated
      ? hasKeyColumns(node)
        ? sql`case when ${givenKey as Fragment} is null then ${generated} else ${givenKey as Fragment} end as k`
        : sql`${generated} as k`
      : commaList(keys.map((each, part) => sql`${each} as ${elementAt(keyNames, part)}`));
    // Materialized: the next value of a sequence must be taken once, though the rows are read in several places.
    return sql`${input(position)} as materialized (select ${NUMBER}, ${allocated}${join(names, nothing)}${existing?.columns ?? nothing}
      from ${rows}${existing?.join ?? nothing}${behind}${recorded}
      order by ${alias('x')}.n)`;
  }

  #write(node: WriteNode, position: number): void {
    if (node.verb !== 'insert') this.#parts.push(sql`${written(position)} as (${this.#update(node, position)})`);
    const isNew = node.conflict ? sql` where not ${alias('i')}.f` : nothing;
    if (node.verb === 'insert') this.#parts.push(sql`${written(position)} as (${this.#insert(node, position, isNew)})`);
    if (node.verb === 'upsert') {
      const table = tableName(node.collection);
      const absent = sql` where not exists (select from ${table} ${alias('e')}
          where ${hasInputKey(node.collection, alias('e'), alias('i'))})`;
      this.#parts.push(
        sql`${alias(`m${position}`)} as (${this.#insert(node, position, node.conflict ? isNew : absent)})`,
      );
    }
    this.#parts.push(...returnedKeys(node, position));
  }

  #insert(node: WriteNode, position: number, where: Fragment): Fragment {
    const { collection } = node;
    const columns = node.columns.filter(
      ({ field, only }) => (only ?? 'insert') === 'insert' && !isKey(collection, field),
    );
    const isWritten = (_: unknown, part: number): boolean => {
      const field = elementAt(collection.key, part);
      return !field.column?.is_generated && !isLeftOut(node, field);
    };
    const names = [...keyColumns(collection).filter(isWritten), ...columns.map((column) => columnName(column.field))];
    const values = [
      ...inputKeyColumns(collection, alias('i')).filter(isWritten),
      ...columns.map((column) => this.#newValue(node, column)),
    ];
    const returned = sql`${commaList(keyColumns(collection, alias('t')))}${returnedValues(node)}${snapshot({ ...node, verb: 'insert' }, () => null)}`;
    return sql`insert into ${tableName(node.collection)} as ${alias('t')}${columnList(names)}
      overriding system value
      select ${join(values, sql`, `)}
      from ${input(position)} ${alias('i')}${this.#references(node)}${where}
      order by ${alias('i')}.n
      returning ${returned}`;
  }

  #update(node: WriteNode, position: number): Fragment {
    const columns = node.columns.filter(isChanged);
    const key = keyColumns(node.collection, alias('t'));
    const inputKey = inputKeyColumns(node.collection, alias('i'));
    const table = sql`${tableName(node.collection)} ${alias('t')}`;
    // Rows are locked in the order of their keys: two requests that change the same rows must not wait for each other.
    const locked = this.#locked(node, position);
    const matches = this.#isMatched(node) ? sql` and ${alias('i')}.${MATCHES}` : nothing;
    const same = sql`${areEqual(key, inputKey, node.collection.key)}${andFound(node, alias('i'))}${andOnShard(node.collection, alias('t'))}${matches}`;
    const stays = unlinksOf(this.plan, node.collection, 'delete').map(
      ({ unlink, condition }) => sql` and not (${condition}${unlessPresent(node, referenceColumn(unlink))})`,
    );
    const changes = columns.map((column) => {
      const name = columnName(column.field);
      const stored = sql`${alias('t')}.${name}`;
      const value = withSridOf(stored, this.#value(node, column, stored), column.field);
      if (!column.mixed) return sql`${name} := ${value}`;
      const clearing = cleared(this.plan, node.collection, column.field);
      const unlinked = clearing ? sql` when ${clearing} then null` : nothing;
      return sql`${name} := case when ${present(node, column)} then ${value}${unlinked} else ${alias('t')}.${name} end`;
    });
    for (const field of clearable(this.plan, node.collection)) {
      if (columns.some((column) => column.field === field)) continue;
      const name = columnName(field);
      changes.push(
        sql`${name} := case when ${cleared(this.plan, node.collection, field) as Fragment} then null else ${alias('t')}.${name} end`,
      );
    }
    const changed = (column: WriteColumn): Fragment | null =>
      column.mixed ? sql`coalesce(${present(node, column)}, false)` : null;
    if (!this.#changes(node)) {
      const existingRows = sql`join ${table} on ${same}${join(stays, nothing)}`;
      const kept = node.writesRelated ? snapshot(node, changed) : nothing;
      if (node.guard || this.#isMatched(node))
        return sql`select ${commaList(key)}${kept} from ${locked} ${alias('i')} ${existingRows}`;
      return sql`select ${commaList(key)}${kept}
        from ${input(position)} ${alias('i')} ${existingRows}
        order by ${commaList(inputKey)}${this.#lock(node, alias('t'))}`;
    }
    const numbered = columns.some(({ operators }) => operators.length > 0)
      ? sql`, ${alias('i')}.n as ${alias('n')}`
      : nothing;
    return sql`update ${table}
      set ${join(changes, sql`, `)}
      from ${locked} ${alias('i')}${this.#references(node)}
      where ${same}${join(stays, nothing)}
      returning ${commaList(key)}${returnedValues(node)}${numbered}${snapshot(node, changed)}`;
  }

  /** Whether rows that exist are written to, or only looked for. */
  #changes(node: WriteNode): boolean {
    return node.columns.some(isChanged) || clearable(this.plan, node.collection).length > 0;
  }

  #recorded(): Recorded[] {
    const changes = this.plan.nodes.flatMap((node, position): Recorded[] => {
      const { collection, verb } = node;
      const created = { action: 'create', collection, shown: true } as const;
      if (verb === 'insert') return [{ ...created, rows: written(position) }];
      const changed: Recorded = { action: 'update', collection, rows: written(position), shown: true };
      return [
        ...(this.#changes(node) || node.writesRelated ? [changed] : []),
        ...(verb === 'upsert' ? [{ ...created, rows: alias(`m${position}`) }] : []),
      ];
    });
    return [...changes, ...recordedUnlinks(this.plan)];
  }

  /** The rows of the input whose items exist and may be changed. */
  #locked(node: WriteNode, position: number): Fragment {
    const { from, row, inputKey, matches } = this.#writable(node, position);
    const rows = sql`select ${alias('s')}.*${matches} ${from} order by ${commaList(inputKey)}${this.#lock(node, row)}`;
    if (!this.#isMatched(node)) return sql`(${rows})`;
    this.#parts.push(sql`${lockedRows(position)} as materialized (${rows})`);
    return lockedRows(position);
  }

  #isMatched({ verb, collection }: WriteNode): boolean {
    return Boolean(this.options.matched) && verb === 'update' && collection === this.plan.collection;
  }

  /** Ends the statement if the item of the request has another entity tag. */
  #unmatched(node: WriteNode, position: number): Fragment[] {
    if (!this.#isMatched(node)) return [];
    return [
      sql`case when exists (select from ${lockedRows(position)} where not ${MATCHES}) then service_refuse('changed') end`,
    ];
  }

  /** Nested items of the same collection need no tag. */
  #matches(row: FromClause): readonly [Fragment, Fragment] {
    if (!this.options.matched) return [nothing, nothing];
    const [matches, joins] = matchesTag(this.options.matched, row, slotOf('tags'));
    return [sql`, ${alias('s')}.n <> all(${slotOf('root')}::int4[]) or ${matches} as ${MATCHES}`, joins];
  }

  #writable(node: WriteNode, position: number, ...conditions: readonly Fragment[]) {
    const row = new FromClause(alias('l'), this.#scope, node.collection);
    const guard = node.guard ? [compileGuard(node.guard, alias('s'), row)] : [];
    const inputKey = inputKeyColumns(node.collection, alias('s'));
    const same = sql`${areEqual(keyColumns(node.collection, row.alias), inputKey, node.collection.key)}${andFound(node, alias('s'))}${andOnShard(node.collection, row.alias)}`;
    const all = [...guard, ...conditions];
    const where = all.length > 0 ? sql` where ${join(all, sql` and `)}` : nothing;
    const [matches, matchJoins] = this.#isMatched(node) ? this.#matches(row) : [nothing, nothing];
    const from = sql`from ${input(position)} ${alias('s')}
      join ${tableName(node.collection)} ${row.alias} on ${same}${row.joins()}${matchJoins}${where}`;
    return { from, row: row.alias, inputKey, matches };
  }

  /** An item that exists and may be changed, but that a trigger of the database left unchanged. */
  #skipped(node: WriteNode, position: number): Fragment[] {
    const { collection, verb } = node;
    const isRemoved = this.plan.unlinks.some((each) => each.action === 'delete' && each.collection === collection);
    if (verb !== 'update' || !this.#changes(node) || isRemoved || !mayReportSkipped(collection, 'update')) return [];
    const isWritten = sql`select from ${written(position)} ${alias('w')}
      where ${hasInputKey(collection, alias('w'), alias('s'))}`;
    const { from } = this.#writable(node, position, sql`not exists (${isWritten})`);
    const reason = sql`${literal(`${position} skipped `)} || ${alias('s')}.n::text`;
    return [sql`(select service_refuse(${reason}) ${from} order by ${alias('s')}.n limit 1)`];
  }

  /** Citus misreads its own intermediate results if rows are only locked and others inserted, so unchanged rows are not locked there. */
  #lock(node: WriteNode, row: Fragment): Fragment {
    const { distributed, hasLockableRows } = node.collection;
    const isLocked = hasLockableRows && (!distributed || this.#changes(node));
    return isLocked ? sql` for no key update of ${row}` : nothing;
  }

  #validations(node: WriteNode, position: number): Fragment[] {
    const valueIn = (column: WriteColumn, verb: 'insert' | 'update'): Fragment => {
      if (column.operators.length === 0) return this.#value(node, column);
      if (verb === 'insert') return this.#value(node, column, storedAtFirst(column.field));
      return sql`${alias('w')}.${alias(`g${node.columns.indexOf(column)}`)}`;
    };
    return compileValidations(node, position, { valueIn, references: this.#inputs(node), scope: this.#scope });
  }

  #newValue(node: WriteNode, column: WriteColumn): Fragment {
    const value = this.#value(node, column, storedAtFirst(column.field));
    if (!column.mixed) return value;
    return sql`case when ${present(node, column)} then ${value} else ${initialValue(column.field) ?? sql`null`} end`;
  }

  /** A part of the key of a new row: the value of the payload, or the one that the database would choose. */
  #newPart(node: WriteNode, field: Field): Fragment {
    const column = keyParts(node).find((each) => each.field === field);
    if (isLeftOut(node, field)) return sql`null::${typeName(field)}`;
    const value = column ? this.#newValue(node, column) : (initialValue(field) ?? sql`null`);
    // The next value of a sequence is a bigint, whatever the type of the column.
    const part = column && !column.mixed ? value : sql`(${value})::${typeName(field)}`;
    return singleKey(node.collection) ? sql`coalesce(${alias('i')}.g, ${part})` : part;
  }

  /**
   * A value of the row itself, the key of a new row, or a place behind the last row of the parent. `stored` is the value that an operator
   * changes.
   */
  #value(node: WriteNode, column: WriteColumn, stored: Fragment | null = null): Fragment {
    const options = this.#options(node, column, stored);
    return options.length === 1 ? elementAt(options, 0) : sql`coalesce(${join(options, sql`, `)})`;
  }

  #options(node: WriteNode, column: WriteColumn, stored: Fragment | null = null): Fragment[] {
    const index = node.columns.indexOf(column);
    const options: Fragment[] = [];
    if (column.holdsValues) options.push(this.#ownValue(node, column, index, stored));
    options.push(
      ...column.references.map(({ collection: name, part }, table) => {
        const { collection } = elementAt(this.plan.nodes, makerOf(this.plan, name));
        const keys = inputKeyColumns(collection, alias(`r${index}_${table}`));
        const referred = part ? keys[collection.key.indexOf(part)] : undefined;
        if (referred) return sql`${referred}::${typeName(column.field)}`;
        const isSameType = singleKey(collection)?.type === column.field.type;
        const text = isSameType ? elementAt(keys, 0) : keyText(collection.key, keys);
        return keys.length === 1 ? sql`${text}::${typeName(column.field)}` : sql`(${text})::${typeName(column.field)}`;
      }),
    );
    if (column.lookup)
      options.push(sql`(${lookupValue(column.lookup, index, this.#scope)})::${typeName(column.field)}`);
    if (column.endOf) options.push(this.#end(node, column.endOf, column, index));
    if (column.caller) options.push(this.#callerValue(column, column.caller, index));
    return options;
  }

  /** The value of the payload, or the stored value changed by it. */
  #ownValue(node: WriteNode, column: WriteColumn, index: number, stored: Fragment | null): Fragment {
    const cell = (kind: 'c' | 'o'): Fragment => sql`${alias('i')}.${identifier(`${kind}${index}`)}`;
    const operand = inputValue(column.field, cell('c'));
    if (column.operators.length === 0) return operand;
    if (!stored) throw new Error('an operator needs the stored value');
    const position = this.plan.nodes.indexOf(node);
    const refusal = sql`service_refuse(${literal(`${position} operator `)} || ${alias('i')}.n::text || ${literal(` ${index}`)})`;
    return operatedValue(column, { stored, operand, operator: cell('o'), refusal });
  }

  /** Ends the statement if several parts of the payload give a column different values. */
  #differing(node: WriteNode, position: number): Fragment[] {
    const { collection, columns } = node;
    return columns.flatMap((column, index) => {
      if (!column.agrees && column.only !== 'key') return [];
      const part = collection.key.indexOf(column.field);
      const expected = part < 0 ? this.#value(node, column) : elementAt(inputKeyColumns(collection, alias('i')), part);
      const differ = this.#options(node, column).map(
        (each) => sql`not ${areEqual([each], [expected], [column.field])}`,
      );
      const where = join(differ, sql` or `);
      return [refuseFirst(position, 'differs', { where, joins: this.#inputs(node), column: index })];
    });
  }

  #callerValue(column: WriteColumn, caller: NonNullable<WriteColumn['caller']>, index: number): Fragment {
    return sql`case when ${alias('i')}.${identifier(`v${index}`)} then (${compileCaller(caller, typeName(column.field), this.#scope)}
      limit 1) end`;
  }

  #end(node: WriteNode, foreignKey: Field, column: WriteColumn, index: number): Fragment {
    const parent = node.columns.find((each) => each.field === foreignKey);
    if (!parent) throw new Error('a row without a parent has no place behind its siblings');
    const last = sql`select max(${alias('s')}.${columnName(column.field)})
      from ${tableName(node.collection)} ${alias('s')}
      where ${alias('s')}.${columnName(foreignKey)} ${operatorOf(foreignKey, '=')} ${this.#value(node, parent)}`;
    return sql`coalesce((${last}), 0) + ${alias('i')}.${identifier(`e${index}`)}`;
  }

  /** Joins to the rows referred to: to their input, or to the returned keys of those that are awaited. */
  #inputs(
    node: WriteNode,
    columns = node.columns,
    awaited: ReadonlySet<number> = awaitedBy(this.plan, node),
  ): Fragment {
    const joins = columns.flatMap((column) =>
      column.references.map(({ collection }, table) => {
        const reference = `r${node.columns.indexOf(column)}_${table}`;
        const row = alias(reference);
        const maker = makerOf(this.plan, collection);
        const rows = awaited.has(maker) ? keysOf(elementAt(this.plan.nodes, maker), maker) : input(maker);
        return sql` left join ${rows} ${row} on ${row}.n = ${alias('i')}.${identifier(reference)}`;
      }),
    );
    return join(joins, nothing);
  }

  /** These, and a wait for the statements that make the rows, and for those that free a unique reference. */
  #references(node: WriteNode): Fragment {
    const waits = [...awaitedBy(this.plan, node)].map(
      (position) => sql` cross join (select count(*) from ${written(position)}) ${alias(`w${position}`)}`,
    );
    return join([this.#inputs(node), ...waits, ...awaitedUnlinks(this.plan, node.collection)], nothing);
  }
}

/** Where new rows of a table are made. */
function makerOf({ nodes }: WritePlan, name: string): number {
  return nodes.findIndex((each) => each.verb === 'insert' && each.collection.name === name);
}

function makersOf(plan: WritePlan, columns: readonly WriteColumn[]): number[] {
  return columns.flatMap((column) => column.references.map(({ collection }) => makerOf(plan, collection)));
}

/** The positions in an order in which each part follows those it waits for; none may wait for itself. */
function inOrder({ nodes }: WritePlan, awaited: (node: WriteNode) => Iterable<number>): number[] {
  const order = new Set<number>();
  const visit = (position: number): void => {
    if (order.has(position)) return;
    for (const earlier of awaited(elementAt(nodes, position))) visit(earlier);
    order.add(position);
  };
  for (const position of nodes.keys()) visit(position);
  return [...order];
}

/** The statements that make the rows a list refers to; two tables whose new rows refer to each other cannot wait for each other. */
function awaitedBy(plan: WritePlan, node: WriteNode): Set<number> {
  const positions = makersOf(plan, node.columns);
  return new Set(positions.filter((position) => plan.nodes[position] !== node && !refersBack(plan, position, node)));
}

function refersBack(plan: WritePlan, position: number, node: WriteNode): boolean {
  const seen = new Set<number>();
  const reaches = (from: number): boolean => {
    if (plan.nodes[from] === node) return true;
    if (seen.has(from)) return false;
    seen.add(from);
    return makersOf(plan, elementAt(plan.nodes, from).columns).some(reaches);
  };
  return reaches(position);
}
