/** The features of a service: those of the product, or those that a program names. The configuration has their ids. */
import { pathToFileURL } from 'node:url';
import { StartError } from '../base/errors.js';
import { messageOf } from '../base/narrow.js';
import type { Config } from '../server/config/config.js';
import type { Feature } from '../server/feature/feature.js';
import { features as all } from './features.js';
import { inOrder } from './open-features.js';

type Chosen = Pick<Config, 'features'>;

/** By their ids: the name of a feature of the product, the URL of a module, or a name with a number. */
const known = new Map<string, Feature>(all.map((feature) => [feature.name, feature]));
const ids = new WeakMap<Feature, string>([...known].map(([id, feature]) => [feature, id]));
const lists = new Map<string, readonly Feature[]>();

/** The same array for the same ids. */
export function featuresOf({ features: chosen }: Chosen): readonly Feature[] {
  if (chosen === undefined) return all;
  const key = chosen.join(' ');
  const list = lists.get(key) ?? chosen.map(featureOf);
  lists.set(key, list);
  return list;
}

function featureOf(id: string): Feature {
  const feature = known.get(id);
  if (feature) return feature;
  throw new StartError(`there is no feature "${id}": there are ${all.map(({ name }) => name).join(', ')}`);
}

/** Returns the ids of the features and of those that they need. */
export function chooseFeatures(given: readonly (Feature | string)[]): readonly string[] {
  return inOrder(given.map((each) => (typeof each === 'string' ? featureOf(each) : each))).map((feature) => {
    const id = ids.get(feature) ?? `${feature.name} #${known.size}`;
    known.set(id, feature);
    ids.set(feature, id);
    return id;
  });
}

/** Imports a feature, which several threads can then serve. Its module exports it as `default`. */
export async function loadFeature(module: string | URL): Promise<Feature> {
  const { href } = module instanceof URL || /^file:/.test(module) ? new URL(module) : pathToFileURL(module);
  const found = known.get(href);
  if (found) return found;
  const loaded: { readonly default?: Feature } = await import(href).catch((error: unknown) => {
    throw new StartError(`the feature "${href}" could not be loaded: ${messageOf(error)}`);
  });
  if (loaded.default === undefined) throw new StartError(`"${href}" has no default export`);
  known.set(href, loaded.default);
  ids.set(loaded.default, href);
  return loaded.default;
}

/** In a worker thread, which gets their ids alone. */
export async function loadChosen({ features = [] }: Chosen): Promise<void> {
  for (const id of features) if (id.startsWith('file:')) await loadFeature(id);
}

/** Workers import features. Objects cannot be sent to them. */
export function checkWorkers({ features = [], WORKERS }: Chosen & Pick<Config, 'WORKERS'>): void {
  const object = features.find((id) => id.includes(' #'));
  if (WORKERS > 1 && object !== undefined)
    throw new StartError(`WORKERS must be 1 for the feature "${object.split(' ')[0]}": import it with loadFeature`);
}
