/**
 * Chooses the standby for a read: among those that have replayed what the read must see, the one with the fewest reads in flight. If
 * there is none, the read waits for one that will soon have replayed it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseOwnJson } from '../../base/narrow.js';
import { within } from '../../base/time-limit.js';
import { withCatalog } from '../../sql/catalog-names.js';
import type { Database } from '../pools/database.js';
import { DATABASE, type ServerIdentity, SYSTEM } from '../pools/server-identity.js';
import { UNKNOWN_POSITION } from '../pools/sessions.js';
import type { ReplicaBoard, ReplicaState } from './replica-board.js';
import { type ReplicaServer, SERVER } from './replica-server.js';

/** Milliseconds between two questions how far a replica is, while somebody waits for it. */
const ASK_PAUSE_MS = 1;

/**
 * The timeline depends on privileges: a role that may see the connection to the primary learns it at once, others when the standby
 * has next written pages of it.
 */
const STATE = withCatalog(`select json_build_object('server', ${SERVER}, 'standby', pg_is_in_recovery(), 'replayed',
  coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0'::pg_lsn, 'system', ${SYSTEM}, 'database', ${DATABASE},
  'timeline', greatest((select timeline_id from pg_control_checkpoint()), (select min_recovery_end_timeline from pg_control_recovery()),
    (select received_tli from pg_stat_get_wal_receiver())))::text`);

/** The report of a replica about itself. */
export interface ReplicaReport extends ServerIdentity {
  /** Which server has answered. */
  readonly server: string;
  readonly standby: boolean;
  readonly replayed: number;
  /** Each promotion begins another one. */
  readonly timeline: number;
}

interface Waiting {
  readonly position: number;
  /** By the clock of `performance`. */
  readonly until: number;
  readonly resolve: (reached: boolean) => void;
}

export class Replica {
  /** Host and port, which are no secret. */
  readonly name: string;
  /** Reads that it was sent and has not answered. */
  outstanding = 0;
  /** Reads that it was sent. */
  requests = 0;
  #lost = 0;
  /** Where the connections of this thread lead to. */
  #connectedTo = 0n;
  pendingReport: Promise<ReplicaReport> | null = null;
  readonly #waiting: Waiting[] = [];
  #isFollowed = false;
  readonly #lossListeners: (() => void)[] = [];

  constructor(
    private readonly index: number,
    readonly database: Database,
    private readonly board: ReplicaBoard,
    readonly server: ReplicaServer,
  ) {
    this.name = database.address;
  }

  get state(): ReplicaState {
    return this.board.state(this.index);
  }

  get lagMs(): number {
    return this.board.lagMs(this.index);
  }

  get replayed(): number {
    return this.board.replayed(this.index);
  }

  /** A server that has restarted may have to replay again: it is checked after a lost connection. */
  get isReady(): boolean {
    if (this.server.measured !== this.#connectedTo) this.#followServer();
    if (this.database.watchdog.lost !== this.#lost) this.suspect();
    return this.state === 'ready';
  }

  /** Called by the measuring thread when a server has answered, after a connection had reached another one. */
  measured({ server }: ReplicaReport, met: bigint, askedAt: number): void {
    this.server.measure(BigInt(server), met, askedAt);
    if (this.server.measured !== this.#connectedTo) this.#followServer();
  }

  /** Another server is measured now: connections to the former one are ended. */
  #followServer(): void {
    const isFirst = this.#connectedTo === 0n;
    this.#connectedTo = this.server.measured;
    if (isFirst) return;
    this.database.watchdog.destroyAll();
    this.#lost = this.database.watchdog.lost;
  }

  /** It gets no reads until the next check. */
  suspect(): void {
    this.#lost = this.database.watchdog.lost;
    this.report('lost', 0, this.lagMs);
  }

  report(state: ReplicaState, replayed: number, lagMs: number): void {
    this.board.setReplayed(this.index, replayed);
    this.board.setLagMs(this.index, lagMs);
    this.board.setState(this.index, state);
  }

  /** One query at a time: concurrent callers share its result. */
  ask(): Promise<ReplicaReport> {
    this.pendingReport ??= this.database.own
      .use((session) => session.cell(STATE, []))
      .then((cell) => parseOwnJson<ReplicaReport>(String(cell)))
      .finally(() => {
        this.pendingReport = null;
      });
    return this.pendingReport;
  }

  /** Whether it has replayed the position within so many milliseconds. */
  reach(position: number, ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      this.#waiting.push({ position, until: performance.now() + ms, resolve });
      if (!this.#isFollowed) void this.#follow();
    });
  }

  async #follow(): Promise<void> {
    this.#isFollowed = true;
    while (this.#waiting.length > 0) {
      const first = Math.min(...this.#waiting.map(({ until }) => until));
      try {
        const { replayed, server } = await within(this.ask(), Math.max(1, first - performance.now()));
        if (BigInt(server) === this.server.measured) this.board.raiseReplayed(this.index, replayed);
      } catch {
        // The next check decides whether it is lost.
      }
      const now = performance.now();
      const isReady = this.isReady;
      const { replayed } = this;
      for (const waiting of this.#waiting.splice(0)) {
        if (!isReady || waiting.position <= replayed) waiting.resolve(isReady);
        else if (now >= waiting.until) waiting.resolve(false);
        else this.#waiting.push(waiting);
      }
      if (this.#waiting.length > 0) await sleep(ASK_PAUSE_MS);
    }
    this.#isFollowed = false;
  }

  /** Calls the listener when the replica stops answering. */
  onLost(listener: () => void): void {
    this.#lossListeners.push(listener);
  }

  /** Called when the replica stops answering: reads that wait for it fail at once. */
  abandon(): void {
    for (const listener of this.#lossListeners) listener();
    this.database.watchdog.destroyAll();
  }
}

/** The memory that the threads share: see ReplicaBoard and ReplicaServer. */
export interface ReplicaMemory {
  readonly board: SharedArrayBuffer;
  readonly servers: SharedArrayBuffer;
}

export class Replicas {
  /** For the other threads. */
  readonly memory: ReplicaMemory;
  #turn = 0;

  constructor(
    readonly board: ReplicaBoard,
    servers: SharedArrayBuffer,
    readonly all: readonly Replica[],
    private readonly waitMs: number,
  ) {
    this.memory = { board: board.buffer, servers };
  }

  /**
   * For a read that must see this position of this timeline; null for that the primary has to serve it. With `hash`, the same replica
   * each time, as long as it can.
   */
  choose(position: number, timeline: number, hash: number | null): Replica | null | Promise<Replica | null> {
    const needed = Math.max(position, this.board.model);
    // Replicas that were not compared with it may follow the former primary, and have a longer log without this position.
    if (needed === UNKNOWN_POSITION || timeline > this.board.timeline) return null;
    let best: Replica | null = null;
    let ahead: Replica | null = null;
    const start = hash ?? this.#turn++;
    for (let step = 0; step < this.all.length; step++) {
      const replica = this.all[(start + step) % this.all.length];
      if (!replica?.isReady) continue;
      if (replica.replayed < needed) {
        if (ahead === null || replica.replayed > ahead.replayed) ahead = replica;
      } else if (hash !== null) return replica;
      else if (best === null || replica.outstanding < best.outstanding) best = replica;
    }
    if (best) return best;
    // One that is further behind than it is waited for will not be there in time.
    if (ahead === null || this.waitMs === 0 || ahead.lagMs > this.waitMs) return null;
    const candidate = ahead;
    return candidate.reach(needed, this.waitMs).then((reached) => (reached ? candidate : null));
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map(({ database }) => database.close()));
  }
}
