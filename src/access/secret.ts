/** The key that signs tokens: configured, or generated once and stored next to the embedded database. */
import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Observer } from '../base/observe.js';

const FILE_NAME = 'lateral.secret';
/** A shorter key could be guessed from a token. */
const MIN_SECRET_LENGTH = 16;

/** `directory` is null if the service has no directory of its own. */
export async function openSecret(chosen: string | null, directory: string | null, observe: Observer): Promise<string> {
  if (chosen !== null) {
    if (chosen.length < MIN_SECRET_LENGTH) observe({ kind: 'secret-short' });
    return chosen;
  }
  const secret = randomBytes(32).toString('base64url');
  if (directory === null) {
    observe({ kind: 'secret-made-up' });
    return secret;
  }
  const path = join(directory, FILE_NAME);
  try {
    await writeFile(path, secret, { flag: 'wx', mode: 0o600 });
    return secret;
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    const stored = (await readFile(path, 'utf8')).trim();
    if (stored.length >= MIN_SECRET_LENGTH) return stored;
    // An interrupted start left an incomplete file.
    await writeFile(path, secret, { mode: 0o600 });
    return secret;
  }
}
