/** The service inside of a Node program: `import { createLateral } from 'lateral'`. */

import type { LateralOptions } from './app/option-names.js';
import { options as all, openLog } from './app/options.js';
import { startService } from './app/start.js';
import type { Lateral } from './features/program/api.js';
import { LateralService } from './features/program/lateral.js';
import type { Extension } from './server/execute/hooks/definition.js';

export type { LateralOptions } from './app/option-names.js';
export { LateralError, Refused, StartError } from './base/errors.js';
export type * from './features/program/api.js';
export { type NodeHandler, toNodeHandler } from './features/program/node-handler.js';
export type * from './server/execute/hooks/api.js';
export * from './server/execute/hooks/definition.js';

/** Parts of a service that are no texts. */
export interface ProgramParts {
  /** In addition to the modules of the option `extensions`. */
  readonly extensions?: readonly Extension[];
}

/** Throws if an option is unknown or has a wrong value. The environment of the process is not read: pass `...process.env` to use it. */
export function createLateral(options: LateralOptions = {}, { extensions = [] }: ProgramParts = {}): Lateral {
  const config = all.config(all.environment(options));
  return new LateralService(config, startService, { extensions, log: openLog(config.LOG_LEVEL) });
}

/** Creates it and starts it, on its port. An aborted signal ends a start that takes too long. */
export function start(options: LateralOptions = {}, signal?: AbortSignal): Promise<Lateral> {
  return createLateral(options).start(signal ? { signal } : {});
}
