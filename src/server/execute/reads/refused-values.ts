/**
 * Which value PostgreSQL has refused to read, for the error that names it. PostgreSQL quotes what it cannot read, in every language, and
 * the values that were sent are known, so only failed requests pay for it. Values that the request did not send are never shown.
 */

import { forbidden, invalidPayload, invalidQuery, type ServiceError } from '../../../base/errors.js';
import { jsonLeaves, quotedTexts } from '../../../base/quoted-text.js';
import { asSent, type RefusedValue } from '../../../base/sqlstate.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { Parameter, Value, Values } from '../../../compiler/sql/parameter.js';

interface SentValue {
  /** The field or argument that it was sent for. */
  readonly target: string;
  readonly text: string;
  /** Whether PostgreSQL alone knows what a value of the type looks like. */
  readonly unchecked: boolean;
  readonly isKey: boolean;
}

/** Types whose values are checked before they are sent. */
const CHECKED =
  /^_?(bool|int[248]|float[48]|numeric|uuid|text|varchar|bpchar|citext|name|jsonb?|bytea|hstore|geojson|date|timestamp|timestamptz)$/;

/** The error for a value of a read, or null if it is not known which. A key that cannot be parsed names no item. */
export function refusedInQuery(
  error: RefusedValue,
  parameters: readonly Parameter[],
  values: Values,
): ServiceError | null {
  const refusedValue = findRefused(
    error,
    parameters.flatMap((each) => sentFor(each, values)),
  );
  if (!refusedValue) return null;
  if (refusedValue.isKey) return forbidden();
  return invalidQuery(
    `Invalid value for ${refusedValue.target}: ${quoteShortened(refusedValue.text)} does not fit its type`,
  );
}

/** A field of the caller is a value that the request names, so an error about its text is about the request. */
export function sentOrNamed(error: unknown, parameters: readonly Parameter[]): unknown {
  return parameters.some(({ kind }) => kind === 'caller') ? asSent(error) : error;
}

/** The error for a value of a write, or null if it is not known which. */
export function refusedInPayload(error: RefusedValue, { plan, input, paths }: PlannedWrite): ServiceError | null {
  const sent = plan.nodes.flatMap((node, position) =>
    (input.nodes[position] ?? []).flatMap((row, index) =>
      node.columns.flatMap(({ field }, column): SentValue[] => {
        const path = [paths[position]?.[index], field.name].filter((each) => each).join('.');
        const unchecked = !CHECKED.test(field.column?.base_type ?? '') && !field.column?.enum_values;
        return jsonLeaves(row[`c${column}`]).map((text) => ({ target: path, text, unchecked, isKey: false }));
      }),
    ),
  );
  const refusedValue = findRefused(error, sent);
  return (
    refusedValue &&
    invalidPayload(`The value of "${refusedValue.target}" does not fit its type: ${quoteShortened(refusedValue.text)}`)
  );
}

/** The values that the caller sent for the parameter. Values of permission rules are not among them, because callers must not see them. */
function sentFor(parameter: Parameter, values: Values): SentValue[] {
  if (parameter.kind !== 'value' && parameter.kind !== 'list' && parameter.kind !== 'entry') return [];
  const { slot, codec, field, use, operator } = parameter;
  if (typeof slot !== 'number') return [];
  const condition = operator === undefined ? '' : `"_${operator}" of `;
  const target = `${condition}${use === 'argument' ? 'argument' : 'field'} "${field}"`;
  const facts = { target, unchecked: !CHECKED.test(codec), isKey: use === 'key' };
  return textsOf(values[slot]).map((text) => ({ ...facts, text }));
}

function textsOf(value: Value | undefined): string[] {
  if (Array.isArray(value)) return value.flatMap((each: Value) => textsOf(each));
  if (typeof value !== 'object' || value === null) return value === undefined || value === null ? [] : [String(value)];
  if (!('json' in value)) return [];
  return [...(value.text === undefined ? [] : [value.text]), ...jsonLeaves(JSON.parse(value.json))];
}

/** Errors that may be about a text without quoting it: bounds of a range in the wrong order, a notation that is none. */
const UNQUOTED: ReadonlySet<string> = new Set(['22000', '22P02', '22023', '42601', '42804', 'XX000']);

/** The one that is quoted whole or, of a notation such as that of ranges, in part; else the only one that PostgreSQL alone can judge. */
function findRefused({ code, message }: RefusedValue, sent: readonly SentValue[]): SentValue | null {
  const whole = sent.filter(({ text }) => text !== '' && isQuoted(message, text));
  const pieces = quotedTexts(message);
  const part = sent.filter(({ text, unchecked }) => unchecked && pieces.some((piece) => text.includes(piece)));
  const candidates = [
    whole.filter(({ unchecked }) => unchecked),
    whole,
    part,
    UNQUOTED.has(code) ? sent.filter(({ unchecked }) => unchecked) : [],
  ];
  const refusedValue = candidates.find((each) => each.length > 0) ?? [];
  return new Set(refusedValue.map(({ target }) => target)).size === 1 ? (refusedValue[0] ?? null) : null;
}

function isQuoted(message: string, text: string): boolean {
  return message.split(text).some((before, position, all) => {
    const after = all[position + 1];
    return after !== undefined && /["„“”«»‹›‘’「『]$/.test(before) && /^["“”«»‹›’」』]/.test(after);
  });
}

const MAX_SHOWN_CHARACTERS = 100;

function quoteShortened(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}...` : text);
}
