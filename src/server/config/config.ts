/** The options of a start: read from the environment, the command line or a program, as tables of options define them. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { StartError, UsageError } from '../../base/errors.js';
import { didYouMean } from '../../base/nearest-name.js';
import { findMisspelt, type Misspelt } from './misspelt.js';
import {
  AUTOMATIC,
  type Environment,
  type OptionTable,
  orUsageError,
  type Values,
  workersFor,
} from './option-kinds.js';
import type { OPTIONS } from './option-table.js';
import { joinValues } from './words.js';

/** The values of the options of the service. */
export type Config = Values<typeof OPTIONS> & {
  /** The ids of the features that a program has chosen; absent for all. */
  readonly features?: readonly string[];
};

/** The values of the options of the service and of a feature. */
export type ConfigWith<Table extends OptionTable> = Config & Values<Table>;

export interface CommandLine {
  readonly operands: readonly string[];
  /** The switches on the command line. */
  readonly switches: ReadonlySet<string>;
  /** `--port 9000` and `--port=9000` are PORT=9000. */
  readonly environment: Readonly<Record<string, string>>;
  /** Values of the command's own options, by name. */
  readonly values: Readonly<Record<string, string>>;
}

export interface OptionRow {
  readonly name: string;
  readonly initial: string;
  readonly about: string;
  /** The heading that the feature of the option names, or null if it is an option of the service. */
  readonly topic: string | null;
}

type OptionValue = string | number | boolean | readonly string[] | undefined;

/** DATABASE_URL becomes databaseUrl. */
type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;

/**
 * The options that a program passes: by plain names (`databaseUrl`) or by those of the environment (`DATABASE_URL`). A list is the same as
 * its entries with commas between them. `Prefixed` are names that begin with the prefix of an option.
 */
export type OptionsOfProgram<Name extends string, Prefixed extends string> = {
  readonly [Each in CamelCase<Name> | Name | Prefixed]?: OptionValue;
};

/** Reads the options of a table, which has those of the service. */
export class OptionReader<Table extends OptionTable> {
  readonly #options;
  /** The options by their former names. */
  readonly #renamed;
  readonly #flags;
  readonly #plainNames: ReadonlyMap<string, string>;

