/** Random models live in several schemas: their tables are moved, and their collections keep their names. */
import type { Sql } from './service.js';

/** Information about the service started with. */
export const DATABASE_SCHEMAS = 'public,Sales & Co,hr';

const OTHERS = ['Sales & Co', 'hr'] as const;

/** The second and the third table of a model go elsewhere; this connection still finds them by their names. */
export async function spreadOverSchemas(sql: Sql, tables: readonly { readonly name: string }[]): Promise<void> {
  for (const [position, schema] of OTHERS.entries()) {
    await sql`create schema ${sql(schema)}`;
    const table = tables[position + 1];
    if (!table) continue;
    await sql`alter table ${sql(table.name)} set schema ${sql(schema)}`;
    await sql`update service_collections set "schema" = ${schema}, "table" = ${table.name} where collection = ${table.name}`;
  }
  await sql`set search_path = public, ${sql(OTHERS)}`;
}
