/**
 * The steps of a schema change as SQL: one DDL statement per definition, and the statements for rows of metadata, which
 * are removed from every place that names them. The fragments quote names, escape constants and check expressions.
 */
import { assertNever } from '../../../base/assert-never.js';
import type { Meta } from '../../../compiler/model/metadata.js';
import type { ForeignKeyAction, ForeignKeyBehaviour, TableLocations } from '../../../compiler/model/model.js';
import {
  definition,
  expression,
  type Fragment,
  identifier,
  integerLiteral,
  join,
  literal,
  nothing,
  parameter,
  quoteIdentifier,
  type Statement,
  sql,
  statement,
} from '../../../compiler/sql/fragment.js';
import { typeFragment } from '../../../compiler/sql/type-name.js';
import type {
  Alteration,
  ColumnDefault,
  ColumnDefinition,
  ColumnType,
  Conversion,
  DdlStatement,
  Definition,
  ExactType,
  MetadataStep,
  PolicyStep,
} from './ddl-statement.js';

export function compileStep(step: DdlStatement, tables: TableLocations): readonly Statement[] {
  return fragmentsOf(step, (name) => identifier(tables.system, name), tables).map((each) => statement(each));
}

/** Names of system tables, with their schema. */
type Tables = (name: string) => Fragment;

function fragmentsOf(step: DdlStatement, table: Tables, tables: TableLocations): readonly Fragment[] {
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
    case 'define-object':
      return [definition(step.text, step.node)];
    case 'create-policy':
    case 'change-policy':
    case 'drop-policy':
    case 'save-policy-permissions':
    case 'save-policy-holders':
      return compilePolicyStep(step, table);
    default:
      return [defineStep(step, tables)];
  }
}

function defineStep(step: Definition, tables: TableLocations): Fragment {
  const { schema } = tables;
  const table = (name: string): Fragment => identifier(...tables.tableOf(name));
  switch (step.kind) {
    case 'create-table':
      return sql`create table ${table(step.table)} (${join([...step.columns.map(defineColumn), ...keyOf(step)])})`;
    case 'drop-table':
      return step.view ? sql`drop view ${table(step.table)}` : sql`drop table ${table(step.table)}`;
    case 'comment-table':
      return sql`comment on table ${table(step.table)} is ${textOrNull(step.comment)}`;
    case 'comment-column':
      return sql`comment on column ${identifier(...tables.tableOf(step.table), step.column)} is ${textOrNull(step.comment)}`;
    case 'drop-index':
      return sql`drop index ${identifier(tables.tableOf(step.table)[0], step.name)}`;
    case 'create-index':
      return sql`create index ${identifier(step.name)} on ${table(step.table)} (${names(step.columns)})`;
    case 'drop-sequence':
      return sql`drop sequence ${identifier(step.schema, step.name)}`;

    case 'create-enum':
      return sql`create type ${identifier(step.schema ?? schema, step.type)} as enum (${join(step.values.map(literal))})`;
    case 'add-enum-value':
      return sql`alter type ${identifier(step.schema ?? schema, step.type)} add value ${literal(step.value)} ${neighbour(step)}`;
    case 'widen-sequence':
      return sql`alter sequence ${identifier(step.schema, step.name)} as bigint`;
    case 'advance-identity':
      return sql`select pg_catalog.setval(pg_catalog.pg_get_serial_sequence(${literal(tables.tableOf(step.table).map(quoteIdentifier).join('.'))}, ${literal(step.column)}), greatest(max(${identifier(step.column)}), 0) + 1, false) from ${table(step.table)}`;
    default:
      return sql`alter table ${table(step.table)} ${alteration(step, table)}`;
  }
}

