/** Conditions of a write, as parts of its chain: rules about existing rows, and validations of new values. */
import { elementAt, onlyOf } from '../../../base/narrow.js';
import { isKey } from '../../model/item-key.js';
import type { Field } from '../../model/model.js';
import type { Condition, ToOneJoin } from '../../plan/plan.js';
import type { RowGuard, Validation, WriteColumn, WriteNode } from '../../plan/write/write.js';
import { alias, type Fragment, integerLiteral, join, nothing, sql } from '../../sql/fragment.js';
import { compileCondition } from '../condition.js';
import { FromClause, type Scope } from '../from-clause.js';
import { columnName, tableName, typeName } from '../identifiers.js';
import { hasInputKey, inputKeyColumns } from '../key-columns.js';
import { columnOf, present, refuseFirst, storedAtFirst, written } from './write-input.js';

/** Behind `from`: rows of the collection under the alias that meet the rule. */
export function guardedRows(source: FromClause, rule: Condition | null, ...conditions: readonly Fragment[]): Fragment {
  return source.from(...conditions, rule && compileCondition(rule, source));
}

/** The conditions that apply to a row of the input must hold for the existing row. */
export function compileGuard({ needs, perRow }: RowGuard, inputRow: Fragment, row: FromClause): Fragment {
  const conditions = needs.map((need, position) => {
    const condition = compileCondition(need, row) ?? sql`true`;
    return perRow ? sql`(substr(${inputRow}.a, ${integerLiteral(position + 1)}, 1) = '0' or ${condition})` : condition;
  });
  return sql`(${join(conditions, sql` and `)})`;
}

/** How the values of a row of the input are found. */
interface InputRows {
  readonly valueIn: (column: WriteColumn, verb: 'insert' | 'update') => Fragment;
  /** Joins to the rows that the row refers to. */
  readonly references: Fragment;
  readonly scope: Scope;
}

/** A cell per validation, or one for new and one for changed rows: it ends the statement where a row does not pass. */
export function compileValidations(
  node: WriteNode,
  position: number,
  { valueIn, references, scope }: InputRows,
): Fragment[] {
  return node.validations.flatMap((each, index) => {
    const columnsOfReferences = heldTogether(each.condition);
    return perVerb(each, node, columnsOfReferences).flatMap((validation) => {
      const verb = verbOf(validation, node);
      const valueFor = (field: Field): Fragment => {
        const column = columnOf(node, field, verb);
        const value = column ? valueIn(column, verb) : sql`null::${typeName(field)}`;
        if (!columnsOfReferences.includes(field) || (column && !column.mixed)) return value;
        const currentValue = unwritten(node, field, verb);
        return column ? sql`case when ${present(node, column)} then ${value} else ${currentValue} end` : currentValue;
      };
      const row = new FromClause(alias('i'), scope, node.collection, {
        value: (field) => (isKey(node.collection, field) ? inputKeyColumn(node, field) : valueFor(field)),
      });
      const passes = compileLeaves(validation.condition, validation, node, row);
      if (!passes) return [];
      const where = join([...onlyVerb(validation, node), sql`(${passes}) is not true`], sql` and `);
      const results = verb === 'update' ? resultsOf(node, position) : nothing;
      return [refuseFirst(position, index, { where, joins: sql`${results}${references}${row.joins()}` })];
    });
  });
}

/** A join to the changed rows, for the results of operators. Items that are missing have none, and are refused as such. */
function resultsOf({ columns }: WriteNode, position: number): Fragment {
  return columns.some(({ operators }) => operators.length > 0)
    ? sql` join ${written(position)} ${alias('w')} on ${alias('w')}.${alias('n')} = ${alias('i')}.n`
    : nothing;
}

/** Fields that hold a reference together: where some of them are written, the others count too. */
function heldTogether(condition: Condition): Field[] {
  if (condition.kind === 'and' || condition.kind === 'or') return condition.conditions.flatMap(heldTogether);
  const fields = fieldsOf(condition);
  return fields.length > 1 ? [...fields] : [];
}

/** The value of a field that the payload leaves out: that of the item or, for a new item, the default. */
function unwritten({ collection }: WriteNode, field: Field, verb: 'insert' | 'update'): Fragment {
  const row = alias('e');
  if (verb === 'insert') return storedAtFirst(field);
  const same = hasInputKey(collection, row, alias('i'));
  return sql`(select ${row}.${columnName(field)} from ${tableName(collection)} ${row} where ${same})`;
}

