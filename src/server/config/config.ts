/** The options of a start: read from the environment, the command line or a program, as option-table.ts defines them. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { StartError, UsageError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { didYouMean } from '../../base/nearest-name.js';
import { AUTOMATIC, type Option, workersFor } from './option-kinds.js';
import { OPTIONS } from './option-table.js';
import { type AuthProvider, readProviders } from './provider-options.js';
import { readLocations, type StorageLocation } from './storage-options.js';

export type OptionName = keyof typeof OPTIONS;
export type Config = {
  readonly [Name in Exclude<OptionName, 'AUTH_PROVIDERS' | 'STORAGE_LOCATIONS'>]: ReturnType<
    (typeof OPTIONS)[Name]['parse']
  >;
} & {
  readonly AUTH_PROVIDERS: readonly AuthProvider[];
  /** At least one. */
  readonly STORAGE_LOCATIONS: readonly StorageLocation[];
};

type Environment = Readonly<Record<string, string | undefined>>;

/** Former names of options. Ignoring them would start a service that answers differently. */
const RENAMED: Readonly<Record<string, OptionName>> = {
  COHORTS: 'READ_BATCHING',
  FAMILY_COMPATIBILITY: 'DIRECTUS_COMPATIBILITY',
  STRUCTURE_LOCK_TIMEOUT: 'SCHEMA_LOCK_TIMEOUT',
  STRUCTURE_TIMEOUT: 'SCHEMA_CHANGE_TIMEOUT',
};

/** Values that DIRECTUS_COMPATIBILITY gives to options that are not set. */
const COMPATIBLE_VALUES: Partial<Record<OptionName, string>> = {
  REFRESH_TOKEN_COOKIE_NAME: 'directus_refresh_token',
  SESSION_COOKIE_NAME: 'directus_session_token',
};

function compatibleValues(environment: Environment): Environment {
  return Object.fromEntries(Object.entries(COMPATIBLE_VALUES).filter(([name]) => !environment[name]));
}

function refuseRenamed(environment: Environment): void {
  for (const [former, name] of Object.entries(RENAMED))
    if ((environment[former] ?? '') !== '') throw new UsageError(`${former} was renamed: set ${name} instead`);
}

/** The first bad value stops the start with the name of its option and the reason. */
export function readConfig(environment: Environment): Config {
  refuseRenamed(environment);
  const config: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(OPTIONS) as [OptionName, Option<unknown>][]) {
    const value = environment[name] || option.initial;
    config[name] = value === null ? null : orUsageError(() => option.parse(value), `${name}: `);
  }
  if (config['DIRECTUS_COMPATIBILITY'] === true) Object.assign(config, compatibleValues(environment));
  // Elsewhere the system does not share connections out among those who listen.
  if (config['WORKERS'] === AUTOMATIC)
    config['WORKERS'] =
      process.platform === 'linux' ? workersFor(availableParallelism(), Number(config['DATABASE_POOL_SIZE'])) : 1;
  // The two say the same from here on: the first of the schemas is the one.
  const schemas = config['DATABASE_SCHEMAS'] as readonly string[];
  if (schemas.length === 0) config['DATABASE_SCHEMAS'] = [config['DATABASE_SCHEMA']];
  else config['DATABASE_SCHEMA'] = schemas[0];
  const names = config['AUTH_PROVIDERS'] as readonly string[];
  config['AUTH_PROVIDERS'] = orUsageError(() => readProviders(names, environment));
  const locations = config['STORAGE_LOCATIONS'] as readonly string[];
  config['STORAGE_LOCATIONS'] = orUsageError(() => readLocations(locations, environment));
  if (config['AUTH_DISABLE_DEFAULT'] === true && names.length === 0)
    throw new UsageError('AUTH_DISABLE_DEFAULT: with no AUTH_PROVIDERS nobody could sign in');
  if (config['DATABASE_CALLER'] === 'service' && (config['DATABASE_SETTINGS'] as readonly unknown[]).length > 0)
    throw new UsageError('DATABASE_SETTINGS: needs DATABASE_CALLER=claims or role');
  return Object.freeze(config) as Config;
}

function orUsageError<Value>(read: () => Value, prefix = ''): Value {
  try {
    return read();
  } catch (error) {
    throw new UsageError(`${prefix}${messageOf(error)}`);
  }
}

export interface CommandLine {
  readonly operands: readonly string[];
  /** The switches on the command line. */
  readonly switches: ReadonlySet<string>;
  /** `--port 9000` and `--port=9000` are PORT=9000. */
  readonly environment: Readonly<Record<string, string>>;
  /** Values of the command's own options, by name. */
  readonly values: Readonly<Record<string, string>>;
}

const FLAGS = Object.fromEntries(
  [OPTIONS, RENAMED]
    .flatMap((names) => Object.keys(names))
    .flatMap((name) => [name, name.toLowerCase().replaceAll('_', '-')])
    .map((flag) => [flag, { type: 'string' as const }]),
);

/** The words after a command, in any order. `own` are options of the command itself that take a value. */
export function readArguments(
  words: readonly string[],
  allowed: readonly string[] = [],
  own: readonly string[] = [],
): CommandLine {
  const options = {
    ...FLAGS,
    ...Object.fromEntries(allowed.map((name) => [name, { type: 'boolean' as const }])),
    ...Object.fromEntries(own.map((name) => [name, { type: 'string' as const }])),
  };
  const { tokens } = parseArgs({ args: [...words], options, strict: false, allowPositionals: true, tokens: true });
  const operands: string[] = [];
  const switches = new Set<string>();
  const environment: Record<string, string> = {};
  const values: Record<string, string> = {};
  for (const token of tokens) {
    if (token.kind === 'positional') operands.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    if (!Object.hasOwn(options, name)) throw new UsageError(`unknown option "${rawName}": see lateral --help`);
    if (allowed.includes(name)) switches.add(name);
    else if (value === undefined) throw new UsageError(`${rawName} needs a value`);
    else if (own.includes(name)) values[name] = value;
    else environment[name.replaceAll('-', '_').toUpperCase()] = value;
  }
  return { operands, switches, environment, values };
}

/** For a command that takes only options. */
export function readFlags(words: readonly string[]): CommandLine['environment'] {
  const { operands, environment } = readArguments(words);
  if (operands.length > 0) throw new UsageError(`unknown option "${operands[0]}": see lateral --help`);
  return environment;
}

export interface OptionRow {
  readonly name: string;
  readonly initial: string;
  readonly about: string;
}

export function optionRows(): OptionRow[] {
  return Object.entries(OPTIONS).map(([name, { initial, about }]) => ({ name, initial: initial ?? '', about }));
}

/** DATABASE_URL becomes databaseUrl. */
type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;

type OptionValue = string | number | boolean | readonly string[] | undefined;

/**
 * The options that a program passes: by plain names (`databaseUrl`) or by those of the environment (`DATABASE_URL`). A list is the same as
 * its entries with commas between them.
 */
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
