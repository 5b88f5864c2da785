/** A call of a function: its overload, its arguments, and the source of its rows. */
import { forbidden, invalidQuery } from '../../base/errors.js';
import {
  type Argument,
  type Collection,
  collectionOf,
  type Model,
  type Overload,
  type ServedFunction,
} from '../model/model.js';
import type { CallRequest, Query, ReadRequest } from '../request/ast.js';
import { unrestrictedModel } from './access.js';
import { type CallPlan, type ReadPlan, type RowLevel, readPlan, rowLevel } from './plan.js';

/** A collection whose rows are those that a function returns. */
interface CalledCollection extends Collection {
  readonly call: CallPlan;
}

export function callOf(collection: Collection): CallPlan | null {
  return 'call' in collection ? (collection as CalledCollection).call : null;
}

/** The collection with the rows of the call in place of its own. */
export function calledCollection(collection: Collection, call: CallPlan): Collection {
  const called: CalledCollection = { ...collection, singleton: false, call };
  return Object.freeze(called);
}

export function planCall(name: string, call: CallRequest, model: Model): CallPlan {
  const served = model.functions.get(name);
  if (!served) throw forbiddenFunction(name, model);
  const overload = chooseOverload(served, new Set(call.arguments.map((each) => each.name)));
  const slots = new Map(call.arguments.map((each) => [each.name, each.slot]));
  const passedArguments = [...overload.arguments, ...overload.withheld].flatMap((argument) => {
    const slot = slots.get(argument.name) ?? null;
    return slot !== null || argument.otherwise !== null ? [{ argument, slot }] : [];
  });
  return Object.freeze({ overload, arguments: passedArguments });
}

/** A function that the caller may not call looks as if it did not exist. */
function forbiddenFunction(name: string, model: Model): Error {
  const reason = model.refusedFunctions.get(name);
  return forbidden(
    reason
      ? `The function "${name}" cannot be called: it ${reason}.`
      : `You don't have permission to call function "${name}" or it does not exist.`,
  );
}

/** The overload that takes the arguments and leaves the fewest to their defaults. */
function chooseOverload({ name, overloads }: ServedFunction, argumentNames: ReadonlySet<string>): Overload {
  const mismatches = overloads.map((overload) => mismatchOf(overload, argumentNames));
  const fitting = overloads.filter((_, position) => mismatches[position] === null);
  const fewest = Math.min(...fitting.map((each) => each.arguments.length));
  const [best, ...others] = fitting.filter((each) => each.arguments.length === fewest);
  if (others.length > 0)
    throw invalidQuery(
      `Several overloads of the function "${name}" take these arguments and differ only in their types: "arguments" in its row of service_functions must include the types, such as ${example(best)}`,
    );
  if (best) return best;
  const [only] = mismatches;
  if (overloads.length === 1 && only) throw invalidQuery(`The function "${name}" ${only}`);
  const forms = overloads.map((each) => `(${each.arguments.map(describeArgument).join(', ')})`);
  throw invalidQuery(`No overload of the function "${name}" takes these arguments: it takes ${forms.join(' or ')}`);
}

/** The signature of the overload, for errors. */
function example(overload: Overload | undefined): string {
  const list = overload?.arguments.map(({ name, field }) => `${name} ${field.column?.data_type ?? ''}`) ?? [];
  return JSON.stringify(list);
}

function mismatchOf({ arguments: declared }: Overload, argumentNames: ReadonlySet<string>): string | null {
  const unknown = [...argumentNames].find((name) => !declared.some((argument) => argument.name === name));
  if (unknown !== undefined) return `has no argument "${unknown}"`;
  const missing = declared.find((argument) => argument.required && !argumentNames.has(argument.name));
  return missing ? `needs the argument "${missing.name}"` : null;
}

function describeArgument({ name, required }: Argument): string {
  return required ? name : `${name}?`;
}

/**
 * The collection of the rows that the function returns: one of its own, or the one whose items they are, as the caller may see it.
 * It is null if the caller may not see it, and for functions that return values. Items that a volatile function has returned are kept first: a read of them then sees what
 * it has written.
 */
export function returnedRows(call: CallPlan, model: Model): Collection | null {
  const { returns, volatile } = call.overload;
  if (returns.kind === 'nothing' || returns.kind === 'value') return null;
  const isOwn = returns.kind === 'record';
  const collection = isOwn ? returns.collection : model.collections.get(returns.collection);
  if (!collection) return null;
  return calledCollection(collection, { ...call, fromSetting: volatile && !isOwn });
}

/** Refuses requests that would call the function more than once, or need a stream. */
export function checkVolatile(
  { overload, fromSetting = false }: CallPlan,
  { query, export: exported }: ReadRequest,
): void {
  if (!overload.volatile) return;
  const inapplicable = exported
    ? 'export'
    : fromSetting
      ? null
      : query.meta.length > 0
        ? 'meta'
        : query.cursor
          ? 'cursor'
          : null;
  if (inapplicable) throw invalidQuery(`"${inapplicable}" does not apply to "${overload.name}", which may write`);
}

/** The value that a function returns; nothing of items that the caller may not see. */
export function planResult(call: CallPlan, { query }: ReadRequest, model: Model): ReadPlan {
  const { returns, volatile, name } = call.overload;
  if (returns.kind === 'items' && !volatile)
    throw forbidden(`You don't have permission to read the items of function "${name}".`);
  const [selection] = query.fields ?? [];
  const as = selection?.kind === 'value' ? selection.as : 'default';
  const collection =
    typeof returns.collection === 'string'
      ? collectionOf(unrestrictedModel(model), returns.collection)
      : returns.collection;
  const called = calledCollection(collection, call);
  const fields = returns.kind === 'value' ? [...collection.fields.values()] : [];
  const outputs = fields.map((field) => ({
    kind: 'value',
    name: field.name,
    operand: { kind: 'field', through: [], field },
    as,
  })) satisfies RowLevel['outputs'];
  const result = returns.kind === 'value' && returns.set ? 'list' : 'optional';
  return readPlan(result, { ...rowLevel(called, outputs), bare: true });
}

export function isSingle({ overload: { returns } }: CallPlan): boolean {
  return returns.kind !== 'nothing' && !returns.set;
}

/** Parameters of lists do not apply to one row, and none apply to a value: they are refused, not ignored. */
export function checkApplies(
  { overload: { returns, name } }: CallPlan,
  { query, export: exported }: ReadRequest,
): void {
  const isRows = returns.kind === 'items' || returns.kind === 'record';
  if (isRows && returns.set) return;
  const isValue = query.fields?.[0]?.kind === 'value';
  const parts: readonly (keyof Query)[] = [
    ...(['filter', 'search', 'sort', 'limit', 'offset', 'page', 'cursor'] as const),
    ...(['aggregate', 'groupBy', 'having', 'meta'] as const),
    ...(isRows || isValue ? [] : (['fields', 'alias', 'deep'] as const)),
  ];
  const isGiven = (part: unknown): boolean => part !== null && !(Array.isArray(part) && part.length === 0);
  const inapplicable = parts.find((each) => isGiven(query[each])) ?? (exported ? 'export' : undefined);
  if (inapplicable === undefined) return;
  const which = isRows ? 'a list, and this one returns one row' : 'rows, which this one does not';
  throw invalidQuery(`"${inapplicable}" does not apply to "${name}": it is for functions that return ${which}`);
}
