/** The limits and helpers that the parsers of requests share. */

import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import type { Slot, Value, Values } from '../sql/parameter.js';

export interface ParseLimits {
  /** Fields, conditions, sort keys and the like of one request. */
  readonly nodes: number;
  readonly relationalDepth: number;
  readonly jsonDepth: number;
  readonly bracketDepth: number;
  readonly arrayLength: number;
  /** Highest `limit`; null when there is none. */
  readonly pageSize: number | null;
  /** How many items of a selection without a limit are read; null or absent for all. */
  readonly selectedRows?: number | null | undefined;
  /** Lists above this many items are streamed. */
  readonly wholeRows: number;
  /** Whether unknown parameters of a URL are refused. */
  readonly strict?: boolean;
}

const STRICT_PREFERENCE = /(?:^|,)\s*handling\s*=\s*"?strict\b/i;

/** The limits of a request with this Prefer header, '' for none. */
export function limitsOf(limits: ParseLimits, prefer: string): ParseLimits {
  return prefer !== '' && STRICT_PREFERENCE.test(prefer) ? { ...limits, strict: true } : limits;
}

export interface ParseContext {
  readonly values: ValueSink;
  readonly limits: ParseLimits;
  /** Whether the values of filters come as JSON, where URLs have only texts. */
  readonly typed?: boolean;
  /** Whether the filter speaks of a payload: some operators make sense only there. */
  readonly payload?: boolean;
  /** Relations that lead to the level at hand: what its own paths follow adds to them. */
  readonly depth?: number;
}

/** An object that is one text is JSON, in a URL too. */
export function contextOf(input: unknown, context: ParseContext): ParseContext {
  return typeof input === 'string' ? asJson(context) : context;
}

export function asJson(context: ParseContext): ParseContext {
  return context.typed ? context : { ...context, typed: true };
}

/** Where the values of a filter go while it is parsed: into a separate list, or, those of a rule, into the AST itself. */
export interface ValueSink {
  /** Counts the parts of a request: each becomes a part of the statement. */
  count(nodes: number): void;
  /** Counts a search term; answers how many there are. */
  countTerm(): number;
  add(value: Value): Slot;
}

/** The values of a rule are the same for every request it concerns, so they are part of the shape. */
export const CONSTANTS: ValueSink = { count: () => {}, countTerm: () => 1, add: (constant) => ({ constant }) };

/** The values of a request: the AST keeps only their slots. */
export class ValueList implements ValueSink {
  readonly #values: Value[] = [];
  #nodes = 0;
  #terms = 0;

  constructor(private readonly maxNodes: number) {}

  count(nodes: number): void {
    this.#nodes += nodes;
    if (this.#nodes > this.maxNodes)
      throw invalidQuery(`The query has more than ${this.maxNodes} parts`, {
        option: 'MAX_QUERY_NODES',
        limit: this.maxNodes,
      });
  }

  countTerm(): number {
    return ++this.#terms;
  }

  add(value: Value): number {
    return this.#values.push(value) - 1;
  }

  /** Grows with all that is counted and added. */
  get size(): number {
    return this.#values.length + this.#nodes + this.#terms;
  }

  done(): Values {
    return this.#values;
  }
}

export type Input = Readonly<Record<string, unknown>>;

/** Index keys are what the parser of query strings makes of a list beyond QUERYSTRING_ARRAY_LIMIT; JSON has lists. */
export function readIndexedList(input: unknown, { typed = false }: ParseContext): readonly unknown[] | null {
  if (Array.isArray(input)) return input;
  if (typed || input === null || typeof input !== 'object') return null;
  const keys = Object.keys(input);
  return keys.length > 0 && keys.every((key) => /^\d+$/.test(key)) ? Object.values(input) : null;
}

/** A JSON text or an object; nothing at all is an object without keys. */
export function readObject(input: unknown, parameter: string): Input {
  let object = input;
  if (typeof input === 'string') {
    if (input.trim() === '') return {};
    try {
      object = parseJson(input);
    } catch {
      throw invalidQuery(`Invalid JSON for ${parameter} object`);
    }
  }
  if (object === undefined || object === null) return {};
  return checkObject(object, parameter);
}

/** Where an object is a condition, null is none: it must not be read as one that always holds. */
export function checkObject(input: unknown, parameter: string): Input {
  if (!isObject(input)) throw invalidQuery(`"${parameter}" must be an object`);
  return input;
}

/** For what a body has next to its known properties. */
export function refuseOthers(rest: Input, hint = ''): void {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed${hint}`);
}
