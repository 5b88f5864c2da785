/** Models as tables of a real database: columns, rows, foreign keys, and the metadata that names the relations. */
import type { Sql } from '../../support/service.js';
import { spreadOverSchemas } from '../../support/several-schemas.js';
import { type KindName, writeValue } from './kinds.js';
import type { Model, Relation, Row, Table } from './model.js';

type Fragment = ReturnType<Sql>;

export async function createModel(sql: Sql, model: Model): Promise<void> {
  await sql`create extension ltree`;
  await sql`create extension pg_trgm`;
  for (const table of model.tables) {
    const columns = table.columns.slice(1).map((column) => {
      const presence = column.nullable ? sql`` : sql` not null`;
      return sql`, ${sql(column.name)} ${typeOf(sql, column.kind)}${presence}`;
    });
    const key = sql`${sql(table.key.name)} ${typeOf(sql, table.key.kind)} primary key`;
    await sql`create table ${sql(table.name)} (${key}${columns})`;
    await insertRows(sql, table, table.rows);
    await sql`insert into service_collections (collection, sort_field) values (${table.name}, ${table.sortField})`;
  }
  for (const table of model.tables) {
    for (const relation of table.relations) await createRelation(sql, table, relation, model);
  }
  await spreadOverSchemas(sql, model.tables);
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
  const { name, kind } = table.key;
  const key = sql`${writeValue(kind, row[name] ?? null)}::text::${typeOf(sql, kind)}`;
  try {
    await sql`delete from ${sql(table.name)} where ${sql(name)} = ${key}`;
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
  if (relation.constrained) {
    await sql`alter table ${sql(table.name)} add foreign key (${sql(relation.name)}) references ${sql(relation.target)}`;
  }
  if (!relation.declared) return;
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