/** If new rows get other values than existing ones, both are validated separately. */
function perVerb(validation: Validation, node: WriteNode, columns: readonly Field[]): Validation[] {
  const isWhole = columns.every((field) => node.columns.some((column) => column.field === field && !column.mixed));
  const isPerVerb = ({ only, operators }: WriteColumn): boolean => only !== null || operators.length > 0;
  const differ = node.verb === 'upsert' && (!isWhole || node.columns.some(isPerVerb));
  if (validation.on !== null || !differ) return [validation];
  return [
    { ...validation, on: 'insert' },
    { ...validation, on: 'update' },
  ];
}

/** The verb whose values are validated; either if they are the same. */
function verbOf({ on }: Validation, { verb }: WriteNode): 'insert' | 'update' {
  return verb === 'upsert' ? (on ?? 'insert') : verb;
}

/** Conditions on columns that the payload leaves out are skipped, or null if nothing is left to check. */
function compileLeaves(
  condition: Condition,
  validation: Validation,
  node: WriteNode,
  row: FromClause,
): Fragment | null {
  if (condition.kind === 'and' || condition.kind === 'or') {
    const parts = condition.conditions.map((each) => compileLeaves(each, validation, node, row));
    const checkable = parts.filter((each) => each !== null);
    if (condition.kind === 'or' && checkable.length < parts.length) return null;
    if (checkable.length === 0) return null;
    return sql`(${join(checkable, condition.kind === 'and' ? sql` and ` : sql` or `)})`;
  }
  const verb = verbOf(validation, node);
  const fields = fieldsOf(condition);
  const columns = fields.map((field) => columnOf(node, field, verb)).filter((each) => each !== undefined);
  if (condition.kind === 'compare' && condition.operator === 'submitted') return isSubmitted(fields, columns, node);
  // The key of an item that exists is not written; parts of a key of several columns are columns of new ones.
  const isKeyWritten = (node.keyed || node.verb === 'upsert') && validation.on !== 'update';
  const isWritten = (field: Field): boolean =>
    columns.some((column) => column.field === field) || (isKey(node.collection, field) && isKeyWritten);
  if (fields.some(({ column }) => column) && !fields.some(isWritten)) return null;
  const passes = compileCondition(condition, row);
  const isAlways = columns.length < fields.filter(isWritten).length || columns.some(({ mixed }) => !mixed);
  if (!passes || isAlways) return passes;
  const absent = columns.map((column) => sql`${present(node, column)} is not true`);
  return absent.length === 0 ? passes : sql`(${onlyOf(absent) ?? sql`(${join(absent, sql` and `)})`} or ${passes})`;
}

function isSubmitted(fields: readonly Field[], columns: readonly WriteColumn[], node: WriteNode): Fragment | null {
  const [column] = columns;
  if (!column || columns.length < fields.length) return sql`false`;
  return column.mixed ? sql`coalesce(${present(node, column)}, false)` : null;
}

function inputKeyColumn({ collection }: WriteNode, field: Field): Fragment {
  return elementAt(inputKeyColumns(collection, alias('i')), collection.key.indexOf(field));
}

/** The fields of the row itself from which the condition starts: several where they hold a reference together. */
function fieldsOf(condition: Condition): readonly Field[] {
  switch (condition.kind) {
    case 'reference':
      return heldBy(condition.through[0] ?? condition.toOne);
    case 'key':
      return condition.filter?.through[0] ? heldBy(condition.filter.through[0]) : [];
    case 'exists':
      return startOf(condition.through, condition.toMany.via);
    case 'compare': {
      const { operand } = condition;
      if (operand.kind === 'aggregate' || operand.kind === 'position') return [];
      if (operand.kind === 'key') return [operand.field];
      const isList = operand.kind === 'count' || operand.kind === 'first';
      return startOf(operand.through, isList ? operand.toMany.via : operand.field);
    }
    default:
      return [];
  }
}

function startOf([first]: readonly ToOneJoin[], field: Field | null): readonly Field[] {
  return first ? heldBy(first) : field ? [field] : [];
}

function heldBy(toOne: ToOneJoin): readonly Field[] {
  return toOne.kind === 'one' && toOne.field.relation?.kind === 'many-to-one' ? toOne.columns : [toOne.field];
}

/** Rows that exist are changed, the others are made. */
function onlyVerb({ on }: Validation, node: WriteNode): Fragment[] {
  if (on === null || node.verb !== 'upsert') return [];
  const row = alias('e');
  if (node.conflict) return [on === 'insert' ? sql`not ${alias('i')}.f` : sql`${alias('i')}.f`];
  const rowExists = sql`exists (select from ${tableName(node.collection)} ${row}
    where ${hasInputKey(node.collection, row, alias('i'))})`;
  return [on === 'insert' ? sql`not ${rowExists}` : rowExists];
}
