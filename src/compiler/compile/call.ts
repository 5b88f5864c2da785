/** A call of a function as SQL: it replaces a table in the `from` clause. */
import { assertNever } from '../../base/assert-never.js';
import { type Argument, type Collection, collectionOf, type Model } from '../model/model.js';
import type { CallPlan } from '../plan/plan.js';
import { operandType } from '../plan/resolve-names.js';
import type { Slot } from '../request/ast.js';
import { isDocumentCodec } from '../sql/codec.js';
import {
  alias,
  expression,
  type Fragment,
  identifier,
  join,
  nothing,
  parameter,
  type Statement,
  sql,
  statement,
} from '../sql/fragment.js';
import { geometryOf } from './geometry.js';
import { tableName, typeName } from './identifiers.js';

/** Where the rows of a volatile function are left for the read that follows it in its transaction. */
const ROWS_SETTING = sql`'lateral.rows'`;

/** The rows under their name. PostgreSQL shows a row of nulls if a function returned none. */
export function calledRows(call: CallPlan, collection: Collection, name: Fragment): Fragment {
  const { returns } = call.overload;
  if (call.fromSetting)
    return onlyRow(call, sql`pg_catalog.unnest(current_setting(${ROWS_SETTING})::${tableName(collection)}[])`, name);
  switch (returns.kind) {
    case 'items':
      return onlyRow(call, calledFunction(call), name);
    case 'record':
      return onlyRow(call, calledFunction(call), name, columnsOf(returns.collection));
    case 'value':
    case 'nothing':
      return sql`${calledFunction(call)} ${name}${columnsOf(returns.collection)}`;
    default:
      return assertNever(returns);
  }
}

/** The call of a volatile function that returns items: its rows are stored as they are. */
export function compileCall(call: CallPlan, model: Model): Statement {
  const { returns } = call.overload;
  if (returns.kind !== 'items') throw new Error('only items are kept');
  const type = tableName(collectionOf(model, returns.collection));
  const row = alias('f');
  const rows = sql`coalesce(array_agg(${row}::${type}), '{}'::${type}[])::text`;
  return statement(sql`select set_config(${ROWS_SETTING}, ${rows}, true) from ${calledFunction(call)} ${row}`);
}

function onlyRow(call: CallPlan, rows: Fragment, name: Fragment, columns = nothing): Fragment {
  const { returns } = call.overload;
  if (returns.kind === 'nothing' || returns.set) return sql`${rows} ${name}${columns}`;
  const row = alias('f');
  return sql`(select * from ${rows} ${row}${columns} where not (${row} is null)) ${name}`;
}

/** PostgreSQL would call the only column of a result after the alias. */
function columnsOf({ fields }: Collection): Fragment {
  const names = [...fields.keys()].map((name) => identifier(name));
  return sql` (${join(names, sql`, `)})`;
}

function calledFunction({ overload, arguments: passedArguments }: CallPlan): Fragment {
  const list = passedArguments.map(({ argument, slot }) => {
    const value = slot === null ? omittedValue(argument) : argumentValue(argument, slot);
    // Without `variadic` PostgreSQL would take the list for a single element.
    const variadic = argument.variadic ? sql`variadic ` : nothing;
    return sql`${variadic}${identifier(argument.name)} => ${value}`;
  });
  return sql`${identifier(overload.schema, overload.function)}(${join(list, sql`, `)})`;
}

function omittedValue({ name, field, otherwise }: Argument): Fragment {
  if (otherwise === null) throw new Error(`the argument "${name}" has no value`);
  return sql`${expression(otherwise)}::${typeName(field)}`;
}

/** Arrays and composite values come as JSON, from which PostgreSQL makes them as it does in a write. */
function argumentValue({ name, field }: Argument, slot: Slot): Fragment {
  const { codec, composite } = operandType({ kind: 'field', through: [], field });
  const value = parameter({ kind: 'value', slot, codec, composite, field: name, use: 'argument' });
  if (codec === 'geojson') return geometryOf(sql`${value}::text`, field);
  const type = typeName(field);
  if (!isDocumentCodec(codec)) return sql`${value}::${type}`;
  const record = alias('x');
  return sql`(select ${record}.v from json_to_record(${value}::json) as ${record} (v ${type}))`;
}
