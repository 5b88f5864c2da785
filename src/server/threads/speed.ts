/**
 * How a service gets faster than one thread with one statement for each read. `src/speed` does it. With `plain` the service works the same,
 * without replicas, results in memory and workers.
 */
import { StartError } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import type { Config } from '../config/config.js';
import type { DiagnosisContext, Finding } from '../feature/finding.js';
import { NOTHING_SHARED, type OpenExecutors, openPlain, type SharedContext, type SharedSpeed } from './executors.js';
import type { ThreadMakers } from './thread-parts.js';
import type { Threads } from './threads.js';

export interface WorkerProgram {
  readonly file: string;
  /** The names of options that the threads share. */
  readonly divided: readonly string[];
}

export interface Speed {
  /** Opens what the threads of a process share. */
  share(context: SharedContext): Promise<SharedSpeed>;
  /** Opens the executors of a thread. */
  readonly open: OpenExecutors;
  /** Several threads, each of which runs the program. */
  openThreads(config: Config, observe: Observer, program: WorkerProgram): Threads;
  /** Serves in such a thread. */
  runWorker(makers: ThreadMakers): void;
  /** Findings for `lateral doctor`. */
  diagnose(context: DiagnosisContext): Promise<readonly Finding[]>;
}

export const plain: Speed = {
  share: async () => NOTHING_SHARED,
  open: openPlain,
  openThreads: () => {
    throw new StartError('WORKERS must be 1');
  },
  runWorker: () => {},
  diagnose: async () => [],
};
