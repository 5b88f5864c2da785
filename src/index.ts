/** The service inside of a Node program: `import { createLateral } from 'lateral'`. */

import { readConfig } from './config/config.js';
import { environmentOf, type LateralOptions } from './config/program-options.js';
import type { Lateral } from './engine/extensions/api.js';
import { LateralService } from './service/lateral.js';

export { LateralError, Refused, StartError } from './base/errors.js';
export type { LateralOptions } from './config/program-options.js';
export type * from './engine/extensions/api.js';
export { type NodeHandler, toNodeHandler } from './service/node-handler.js';

/** Throws if an option is unknown or has a wrong value. The environment of the process is not read: pass `...process.env` to use it. */
export function createLateral(options: LateralOptions = {}): Lateral {
  return new LateralService(readConfig(environmentOf(options)));
}

/** Creates it and starts it, on its port. An aborted signal ends a start that takes too long. */
export function start(options: LateralOptions = {}, signal?: AbortSignal): Promise<Lateral> {
  return createLateral(options).start(signal ? { signal } : {});
}
