/** The interface of a feature. */
import type { CommandEntry } from './command.js';

/** A part of the product that can be deleted with its folder and its line in app/features.ts. */
export interface Feature {
  /** The name of its folder in src/features, sql/features and test/features. */
  readonly name: string;
  /** The features that its files import. */
  readonly needs?: readonly Feature[];
  /** Commands of the program, by their names. */
  readonly commands?: Readonly<Record<string, CommandEntry>>;
}
