/** The tools of agents: what each takes, and the context of a call. */

import { invalidPayload, unprocessable } from '../../base/errors.js';
import { isObject, parseJson, writeJson } from '../../base/exact-json.js';
import type { Model } from '../../compiler/model/model.js';
import type { Input, ParseLimits } from '../../compiler/request/parse-context.js';
import type { Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { Schema } from '../../server/api/openapi/json-schema.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { Writer } from '../../server/execute/writer.js';
import type { Writes } from '../../server/execute/writes/writes.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';

export interface ToolServices {
  readonly reads: Reads;
  readonly writes: Writes;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly limits: ParseLimits;
}

/** The limits of answers to agents, which are lower than those of other clients. */
export interface ToolLimits {
  readonly mayWrite: boolean;
  readonly rows: number;
  readonly bytes: number;
  /** As PostgreSQL's planner estimates it. */
  readonly cost: number;
}

export interface ToolCall {
  readonly input: Input;
  readonly caller: Identity;
  /** The caller as the author of writes. */
  readonly writer: Writer;
  readonly client: Exchange;
  readonly services: ToolServices;
  readonly limits: ToolLimits;
}

export interface Tool {
  readonly name: string;
  /** Constant: texts of the database must not reach an agent as instructions. */
  readonly description: string;
  /** `adds`: it only creates items. `maybe`: it writes only with MCP=write. */
  readonly writes: 'never' | 'maybe' | 'adds' | 'changes';
  readonly properties: Readonly<Record<string, Schema>>;
  readonly required: readonly string[];
  run(call: ToolCall): Promise<unknown>;
}

/** The collections and fields that the caller may read. */
export function visibleModel({ caller, services: { policies, mirror } }: ToolCall): Model {
  return policies.accessOf(caller)?.view(mirror.model) ?? mirror.model;
}

export function textIn(input: Input, name: string): string {
  const value = input[name];
  if (typeof value !== 'string' || value === '' || value.includes('\0'))
    throw invalidPayload(`"${name}" must be a string`);
  return value;
}

/** A number from 0, as it is parsed with its digits. */
export function numberIn(input: Input, name: string, otherwise: number): number {
  const value = input[name];
  if (value === undefined || value === null) return otherwise;
  const number = Number(writeJson(value));
  if (!Number.isSafeInteger(number) || number < 0) throw invalidPayload(`"${name}" must be a whole number from 0`);
  return number;
}

export function flagIn(input: Input, name: string): boolean {
  const value = input[name] ?? false;
  if (typeof value !== 'boolean') throw invalidPayload(`"${name}" must be true or false`);
  return value;
}

/** The properties with these names that are given. */
export function given(input: Input, names: readonly string[]): Input {
  return Object.fromEntries(names.flatMap((name) => (input[name] == null ? [] : [[name, input[name]]])));
}

/** The `data` of an answer. */
export function dataOf(body: Buffer | null): unknown {
  const answer = body === null ? null : parseJson(String(body));
  return isObject(answer) ? answer['data'] : null;
}

/** The text of a result. A large one is refused, because a part of a JSON document is of no use. */
export function resultText(
  result: unknown,
  { bytes }: ToolLimits,
  hint = 'ask for fewer "fields" or a lower "limit"',
): string {
  const text = typeof result === 'string' ? result : writeJson(result);
  const size = Buffer.byteLength(text);
  if (size > bytes)
    throw unprocessable(`The answer has ${size} bytes, and ${bytes} are allowed (MCP_MAX_BYTES): ${hint}`);
  return text;
}