function alteration(step: Alteration, table: (name: string) => Fragment): Fragment {
  switch (step.kind) {
    case 'add-column':
      return sql`add column ${defineColumn(step.column)}`;
    case 'drop-column':
      return sql`drop column ${identifier(step.column)}`;
    case 'change-type': {
      const column = identifier(step.column);
      return sql`alter column ${column} type ${typeName(step.type)} using ${convert(column, step.type, step.conversion)}`;
    }
    case 'set-default':
      return step.initial
        ? sql`alter column ${identifier(step.column)} set default ${initialValue(step.initial)}`
        : sql`alter column ${identifier(step.column)} drop default`;
    case 'set-nullable':
      return step.nullable
        ? sql`alter column ${identifier(step.column)} drop not null`
        : sql`alter column ${identifier(step.column)} set not null`;
    case 'drop-expression':
      return sql`alter column ${identifier(step.column)} drop expression`;
    case 'add-identity':
      return sql`alter column ${identifier(step.column)} add generated by default as identity`;
    case 'drop-identity':
      return sql`alter column ${identifier(step.column)} drop identity`;
    case 'add-unique':
      return sql`add constraint ${identifier(step.name)} unique (${names(step.columns)})`;
    case 'add-check':
      return sql`add constraint ${identifier(step.name)} check ${expression(step.text)}`;
    case 'drop-constraint':
      return sql`drop constraint ${identifier(step.name)}`;
    case 'add-foreign-key':
      return sql`add constraint ${identifier(step.name)} foreign key (${names(step.columns)})
        references ${table(step.target)} (${names(step.key)})${behaves(step.behaviour)}`;
    default:
      return assertNever(step);
  }
}

function behaves({ on_delete, on_update, match, deferrable }: ForeignKeyBehaviour): Fragment {
  const deferred = deferrable === 'INITIALLY DEFERRED' ? sql` initially deferred` : nothing;
  return sql`${match ? sql` match full` : nothing}
        on delete ${ACTIONS[on_delete]} on update ${ACTIONS[on_update]}${deferrable ? sql` deferrable${deferred}` : nothing}`;
}

const ACTIONS: Readonly<Record<ForeignKeyAction, Fragment>> = {
  'NO ACTION': sql`no action`,
  RESTRICT: sql`restrict`,
  CASCADE: sql`cascade`,
  'SET NULL': sql`set null`,
  'SET DEFAULT': sql`set default`,
};

function keyOf({ key }: Definition & { kind: 'create-table' }): Fragment[] {
  return key.length === 0 ? [] : [sql`primary key (${names(key)})`];
}

function defineColumn(column: ColumnDefinition): Fragment {
  const type = column.autoIncrement ? counterName(column.type) : typeName(column.type);
  const generated = column.generated ? sql` generated always as ${expression(column.generated.text)} stored` : nothing;
  const initial = column.initial ? sql` default ${initialValue(column.initial)}` : nothing;
  const key = column.primaryKey ? sql` primary key` : nothing;
  return sql`${identifier(column.name)} ${type}${generated}${initial}${column.nullable ? nothing : sql` not null`}${key}`;
}

function names(columns: readonly string[]): Fragment {
  return join(columns.map((column) => identifier(column)));
}

function neighbour({ before, after }: Definition & { kind: 'add-enum-value' }): Fragment {
  if (after !== null) return sql`after ${literal(after)}`;
  return before === null ? nothing : sql`before ${literal(before)}`;
}

function counterName(column: ColumnType | ExactType): Fragment {
  if (column.type === 'exact') return sql`${typeFragment(column.name)} generated by default as identity`;
  return column.type === 'bigInteger' ? sql`bigserial` : sql`serial`;
}

/** A constant has no type: PostgreSQL reads it as one of the column. */
function initialValue(initial: ColumnDefault): Fragment {
  return initial.kind === 'constant' ? literal(initial.text) : expression(initial.text);
}

function textOrNull(text: string | null): Fragment {
  return text === null ? sql`null` : literal(text);
}

function typeName(type: ColumnType | ExactType): Fragment {
  if (type.type === 'exact') return typeFragment(type.name);
  const { length, precision, scale } = type;
  if (length !== null)
    return type.padded ? sql`character(${integerLiteral(length)})` : sql`varchar(${integerLiteral(length)})`;
  if (precision !== null) return sql`numeric(${integerLiteral(precision)}, ${integerLiteral(scale ?? 0)})`;
  return isGeometry(type.type) ? sql`geometry(${GEOMETRIES[type.type]}, 4326)` : baseName(type);
}

