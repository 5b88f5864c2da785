/** How the product executes reads and writes. */
import type { Speed } from '../server/threads/speed.js';
import { FastExecutors } from './layers/speed.js';
import { SpeedState } from './layers/speed-state.js';
import { diagnoseReplicas } from './replicas/diagnose-replicas.js';
import { runWorker } from './threads/worker.js';
import { WorkerPool } from './threads/worker-pool.js';

export const speed: Speed = {
  share: async (context) => {
    const state = SpeedState.open(context.config);
    await state.watch(context);
    return state;
  },
  open: (config, sources, shared) =>
    new FastExecutors(config, sources, shared instanceof SpeedState ? shared : new SpeedState(null, null)),
  openThreads: (config, observe, program) => new WorkerPool(config, observe, program),
  runWorker,
  diagnose: diagnoseReplicas,
};
