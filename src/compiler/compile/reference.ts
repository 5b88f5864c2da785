/**
 * Which row a reference leads to. That of a many-to-any relation is text, whatever the type of the key it names: text that is
 * no value of this type leads to nothing, and must not fail the statement.
 */

import { elementAt } from '../../base/narrow.js';
import type { Field } from '../model/model.js';
import type { ToOneJoin } from '../plan/plan.js';
import { type Fragment, integerLiteral, join, literal, sql } from '../sql/fragment.js';
import { areEqual } from './compare.js';
import { typeName } from './identifiers.js';
import { toJsonText } from './json.js';
import { joinedKey } from './key-columns.js';
import { base64, showField } from './output.js';

/** Whether the field refers to the row with the key; `stored` is the value of the field, `collection` the collection that it names. */
export function isReferred(
  toOne: ToOneJoin,
  key: readonly Fragment[],
  stored: readonly Fragment[],
  collection: Fragment,
): Fragment {
  if (toOne.kind === 'one') return areEqual(key, stored, toOne.key, toOne.columns);
  const text = sql`${elementAt(stored, 0)}::text`;
  const named = sql`${collection} = ${literal(toOne.target.name)}`;
  const fields = toOne.target.key;
  const parts = fields.map((field, position) =>
    isAnyReferred(
      field,
      elementAt(key, position),
      fields.length === 1 ? text : partOfText(text, fields, position),
      named,
    ),
  );
  return join(parts, sql` and `);
}

/** The columns of the target that a reference compares. */
export function keyOfTarget(toOne: ToOneJoin): readonly Field[] {
  return toOne.kind === 'one' ? toOne.key : toOne.target.key;
}

/** A part of a joined key, as `splitKey` reads it, or null if the text is no such key. */
function partOfText(text: Fragment, fields: readonly Field[], position: number): Fragment {
  const part = '((?:[^~\\\\]|\\\\[~\\\\])*)';
  const pattern = literal(`^${fields.map(() => part).join('~')}$`);
  const escapedPart = sql`(regexp_match(${text}, ${pattern}))[${integerLiteral(position + 1)}]`;
  return sql`regexp_replace(${escapedPart}, ${literal('\\\\([~\\\\])')}, ${literal('\\1')}, 'g')`;
}

/**
 * The text becomes a value of the target's type, for which there is an index, only where the row names the target and the text can
 * be read: a separate condition would not do, since PostgreSQL may evaluate the cast first. For types of which a pattern
 * cannot know what they read, the texts of the keys are compared.
 */
function isAnyReferred(field: Field, key: Fragment, text: Fragment, named: Fragment): Fragment {
  const read = (pattern: Fragment, value: Fragment): Fragment =>
    sql`${key} = case when ${named} and ${text} ${pattern} then ${value} end`;
  switch (field.column?.base_schema === 'pg_catalog' ? field.column.base_type : '') {
    case 'int2':
    case 'int4':
      return read(sql`~ '^-?[0-9]{1,18}$'`, sql`${text}::int8`);
    case 'int8': {
      const within = sql`${text}::numeric >= -9223372036854775808 and ${text}::numeric <= 9223372036854775807`;
      return read(sql`~ '^-?[0-9]{1,19}$'`, sql`case when ${within} then ${text}::int8 end`);
    }
    case 'numeric':
      return read(sql`~ '^-?[0-9]{1,200}([.][0-9]{1,200})?$'`, sql`${text}::numeric`);
    case 'uuid':
      return read(sql`~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`, sql`${text}::uuid`);
    case 'bytea':
      return read(
        sql`~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'`,
        sql`decode(${text}, 'base64')`,
      );
    case 'text':
    case 'varchar':
    case 'bpchar':
      return sql`${key} = case when ${named} then ${text}::${typeName(field)} end`;
    default:
      return sql`${named} and ${isKeyText([field], [key], text)}`;
  }
}

/** Whether the text is the key, as PostgreSQL writes it or as the API shows it. */
export function isKeyText(fields: readonly Field[], keys: readonly Fragment[], text: Fragment): Fragment {
  if (fields.length > 1) return sql`${text} = (${joinedKey(fields, keys)})`;
  const [field, key] = [elementAt(fields, 0), elementAt(keys, 0)];
  switch (field.column?.base_type) {
    case 'bytea':
      return sql`${text} = ${base64(key)}`;
    case 'int2':
    case 'int4':
    case 'int8':
    case 'numeric':
    case 'uuid':
    case 'text':
    case 'varchar':
      return sql`${text} = ${key}::text`;
    default:
      return sql`${text} = any (array[${key}::text, ${toJsonText(showField(key, field))}::json #>> '{}'])`;
  }
}

/** The key of a row as text, for a reference to it. */
export function keyText(fields: readonly Field[], keys: readonly Fragment[]): Fragment {
  if (fields.length > 1) return joinedKey(fields, keys);
  const key = elementAt(keys, 0);
  return fields[0]?.column?.base_type === 'bytea' ? base64(key) : key;
}
