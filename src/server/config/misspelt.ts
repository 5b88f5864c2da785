/** Variables of the environment that probably mean an option. An environment has many others, which must not be reported. */
import { distanceOf } from '../../base/nearest-name.js';
import type { Environment } from './option-kinds.js';

export interface Misspelt {
  readonly name: string;
  /** The option. */
  readonly meant: string;
}

/** Shorter names are ordinary words, such as HOME and HOSTS. */
const SHORTEST = 7;

/** `isKnown` also knows names that begin with the prefix of an option. */
export function findMisspelt(
  environment: Environment,
  names: readonly string[],
  isKnown: (name: string) => boolean,
): readonly Misspelt[] {
  return Object.keys(environment)
    .filter((name) => (environment[name] ?? '') !== '' && !isKnown(name))
    .flatMap((name) => {
      const meant = names.find((each) => isNear(name.toUpperCase(), each));
      return meant === undefined ? [] : [{ name, meant }];
    });
}

/** One letter differs, or one or two in the same words: DATABASE_SSL is not near DATABASE_URL. */
function isNear(given: string, name: string): boolean {
  if (Math.min(given.length, name.length) < SHORTEST || Math.abs(given.length - name.length) > 2) return false;
  const distance = distanceOf(given, name);
  if (distance <= 1) return true;
  const [words, others] = [given.split('_'), name.split('_')];
  return (
    distance === 2 &&
    words.length === others.length &&
    words.every((word, index) => distanceOf(word, others[index] ?? '') <= Math.min(2, Math.floor(word.length / 4)))
  );
}
