/**
 * Makes, once for a whole run of the tests, the folder that every server of theirs begins as a copy of: a new cluster, and
 * in it the databases that `createLibrary` and `createDatabase` copy. To make both anew in every file would cost more than most files do.
 */
import { lstat, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createLibrary, createServed, LIBRARY_TEMPLATE, SERVICE_TEMPLATE, startDatabase, withSql } from './service.js';

const [directory = ''] = process.argv.slice(2);
const server = await startDatabase({ directory });
await createServed(server, SERVICE_TEMPLATE);
await createLibrary(server, LIBRARY_TEMPLATE);
// Here: two files that begin to count at the same time would both create it.
await withSql(server.url, (sql) => sql`create extension pg_stat_statements`);
await hastenLogins();
await server.stop();
await forgetPort();
// Where the server's account cannot enter the folder, the cluster lies elsewhere: copies of a link would share it.
if (!(await lstat(join(directory, 'postgres'))).isDirectory()) process.exitCode = 1;

/** The thousands of rounds that protect a password are most of the work of a connection, and this one needs no protection. */
async function hastenLogins(): Promise<void> {
  const { username, password } = new URL(server.url);
  await withSql(server.url, async (sql) => {
    await sql`set scram_iterations = 1`;
    const [row] = await sql`select format('alter role %I password %L', ${username}::text, ${password}::text) as text`;
    await sql.unsafe(row?.['text']);
  });
}

/** Every copy would try the same port first. */
async function forgetPort(): Promise<void> {
  const path = join(directory, 'lateral.json');
  const { password } = JSON.parse(await readFile(path, 'utf8'));
  await writeFile(path, JSON.stringify({ password }));
}
