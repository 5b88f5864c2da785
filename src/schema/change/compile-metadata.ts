/** Rows of the metadata tables as statements: saved with what was given, and taken back from every place that names them. */

import { assertNever } from '../../base/assert-never.js';
import { type Fragment, identifier, join, parameter, type Statement, sql, statement } from '../../sql/fragment.js';
import type { MetadataStep } from './ddl-statement.js';
import type { Meta } from './parse-meta.js';

export function compileMetadata(step: MetadataStep, schema: string): readonly Statement[] {
  return rowStatements(step, (name) => identifier(schema, name)).map(statement);
}

type Tables = (name: string) => Fragment;

function rowStatements(step: MetadataStep, table: Tables): readonly Fragment[] {
  switch (step.kind) {
    case 'save-collection':
      return [save(table('service_collections'), { collection: step.collection }, step.values)];
    case 'save-field':
      return [save(table('service_fields'), { collection: step.collection, field: step.field }, step.values)];
    case 'add-relation':
      return [insert(table('service_relations'), step.values)];
    case 'change-relation':
      return changeRelation(step, table('service_relations'));
    case 'forget-relation':
      return [
        sql`delete from ${table('service_relations')}
        where many_collection = ${text(step.collection)} and many_field = ${text(step.field)}`,
      ];
    case 'forget-field':
      return forgetField(text(step.collection), text(step.field), table);
    case 'forget-collection':
      return forgetCollection(text(step.collection), table);
    case 'drop-collection-row':
      return [sql`delete from ${table('service_collections')} where collection = ${text(step.collection)}`];
    case 'drop-field-row':
      return [
        sql`delete from ${table('service_fields')} where collection = ${text(step.collection)} and field = ${text(step.field)}`,
      ];
    case 'save-function':
      return [save(table('service_functions'), { name: step.name }, step.values)];
    case 'drop-function-row':
      return [sql`delete from ${table('service_functions')} where name = ${text(step.name)}`];
    default:
      return assertNever(step);
  }
}

function text(value: string): Fragment {
  return sql`${parameter({ kind: 'constant', value })}::text`;
}

/** Values of any type travel as one document; the table's own row type reads them. */
function insert(table: Fragment, values: Meta): Fragment {
  const names = Object.keys(values).map((name) => identifier(name));
  const document = parameter({ kind: 'constant', value: JSON.stringify(values) });
  return sql`insert into ${table} (${join(names, sql`, `)})
    select ${join(names, sql`, `)} from pg_catalog.json_populate_record(null::${table}, ${document}::json)`;
}

function save(table: Fragment, key: Meta, values: Meta): Fragment {
  const changes = Object.keys(values).map((name) => sql`${identifier(name)} := excluded.${identifier(name)}`);
  const keys = join(
    Object.keys(key).map((name) => identifier(name)),
    sql`, `,
  );
  const inserted = insert(table, { ...values, ...key });
  return changes.length === 0
    ? sql`${inserted} on conflict (${keys}) do nothing`
    : sql`${inserted} on conflict (${keys}) do update set ${join(changes, sql`, `)}`;
}

function changeRelation(
  { collection, field, values }: MetadataStep & { kind: 'change-relation' },
  table: Fragment,
): readonly Fragment[] {
  const names = Object.keys(values).map((name) => identifier(name));
  if (names.length === 0) return [];
  const changes = names.map((name) => sql`${name} := given.${name}`);
  const document = parameter({ kind: 'constant', value: JSON.stringify(values) });
  return [
    sql`update ${table} relation set ${join(changes, sql`, `)}
    from pg_catalog.json_populate_record(null::${table}, ${document}::json) given
    where relation.many_collection = ${text(collection)} and relation.many_field = ${text(field)}`,
  ];
}

function forgetField(collection: Fragment, field: Fragment, table: Tables): readonly Fragment[] {
  const fields = table('service_fields');
  const relations = table('service_relations');
  const collections = table('service_collections');
  return [
    // The list on the other side showed what this field referred to.
    sql`delete from ${fields} alias using ${relations} relation
      where relation.many_collection = ${collection} and relation.many_field = ${field}
        and alias.collection = relation.one_collection and alias.field = relation.one_field`,
    sql`delete from ${relations} where many_collection = ${collection} and ${field} in (many_field::text, one_collection_field::text)`,
    sql`update ${relations} set one_field = null where one_collection = ${collection} and one_field = ${field}`,
    sql`update ${relations} set junction_field = nullif(junction_field::text, ${field}), sort_field = nullif(sort_field::text, ${field})
      where many_collection = ${collection} and ${field} in (junction_field::text, sort_field::text)`,
    sql`delete from ${fields} where collection = ${collection} and field = ${field}`,
    sql`update ${fields} set "group" = null where collection = ${collection} and "group" = ${field}`,
    sql`update ${collections} set archive_field = nullif(archive_field::text, ${field}), sort_field = nullif(sort_field::text, ${field}),
        search_field = nullif(search_field::text, ${field})
      where collection = ${collection} and ${field} in (archive_field::text, sort_field::text, search_field::text)`,
    sql`update ${collections} set item_duplication_fields = (item_duplication_fields::jsonb - ${field})::json
      where collection = ${collection} and json_typeof(item_duplication_fields) = 'array'
        and item_duplication_fields::jsonb @> to_jsonb(${field})`,
    removeEntry(table('service_permissions'), identifier('fields'), field, sql`collection = ${collection}`),
  ];
}

function forgetCollection(collection: Fragment, table: Tables): readonly Fragment[] {
  const relations = table('service_relations');
  return [
    sql`delete from ${relations} where ${collection} in (many_collection::text, one_collection::text)`,
    removeEntry(relations, identifier('one_allowed_collections'), collection, sql`true`),
    sql`delete from ${table('service_fields')} where collection = ${collection}`,
    sql`delete from ${table('service_permissions')} where collection = ${collection}`,
    // A later collection of the same name would show them beside its items.
    sql`delete from ${table('service_presets')} where collection = ${collection}`,
    sql`delete from ${table('service_comments')} where collection = ${collection}`,
    sql`delete from ${table('service_collections')} where collection = ${collection}`,
  ];
}

/** From a comma-separated list; an empty one becomes null. */
function removeEntry(table: Fragment, column: Fragment, entry: Fragment, where: Fragment): Fragment {
  const entries = sql`string_to_array(${column}, ',')`;
  return sql`update ${table} set ${column} := nullif(array_to_string(array_remove(${entries}, ${entry}), ','), '')
    where ${where} and ${entry} = any (${entries})`;
}