  /** `topics` are the headings of options of features, by their names. */
  constructor(
    private readonly table: Table,
    private readonly topics: ReadonlyMap<string, string>,
  ) {
    this.#options = Object.entries<OptionTable[string]>(table);
    this.#renamed = this.#options.flatMap(([name, { formerly }]) => (formerly === undefined ? [] : [[formerly, name]]));
    const names = [...this.#options, ...this.#renamed].map(([name = '']) => name);
    this.#flags = Object.fromEntries(
      names
        .flatMap((name) => [name, name.toLowerCase().replaceAll('_', '-')])
        .map((flag) => [flag, { type: 'string' as const }]),
    );
    this.#plainNames = new Map(
      Object.keys(table).map((name) => [
        name.toLowerCase().replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
        name,
      ]),
    );
  }

  /** The first bad value stops the start with the name of its option and the reason. */
  config<Part extends OptionTable = Table>(environment: Environment): ConfigWith<Part> {
    for (const [former = '', name] of this.#renamed)
      if ((environment[former] ?? '') !== '') throw new UsageError(`${former} was renamed: set ${name} instead`);
    const config: Record<string, unknown> = {};
    let implied: Environment = {};
    for (const [name, option] of this.#options) {
      const text = environment[name] || option.initial;
      const value = text === null ? null : orUsageError(() => option.parse(text, environment), `${name}: `);
      config[name] = value;
      implied = { ...implied, ...option.implied?.(value) };
    }
    for (const [name, text = ''] of Object.entries(implied))
      if (!environment[name]) config[name] = this.table[name]?.parse(text, environment);
    settle(config);
    return Object.freeze(config) as ConfigWith<Part>;
  }

  /** The words after a command, in any order. `own` are options of the command itself that take a value. */
  words(words: readonly string[], allowed: readonly string[] = [], own: readonly string[] = []): CommandLine {
    const options = {
      ...this.#flags,
      ...Object.fromEntries(allowed.map((name) => [name, { type: 'boolean' as const }])),
      ...Object.fromEntries(own.map((name) => [name, { type: 'string' as const }])),
    };
    const args = joinValues(words, options);
    const { tokens } = parseArgs({ args, options, strict: false, allowPositionals: true, tokens: true });
    const operands: string[] = [];
    const switches = new Set<string>();
    const environment: Record<string, string> = {};
    const values: Record<string, string> = {};
    for (const token of tokens) {
      if (token.kind === 'positional') operands.push(token.value);
      if (token.kind !== 'option') continue;
      const { name, rawName, value = '' } = token;
      if (!Object.hasOwn(options, name)) throw new UsageError(`unknown option "${rawName}": see lateral --help`);
      if (allowed.includes(name)) switches.add(name);
      else if (own.includes(name)) values[name] = value;
      else environment[name.replaceAll('-', '_').toUpperCase()] = value;
    }
    return { operands, switches, environment, values };
  }

  /** For a command that takes only options. */
  flags(words: readonly string[]): CommandLine['environment'] {
    const { operands, environment } = this.words(words);
    if (operands.length > 0) throw new UsageError(`unknown option "${operands[0]}": see lateral --help`);
    return environment;
  }

  /** Variables of the environment that are no options, but similar to one. */
  misspelt(environment: Environment): readonly Misspelt[] {
    const names = this.#options.map(([name]) => name);
    return findMisspelt(environment, names, (name) => this.#knows(name));
  }

  /** The names of options that threads share. */
  get divided(): readonly string[] {
    return this.#options.flatMap(([name, { isDivided }]) => (isDivided ? [name] : []));
  }

  rows(): OptionRow[] {
    return this.#options.map(([name, { initial, about }]) => ({
      name,
      initial: initial ?? '',
      about,
      topic: this.topics.get(name) ?? null,
    }));
  }

  /**
   * The options as an environment has them. Unknown names are refused, except those that the environment of the process has: a program may
   * pass on `...process.env`.
   */
  environment(options: Readonly<Record<string, OptionValue>>): Record<string, string> {
    const environment: Record<string, string> = {};
    for (const [given, value] of Object.entries(options)) {
      if (value === undefined) continue;
      const name = this.#plainNames.get(given) ?? given;
      if (!this.#knows(name)) {
        if (process.env[given] === value) continue;
        throw this.#unknown(given);
      }
      if (environment[name] !== undefined)
        throw new StartError(`the option "${given}" is given twice, also as "${name}"`);
      environment[name] = textOf(given, value);
    }
    return environment;
  }

  #knows(name: string): boolean {
    if (Object.hasOwn(this.table, name)) return true;
    return this.#options.some(([, { prefix }]) => prefix !== undefined && name.startsWith(prefix) && name !== prefix);
  }

  #unknown(name: string): StartError {
    const isPlain = /[a-z]/.test(name);
    const hint = didYouMean(name, isPlain ? this.#plainNames.keys() : Object.keys(this.table));
    return new StartError(`unknown option "${name}".${hint}`);
  }
}

/** Values that depend on other options. */
function settle(config: Record<string, unknown>): void {
  // Elsewhere the system does not share connections out among those who listen.
  if (config['WORKERS'] === AUTOMATIC)
    config['WORKERS'] =
      process.platform === 'linux' ? workersFor(availableParallelism(), Number(config['DATABASE_POOL_SIZE'])) : 1;
  // The two say the same from here on: the first of the schemas is the one.
  const schemas = config['DATABASE_SCHEMAS'] as readonly string[];
  if (schemas.length === 0) config['DATABASE_SCHEMAS'] = [config['DATABASE_SCHEMA']];
  else config['DATABASE_SCHEMA'] = schemas[0];
  if (config['DATABASE_CALLER'] === 'service' && (config['DATABASE_SETTINGS'] as readonly unknown[]).length > 0)
    throw new UsageError('DATABASE_SETTINGS: needs DATABASE_CALLER=claims or role');
}

function textOf(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.join();
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return String(value);
  throw new StartError(`the option "${name}" must be a string, number, boolean or list of strings`);
}
