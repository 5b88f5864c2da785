/** The replicas, looked at by the main thread for all others. */

import type { Observer } from '../../base/observe.js';
import type { Config } from '../../config/config.js';
import type { Mirror } from '../../mirror/watch.js';
import type { Database } from '../../postgres/pools/database.js';
import { ReplicaWatch } from '../../postgres/replicas/replica-watch.js';
import type { Replicas } from '../../postgres/replicas/replicas.js';
import { openReplicas } from '../app.js';
import type { MainBroadcast } from './threads.js';

interface WatchedReplicas {
  /** Null where none are named. */
  readonly replicas: Replicas | null;
  close(): Promise<void>;
}

export async function watchReplicas(
  config: Config,
  { database, mirror }: { readonly database: Database; readonly mirror: Mirror },
  observe: Observer,
  broadcast: (message: MainBroadcast) => void,
): Promise<WatchedReplicas> {
  const replicas = openReplicas(config);
  if (!replicas) return { replicas, close: async () => {} };
  const watch = await ReplicaWatch.start(replicas, database, mirror, {
    maxLagMs: config.REPLICA_MAX_LAG,
    observe,
    onLost: (replica) => {
      replicas.all[replica]?.abandon();
      broadcast({ kind: 'replica-lost', replica });
    },
  });
  const close = async (): Promise<void> => {
    watch.close();
    await replicas.close();
  };
  return { replicas, close };
}
