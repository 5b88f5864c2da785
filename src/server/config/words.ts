/** The words of a command line, before Node parses them. A value may begin with "-": every 64th generated token does. */
import { UsageError } from '../../base/errors.js';

/** Options as `parseArgs` takes them. */
export type WordOptions = Readonly<Record<string, { readonly type: 'string' | 'boolean'; readonly short?: string }>>;

/** Joins options and their values: `--token -abc` becomes `--token=-abc`. Throws if a value is missing or empty. */
export function joinValues(words: readonly string[], options: WordOptions): string[] {
  const shorts = new Map(Object.entries(options).map(([name, { short = '' }]) => [short, name]));
  const nameOf = (word = ''): string | undefined => {
    const [, long, short = ''] = /^(?:--([^=]+)|-(.))/.exec(word) ?? [];
    const name = long ?? (short !== '' && word.length === 2 ? shorts.get(short) : undefined);
    return name !== undefined && Object.hasOwn(options, name) ? name : undefined;
  };
  const joined: string[] = [];
  for (let index = 0; index < words.length; index++) {
    const word = words[index] ?? '';
    if (word === '--') return [...joined, ...words.slice(index)];
    const name = nameOf(word);
    if (name === undefined || options[name]?.type !== 'string') {
      joined.push(word);
      continue;
    }
    const separator = word.indexOf('=');
    const next = words[index + 1];
    if (separator < 0 && (next === undefined || next === '--' || nameOf(next) !== undefined))
      throw new UsageError(`${word} needs a value${next === undefined ? '' : `, not "${next}"`}`);
    const value = separator < 0 ? (next ?? '') : word.slice(separator + 1);
    if (value === '') throw new UsageError(`--${name} has an empty value: set it, or leave the option out`);
    joined.push(`--${name}=${value}`);
    if (separator < 0) index++;
  }
  return joined;
}
