/**
 * Flat writes that are not planned again. The names of the fields in a payload, the permissions of the caller and the fields of the
 * answer determine the statement, so only the values of the next payload with these names are checked, by the functions that the
 * planner uses. Operators such as `{"_increment": 1}` are part of the names. A payload with nested items, JSON or lists is planned each
 * time.
 */
import { LRUCache } from 'lru-cache';
import { isObject } from '../../../base/exact-json.js';
import { propertiesOf } from '../../../base/narrow.js';
import { isKey } from '../../../compiler/model/item-key.js';
import type { Collection, Field } from '../../../compiler/model/model.js';
import { checkValue } from '../../../compiler/plan/write/column-value.js';
import { checkKey, keyEntries } from '../../../compiler/plan/write/key.js';
import { checkOperand } from '../../../compiler/plan/write/operators.js';
import { isMadeByDatabase } from '../../../compiler/plan/write/payload-fields.js';
import { NO_AUTHOR, type PlannedWrite, type WriteNode } from '../../../compiler/plan/write/write.js';
import { filledVariable, type VariableName } from '../../../compiler/plan/write/write-rows.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import { namedOperator, type UpdateOperator } from '../../../compiler/request/update-operators.js';
import type { Key, WriteRequest } from '../../../compiler/request/write.js';
import type { Writer } from '../writer.js';

/** A payload of one item. */
export interface FlatPayload {
  /** Two payloads with the same text have the same statement. */
  readonly text: string;
  /** Identifies the permissions of the caller at the time of the attempt. */
  readonly permissions: string;
  readonly data: Input;
  /** The key of the item, or null if it is new. */
  readonly key: Key | null;
}

/** Returns null if the payload has to be planned. */
export function flatPayload(request: WriteRequest, permissions: string): FlatPayload | null {
  if (request.idempotencyKey) return null;
  if (request.kind === 'update-item') return request.ifMatch ? null : payloadOf(request, request, permissions);
  if (request.kind !== 'create' || request.many || (request.onConflict && request.isNew)) return null;
  const [data] = request.items;
  return data ? payloadOf(request, { data, key: null }, permissions) : null;
}

/** Lengths and marks stand before names, which may have any characters. */
function payloadOf(
  request: Extract<WriteRequest, { kind: 'create' | 'update-item' }>,
  { data, key }: Pick<FlatPayload, 'data' | 'key'>,
  permissions: string,
): FlatPayload | null {
  const { kind, collection, readBack, isLiteral } = request;
  const onConflict = request.kind === 'create' ? request.onConflict : null;
  let text = `${kind} ${collection.length} ${collection} ${permissions} ${readBack?.shape ?? ''}`;
  if (onConflict) text += ` ${JSON.stringify(onConflict)}`;
  const mayOperate = (key !== null || onConflict !== null) && !isLiteral;
  for (const name in data) {
    const mark = markOf(data[name], mayOperate);
    if (mark === null) return null;
    text += ` ${name.length}${mark}${name}`;
  }
  return { text, permissions, data, key };
}

/** The kind of a value: a value, null, or an operator with a plain operand. Returns null for all others. */
function markOf(value: unknown, mayOperate: boolean): string | null {
  if (value === undefined) return null;
  if (typeof value !== 'object' || value === null) return value === null ? ':' : '=';
  if (!mayOperate || !isObject(value)) return null;
  const named = namedOperator(value);
  if (!named || named.isMixed || named.operator === null) return null;
  const operand = value[named.key];
  return operand === undefined || typeof operand === 'object' ? null : `${named.key}=`;
}

/** A write that was planned before. */
interface KnownWrite<Compiled> {
  readonly planned: PlannedWrite;
  readonly node: WriteNode;
  readonly sources: readonly Source[];
  readonly compiled: Compiled;
}

/** Where the value of a column comes from. */
interface Source {
  readonly field: Field;
  /** The variable that fills the column, or null if the payload has its value. */
  readonly variable: VariableName | null;
  /** The operator whose operand the payload has, or null if it has the value. */
  readonly operator: UpdateOperator | null;
}

export class KnownWrites<Compiled> {
  readonly #known: LRUCache<string, KnownWrite<Compiled>>;

  constructor(max: number) {
    this.#known = new LRUCache({ max });
  }

  clear(): void {
    this.#known.clear();
  }

  find(payload: FlatPayload): KnownWrite<Compiled> | undefined {
    return this.#known.get(payload.text);
  }

  /** Keeps the statement of a flat write, unless a value comes from elsewhere: a preset, or a key that the service makes. */
  learn(payload: FlatPayload, planned: PlannedWrite, compiled: Compiled): void {
    const [node] = planned.plan.nodes;
    if (!node || (node.verb !== 'update' && node.bringsKeys)) return;
    const sources = node.columns.map(({ field, only, operators: [operator = null] }) => ({
      field,
      variable: filledVariable(field, only === 'insert' || only === 'update' ? only : node.verb),
      operator,
    }));
    const isFilledAlike = ({ field, only }: WriteNode['columns'][number]): boolean =>
      only !== null || filledVariable(field, 'insert') === filledVariable(field, 'update');
    if (node.verb === 'upsert' && !node.columns.every(isFilledAlike)) return;
    const isKnown = (name: string): boolean => sources.some(({ field }) => field.name === name);
    const isGiven = ({ field, variable }: Source): boolean =>
      variable !== null || (Object.hasOwn(payload.data, field.name) && isPlain(field, node.collection));
    if (!sources.every(isGiven) || !Object.keys(payload.data).every(isKnown)) return;
    // Values of the payload are not kept: they may be large.
    const input = { nodes: [], unlinks: [], root: [0], by: NO_AUTHOR };
    this.#known.set(payload.text, { planned: { ...planned, input, keys: null }, node, sources, compiled });
  }
}

/** Whether the planner only checks the value. */
function isPlain(field: Field, collection: Collection): boolean {
  const { relation, special } = field;
  if (isKey(collection, field) || isMadeByDatabase(collection, field) || field.column?.is_generated) return false;
  if (special.includes('hash') || special.includes('conceal') || special.includes('sealed')) return false;
  return !relation || (relation.kind === 'many-to-one' && relation.columns.length <= 1);
}

/** The operand of `{"_increment": 1}`. */
function checkNamedOperand(field: Field, operator: UpdateOperator, value: unknown): unknown {
  const key = `_${operator}`;
  return checkOperand(field, operator, propertiesOf(value)[key], `${field.name}.${key}`);
}

/** The plan with the values of another payload. */
export function withPayload(
  { planned, node, sources }: KnownWrite<unknown>,
  { data, key }: FlatPayload,
  { caller, author }: Writer,
): { readonly planned: PlannedWrite; readonly row: Readonly<Record<string, unknown>> } {
  const row: Record<string, unknown> =
    key === null ? {} : keyEntries(node.collection, 'k', checkKey(node.collection, key));
  sources.forEach(({ field, variable, operator }, position) => {
    if (operator !== null) row[`c${position}`] = checkNamedOperand(field, operator, data[field.name]);
    else if (variable === null) row[`c${position}`] = checkValue(field, data[field.name], field.name);
    else row[`c${position}`] = variable === 'now' ? new Date().toISOString() : caller[variable];
  });
  const input = { nodes: [[row]], unlinks: [], root: [0], by: author };
  return { planned: { ...planned, input, keys: key === null ? null : [key] }, row };
}
