/** Files that commands write: one that exists stays as it is until its replacement is complete. */
import { randomUUID } from 'node:crypto';
import { access, chmod, constants, copyFile, lstat, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf, succeeds } from '../../base/narrow.js';

/** `write` gets a path to write to. Devices, pipes, broken links, and files in folders that are not writable are written in place. */
export async function replaceFile(file: string, write: (path: string) => Promise<void>): Promise<void> {
  const isLink = await lstat(file).then(
    (found) => found.isSymbolicLink(),
    () => false,
  );
  const path = await realpath(file).catch(() => file);
  const found = await stat(path).catch(() => null);
  const isReplaceable =
    found === null ? !isLink : found.isFile() && (await succeeds(access(dirname(path), constants.W_OK)));
  if (!isReplaceable) return write(path);
  const partial = `${path}.${randomUUID()}.partial`;
  try {
    await write(partial);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
  await moveTo(path, partial, found?.mode ?? null);
}

const OTHERS = 0o077;
const PERMISSIONS = 0o777;

/** The file keeps the mode that it had, unless its replacement is private. */
async function moveTo(path: string, partial: string, mode: number | null): Promise<void> {
  const written = (await stat(partial)).mode;
  const kept = mode === null || (written & OTHERS) === 0 ? written : mode;
  try {
    await chmod(partial, kept & PERMISSIONS);
    await rename(partial, path);
  } catch {
    // A file that is mounted alone, or that belongs to another user, may only be overwritten.
    await copyFile(partial, path).catch((error: unknown) => {
      throw new Error(`${messageOf(error)}. The result is in ${partial}`);
    });
    await chmod(path, kept & PERMISSIONS).catch(() => {});
    await rm(partial, { force: true });
  }
}
