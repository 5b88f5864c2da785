/** The names of all options. In the package, scripts/option-names.mjs writes them out: the types of the features are no part of it. */
import type { OptionsOfProgram } from '../server/config/config.js';
import type { OPTIONS } from '../server/config/option-table.js';
import type { features } from './features.js';

/** One table with the rows of all. */
type Joined<Tables> = (Tables extends unknown ? (table: Tables) => void : never) extends (table: infer All) => void
  ? All
  : never;

export type AllOptions = typeof OPTIONS & Joined<NonNullable<(typeof features)[number]['options']>>;

export type OptionName = keyof AllOptions;

/** Names of options that things with names of their own have. */
type PrefixedName = {
  [Name in OptionName]: AllOptions[Name] extends { readonly prefix: infer Prefix extends string }
    ? `${Prefix}${string}`
    : never;
}[OptionName];

export type LateralOptions = OptionsOfProgram<OptionName, PrefixedName>;
