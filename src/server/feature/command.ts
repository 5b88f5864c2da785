/** The commands of the program `lateral`, and what the program does for them. */
import type { Observer } from '../../base/observe.js';
import type { CommandLine, Config, ConfigWith } from '../config/config.js';
import type { Misspelt } from '../config/misspelt.js';
import type { Environment, NoOptions, OptionTable } from '../config/option-kinds.js';
import type { Database } from '../postgres/pools/database.js';
import type { Core } from './core.js';
import type { DiagnosisContext, Finding } from './finding.js';

export interface Command {
  readonly help: string;
  run(words: readonly string[], program: Program): Promise<void>;
}

/** The headings of `lateral --help`, in their order. */
export const COMMAND_TOPICS = ['Serve', 'Data and schema', 'Plans and indexes', 'Traffic'] as const;

export interface CommandEntry {
  readonly topic: (typeof COMMAND_TOPICS)[number];
  /** One line of `lateral --help`. */
  readonly about: string;
  /** Imports its code: a service needs none of it in its memory. */
  load(): Promise<Command>;
}

/** Gets messages about the progress of a start. */
export type Report = (message: string) => void;

/** Everything that it starts is stopped after the work, also if that fails. */
export interface Program {
  /** Reads the words after a command, in any order. `own` are options of the command itself that take a value. */
  readWords(words: readonly string[], allowed?: readonly string[], own?: readonly string[]): CommandLine;
  /** For a command that takes only options. */
  readFlags(words: readonly string[]): CommandLine['environment'];
  /** `Own` are the options of the command's feature. */
  readConfig<Own extends OptionTable = NoOptions>(environment: Environment): ConfigWith<Own>;
  /** Variables that are no options, but similar to one. */
  misspelt(environment: Environment): readonly Misspelt[];
  /** The findings of all features. */
  diagnose(context: DiagnosisContext): Promise<readonly Finding[]>;
  /** The log, with the lines of at least this level. */
  createObserver(level: 'warn' | 'error'): Observer;
  /** For commands that read and write items. The service's own tables are created if they are missing. */
  withCore<Result>(
    config: Config,
    observe: Observer,
    report: Report,
    work: (core: Core) => Promise<Result>,
  ): Promise<Result>;
  /** For commands that inspect a database, which may lack the service's own tables. */
  withDatabase<Result>(
    config: Config,
    observe: Observer,
    report: Report,
    work: (database: Database) => Promise<Result>,
  ): Promise<Result>;
  /** For commands that send requests to a service. */
  withService<Result>(
    config: Config,
    observe: Observer,
    report: Report,
    work: (url: string) => Promise<Result>,
  ): Promise<Result>;
}
