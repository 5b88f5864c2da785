/**
 * The template of a webhook: the body that its receiver expects, as JSON whose texts contain placeholders such as `{{data.title}}`. Chats
 * want `{"text": "..."}`. Values are put into JSON that is already parsed, so that no value can change its structure.
 */
import { invalidPayload } from '../../base/errors.js';
import { isObject, parseJson, writeJson } from '../../base/exact-json.js';

/** Characters of a template, levels of it, and characters of a body that it makes. */
const MAX_LENGTH = 16_384;
const MAX_DEPTH = 50;
const MAX_BODY = 1_048_576;

const ROOTS = ['type', 'timestamp', 'collection', 'event', 'key', 'data', 'previous'];

const PLACEHOLDER = /\{\{\s*([^{}\s]+)\s*\}\}/g;
const WHOLE = /^\{\{\s*([^{}\s]+)\s*\}\}$/;

/** A template that was checked. */
export interface Template {
  readonly body: unknown;
  /** The path of each placeholder. */
  readonly paths: readonly (readonly string[])[];
}

/** Throws if the text is not a template, or has a placeholder that no delivery can fill. */
export function parseTemplate(text: string): Template {
  if (text.length > MAX_LENGTH) throw invalidPayload(`"template" is longer than ${MAX_LENGTH} characters`);
  const body = parseJson(text);
  if (body === null || typeof body !== 'object') throw invalidPayload('"template" must be a JSON object or list');
  const paths: (readonly string[])[] = [];
  mapTexts(body, 0, (string) => {
    const rest = string.replace(PLACEHOLDER, (_, path: string) => {
      paths.push(parsePath(path));
      return '';
    });
    if (rest.includes('{{')) throw invalidPayload('"template" has "{{" without a path and "}}", as in {{data.title}}');
    return string;
  });
  return { body, paths };
}

function parsePath(path: string): readonly string[] {
  const segments = path.split('.');
  const [root = '', ...rest] = segments;
  if (!ROOTS.includes(root))
    throw invalidPayload(`"template" has {{${path}}}: placeholders begin with one of ${ROOTS.join(', ')}`);
  const isEmpty = rest.includes('');
  if (isEmpty || (rest.length > 0 && root !== 'data' && root !== 'previous'))
    throw invalidPayload(`"template" has {{${path}}}: only data and previous have fields`);
  return segments;
}

/**
 * The body for a payload. A string that is only a placeholder becomes the value, with its JSON type. In other strings, values are inserted
 * as text, and null as an empty string.
 */
export function renderTemplate({ body }: Template, payload: string): string {
  const values = parseJson(payload);
  let length = 0;
  const rendered = mapTexts(body, 0, (string) => {
    const whole = WHOLE.exec(string);
    const value = whole
      ? valueAt(values, whole[1] ?? '')
      : string.replace(PLACEHOLDER, (_, path: string) => textOf(valueAt(values, path)));
    length += typeof value === 'string' ? value.length : writeJson(value).length;
    if (length > MAX_BODY) throw new Error(`the template makes a body of more than ${MAX_BODY} characters`);
    return value;
  });
  return writeJson(rendered);
}

function mapTexts(value: unknown, depth: number, change: (text: string) => unknown): unknown {
  if (depth > MAX_DEPTH) throw invalidPayload(`"template" has more than ${MAX_DEPTH} levels`);
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((each) => mapTexts(each, depth + 1, change));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, mapTexts(each, depth + 1, change)]));
}

/** The value at the path, or null if there is none. */
function valueAt(values: unknown, path: string): unknown {
  let value = values;
  for (const name of path.split('.')) {
    if (Array.isArray(value)) value = value[/^\d{1,9}$/.test(name) ? Number(name) : -1];
    else value = isObject(value) && Object.hasOwn(value, name) ? value[name] : null;
  }
  return value ?? null;
}

function textOf(value: unknown): string {
  if (value === null) return '';
  return typeof value === 'string' ? value : writeJson(value);
}
