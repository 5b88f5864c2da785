/**
 * Chooses the standby for a read: among those that have replayed what the read must see, the one with the fewest reads in flight. If
 * there is none, the read waits for one that will soon have replayed it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, parseOwnJson } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { TIMELINE } from '../../server/postgres/pools/primary-watch.js';
import { DATABASE, differenceOf, type ServerIdentity, SYSTEM } from '../../server/postgres/pools/server-identity.js';
import { LOG_END, UNKNOWN_POSITION } from '../../server/postgres/pools/sessions.js';
import type { ReplicaBoard, ReplicaState } from './replica-board.js';
import { type ReplicaServer, SERVER, SEVERAL_SERVERS } from './replica-server.js';

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

/** Milliseconds between two checks. */
const LOOK_INTERVAL_MS = 200;
/** Milliseconds that a replica may take to answer a check. */
const LOOK_TIMEOUT_MS = 1_000;

/** Milliseconds by which a timer of a process that stands still is late. */
const STANDSTILL_MS = 250;

/** Samples that are kept. A replica that is further behind is behind by at least this much. */
const MAX_SAMPLES = 3_000;

/** Records on disk can have reached the standbys. Nothing is committed after the last record in memory. */
const PRIMARY = withCatalog(`select json_build_object('flushed', pg_current_wal_flush_lsn() - '0/0'::pg_lsn,
  'end', (select bytes from ${LOG_END}), 'system', ${SYSTEM}, 'database', ${DATABASE}, 'server', ${SERVER},
  'timeline', ${TIMELINE})::text`);

interface PrimaryReport extends ServerIdentity {
  readonly flushed: number;
  readonly end: number;
  readonly server: string;
  readonly timeline: number;
}

interface Sample {
  readonly position: number;
  /** By the clock of `performance`. */
  readonly at: number;
}

/** Why a replica gets no reads. */
interface Reason {
  readonly state: ReplicaState;
  readonly text: string;
}

const SEVERAL_REASON: Reason = { state: 'diverged', text: SEVERAL_SERVERS };

interface WatchOptions {
  /** Milliseconds. */
  readonly maxLagMs: number;
  readonly observe: Observer;
  /** Called when one does not answer: each thread gives up what it waits for. */
  readonly onLost: (replica: number) => void;
}

/**
 * Checks the replicas several times a second, each within a time limit. A replica that is too far behind or does not answer gets no
 * reads until it recovers. The clock of this process measures the lag: the time since the primary was first seen ahead of the position
 * that the replica has replayed.
 */
export class ReplicaWatch {
  readonly #samples: Sample[] = [];
  /** The last answer of the primary; null before the first. */
  #primary: PrimaryReport | null = null;
  readonly #reasons = new Map<Replica, string>();
  /** The replicas that do not answer. */
  readonly #silent = new Set<Replica>();
  /** Models and unknown positions so far, and those of the latter that were settled. */
  #models = 0;
  #settled = 0;
  #isClosed = false;

  private constructor(
    private readonly replicas: Replicas,
    private readonly database: Database,
    private readonly options: WatchOptions,
  ) {}

