/** The state of replicas and of the writes of callers, which all threads of a process share. */
import type { Config } from '../../server/config/config.js';
import type { Checks } from '../../server/postgres/health.js';
import type { SharedContext, SharedSpeed } from '../../server/threads/executors.js';
import { CallerWrites } from '../cache/caller-writes.js';
import { openReplicas } from '../replicas/open-replicas.js';
import { checkReplicas } from '../replicas/replica-health.js';
import { type ReplicaMemory, type Replicas, ReplicaWatch } from '../replicas/replicas.js';

/** The state for another thread. */
export interface SpeedMemory {
  readonly replicas: ReplicaMemory | null;
  readonly callerWrites: SharedArrayBuffer | null;
}

export class SpeedState implements SharedSpeed {
  #watch: ReplicaWatch | null = null;

  constructor(
    /** The replicas, or null if there are none. */
    readonly replicas: Replicas | null,
    /** When callers have written, or null if no reads are served from memory. */
    readonly callerWrites: CallerWrites | null,
  ) {}

  /** With the memory of the process, for another thread of it. */
  static open(config: Config, memory?: SpeedMemory): SpeedState {
    const callerWrites = config.READ_CACHE_SIZE > 0 ? new CallerWrites(memory?.callerWrites ?? undefined) : null;
    return new SpeedState(openReplicas(config, memory?.replicas ?? undefined), callerWrites);
  }

  /** Checks the replicas for all threads. */
  async watch({ config, database, mirror, observe, broadcast }: SharedContext): Promise<void> {
    const { replicas } = this;
    if (replicas === null) return;
    this.#watch = await ReplicaWatch.start(replicas, database, mirror, {
      maxLagMs: config.REPLICA_MAX_LAG,
      observe,
      onLost: (replica) => {
        replicas.all[replica]?.abandon();
        broadcast(String(replica));
      },
    });
  }

  /** The replica with this number does not answer. */
  apply(message: string): void {
    this.replicas?.all[Number(message)]?.abandon();
  }

  get memory(): SpeedMemory {
    return { replicas: this.replicas?.memory ?? null, callerWrites: this.callerWrites?.buffer ?? null };
  }

  checks(): Checks {
    return checkReplicas(this.replicas);
  }

  async close(): Promise<void> {
    this.#watch?.close();
    await this.replicas?.close();
  }
}

/** The memory of the state that the process has opened. */
export function sharedMemoryOf(shared: SharedSpeed): SpeedMemory {
  return shared instanceof SpeedState ? shared.memory : { replicas: null, callerWrites: null };
}
