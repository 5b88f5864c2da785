/** Filters that are kept with the model or a policy, parsed once: their values are part of them. */
import type { Filter } from '../request/ast.js';
import { parseFilter } from '../request/filter.js';
import type { Input, ParseContext } from '../request/query.js';
import { CONSTANTS } from '../request/values.js';

const UNLIMITED: ParseContext = {
  values: CONSTANTS,
  limits: {
    nodes: Number.MAX_SAFE_INTEGER,
    relationalDepth: 100,
    jsonDepth: 100,
    bracketDepth: 100,
    arrayLength: Number.MAX_SAFE_INTEGER,
    pageSize: null,
    wholeRows: Number.MAX_SAFE_INTEGER,
  },
};

/** About rows. Null where there is nothing to hold; undefined where it cannot be read. */
export function readFilter(input: unknown): Filter | null | undefined {
  return read(input, UNLIMITED);
}

/** About payloads, which know operators of their own. */
export function readValidation(input: unknown): Filter | null | undefined {
  return read(input, { ...UNLIMITED, payload: true });
}

function read(input: unknown, context: ParseContext): Filter | null | undefined {
  if (input === null || input === undefined) return null;
  if (!isObject(input)) return undefined;
  if (Object.keys(input).length === 0) return null;
  try {
    return parseFilter(input, context);
  } catch {
    return undefined;
  }
}

export function isObject(value: unknown): value is Input {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