type Geometry = Extract<ColumnType['type'], `geometry${string}`>;

const GEOMETRIES: Readonly<Record<Geometry, Fragment>> = {
  geometry: sql`geometry`,
  'geometry.Point': sql`point`,
  'geometry.LineString': sql`linestring`,
  'geometry.Polygon': sql`polygon`,
  'geometry.MultiPoint': sql`multipoint`,
  'geometry.MultiLineString': sql`multilinestring`,
  'geometry.MultiPolygon': sql`multipolygon`,
};

function isGeometry(type: ColumnType['type']): type is Geometry {
  return type in GEOMETRIES;
}

const BASE_NAMES: Readonly<Record<Exclude<ColumnType['type'], Geometry>, Fragment>> = {
  string: sql`varchar`,
  text: sql`text`,
  boolean: sql`boolean`,
  integer: sql`integer`,
  bigInteger: sql`bigint`,
  float: sql`double precision`,
  decimal: sql`numeric`,
  date: sql`date`,
  dateTime: sql`timestamp`,
  time: sql`time`,
  timestamp: sql`timestamptz`,
  json: sql`json`,
  csv: sql`text`,
  uuid: sql`uuid`,
  hash: sql`varchar`,
  binary: sql`bytea`,
};

/** Without length and precision: a cast to `varchar(3)` would cut silently what the assignment that follows refuses. */
function baseName(column: ColumnType | ExactType): Fragment {
  if (column.type === 'exact') return typeFragment({ ...column.name, modifiers: [] });
  const { type } = column;
  return isGeometry(type) ? sql`geometry` : BASE_NAMES[type];
}

function convert(column: Fragment, type: ColumnType | ExactType, conversion: Conversion): Fragment {
  switch (conversion) {
    case 'cast':
      return sql`${column}::${baseName(type)}`;
    case 'through-text':
      return sql`${column}::text::${baseName(type)}`;
    case 'number-to-boolean':
      return sql`(${column} <> 0)`;
    case 'boolean-to-number':
      return sql`${column}::integer::${baseName(type)}`;
    default:
      return assertNever(conversion);
  }
}

function text(value: string): Fragment {
  return sql`${parameter({ kind: 'constant', value })}::text`;
}

/** Values of any type travel as one document; the table's own row type reads them. */
function insert(table: Fragment, values: Meta): Fragment {
  const names = Object.keys(values).map((name) => identifier(name));
  const document = parameter({ kind: 'constant', value: JSON.stringify(values) });
  return sql`insert into ${table} (${join(names)})
    select ${join(names)} from pg_catalog.json_populate_record(null::${table}, ${document}::json)`;
}

