/**
 * The account that runs the embedded server. PostgreSQL refuses to run as root, so a service started as root hands it to an account
 * without privileges. That account may be unable to enter the project's folder: what it needs then lies in the shelter, a
 * folder of root's that everybody can reach.
 */
import { chmod, lchown, lstat, mkdir, readdir, readFile, readlink, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { StartError } from '../../base/errors.js';

export interface OsUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

const SHELTER = '/var/lib/lateral';
const PREFERRED = ['postgres', '_postgres', 'nobody'];
const READ = 0o4;
const ENTER = 0o1;

/** The account to drop to, or nothing when we are not root: the owner of a cluster that already exists goes first. */
export async function chooseOsUser(cluster: string): Promise<OsUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const accounts = (await readAccounts()).filter((account) => account.uid > 0);
  const owner = await stat(cluster).then(
    (stats) => stats.uid,
    () => undefined,
  );
  const chosen =
    accounts.find((account) => account.uid === owner) ??
    PREFERRED.map((name) => accounts.find((account) => account.name === name)).find((account) => account !== undefined);
  if (chosen !== undefined) return chosen;
  throw new StartError(
    'The embedded PostgreSQL cannot run as root and /etc/passwd names neither "postgres" nor "nobody": create one, start as another user or set DATABASE_URL',
  );
}

/**
 * Whether the account can enter every folder on the way to a path, and the folder or read the file at its end. Judged by
 * the mode bits, for the account's own group alone: a spawned process keeps no supplementary group.
 */
export async function canReach(account: OsUser, path: string): Promise<boolean> {
  for (const step of stepsTo(resolve(path))) {
    const stats = await lstat(step);
    if (stats.isSymbolicLink()) {
      if (!(await canReach(account, resolve(dirname(step), await readlink(step))))) return false;
    } else if (!allows(stats, account, stats.isDirectory() ? ENTER : READ)) return false;
  }
  return true;
}

/** Opens the folder for what the account cannot reach elsewhere; one that others could have filled is refused. */
export async function openShelter(account: OsUser): Promise<string> {
  if ((await mkdir(SHELTER, { recursive: true })) !== undefined) await chmod(SHELTER, 0o755);
  if (!(await isTrusted(SHELTER))) throw new StartError(`${SHELTER} must belong to root and be writable by root alone`);
  if (!(await canReach(account, SHELTER))) throw new StartError(`The user "${account.name}" cannot enter ${SHELTER}`);
  return SHELTER;
}

/** Whether it is a real folder that the process's user owns and nobody else can write to. */
export async function isTrusted(folder: string): Promise<boolean> {
  const stats = await lstat(folder);
  return stats.isDirectory() && stats.uid === (process.getuid?.() ?? stats.uid) && (stats.mode & 0o022) === 0;
}

export async function giveTo(account: OsUser, path: string): Promise<void> {
  await lchown(path, account.uid, account.gid);
  if (!(await lstat(path)).isDirectory()) return;
  for (const name of await readdir(path)) await giveTo(account, join(path, name));
}

async function readAccounts(): Promise<OsUser[]> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    const [name, , uid, gid, , home] = line.split(':');
    if (!name || !uid || !gid || !/^\d+$/.test(uid) || !/^\d+$/.test(gid)) return [];
    return [{ name, uid: Number(uid), gid: Number(gid), home: home || '/' }];
  });
}

function stepsTo(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [path] : [...stepsTo(parent), path];
}

function allows(stats: { uid: number; gid: number; mode: number }, account: OsUser, bit: number): boolean {
  if (stats.uid === account.uid) return (stats.mode & (bit << 6)) !== 0;
  if (stats.gid === account.gid) return (stats.mode & (bit << 3)) !== 0;
  return (stats.mode & bit) !== 0;
}
