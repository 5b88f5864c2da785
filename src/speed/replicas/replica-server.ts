/**
 * Which server the connections of a replica lead to. How far it is says one connection, reads use others: behind a balancer they could
 * end at another server, which is further behind. A server is known by the time of its start. The state is in memory that all
 * threads share; one of them measures.
 */
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { DriverClient, ServerChoice } from '../../server/postgres/wire/connection-options.js';

/** Microseconds, as text. */
export const SERVER = withCatalog('(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint::text');

/** Each replica has two: the measured server, and another server that a connection reached; 0 for none. */
const FIELDS = 2;

/** Milliseconds that a replica gets no reads after its address has led to several servers: it may have been moved to another one. */
const SEVERAL_SERVERS_MS = 60_000;

export const SEVERAL_SERVERS =
  'its URL leads to more than one server, as a balancer does: each URL must be that of one standby';

export function serverBuffer(replicas: number): SharedArrayBuffer {
  return new SharedArrayBuffer(replicas * FIELDS * BigInt64Array.BYTES_PER_ELEMENT);
}

export class ReplicaServer implements ServerChoice {
  readonly #cells: BigInt64Array;
  readonly #index: number;
  /** Used by the measuring thread: servers that it measured before, and when it last saw several. */
  readonly #former = new Set<bigint>();
  #severalAt = Number.NEGATIVE_INFINITY;

  constructor(buffer: SharedArrayBuffer, index: number) {
    this.#cells = new BigInt64Array(buffer);
    this.#index = index * FIELDS;
  }

  /** The one whose progress is known. */
  get measured(): bigint {
    return Atomics.load(this.#cells, this.#index);
  }

  /** Another one that a connection led to since the last look. */
  get met(): bigint {
    return Atomics.load(this.#cells, this.#index + 1);
  }

  /** Refuses a new connection that leads to another server than the measured one. */
  async accept(client: DriverClient): Promise<void> {
    const [row] = await client.unsafe(`select ${SERVER} as server`);
    const server = BigInt(String(row?.['server']));
    if (server === this.measured) return;
    Atomics.store(this.#cells, this.#index + 1, server);
    throw Object.assign(new Error('The connection leads to another server than the one that is measured'), {
      code: 'CONNECTION_OTHER_SERVER',
    });
  }

  onLeave(): () => void {
    return () => {};
  }

  suspect(): void {}

  /**
   * This server has answered how far it is, after a connection had met another one. Either the replica was restarted or moved, and the
   * former server has ended; or both are running.
   */
  measure(server: bigint, met: bigint, now: number): void {
    const { measured } = this;
    if (server !== measured) {
      if (measured !== 0n) this.#former.add(measured);
      Atomics.store(this.#cells, this.#index, server);
    }
    if (met !== 0n) Atomics.compareExchange(this.#cells, this.#index + 1, met, 0n);
    if ((met !== 0n && met !== server) || this.#former.has(server)) {
      this.#former.clear();
      this.#severalAt = now;
    }
  }

  /** Whether several were seen lately; of the thread that measures. */
  get isSeveral(): boolean {
    return this.#severalAt !== Number.NEGATIVE_INFINITY;
  }

  /** Whether it is time to look again, from new connections. */
  isOver(now: number): boolean {
    if (!this.isSeveral || now - this.#severalAt < SEVERAL_SERVERS_MS) return false;
    this.#severalAt = Number.NEGATIVE_INFINITY;
    return true;
  }
}
