/**
 * Round trips of public schemas: SAMPLE_SCHEMAS is a folder with .sql files, as pg_dump --schema-only writes them. A database that is made
 * from a snapshot of such a schema differs only in what was listed as left out. They run on the PostgreSQL of Debian, which has all extensions.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../../support/command.js';
import { installedVersions, startInstalled } from '../../support/installed-server.js';
import { makeFolder, withSql } from '../../support/service.js';
import { compareStructure } from './snapshot/structure.js';

const folder = process.env['SAMPLE_SCHEMAS'];
const [version] = installedVersions();
const skip =
  (folder === undefined && 'SAMPLE_SCHEMAS is not set') || (version === undefined && 'PostgreSQL is not installed');

await t.test('round trips', { skip }, async (t) => {
  const url = await startInstalled(version ?? '', { max_locks_per_transaction: '1024' });
  const files = (await readdir(folder ?? '')).filter((name) => name.endsWith('.sql'));
  t.ok(files.length > 0, 'there are schemas');
  for (const file of files)
    await t.test(file, async (t) => {
      const name = file.replace(/\.sql$/, '');
      const [source, target] = [await load(url, name, join(folder ?? '', file)), await load(url, `${name}_copy`, null)];
      const path = join(await makeFolder(), 'snapshot.yaml');
      const taken = await runCommand(['schema', 'snapshot', path], { DATABASE_URL: source });
      t.equal(taken.code, 0, taken.complaints.slice(-300));
      const applied = await runCommand(['schema', 'apply', path, '--yes'], { DATABASE_URL: target });
      t.equal(applied.code, 0, applied.complaints);
      t.match(await runCommand(['schema', 'diff', path], { DATABASE_URL: target }), { output: 'No differences.\n' });
      const { facts, differing, unlisted } = await compareStructure(source, target, taken.complaints);
      t.comment(`${name}: ${facts} facts, ${differing.length} differ, ${unlisted.length} of these are not listed`);
      t.strictSame(unlisted, []);
    });
});

async function load(server: string, name: string, file: string | null): Promise<string> {
  await withSql(server, (sql) => sql`create database ${sql(name)}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  // Commands of psql.
  const script = file === null ? '' : (await readFile(file, 'utf8')).replace(/^\\.*$/gm, '');
  if (script !== '') await withSql(url.href, (sql) => sql.unsafe(script).simple());
  return url.href;
}
