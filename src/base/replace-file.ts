/** Files that commands write: one that exists stays as it is until its replacement is complete. */
import { access, constants, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { succeeds } from './narrow.js';

/** `write` gets the path that it is to write. A device or a pipe, and a file whose folder takes no others, is written itself. */
export async function replaceFile(file: string, write: (path: string) => Promise<void>): Promise<void> {
  // A link stays one.
  const path = await realpath(file).catch(() => file);
  const found = await stat(path).catch(() => null);
  const isReplaceable = found === null || (found.isFile() && (await succeeds(access(dirname(path), constants.W_OK))));
  if (!isReplaceable) return write(path);
  const partial = `${path}.partial`;
  try {
    await write(partial);
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}
