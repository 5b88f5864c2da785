/** Models as tables of a real database, and the whole database as rows: to begin again, and to compare. */
import type { Sql } from '../../../support/service.js';
import { spreadOverSchemas } from '../../../support/several-schemas.js';
import { type Column, keyOf, type Model, type Row, type Table, type Value } from './model.js';
import type { State } from './oracle.js';

type Fragment = ReturnType<Sql>;

export async function createModel(sql: Sql, model: Model): Promise<void> {
  for (const table of model.tables) {
    await createTable(sql, table);
    await sql`insert into service_collections (collection) values (${table.name})`;
    if (table.key.kind === 'flagged')
      await sql`insert into service_fields (collection, field, special) values (${table.name}, ${table.key.name}, 'uuid')`;
  }
  for (const table of model.tables)
    for (const relation of table.relations) await createRelation(sql, model, table, relation);
  await spreadOverSchemas(sql, model.tables);
}

async function createTable(sql: Sql, table: Table): Promise<void> {
  const columns = table.columns.map((column, position) => {
    const comma = position === 0 ? sql`` : sql`, `;
    return sql`${comma}${sql(column.name)} ${column.counts ? sql`serial` : declaration(sql, column)}`;
  });
  const { parts } = table;
  const key = parts.length > 0 ? sql`, primary key (${sql(parts)})` : keyColumn(sql, table);
  const partitions = table.partitioned ? sql` partition by hash (${sql(parts.at(-1) ?? '')})` : sql``;
  await sql`create table ${sql(table.name)} (${columns}${key})${partitions}`;
  for (const remainder of table.partitioned ? ['0', '1', '2'] : []) {
    const name = `${table.name} part ${remainder}`;
    await sql`create table ${sql(name)} partition of ${sql(table.name)} for values with (modulus 3, remainder ${sql.unsafe(remainder)})`;
  }
}

function keyColumn(sql: Sql, table: Table): Fragment {
  if (table.key.kind === 'none') return sql``;
  return sql`, ${sql(table.key.name)} ${keyDeclaration(sql, table)} primary key`;
}

/** The rows the model begins with, or others, in the place of all there are. */
export async function loadRows(sql: Sql, model: Model, state: State): Promise<void> {
  await sql.begin(async (transaction) => {
    const sql = transaction as unknown as Sql;
    // Rows refer to each other in circles: their order must not matter.
    await sql`set local session_replication_role = replica`;
    for (const table of model.tables) {
      await sql`delete from ${sql(table.name)}`;
      const rows = [...(state.get(table.name)?.values() ?? [])];
      const names = [table.key.name, ...table.columns.map(({ name }) => name)].filter((name) => name !== '');
      if (rows.length > 0)
        await sql`insert into ${sql(table.name)} (${sql(names)}) overriding system value
          select ${sql(names)} from json_populate_recordset(null::${sql(table.name)}, ${JSON.stringify(rows)}::text::json)`;
      const counted = table.columns.find(({ counts }) => counts)?.name ?? (isCounted(table) ? table.key.name : null);
      if (counted !== null) {
        const sequence = sql`pg_get_serial_sequence(quote_ident(${table.name}), ${counted})`;
        await sql`select setval(${sequence}, coalesce((select max(${sql(counted)}) from ${sql(table.name)}), 1))`;
      }
    }
  });
}

export async function readRows(sql: Sql, model: Model): Promise<State> {
  const parts = model.tables.map(
    (table, position) =>
      sql`${position === 0 ? sql`` : sql`, `}${table.name}::text, (select json_agg(t) from ${sql(table.name)} t)`,
  );
  const [found] = await sql<{ rows: Record<string, Row[] | null> }[]>`select json_build_object(${parts}) as rows`;
  return stateOf(model, (table) => found?.rows[table.name] ?? []);
}

export function firstState(model: Model): State {
  return stateOf(model, (table) => table.rows.map((row) => ({ ...row })));
}

