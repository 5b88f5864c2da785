/** Our own tables: the files of sql/system in order, each once, each in a transaction, one instance at a time. */
import { readdir, readFile } from 'node:fs/promises';
import { packagePath } from '../files.js';
import type { Observer } from '../observe.js';
import { type Database, type Pool, transactionOn } from './database.js';

/** With `demo`, a schema that holds no tables but ours gets the demo model, once. */
export async function migrate(database: Database, demo: boolean, observe: Observer): Promise<void> {
  const files = (await readdir(packagePath('sql', 'system'))).filter((name) => name.endsWith('.sql')).sort();
  const connection = await database.sessions.reserve();
  try {
    // Instances that start together wait here. The lock belongs to the connection, so a killed instance frees it.
    await connection`select pg_advisory_lock(hashtextextended('lateral migrate ' || ${database.schema}, 0))`;
    await connection`create table if not exists service_migrations (name text primary key, applied_at timestamptz not null default now())`;
    const rows = await connection`select name from service_migrations`;
    const applied = new Set(rows.map((row) => String(row.name)));
    const paths = files.map((file) => ['system', file]);
    if (demo && !applied.has('demo.sql') && (await isEmpty(connection, database.schema))) paths.push(['demo.sql']);
    for (const path of paths) {
      const name = path.at(-1) as string;
      if (applied.has(name)) continue;
      const text = await readFile(packagePath('sql', ...path), 'utf8');
      await transactionOn(connection, async () => {
        await connection.unsafe(text);
        await connection`insert into service_migrations (name) values (${name})`;
      });
      observe({ kind: 'migrated', file: name });
    }
  } finally {
    await connection`select pg_advisory_unlock_all()`.catch(() => {});
    connection.release();
  }
}

async function isEmpty(connection: Pool, schema: string): Promise<boolean> {
  const rows = await connection`
    select from pg_catalog.pg_tables where schemaname = ${schema} and not starts_with(tablename, 'service_') limit 1`;
  return rows.length === 0;
}
