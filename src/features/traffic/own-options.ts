/** The command line of commands that work on a running service: they take their own options only, and a wrong one ends them with status 2. */
import { access, constants, stat } from 'node:fs/promises';
import { dirname, sep } from 'node:path';
import { parseArgs } from 'node:util';
import { UsageError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { joinValues } from '../../server/config/words.js';

/** `value`: the option takes one; `switch`: it takes none. */
type OptionKinds = Readonly<Record<string, 'value' | 'switch'>>;

export interface OwnOptions {
  readonly operands: readonly string[];
  value(name: string): string | null;
  required(name: string): string;
  has(name: string): boolean;
}

/** `-o` is short for `output`. */
export function readOwnOptions(command: string, words: readonly string[], kinds: OptionKinds): OwnOptions {
  const options = Object.fromEntries(
    Object.entries(kinds).map(([name, kind]) => [
      name,
      {
        type: kind === 'value' ? ('string' as const) : ('boolean' as const),
        ...(name === 'output' ? { short: 'o' } : {}),
      },
    ]),
  );
  const fail = (reason: string): never => {
    throw new UsageError(`${reason}: see lateral ${command} --help`);
  };
  try {
    const { values, positionals } = parseArgs({ args: joinValues(words, options), options, allowPositionals: true });
    const value = (name: string): string | null => {
      const given = values[name];
      return typeof given === 'string' ? given : null;
    };
    return {
      operands: positionals,
      value,
      required: (name) => value(name) ?? fail(`--${name} is missing`),
      has: (name) => values[name] === true,
    };
  } catch (error) {
    return fail(messageOf(error).split(/\.\s/)[0] ?? '');
  }
}

/** Throws if a file cannot be written: before the work whose result it is to have. */
export async function checkWritable(option: string, file: string | null): Promise<void> {
  if (file === null) return;
  const found = await stat(file).catch(() => null);
  if (found?.isDirectory()) throw new UsageError(`${option}: ${file} is a folder`);
  // The separator makes it an error if the folder is a file.
  await access(found ? file : `${dirname(file)}${sep}`, constants.W_OK).catch((error: unknown) => {
    throw new UsageError(`${option}: ${file} cannot be written: ${messageOf(error)}`);
  });
}
