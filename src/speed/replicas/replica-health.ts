/** The health of the replicas. */
import type { Check, Checks } from '../../server/postgres/health.js';
import type { ReplicaState } from './replica-board.js';
import { SEVERAL_SERVERS } from './replica-server.js';
import type { Replica, Replicas } from './replicas.js';

/** If a replica is lost the others serve its reads, or the primary if there are no others. */
export function checkReplicas(replicas: Replicas | null): Checks {
  const checks = replicas?.all.map((replica): [string, Checks[string]] => [
    `replica:${replica.name}`,
    [checkReplica(replica)],
  ]);
  return Object.fromEntries(checks ?? []);
}

const REPLICA_STATES: Readonly<Record<ReplicaState, string>> = {
  unknown: 'it has not been checked yet',
  ready: '',
  behind: 'it is too far behind',
  diverged: 'it follows the primary before a promotion',
  cluster: 'it is another cluster than that of DATABASE_URL',
  database: 'it is another database than that of DATABASE_URL',
  lost: 'it does not answer',
  primary: 'it is the primary',
  promoted: 'it was promoted, and is not the primary of DATABASE_URL',
};

function checkReplica({ state, lagMs, server }: Replica): Check {
  const observation = { componentType: 'datastore', observedValue: lagMs, observedUnit: 'ms behind' };
  if (state === 'ready') return { status: 'ok', ...observation };
  // If all servers of a cluster are named, one of them is the primary.
  return {
    status: state === 'primary' ? 'ok' : 'degraded',
    ...observation,
    output: `it gets no reads: ${server.isSeveral ? SEVERAL_SERVERS : REPLICA_STATES[state]}`,
  };
}
