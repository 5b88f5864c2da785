/**
 * One owner per cluster. The lock is stored next to the cluster itself, so that two names of one cluster share it, and says
 * which process holds it and when that process started: a number alone may belong to somebody else by now.
 */
import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../base/errors.js';
import { isRunning, readStartStamp } from './processes.js';

export interface Lock {
  release(): Promise<void>;
}

interface Owner {
  readonly pid: number;
  readonly started?: string | undefined;
}

/** Takes the lock, also from an owner that is gone. `directory` is the name the user knows, for the refusal. */
export async function takeLock(path: string, directory: string): Promise<Lock> {
  const started = await readStartStamp(process.pid);
  const content = JSON.stringify({ pid: process.pid, started } satisfies Owner);
  for (let attempt = 0; attempt < 10; attempt++) {
    if (await createFile(path, content)) return { release: () => rm(path, { force: true }) };
    const lockText = await readLock(path);
    if (lockText === undefined) continue;
    const owner = parseOwner(lockText);
    if (owner !== undefined && (await isOwnerRunning(owner))) {
      throw new StartError(`DATA_DIR ${directory} is in use by process ${owner.pid}`);
    }
    await removeStale(path, lockText);
  }
  throw new StartError(`DATA_DIR ${directory} is in use: ${path} keeps being replaced`);
}

/** Whether a process that runs holds it. */
export async function isLocked(path: string): Promise<boolean> {
  const owner = parseOwner((await readLock(path)) ?? '');
  return owner !== undefined && isOwnerRunning(owner);
}

async function createFile(path: string, content: string): Promise<boolean> {
  try {
    await writeFile(path, content, { flag: 'wx', mode: 0o644 });
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

/** A lock without an owner in it is given a moment: its maker may be between creating and writing it. */
async function readLock(path: string): Promise<string | undefined> {
  const read = (): Promise<string | undefined> => readFile(path, 'utf8').catch(() => undefined);
  const content = await read();
  if (content === undefined || parseOwner(content) !== undefined) return content;
  await sleep(200);
  return read();
}

function parseOwner(content: string): Owner | undefined {
  try {
    const owner: Owner = JSON.parse(content);
    return Number.isInteger(owner.pid) && owner.pid > 0 ? owner : undefined;
  } catch {
    return undefined;
  }
}

async function isOwnerRunning(owner: Owner): Promise<boolean> {
  if (!(await isRunning(owner.pid))) return false;
  const started = await readStartStamp(owner.pid);
  return started === undefined || owner.started === undefined || started === owner.started;
}

/** Moves the lock away before judging it again: another start may have replaced the stale one in between. */
async function removeStale(path: string, stale: string): Promise<void> {
  const aside = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await rename(path, aside);
  } catch {
    return;
  }
  if ((await readFile(aside, 'utf8')) === stale) await rm(aside, { force: true });
  else await rename(aside, path);
}