function save(table: Fragment, key: Meta, values: Meta): Fragment {
  const changes = Object.keys(values).map((name) => sql`${identifier(name)} := excluded.${identifier(name)}`);
  const keys = join(Object.keys(key).map((name) => identifier(name)));
  const inserted = insert(table, { ...values, ...key });
  return changes.length === 0
    ? sql`${inserted} on conflict (${keys}) do nothing`
    : sql`${inserted} on conflict (${keys}) do update set ${join(changes)}`;
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
    sql`update ${table} relation set ${join(changes)}
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
    // A later collection of the same name would show them with its items.
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

/** `table` gives the names of system tables, with their schema. Policies, roles and users are found by their names. */
function compilePolicyStep(step: PolicyStep, table: (name: string) => Fragment): readonly Fragment[] {
  const policies = table('service_policies');
  const name = constant(step.name);
  switch (step.kind) {
    case 'create-policy':
      return [insertPolicy(step, policies)];
    case 'change-policy':
      return [
        sql`update ${policies} policy set ${join(Object.keys(step.values).map(assign))}
        from pg_catalog.json_populate_record(null::${policies}, ${constant(JSON.stringify(step.values))}::json) given
        where policy.name = ${name}::text`,
      ];
    case 'drop-policy':
      return [sql`delete from ${policies} where name = ${name}::text`];
    case 'save-policy-permissions':
      return savePermissions(step, table('service_permissions'), policies);
    case 'save-policy-holders':
      return saveHolders(step, table);
  }
}

function assign(name: string): Fragment {
  return sql`${identifier(name)} := given.${identifier(name)}`;
}

function constant(value: string): Fragment {
  return parameter({ kind: 'constant', value });
}

function insertPolicy({ name, values }: PolicyStep & { kind: 'create-policy' }, policies: Fragment): Fragment {
  return sql`insert into ${policies} (name, icon, description, admin_access, app_access, enforce_tfa, ip_access)
    select given.name, given.icon, given.description, given.admin_access, given.app_access, given.enforce_tfa, given.ip_access
    from pg_catalog.json_populate_record(null::${policies}, ${constant(JSON.stringify({ ...values, name }))}::json) given`;
}

function savePermissions(
  { name, permissions }: PolicyStep & { kind: 'save-policy-permissions' },
  table: Fragment,
  policies: Fragment,
): readonly Fragment[] {
  const rows = permissions.map((each) => ({ ...each, fields: each.fields?.join(',') ?? null }));
  return [
    sql`delete from ${table} permission using ${policies} policy
      where policy.name = ${constant(name)}::text and permission.policy = policy.id`,
    sql`insert into ${table} (policy, collection, action, permissions, validation, presets, fields)
      select policy.id, given.collection, given.action, given.permissions, given.validation, given.presets, given.fields
      from ${policies} policy, pg_catalog.json_populate_recordset(null::${table}, ${constant(JSON.stringify(rows))}::json) given
      where policy.name = ${constant(name)}::text`,
  ];
}

/** Links that stay keep their order. */
function saveHolders(
  { name, holders }: PolicyStep & { kind: 'save-policy-holders' },
  table: (name: string) => Fragment,
): readonly Fragment[] {
  const [access, policies, roles, users] = [
    table('service_access'),
    table('service_policies'),
    table('service_roles'),
    table('service_users'),
  ];
  const user = identifier('user');
  const policy = sql`policy.name = ${constant(name)}::text and link.policy = policy.id`;
  const listed = (names: readonly string[]): Fragment => sql`${constant(JSON.stringify(names))}::jsonb`;
  return [
    sql`delete from ${access} link using ${policies} policy, ${roles} role where ${policy} and link.role = role.id
      and not pg_catalog.jsonb_exists(${listed(holders.roles)}, role.name)`,
    sql`delete from ${access} link using ${policies} policy, ${users} holder where ${policy} and link.${user} = holder.id
      and not pg_catalog.jsonb_exists(${listed(holders.users)}, coalesce(pg_catalog.lower(holder.email), ''))`,
    ...(holders.public
      ? []
      : [
          sql`delete from ${access} link using ${policies} policy where ${policy} and link.role is null and link.${user} is null`,
        ]),
    // Nobody could make roles where no user exists yet.
    sql`insert into ${roles} (name) select wanted.name from pg_catalog.jsonb_array_elements_text(${listed(holders.roles)}) wanted (name)
      where not exists (select from ${users}) and not exists (select from ${roles} role where role.name = wanted.name)`,
    sql`insert into ${access} (policy, role) select policy.id, role.id from ${policies} policy, ${roles} role
      where policy.name = ${constant(name)}::text and pg_catalog.jsonb_exists(${listed(holders.roles)}, role.name)
      and not exists (select from ${access} link where link.policy = policy.id and link.role = role.id)`,
    sql`insert into ${access} (policy, ${user}) select policy.id, holder.id from ${policies} policy, ${users} holder
      where policy.name = ${constant(name)}::text
      and pg_catalog.jsonb_exists(${listed(holders.users)}, coalesce(pg_catalog.lower(holder.email), ''))
      and not exists (select from ${access} link where link.policy = policy.id and link.${user} = holder.id)`,
    ...(holders.public
      ? [
          sql`insert into ${access} (policy) select policy.id from ${policies} policy where policy.name = ${constant(name)}::text
            and not exists (select from ${access} link where link.policy = policy.id and link.role is null and link.${user} is null)`,
        ]
      : []),
  ];
}
