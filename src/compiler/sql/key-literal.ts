/**
 * Keys that are shown as JSON, as PostgreSQL reads them: of `jsonb` and of composite types. In a URL such a key is its JSON. A text that is
 * no JSON is the string itself for `jsonb`, and the notation of PostgreSQL, `(1,a)`, for a composite type.
 */
import { isObject, parseJson, writeJson } from '../../base/exact-json.js';
import { type Composite, strayAttribute } from './composite.js';
import { arrayLiteral } from './literal.js';

export function jsonKey(text: string): string {
  return documentOf(text) === undefined ? JSON.stringify(text) : text;
}

/** Returns null if the object is not a value of the type. */
export function recordKey(text: string, composite: Composite): string | null {
  const document = text.startsWith('{') ? documentOf(text) : undefined;
  if (!isObject(document)) return text;
  return strayAttribute(document, composite, '') === null ? recordLiteral(document, composite) : null;
}

export function recordLiteral(value: object, { attributes }: Composite): string {
  const entries = new Map<string, unknown>(Object.entries(value));
  const texts = [...attributes].map(([name, composite]) => {
    const text = textOf(entries.get(name) ?? null, composite);
    return text === null ? '' : `"${text.replace(/["\\]/g, '$&$&')}"`;
  });
  return `(${texts.join(',')})`;
}

function textOf(value: unknown, composite: Composite | null): string | null {
  if (value === null) return null;
  if (Array.isArray(value)) return arrayLiteral(value.map((each) => textOf(each, composite)));
  if (isObject(value)) return composite ? recordLiteral(value, composite) : writeJson(value);
  return String(value);
}

function documentOf(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
