/** The service inside of a Node program: `import { createLateral } from 'lateral'`. */

import { chooseFeatures, featuresOf } from './app/chosen-features.js';
import type { LateralOptions } from './app/option-names.js';
import { openLog, optionsOf } from './app/options.js';
import { startService } from './app/start.js';
import type { Lateral } from './features/program/api.js';
import { LateralService } from './features/program/lateral.js';
import type { Extension } from './server/execute/hooks/definition.js';
import type { Feature } from './server/feature/feature.js';

export { loadFeature } from './app/chosen-features.js';
export type { LateralOptions } from './app/option-names.js';
export { LateralError, Refused, StartError } from './base/errors.js';
export type * from './features/program/api.js';
export { type NodeHandler, toNodeHandler } from './features/program/node-handler.js';
export * as option from './server/config/option-kinds.js';
export type * from './server/execute/hooks/api.js';
export * from './server/execute/hooks/definition.js';
export type { Feature, FeatureContext, FeaturePart, FeatureTables } from './server/feature/feature.js';
export { jsonText } from './server/http/reply.js';

/** Parts of a service that are no texts. */
export interface ProgramParts {
  /** In addition to the modules of the option `extensions`. */
  readonly extensions?: readonly Extension[];
  /**
   * The features of the service, with those that they need: names of the product's features, or features of the program. All features of
   * the product if absent.
   */
  readonly features?: readonly (Feature | string)[];
}

/** Options of features that the program brings. */
type OwnOptions = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** Throws if an option is unknown or has a wrong value. The environment of the process is not read: pass `...process.env` to use it. */
export function createLateral(options?: LateralOptions, parts?: ProgramParts): Lateral;
export function createLateral(
  options: OwnOptions,
  parts: ProgramParts & Required<Pick<ProgramParts, 'features'>>,
): Lateral;
export function createLateral(options: OwnOptions = {}, { extensions = [], features }: ProgramParts = {}): Lateral {
  const chosen = features === undefined ? {} : { features: chooseFeatures(features) };
  const list = featuresOf(chosen);
  const reader = optionsOf(list);
  const config = { ...reader.config(reader.environment(options)), ...chosen };
  return new LateralService(config, startService, { extensions, log: openLog(config.LOG_LEVEL, list) });
}

/** Creates it and starts it, on its port. An aborted signal ends a start that takes too long. */
export function start(options: LateralOptions = {}, signal?: AbortSignal): Promise<Lateral> {
  return createLateral(options).start(signal ? { signal } : {});
}
