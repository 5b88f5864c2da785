/** What must hold before and of a write, as parts of its chain: rules about the rows that are there, validations of the new values. */
import { isKey } from '../mirror/item-key.js';
import type { Collection, Field } from '../mirror/model.js';
import { elementAt } from '../narrow.js';
import type { Condition } from '../plan/plan.js';
import type { RowGuard, Validation, WriteColumn, WriteNode } from '../plan/write.js';
import { alias, type Fragment, integerLiteral, join, literal, sql } from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { FromClause, type Scope } from './from-clause.js';
import { tableName, typeName } from './identifiers.js';
import { areEqual, inputKeyColumns, keyColumns } from './key-columns.js';
import { columnOf, input, present } from './write-input.js';

/** Behind `from`: rows of the collection under the alias that meet the rule. */
export function guardedRows(
  collection: Collection,
  name: Fragment,
  rule: Condition | null,
  scope: Scope,
  ...conditions: readonly Fragment[]
): Fragment {
  const source = new FromClause(name, scope, collection);
  return source.from(...conditions, rule && compileCondition(rule, source));
}

/** Of the rules that count for a row of the input one must hold of the row that is there. */
export function compileGuard(guard: RowGuard, inputRow: Fragment, row: FromClause): Fragment {
  const rules = guard.rules.map((rule, position) => {
    const condition = compileCondition(rule, row) ?? sql`true`;
    return guard.ruleBits === null
      ? sql`(substr(${inputRow}.a, ${integerLiteral(position + 1)}, 1) = '1' and ${condition})`
      : condition;
  });
  const any = sql`(${join(rules, sql` or `)})`;
  return guard.ruleBits === null ? sql`(${inputRow}.a is null or ${any})` : any;
}

/** A cell per validation, or one for new and one for changed rows: it ends the statement where a row does not pass. */
export function compileValidations(
  node: WriteNode,
  position: number,
  valueIn: (column: WriteColumn) => Fragment,
  references: Fragment,
  scope: Scope,
): Fragment[] {
  return node.validations.flatMap((each, index) =>
    perVerb(each, node).flatMap((validation) => {
      const verb = verbOf(validation, node);
      const valueFor = (field: Field): Fragment => {
        const column = columnOf(node, field, verb);
        return column ? valueIn(column) : sql`null::${typeName(field)}`;
      };
      const row = new FromClause(alias('i'), scope, node.collection, {
        value: (field) => (isKey(node.collection, field) ? inputKeyColumn(node, field) : valueFor(field)),
      });
      const passes = compileLeaves(validation.condition, validation, node, row);
      if (!passes) return [];
      const reason = sql`${literal(`${position} ${index} `)} || ${alias('i')}.n`;
      const failed = join([...onlyVerb(validation, node), sql`(${passes}) is not true`], sql` and `);
      return [
        sql`(select service_refuse(${reason}) from ${input(position)} ${alias('i')}${references}${row.joins()} where ${failed} order by ${alias('i')}.n limit 1)`,
      ];
    }),
  );
}

/** Where new rows get other values than those that exist, either are looked at by themselves. */
function perVerb(validation: Validation, node: WriteNode): Validation[] {
  const differ = node.verb === 'upsert' && node.columns.some((column) => column.only !== null);
  if (validation.on !== null || !differ) return [validation];
  return [
    { ...validation, on: 'insert' },
    { ...validation, on: 'update' },
  ];
}

/** Which of the values are looked at; either where they are the same. */
function verbOf({ on }: Validation, { verb }: WriteNode): 'insert' | 'update' {
  return verb === 'upsert' ? (on ?? 'insert') : verb;
}

/** Conditions on columns that the payload leaves out are skipped; null where nothing is left to check. */
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
  const field = fieldOf(condition);
  const column = columnOf(node, field, verbOf(validation, node));
  const submitted = condition.kind === 'compare' && condition.operator === 'submitted';
  if (submitted) return column ? (column.mixed ? sql`coalesce(${present(node, column)}, false)` : null) : sql`false`;
  // The key of an item that exists is not written; parts of a key of several columns are columns of new ones.
  const written =
    isKey(node.collection, field) && !column
      ? (node.keyed || node.verb === 'upsert') && validation.on !== 'update'
      : column !== undefined;
  if (field?.column && !written) return null;
  const passes = compileCondition(condition, row);
  return passes && column?.mixed ? sql`(${present(node, column)} is not true or ${passes})` : passes;
}

function inputKeyColumn({ collection }: WriteNode, field: Field): Fragment {
  return elementAt(inputKeyColumns(collection, alias('i')), collection.key.indexOf(field));
}

/** The field of the row itself from which the condition starts. */
function fieldOf(condition: Condition): Field | null {
  if (condition.kind === 'exists') return condition.through[0]?.field ?? condition.toMany.via;
  if (condition.kind !== 'compare') return null;
  const { operand } = condition;
  if (operand.kind === 'aggregate' || operand.kind === 'position') return null;
  if (operand.kind === 'key') return operand.field;
  const [first] = operand.through;
  if (first) return first.field;
  return operand.kind === 'count' || operand.kind === 'first' ? operand.toMany.via : operand.field;
}

/** Rows that exist are changed, the others are made. */
function onlyVerb({ on }: Validation, node: WriteNode): Fragment[] {
  if (on === null || node.verb !== 'upsert') return [];
  const row = alias('e');
  if (node.conflict) return [on === 'insert' ? sql`not ${alias('i')}.f` : sql`${alias('i')}.f`];
  const found = sql`exists (select from ${tableName(node.collection)} ${row} where ${areEqual(keyColumns(node.collection, row), inputKeyColumns(node.collection, alias('i')))})`;
  return [on === 'insert' ? sql`not ${found}` : found];
}
