/** Our own tables: the files of sql/system in order, each once, each in a transaction, one instance at a time. */
import { readdir, readFile } from 'node:fs/promises';
import { packagePath } from '../files.js';
import type { Observer } from '../observe.js';
import type { Database } from './database.js';
import type { Session } from './sessions.js';

/** With `demo`, a schema that holds no tables but ours gets the demo model, once. */
export async function migrate(database: Database, demo: boolean, observe: Observer): Promise<void> {
  const files = (await readdir(packagePath('sql', 'system'))).filter((name) => name.endsWith('.sql')).sort();
  await database.sessions.use(async (session) => {
    // Instances that start together wait here. The lock belongs to the connection, so a killed instance frees it.
    await session.query("select pg_advisory_lock(hashtextextended('lateral migrate ' || $1::text, 0))", [
      database.schema,
    ]);
    try {
      await applyAll(session, files, demo, database.schema, observe);
    } finally {
      await session.query('select pg_advisory_unlock_all()').catch(() => {});
    }
  });
}

async function applyAll(
  session: Session,
  files: readonly string[],
  demo: boolean,
  schema: string,
  observe: Observer,
): Promise<void> {
  await session.query(
    'create table if not exists service_migrations (name text primary key, applied_at timestamptz not null default now())',
  );
  const rows = await session.query('select name from service_migrations');
  const applied = new Set(rows.map((row) => String(row.name)));
  const paths = files.map((file) => ['system', file]);
  if (demo && !applied.has('demo.sql') && (await isEmpty(session, schema))) paths.push(['demo.sql']);
  for (const path of paths) {
    const name = path.at(-1) as string;
    if (applied.has(name)) continue;
    const text = await readFile(packagePath('sql', ...path), 'utf8');
    await session.transaction(async () => {
      await session.query(text);
      await session.query('insert into service_migrations (name) values ($1)', [name]);
    });
    observe({ kind: 'migrated', file: name });
  }
}

async function isEmpty(session: Session, schema: string): Promise<boolean> {
  const rows = await session.query(
    "select 1 from pg_catalog.pg_tables where schemaname = $1 and not starts_with(tablename, 'service_') limit 1",
    [schema],
  );
  return rows.length === 0;
}
