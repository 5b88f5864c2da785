/**
 * The value that a parameter of a statement is bound to, as data. A statement's text depends on the shape of a request; the values
 * of one request are bound to it here, each checked against the type of its column before PostgreSQL sees it.
 */
import { assertNever } from '../../base/assert-never.js';
import { forbidden, invalidQuery } from '../../base/errors.js';
import { type Codec, encode, fits, type Origin, type Pattern, pattern, type Scalar } from './codec.js';
import { splitKey } from './key-text.js';
import { arrayLiteral } from './literal.js';
import { adjustNow } from './now.js';

interface Variable {
  /** `$NOW(-1 day)`, `$CURRENT_USER`, ... */
  readonly variable: string;
}

export type Value = Scalar | null | Variable | readonly (Scalar | null | Variable)[];
export type Values = readonly Value[];

/** A position in the list of a request's values; or the value itself, where it belongs to a rule and not to the request. */
export type Slot = number | { readonly constant: Value };

/** The caller that the variables of a statement refer to. */
export interface Caller {
  readonly user: string | null;
  readonly role: string | null;
  readonly roles: readonly string[];
  readonly policies: readonly string[];
}

interface Typed extends Origin {
  readonly slot: Slot;
  readonly codec: Codec;
  /** Which part is meant of a key of several columns. */
  readonly part?: { readonly position: number; readonly count: number };
}

export type Parameter =
  | ({ readonly kind: 'value' } & Typed)
  | ({ readonly kind: 'pattern'; readonly pattern: Pattern } & Typed)
  | ({ readonly kind: 'list' } & Typed)
  /** One entry of a list. */
  | ({ readonly kind: 'entry'; readonly position: number } & Typed)
  /** The search term where it fits the type, else null: it then matches nothing. */
  | { readonly kind: 'search'; readonly slot: Slot; readonly codec: Codec }
  /** One sort value of a cursor. */
  | { readonly kind: 'cursor'; readonly slot: Slot; readonly position: number }
  | { readonly kind: 'path'; readonly slot: Slot }
  /** A value of the model, the same for every request of the shape. */
  | { readonly kind: 'constant'; readonly value: string }
  /** A text of the service's own making, such as the rows of a write as one JSON document. */
  | { readonly kind: 'text'; readonly slot: number }
  | { readonly kind: 'caller'; readonly variable: string }
  | { readonly kind: 'limit'; readonly slot: Slot }
  | { readonly kind: 'offset'; readonly slot: Slot }
  | { readonly kind: 'page'; readonly slot: Slot; readonly limit: { readonly slot: Slot } | number };

export function bind(parameters: readonly Parameter[], values: Values, caller: Caller): (string | null)[] {
  const bound: (string | null)[] = new Array(parameters.length);
  for (let position = 0; position < parameters.length; position++) {
    bound[position] = bindOne(parameters[position] as Parameter, values, caller);
  }
  return bound;
}

function slotValue(slot: Slot, values: Values): Value | undefined {
  return typeof slot === 'number' ? values[slot] : slot.constant;
}

function bindOne(parameter: Parameter, values: Values, caller: Caller): string | null {
  switch (parameter.kind) {
    case 'value':
      return encode(
        parameter.codec,
        partOf(single(slotValue(parameter.slot, values), parameter, caller), parameter),
        parameter,
      );
    case 'pattern': {
      const text = encode('text', single(slotValue(parameter.slot, values), parameter, caller), parameter);
      return text === null ? null : pattern(parameter.pattern, text);
    }
    case 'list': {
      const entries = list(slotValue(parameter.slot, values), caller);
      return arrayLiteral(
        entries.map((entry) => encode(parameter.codec, partOf(single(entry, parameter, caller), parameter), parameter)),
      );
    }
    case 'entry':
      return encode(
        parameter.codec,
        single(list(slotValue(parameter.slot, values), caller)[parameter.position], parameter, caller),
        parameter,
      );
    case 'search': {
      const term = String(slotValue(parameter.slot, values));
      return fits(parameter.codec, term) ? term : null;
    }
    case 'cursor':
      return (slotValue(parameter.slot, values) as readonly (string | null)[])[parameter.position] ?? null;
    case 'path':
      return arrayLiteral(slotValue(parameter.slot, values) as readonly string[]);
    case 'text':
      return slotValue(parameter.slot, values) as string;
    case 'constant':
      return parameter.value;
    case 'caller':
      return callerParameter(parameter.variable, caller);
    case 'limit':
    case 'offset':
      return String(slotValue(parameter.slot, values));
    case 'page': {
      const limit =
        typeof parameter.limit === 'number' ? parameter.limit : Number(slotValue(parameter.limit.slot, values));
      const offset = limit * Math.max(Number(slotValue(parameter.slot, values)) - 1, 0);
      if (!Number.isSafeInteger(offset)) throw invalidQuery('"page" is too large');
      return String(offset);
    }
    default:
      return assertNever(parameter);
  }
}

/** A text that is no key of so many parts names no item. */
function partOf(value: Scalar | null, { part, use }: Typed): Scalar | null {
  if (!part || value === null) return value;
  const parts = typeof value === 'object' ? null : splitKey(String(value), part.count);
  if (!parts && use === 'filter')
    throw invalidQuery(
      `"${typeof value === 'object' ? 'a list' : value}" is not a key of ${part.count} columns, joined by ~`,
    );
  if (!parts) throw forbidden();
  return parts[part.position] ?? null;
}

function single(value: Value | undefined, origin: Origin, caller: Caller): Scalar | null {
  if (value === undefined || value === null || typeof value !== 'object') return value ?? null;
  if (isList(value)) throw invalidQuery(`Invalid value for field "${origin.field}": it cannot be a list`);
  if ('json' in value) return value;
  const resolved = resolveVariable(value.variable, caller);
  if (isList(resolved)) throw invalidQuery(`"${value.variable}" is a list: it needs "_in" or "_nin"`);
  return resolved;
}

function list(value: Value | undefined, caller: Caller): readonly (Scalar | null | Variable)[] {
  if (value === undefined || value === null) return [];
  if (isList(value)) return value;
  if (typeof value !== 'object' || 'json' in value) return [value];
  const resolved = resolveVariable(value.variable, caller);
  return isList(resolved) ? resolved : [resolved];
}

export function resolveVariable(variable: string, caller: Caller): Scalar | null | readonly string[] {
  switch (variable) {
    case '$CURRENT_USER':
      return caller.user;
    case '$CURRENT_ROLE':
      return caller.role;
    case '$CURRENT_ROLES':
      return caller.roles;
    case '$CURRENT_POLICIES':
      return caller.policies;
    default:
      return adjustNow(variable, new Date());
  }
}

function callerParameter(variable: string, caller: Caller): string | null {
  const value = resolveVariable(variable, caller);
  return arrayLiteral(isList(value) ? value : value === null ? [] : [String(value)]);
}

function isList<Entry>(value: unknown | readonly Entry[]): value is readonly Entry[] {
  return Array.isArray(value);
}
