/** The service inside of a Node program: `import { createLateral } from 'lateral'`. */

import { environmentOf, type LateralOptions, readConfig } from './config/config.js';
import type { Lateral } from './engine/extensions/api.js';
import type { Extension } from './engine/extensions/definition.js';
import { LateralService } from './service/lateral.js';

export { LateralError, Refused, StartError } from './base/errors.js';
export type { LateralOptions } from './config/config.js';
export type * from './engine/extensions/api.js';
export * from './engine/extensions/definition.js';
export { type NodeHandler, toNodeHandler } from './service/node-handler.js';

/** Parts of a service that are no texts. */
export interface ProgramParts {
  /** In addition to the modules of the option `extensions`. */
  readonly extensions?: readonly Extension[];
}

/** Throws if an option is unknown or has a wrong value. The environment of the process is not read: pass `...process.env` to use it. */
export function createLateral(options: LateralOptions = {}, { extensions = [] }: ProgramParts = {}): Lateral {
  return new LateralService(readConfig(environmentOf(options)), { extensions });
}

/** Creates it and starts it, on its port. An aborted signal ends a start that takes too long. */
export function start(options: LateralOptions = {}, signal?: AbortSignal): Promise<Lateral> {
  return createLateral(options).start(signal ? { signal } : {});
}
