/** The options and the log of the service, with those of its features. */
import { createObserver, type Observer } from '../base/observe.js';
import { type ConfigWith, OptionReader } from '../server/config/config.js';
import type { Environment } from '../server/config/option-kinds.js';
import { OPTIONS } from '../server/config/option-table.js';
import type { Feature } from '../server/feature/feature.js';
import { features } from './features.js';
import type { AllOptions } from './option-names.js';

/** The values of all options. */
export type FullConfig = ConfigWith<AllOptions>;

const all: readonly Feature[] = features;

export const options = new OptionReader<AllOptions>(
  Object.assign({}, OPTIONS, ...all.map((feature) => feature.options)),
  new Map(all.flatMap(({ options = {}, topic = '' }) => Object.keys(options).map((name) => [name, topic]))),
);

export function readConfig(environment: Environment): FullConfig {
  return options.config<AllOptions>(environment);
}

/** The log, with the events of all features. */
export function openLog(level: string): Observer {
  return createObserver(level, Object.assign({}, ...all.map(({ events }) => events)));
}
