/** `{"$ref": "0"}` in an operation of a transaction: the key of the item that operation 0 creates, `{"$ref": "0.2"}` that of the third of a list. */
import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Input } from './parse-context.js';
import { SET } from './update-operators.js';

export interface StepReference {
  readonly text: string;
  readonly operation: number;
  /** The number of the item in a list, or null. */
  readonly item: number | null;
}

const REFERENCE = '$ref';

/** An object whose only property is `$ref`. */
export function isReference(value: unknown): value is Input {
  return isObject(value) && Object.hasOwn(value, REFERENCE) && Object.keys(value).length === 1;
}

/** The value of `_set` is written as it is, so it contains no references. */
export function isLiteral(value: unknown): boolean {
  return isObject(value) && Object.hasOwn(value, SET) && Object.keys(value).length === 1;
}

export function readReference({ [REFERENCE]: text }: Input): StepReference {
  const [matched, operation, item] =
    (typeof text === 'string' && /^(0|[1-9]\d{0,2})(?:\.(0|[1-9]\d{0,8}))?$/.exec(text)) || [];
  if (matched === undefined)
    throw invalidPayload(
      '"$ref" must be the index of an operation as a string, such as "0", or "0.2" for an item of a list',
    );
  return { text: matched, operation: Number(operation), item: item === undefined ? null : Number(item) };
}

export function* referencesIn(value: unknown): Generator<StepReference> {
  if (isReference(value)) yield readReference(value);
  else if (Array.isArray(value)) for (const entry of value) yield* referencesIn(entry);
  else if (isObject(value) && !isLiteral(value)) for (const entry of Object.values(value)) yield* referencesIn(entry);
}
