/** Models as tables of a real database: columns, rows, foreign keys, and the metadata that names the relations. */
import type { Sql } from '../../../support/service.js';
import { spreadOverSchemas } from '../../../support/several-schemas.js';
import { type KindName, writeValue } from './kinds.js';
import type { Model, Relation, Row, Table } from './model.js';

type Fragment = ReturnType<Sql>;

/** `create` makes the tables, where they are not to be plain ones. */
export async function createModel(
  sql: Sql,
  model: Model,
  create: (table: Table) => Promise<void> = (table) => createTable(sql, table),
): Promise<void> {
  await sql`create extension ltree`;
  await sql`create extension pg_trgm`;
  await sql.unsafe(
    'do $$ begin execute format($f$alter database %I set default_text_search_config = simple$f$, current_database()); end $$',
  );
  for (const table of model.tables) {
    await create(table);
    await insertRows(sql, table, table.rows);
    const declared = table.keyBy === 'declared' ? table.key.map(({ name }) => name).join(', ') : null;
    await sql`insert into service_collections (collection, sort_field, search_field, primary_key)
      values (${table.name}, ${table.sortField}, ${table.searchField}, ${declared})`;
  }
  for (const table of model.tables) {
    for (const relation of table.relations) await createRelation(sql, table, relation, model);
  }
  await spreadOverSchemas(sql, model.tables);
}

export async function createTable(sql: Sql, table: Table): Promise<void> {
  const columns = table.columns.map((column, position) => {
    const presence = column.nullable ? sql`` : sql` not null`;
    return sql`${position === 0 ? sql`` : sql`, `}${sql(column.name)} ${typeOf(sql, column.kind)}${presence}`;
  });
  const names = table.key.map(({ name }) => name);
  const isPrimary = table.keyBy === 'primary' && names.length > 0;
  const key = isPrimary ? sql`, primary key (${sql(names)})` : sql``;
  const last = names.at(-1) ?? '';
  const partitions = table.partitioned ? sql` partition by hash (${sql(last)})` : sql``;
  await sql`create table ${sql(table.name)} (${columns}${key})${partitions}`;
  if (table.keyBy === 'unique') await sql`create unique index on ${sql(table.name)} (${sql(names)})`;
  for (const remainder of table.partitioned ? ['0', '1', '2'] : []) {
    const name = `${table.name} part ${remainder}`;
    await sql`create table ${sql(name)} partition of ${sql(table.name)} for values with (modulus 3, remainder ${sql.unsafe(remainder)})`;
  }
}

export async function insertRows(sql: Sql, table: Table, rows: readonly Row[]): Promise<void> {
  if (rows.length === 0) return;
  const lines = rows.map((row, position) => {
    const cells = table.columns.map(({ name, kind }, index) => {
      const cell = sql`${writeValue(kind, row[name] ?? null)}::text::${typeOf(sql, kind)}`;
      return index === 0 ? cell : sql`, ${cell}`;
    });
    return position === 0 ? sql`(${cells})` : sql`, (${cells})`;
  });
  await sql`insert into ${sql(table.name)} (${sql(table.columns.map(({ name }) => name))}) values ${lines}`;
}

/** False where other rows need it. */
export async function deleteRow(sql: Sql, table: Table, row: Row): Promise<boolean> {
  const tests = (table.key.length > 0 ? table.key : table.columns.slice(0, 1)).map(
    ({ name, kind }) => sql` and ${sql(name)} = ${writeValue(kind, row[name] ?? null)}::text::${typeOf(sql, kind)}`,
  );
  try {
    await sql`delete from ${sql(table.name)} where true${tests}`;
    return true;
  } catch {
    return false;
  }
}

async function createRelation(sql: Sql, table: Table, relation: Relation, model: Model): Promise<void> {
  if (relation.kind === 'any') {
    await sql`insert into service_relations (many_collection, many_field, one_collection_field, one_allowed_collections)
      values (${table.name}, ${relation.name}, ${relation.collectionField}, ${relation.targets.join(',')})`;
  }
  if (relation.kind !== 'one') return;
  const { columns } = relation.many;
  if (relation.constrained) {
    const [own, others] = [columns.map(({ column }) => column), columns.map(({ referenced }) => referenced)];
    await sql`alter table ${sql(table.name)} add foreign key (${sql(own.toReversed())})
      references ${sql(relation.target)} (${sql(others.toReversed())})`;
  }
  if (!relation.declared) return;
  if (columns.length > 1) {
    const options = JSON.stringify({ columns: columns.map(({ column }) => column) });
    await sql`insert into service_fields (collection, field, special, options)
      values (${table.name}, ${relation.name}, 'm2o', ${options}::text::json)`;
  }
  const other = model.tables
    .flatMap(({ relations }) => relations)
    .find(({ kind, many }) => kind === 'many' && many.table === table.name && many.field === relation.name);
  const list = other?.kind === 'many' ? other : null;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, sort_field, junction_field)
    values (${table.name}, ${relation.name}, ${relation.target}, ${list?.name ?? null}, ${list?.sortField ?? null}, ${list?.junctionField ?? null})`;
}

export function typeOf(sql: Sql, kind: KindName): Fragment {
  switch (kind) {
    case 'integer':
      return sql`integer`;
    case 'bigInteger':
      return sql`bigint`;
    case 'decimal':
      return sql`numeric(14, 3)`;
    case 'float':
      return sql`double precision`;
    case 'boolean':
      return sql`boolean`;
    case 'date':
      return sql`date`;
    case 'dateTime':
      return sql`timestamp`;
    case 'timestamp':
      return sql`timestamptz`;
    case 'time':
      return sql`time`;
    case 'text':
      return sql`text`;
    case 'string':
      return sql`varchar(255)`;
    case 'uuid':
      return sql`uuid`;
    case 'json':
      return sql`json`;
    case 'jsonb':
      return sql`jsonb`;
    case 'texts':
      return sql`text[]`;
    case 'span':
      return sql`int4range`;
    case 'spans':
      return sql`int4multirange`;
    case 'network':
      return sql`inet`;
    case 'words':
      return sql`tsvector`;
    case 'tree':
      return sql`ltree`;
    case 'label':
      return sql`text`;
  }
}
