/**
 * JSON written as text: values under their names, objects of them, lists of objects. `row_to_json` and `json_agg` would look
 * up the type of every column again for each row; here it is known when the statement is made (bench/profile.md).
 *
 * A null anywhere in a concatenation would make all of it null, so each value stands in a `coalesce` of its own: that a
 * column holds no null is known of the model alone, and the database may be ahead of it.
 */
import { alias, type Fragment, literal, nothing, sql } from '../sql/fragment.js';

/** A value on its way out, and what it lacks to be JSON. */
export interface Shown {
  readonly value: Fragment;
  readonly form: Form;
}

export type Form =
  /** It is JSON, as text. */
  | 'json'
  /** Its text is JSON: a number, a boolean, a document. */
  | 'bare'
  /** It is a text without a character that JSON escapes. */
  | 'quoted'
  /** That is for `to_json` to say. */
  | 'any';

export interface Entry {
  readonly name: string;
  readonly shown: Shown | Constant;
}

/** A text, or null, that is known when the statement is made. */
export interface Constant {
  readonly constant: string | null;
}

/** The name of the column that holds the JSON of a row. */
export const JSON_COLUMN: Fragment = alias('j');

/** Of a null it is `null`. */
export function jsonText({ value, form }: Shown): Fragment {
  switch (form) {
    case 'json':
      return sql`coalesce(${value}, 'null')`;
    case 'bare':
      return sql`coalesce(${value}::text, 'null')`;
    case 'quoted':
      return sql`coalesce('"' || ${value} || '"', 'null')`;
    case 'any':
      return sql`coalesce(to_json(${value})::text, 'null')`;
  }
}

export function jsonObject(entries: readonly Entry[]): Fragment {
  if (entries.length === 0) return sql`'{}'`;
  return concatenate(
    entries.map(({ name, shown }, position) => {
      const last = position === entries.length - 1;
      const text = entryText(`${position === 0 ? '{' : ','}${JSON.stringify(name)}:`, shown);
      return sql`${text}${last ? sql` || '}'` : nothing}`;
    }),
  );
}

/** An object as a value of another. */
export function showObject(entries: readonly Entry[]): Shown {
  return { value: jsonObject(entries), form: 'json' };
}

function entryText(key: string, shown: Shown | Constant): Fragment {
  if ('constant' in shown) return literal(`${key}${JSON.stringify(shown.constant)}`);
  // The quotes stand with the key, for one concatenation less.
  if (shown.form === 'quoted')
    return sql`coalesce(${literal(`${key}"`)} || ${shown.value} || '"', ${literal(`${key}null`)})`;
  return sql`${literal(key)} || ${jsonText(shown)}`;
}

/** By halves: in a chain from left to right, each piece would copy all that stands before it. */
function concatenate(parts: readonly Fragment[]): Fragment {
  if (parts.length <= 2)
    return parts.length === 1 ? (parts[0] as Fragment) : sql`${parts[0] as Fragment} || ${parts[1] as Fragment}`;
  const middle = (parts.length + 1) >> 1;
  return sql`(${concatenate(parts.slice(0, middle))}) || (${concatenate(parts.slice(middle))})`;
}

/** The rows of a query, in their order. */
export function jsonList(row: Fragment): Fragment {
  return sql`coalesce('[' || string_agg(${row}.${JSON_COLUMN}, ',') || ']', '[]')`;
}