  /** Resolves after the first check of all replicas. */
  static async start(
    replicas: Replicas,
    database: Database,
    mirror: Mirror,
    options: WatchOptions,
  ): Promise<ReplicaWatch> {
    const watch = new ReplicaWatch(replicas, database, options);
    mirror.onChange(() => watch.#followModel());
    await watch.#repeat(() => watch.#lookAtPrimary());
    await Promise.all(replicas.all.map((replica, index) => watch.#repeat(() => watch.#lookAt(replica, index))));
    return watch;
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Each has its own loop: one that does not answer must not delay the checks of the others. */
  async #repeat(look: () => Promise<void>): Promise<void> {
    await look();
    if (!this.#isClosed) setTimeout(() => void this.#repeat(look), LOOK_INTERVAL_MS).unref();
  }

  /** Until it is known where the primary was when the model was read, the primary alone is sure to have what the model shows. */
  #followModel(): void {
    this.#models++;
    this.replicas.board.model = UNKNOWN_POSITION;
  }

  async #lookAtPrimary(): Promise<void> {
    const { board } = this.replicas;
    const at = performance.now();
    const [models, unknown] = [this.#models, board.unknown];
    const report = await within(
      this.database.own.use((session) => session.cell(PRIMARY, [])),
      LOOK_TIMEOUT_MS,
    ).catch(() => null);
    // While the primary is lost, replicas go on to serve what they have.
    if (report === null) return;
    const primary = parseOwnJson<PrimaryReport>(String(report));
    const { flushed, end, timeline } = primary;
    const former = this.#primary;
    const isOther = former !== null && differenceOf(former, primary) !== null;
    const isPromoted = isOther || (former !== null && timeline !== former.timeline);
    this.#primary = primary;
    const last = this.#samples.at(-1)?.position ?? 0;
    if (flushed < last || isPromoted) {
      this.#samples.length = 0;
      this.#followModel();
      // Each is ready again when its own timeline was compared with the new one.
      for (const replica of this.replicas.all) replica.report('unknown', 0, 0);
      board.replacePrimary();
      if (isOther) board.resetWrittenTimeline(timeline);
    } else if (models === this.#models && board.model === UNKNOWN_POSITION) board.model = end;
    board.timeline = timeline;
    if (board.writtenTimeline > timeline) void this.database.primary?.reach(board.writtenTimeline);
    if (unknown > this.#settled) {
      this.#settled = unknown;
      board.settleUnknown(unknown, end);
    }
    if (flushed > (this.#samples.at(-1)?.position ?? 0)) this.#samples.push({ position: flushed, at });
    if (this.#samples.length > MAX_SAMPLES) this.#samples.shift();
  }

  async #lookAt(replica: Replica, index: number): Promise<void> {
    const askedAt = performance.now();
    const { server, database } = replica;
    // A new connection shows where the URL leads to now.
    if (server.isOver(askedAt)) database.watchdog.destroyAll();
    const { met } = server;
    try {
      const report = await within(replica.ask(), LOOK_TIMEOUT_MS);
      this.#silent.delete(replica);
      replica.measured(report, met, askedAt);
      const lagMs = this.#lagOf(report.replayed, askedAt);
      const reason = server.isSeveral ? SEVERAL_REASON : this.#reasonAgainst(report, lagMs);
      this.#note(replica, reason?.text ?? null);
      replica.report(reason?.state ?? 'ready', report.replayed, lagMs);
    } catch (error) {
      // An answer that this process was too busy to read is no silence of the replica.
      if (this.#isClosed || performance.now() - askedAt > LOOK_TIMEOUT_MS + STANDSTILL_MS) return;
      const isKnown = this.#silent.has(replica);
      this.#silent.add(replica);
      replica.suspect();
      this.#note(replica, messageOf(error));
      // Also if the replica got no new reads before: some may be in flight.
      if (!isKnown) this.options.onLost(index);
    }
  }

  #reasonAgainst(report: ReplicaReport, lagMs: number): Reason | null {
    const primary = this.#primary;
    if (primary === null) return { state: 'unknown', text: 'the primary has not answered yet' };
    const { standby, server, timeline } = report;
    const state = differenceOf(primary, report);
    if (state) return { state, text: `it is another ${state} than that of DATABASE_URL` };
    if (!standby && server === primary.server) return { state: 'primary', text: 'it is the primary' };
    if (!standby) return { state: 'promoted', text: 'it was promoted, and is not the primary of DATABASE_URL' };
    // Its log may be longer than that of the primary, and lack what was written there.
    if (timeline !== primary.timeline)
      return { state: 'diverged', text: `its timeline is ${timeline}, and that of the primary ${primary.timeline}` };
    if (lagMs > this.options.maxLagMs) return { state: 'behind', text: `it is ${Math.round(lagMs)} ms behind` };
    return null;
  }

  /** Logs when a replica is left out and when it is back. */
  #note(replica: Replica, reason: string | null): void {
    const former = this.#reasons.get(replica) ?? null;
    if (reason === null) this.#reasons.delete(replica);
    else this.#reasons.set(replica, reason);
    if ((reason === null) === (former === null)) return;
    const { observe } = this.options;
    observe(
      reason === null
        ? { kind: 'replica-ready', server: replica.name }
        : { kind: 'replica-left', server: replica.name, reason },
    );
  }

  /** Milliseconds, at the time at which the replica was asked. */
  #lagOf(replayed: number, askedAt: number): number {
    const samples = this.#samples;
    let [low, high] = [0, samples.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((samples[middle]?.position ?? 0) > replayed) high = middle;
      else low = middle + 1;
    }
    const first = samples[low];
    return first === undefined ? 0 : Math.max(0, askedAt - first.at);
  }
}
