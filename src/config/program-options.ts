/** The options that a program passes: by plain names (`databaseUrl`) or by those of the environment (`DATABASE_URL`). */
import { StartError } from '../base/errors.js';
import { didYouMean } from '../base/nearest-name.js';
import { OPTIONS } from './option-table.js';

type OptionName = keyof typeof OPTIONS;

/** DATABASE_URL becomes databaseUrl. */
type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;

type OptionValue = string | number | boolean | readonly string[] | undefined;

/** A list is the same as its entries with commas between them. */
export type LateralOptions = {
  readonly [Name in CamelCase<OptionName> | OptionName | `AUTH_${string}` | `STORAGE_${string}`]?: OptionValue;
};

const PLAIN_NAMES: ReadonlyMap<string, string> = new Map(
  Object.keys(OPTIONS).map((name) => [
    name.toLowerCase().replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
    name,
  ]),
);

/** Options of one sign-in provider or storage location: their names contain its name. */
const NAMED = /^(AUTH|STORAGE)_./;

/**
 * The options as an environment has them. Unknown names are refused, except those that the environment of the process has: a program may
 * pass on `...process.env`.
 */
export function environmentOf(options: Readonly<Record<string, OptionValue>>): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [given, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const name = PLAIN_NAMES.get(given) ?? given;
    if (!Object.hasOwn(OPTIONS, name) && !NAMED.test(name)) {
      if (process.env[given] === value) continue;
      throw unknownOption(given);
    }
    if (environment[name] !== undefined)
      throw new StartError(`the option "${given}" is given twice, also as "${name}"`);
    environment[name] = textOf(given, value);
  }
  return environment;
}

function textOf(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.join();
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return String(value);
  throw new StartError(`the option "${name}" must be a string, number, boolean or list of strings`);
}

function unknownOption(name: string): StartError {
  const isPlain = /[a-z]/.test(name);
  const hint = didYouMean(name, isPlain ? PLAIN_NAMES.keys() : Object.keys(OPTIONS));
  return new StartError(`unknown option "${name}".${hint}`);
}
