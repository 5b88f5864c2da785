/**
 * What a parameter of a statement is bound to, as data. A statement's text depends on the shape of a request; the values
 * of one request are bound to it here, each checked against the type of its column before PostgreSQL sees it.
 */
import { forbidden, invalidQuery, type ServiceError } from '../errors.js';

export type Value = string | number | boolean | null | readonly (string | number | boolean)[];
export type Values = readonly Value[];

/** How a value is written for PostgreSQL: by the base type of its column, or as a whole number of ours. */
export type Codec = string;

/** Where a value came from: decides which error a value that does not fit its column becomes. */
export type Use = 'key' | 'filter';

export type Parameter =
  | { readonly kind: 'value'; readonly slot: number; readonly codec: Codec; readonly field: string; readonly use: Use }
  | { readonly kind: 'limit'; readonly slot: number }
  | { readonly kind: 'offset'; readonly slot: number }
  | { readonly kind: 'page'; readonly slot: number; readonly limit: { readonly slot: number } | number };

export function bind(parameters: readonly Parameter[], values: Values): (string | null)[] {
  const bound: (string | null)[] = new Array(parameters.length);
  for (let position = 0; position < parameters.length; position++) {
    bound[position] = bindOne(parameters[position] as Parameter, values);
  }
  return bound;
}

function bindOne(parameter: Parameter, values: Values): string | null {
  switch (parameter.kind) {
    case 'value':
      return encode(parameter.codec, values[parameter.slot] as Value, parameter);
    case 'limit':
    case 'offset':
      return String(values[parameter.slot]);
    case 'page': {
      const limit = typeof parameter.limit === 'number' ? parameter.limit : Number(values[parameter.limit.slot]);
      const offset = limit * Math.max(Number(values[parameter.slot]) - 1, 0);
      if (!Number.isSafeInteger(offset)) throw invalidQuery('"page" is too large');
      return String(offset);
    }
  }
}

const RANGES: Readonly<Record<string, readonly [bigint, bigint]>> = {
  int2: [-(2n ** 15n), 2n ** 15n - 1n],
  int4: [-(2n ** 31n), 2n ** 31n - 1n],
  int8: [-(2n ** 63n), 2n ** 63n - 1n],
};

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?$/i;

interface Origin {
  readonly field: string;
  readonly use: Use;
}

function encode(codec: Codec, value: Value, origin: Origin): string | null {
  if (value === null) return null;
  if (typeof value === 'object') throw misfit(origin, 'a list is not a value');
  switch (codec) {
    case 'int2':
    case 'int4':
    case 'int8': {
      const text = String(value);
      const range = RANGES[codec] as readonly [bigint, bigint];
      if (typeof value === 'boolean' || !/^[+-]?\d{1,20}$/.test(text)) throw misfit(origin, 'it needs a whole number');
      const number = BigInt(text.startsWith('+') ? text.slice(1) : text);
      if (number < range[0] || number > range[1]) throw misfit(origin, 'the number is out of range');
      return text;
    }
    case 'float4':
    case 'float8':
    case 'numeric': {
      const text = String(value);
      if (typeof value === 'boolean' || !NUMBER.test(text)) throw misfit(origin, 'it needs a number');
      return text;
    }
    case 'bool': {
      if (value === true || value === 'true' || value === 1 || value === '1') return 'true';
      if (value === false || value === 'false' || value === 0 || value === '0') return 'false';
      throw misfit(origin, 'it needs true or false');
    }
    case 'uuid': {
      const text = String(value);
      if (!UUID.test(text)) throw misfit(origin, 'it needs a UUID');
      return text;
    }
    default: {
      const text = String(value);
      if (text.includes('\0')) throw misfit(origin, 'a text cannot hold a NUL character');
      return text;
    }
  }
}

/** A key that cannot exist is a missing item (403, as for every missing item); elsewhere the query is wrong. */
function misfit(origin: Origin, reason: string): ServiceError {
  return origin.use === 'key' ? forbidden() : invalidQuery(`Invalid value for field "${origin.field}": ${reason}`);
}
