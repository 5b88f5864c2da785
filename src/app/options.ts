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

/** Reads the options of the service and of these features. */
export function optionsOf(list: readonly Feature[]): OptionReader<AllOptions> {
  return new OptionReader<AllOptions>(
    Object.assign({}, OPTIONS, ...list.map((feature) => feature.options)),
    new Map(list.flatMap(({ options = {}, topic = '' }) => Object.keys(options).map((name) => [name, topic]))),
  );
}

export const options = optionsOf(all);

export function readConfig(environment: Environment): FullConfig {
  return options.config<AllOptions>(environment);
}

/** The log, with the events of these features. */
export function openLog(level: string, list: readonly Feature[] = all): Observer {
  return createObserver(level, Object.assign({}, ...list.map(({ events }) => events)));
}
