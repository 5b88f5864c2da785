/** The replicas of DATABASE_REPLICA_URLS. */
import type { Config } from '../../server/config/config.js';
import { Database } from '../../server/postgres/pools/database.js';
import { databaseOptions } from '../../server/postgres/pools/open-database.js';
import { ReplicaBoard } from './replica-board.js';
import { ReplicaServer, serverBuffer } from './replica-server.js';
import { Replica, type ReplicaMemory, Replicas } from './replicas.js';

/** Returns null if no replicas are configured. With the memory of another thread, that thread checks them. */
export function openReplicas(config: Config, memory?: ReplicaMemory): Replicas | null {
  const urls = config.DATABASE_REPLICA_URLS;
  if (urls.length === 0) return null;
  const board = new ReplicaBoard(urls.length, memory?.board);
  const servers = memory?.servers ?? serverBuffer(urls.length);
  const replicas = urls.map((url, index) => {
    const options = databaseOptions(config, url);
    const connectTimeout = Math.min(options.connectTimeout || REPLICA_CONNECT_MS, REPLICA_CONNECT_MS);
    const choice = new ReplicaServer(servers, index);
    const database = Database.openLater({ ...options, asksPositions: false, connectTimeout, choice });
    return new Replica(index, database, board, choice);
  });
  return new Replicas(board, servers, replicas, config.REPLICA_WAIT);
}

/** Milliseconds: if a replica cannot be reached, the primary answers. */
const REPLICA_CONNECT_MS = 1_000;
