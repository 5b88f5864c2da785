/** Options from a file: `.env` of the working folder, or the file that `--env-file` names. Only the program reads it, not `createLateral`. */
import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { UsageError } from '../../base/errors.js';
import { codeOf, messageOf } from '../../base/narrow.js';
import { joinValues } from './words.js';

const DEFAULT = '.env';
const OPTION = { 'env-file': { type: 'string' as const } };

export interface EnvFile {
  readonly path: string;
  /** The variables that it has set. */
  readonly names: readonly string[];
}

let loaded: EnvFile | null = null;

/** The file that was read, or null. */
export function envFile(): EnvFile | null {
  return loaded;
}

/** Adds the variables of the file to the environment, which wins. Returns the words without `--env-file`. */
export function loadEnvFile(words: readonly string[]): readonly string[] {
  const joined = joinValues(words, OPTION);
  const end = joined.includes('--') ? joined.indexOf('--') : joined.length;
  const isOption = (word: string, index: number): boolean => index < end && word.startsWith('--env-file=');
  const named = joined.findLast(isOption)?.replace('--env-file=', '');
  loaded = null;
  const text = read(named);
  if (text !== null) {
    const set = Object.entries(parseEnv(text)).filter(([name]) => process.env[name] === undefined);
    for (const [name, value] of set) process.env[name] = value;
    loaded = { path: named ?? DEFAULT, names: set.map(([name]) => name) };
  }
  return joined.filter((word, index) => !isOption(word, index));
}

/** Nobody has to have `.env`, which may also be a folder. */
function read(named: string | undefined): string | null {
  try {
    return readFileSync(named ?? DEFAULT, 'utf8');
  } catch (error) {
    if (named === undefined && ['ENOENT', 'EISDIR', 'ENOTDIR'].includes(codeOf(error))) return null;
    throw new UsageError(`${named ?? DEFAULT} cannot be read: ${messageOf(error)}`);
  }
}
