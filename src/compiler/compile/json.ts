/**
 * JSON written as text: values under their names, objects of them, lists of objects. `row_to_json` and `json_agg` would look
 * up the type of every column again for each row; here it is known when the statement is made (bench/profile.md).
 *
 * The database may be ahead of the model. A null anywhere in a concatenation would make all of it null, so each value that is
 * a column's stands in a `coalesce` of its own, whether or not the column is said to hold nulls. And what is taken for JSON by
 * its type comes from functions that take this type alone: a statement whose column has become a string fails.
 */
import { assertNever } from '../../base/assert-never.js';
import { alias, type Fragment, literal, nothing, sql } from '../sql/fragment.js';

/** A value, and its form: what remains to be done to make it JSON. */
export type JsonValue =
  /** It is JSON, as text; or null. */
  | { readonly form: 'json'; readonly text: Fragment }
  /** It is JSON, as text, and never null. */
  | { readonly form: 'document'; readonly text: Fragment }
  /** It is a string without a character that JSON escapes; or null. */
  | { readonly form: 'quoted'; readonly text: Fragment }
  /** A value that `to_json` has to convert. */
  | { readonly form: 'value'; readonly value: Fragment }
  /** It is known when the statement is made. */
  | { readonly form: 'constant'; readonly constant: string | null };

export interface Entry {
  readonly name: string;
  readonly value: JsonValue;
}

/** The name of the column that holds the JSON of a row. */
export const JSON_COLUMN: Fragment = alias('j');

/** Never null. */
export function toJsonText(json: JsonValue): Fragment {
  switch (json.form) {
    case 'json':
      return sql`coalesce(${json.text}, 'null')`;
    case 'document':
      return sql`(${json.text})`;
    case 'quoted':
      return sql`coalesce('"' || ${json.text} || '"', 'null')`;
    case 'value':
      // With its schema: it takes any type, so that a function of the same name for one type would come before it.
      return sql`coalesce(pg_catalog.to_json(${json.value})::text, 'null')`;
    case 'constant':
      return literal(JSON.stringify(json.constant));
    default:
      return assertNever(json);
  }
}

export function jsonObject(entries: readonly Entry[]): Fragment {
  if (entries.length === 0) return sql`'{}'`;
  return concatenate(
    entries.map(({ name, value }, position) => {
      const last = position === entries.length - 1;
      const text = entryText(`${position === 0 ? '{' : ','}${JSON.stringify(name)}:`, value);
      return sql`${text}${last ? sql` || '}'` : nothing}`;
    }),
  );
}

function entryText(key: string, json: JsonValue): Fragment {
  if (json.form === 'constant') return literal(`${key}${JSON.stringify(json.constant)}`);
  // The quotes are part of the key's text, which saves a concatenation.
  if (json.form === 'quoted')
    return sql`coalesce(${literal(`${key}"`)} || ${json.text} || '"', ${literal(`${key}null`)})`;
  return sql`${literal(key)} || ${toJsonText(json)}`;
}

/** Concatenates the parts in halves. From left to right, each `||` would copy all parts before it. */
export function concatenate(parts: readonly Fragment[]): Fragment {
  const [first = sql``, second, third] = parts;
  if (third === undefined) return second === undefined ? first : sql`${first} || ${second}`;
  const middle = (parts.length + 1) >> 1;
  return sql`(${concatenate(parts.slice(0, middle))}) || (${concatenate(parts.slice(middle))})`;
}

/** The rows of a query, in their order. The texts around a long list are added at once, since each concatenation copies it. */
export function jsonList(row: Fragment, before = '', after = ''): Fragment {
  const list = sql`string_agg(${row}.${JSON_COLUMN}, ',')`;
  return sql`coalesce(${literal(`${before}[`)} || ${list} || ${literal(`]${after}`)}, ${literal(`${before}[]${after}`)})`;
}
