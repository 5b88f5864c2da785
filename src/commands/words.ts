/** The words of a command: what it is about, its own switches, and the options every command takes. */
import { type Config, readConfig, readFlags } from '../config.js';

export interface Words {
  readonly operands: readonly string[];
  /** Those of the allowed switches that were given. */
  readonly switches: ReadonlySet<string>;
  readonly config: Config;
}

/** In any order. An option takes the word behind it, unless its value is joined to it by an equals sign. */
export function readWords(words: readonly string[], allowed: readonly string[]): Words {
  const operands: string[] = [];
  const switches = new Set<string>();
  const flags: string[] = [];
  for (let position = 0; position < words.length; position++) {
    const word = words[position] as string;
    if (allowed.includes(word)) switches.add(word);
    else if (word === '-' || !word.startsWith('-')) operands.push(word);
    else {
      flags.push(word);
      const value = words[position + 1];
      if (!word.includes('=') && value !== undefined) {
        flags.push(value);
        position++;
      }
    }
  }
  return { operands, switches, config: readConfig({ ...process.env, ...readFlags(flags) }) };
}