function stateOf(model: Model, rowsOf: (table: Table) => Row[]): State {
  return new Map(
    model.tables.map((table) => [
      table.name,
      new Map(rowsOf(table).map((row, position) => [textOf(table, row, position), row])),
    ]),
  );
}

/** Of rows without a key, their place. */
function textOf(table: Table, row: Row, position: number): string {
  return table.key.kind === 'none' ? `row ${position}` : String(keyOf(table, row));
}

function isCounted({ key }: Table): boolean {
  return ['serial', 'bigserial', 'always'].includes(key.kind);
}

function keyDeclaration(sql: Sql, table: Table): Fragment {
  switch (table.key.kind) {
    case 'serial':
      return sql`serial`;
    case 'bigserial':
      return sql`bigserial`;
    case 'always':
      return sql`integer generated always as identity`;
    case 'uuid':
      return sql`uuid default gen_random_uuid()`;
    case 'flagged':
      return sql`uuid`;
    case 'text':
      return sql`text`;
    case 'several':
    case 'none':
      throw new Error('there is no such column');
  }
}

function declaration(sql: Sql, column: Column): Fragment {
  return sql`${typeOf(sql, column)}${column.nullable ? sql`` : sql` not null`}${initialOf(sql, column.initial)}`;
}

function typeOf(sql: Sql, { type }: Column): Fragment {
  switch (type) {
    case 'text':
      return sql`text`;
    case 'integer':
      return sql`integer`;
    case 'boolean':
      return sql`boolean`;
    case 'uuid':
      return sql`uuid`;
    case 'date':
      return sql`date`;
  }
}

/** The few defaults there are, written out: a declaration takes no parameters. */
function initialOf(sql: Sql, initial: Value): Fragment {
  switch (initial) {
    case 7:
      return sql` default 7`;
    case true:
      return sql` default true`;
    case "it's":
      return sql` default 'it''s'`;
    default:
      return sql``;
  }
}

async function createRelation(
  sql: Sql,
  model: Model,
  table: Table,
  relation: Table['relations'][number],
): Promise<void> {
  if (relation.kind === 'any') {
    await sql`insert into service_relations (many_collection, many_field, one_collection_field, one_allowed_collections, junction_field)
      values (${table.name}, ${relation.name}, ${relation.collectionField}, ${relation.targets.join(',')}, 'parent_id')`;
  }
  if (relation.kind !== 'one') return;
  if (relation.constrained) {
    const action = {
      'no action': sql`no action`,
      'set null': sql`set null`,
      cascade: sql`cascade`,
    }[relation.onDelete];
    const [own, others] = [
      relation.columns.map(({ column }) => column).toReversed(),
      relation.columns.map(({ referenced }) => referenced).toReversed(),
    ];
    await sql`alter table ${sql(table.name)} add foreign key (${sql(own)}) references ${sql(relation.target)} (${sql(others)}) on delete ${action}`;
  }
  if (relation.columns.length > 1) {
    const options = JSON.stringify({ columns: relation.columns.map(({ column }) => column) });
    await sql`insert into service_fields (collection, field, special, options)
      values (${table.name}, ${relation.name}, 'm2o', ${options}::text::json)`;
  }
  const list = model.tables
    .flatMap(({ relations }) => relations)
    .find((each) => each.kind === 'many' && each.target === table.name && each.foreignKey === relation.name);
  const isAlias = relation.columns.length > 1;
  if (isAlias && !list)
    await sql`insert into service_relations (many_collection, many_field, one_collection)
      values (${table.name}, ${relation.name}, ${relation.target})`;
  if (list?.kind !== 'many') return;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, sort_field, one_deselect_action)
    values (${table.name}, ${relation.name}, ${relation.target}, ${list.name}, ${list.sortField}, ${list.deselect})`;
}

/** Whether the database makes keys in ascending order. */
export function countsUp(table: Table): boolean {
  return isCounted(table);
}
