/**
 * Sends reads to replicas: batches form per server. If a replica cannot answer, the read goes to the
 * primary, so that the client does not notice.
 */

import { ServiceError } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import { isVolatile, plansOf } from '../../compiler/statements/read.js';
import { factOf } from '../../server/execute/reads/compiled-read.js';
import type { BoundRead, ReadExecutor, ReadListener } from '../../server/execute/reads/read-executor.js';
import { ReadLayer } from '../../server/execute/reads/read-layer.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { ReadBatcher } from '../batching/read-batcher.js';
import type { Replica, Replicas } from './replicas.js';

/** The counts of one server. */
interface ServerCounts {
  readonly server: string;
  readonly reads: number;
  readonly statements: number;
}

/** Whether only the primary may serve the read: a function may write, or it shows tables of the service, which follow no caller. */
const isPrimaryOnly = factOf<boolean>(
  (compiled) => isVolatile(compiled) || plansOf(compiled.plan).some(({ level }) => level.collection.system),
);

/** Whether it is a page of a list that is read with cursors: all pages are read from one server. */
const isPaged = factOf<boolean>(({ plan }) => plansOf(plan).some(({ cursor }) => cursor));

export class ReplicaReads extends ReadLayer {
  /** Reads that the primary was sent. */
  #primaryReads = 0;
  readonly #batchers = new Map<Replica, ReadBatcher>();
  readonly #unanswered = new Map<Replica, Set<ReplicaListener>>();

  /** `primary` has the batches of `next`. */
  constructor(
    next: ReadExecutor,
    readonly replicas: Replicas,
    private readonly primary: ReadBatcher,
    batcherOf: (database: Database) => ReadBatcher,
  ) {
    super(next);
    for (const replica of replicas.all) {
      const batcher = batcherOf(replica.database);
      replica.database.readQueue = batcher;
      this.#batchers.set(replica, batcher);
      const unanswered = new Set<ReplicaListener>();
      this.#unanswered.set(replica, unanswered);
      // The statements are reads, so they may be sent again.
      replica.onLost(() => {
        for (const listener of unanswered) listener.reroute();
      });
    }
  }

  execute(read: BoundRead, listener: ReadListener): void {
    const { need, compiled } = read;
    const chosen =
      need && !isPrimaryOnly(compiled)
        ? this.replicas.choose(need.position, need.timeline, isPaged(compiled) ? need.callerHash : null)
        : null;
    if (!(chosen instanceof Promise)) this.#sendTo(chosen, read, listener);
    else
      chosen
        .then((replica) => this.#sendTo(replica, read, listener))
        .catch((error: unknown) => listener.onError(error));
  }

  #sendTo(replica: Replica | null, read: BoundRead, listener: ReadListener): void {
    const batcher = replica && this.#batchers.get(replica);
    const unanswered = replica && this.#unanswered.get(replica);
    if (!replica || !batcher || !unanswered) this.#sendToPrimary(read, listener);
    else {
      const instead = (): void => this.#sendToPrimary(read, listener);
      const answered = new ReplicaListener(replica, unanswered, listener, instead);
      batcher.execute(read, answered);
    }
  }

  #sendToPrimary(read: BoundRead, listener: ReadListener): void {
    this.#primaryReads++;
    this.next.execute(read, listener);
  }

  override async stream<Result>(
    read: Pick<BoundRead, 'compiled' | 'need'>,
    run: (database: Database) => Promise<Result>,
    mayRepeat: () => boolean,
  ): Promise<Result> {
    const { need, compiled } = read;
    const replica =
      need && !isPrimaryOnly(compiled) ? await this.replicas.choose(need.position, need.timeline, null) : null;
    const toPrimary = (): Promise<Result> => this.next.stream(read, run, mayRepeat);
    if (!replica) {
      this.#primaryReads++;
      return toPrimary();
    }
    begin(replica);
    try {
      return await run(replica.database);
    } catch (error) {
      if (!mayRepeat() || !mayLieInReplica(error, replica)) throw error;
      return await toPrimary();
    } finally {
      replica.outstanding--;
    }
  }

  get counts(): readonly ServerCounts[] {
    return [
      { server: 'primary', reads: this.#primaryReads, statements: statementsOf(this.primary) },
      ...this.replicas.all.map((replica) => ({
        server: replica.name,
        reads: replica.requests,
        statements: statementsOf(this.#batchers.get(replica)) + replica.database.streams.sent,
      })),
    ];
  }
}

function statementsOf(batcher: ReadBatcher | undefined): number {
  return batcher?.sizes.reduce((sum, count) => sum + count, 0) ?? 0;
}

function begin(replica: Replica): void {
  replica.requests++;
  replica.outstanding++;
}

class ReplicaListener implements ReadListener {
  #isAnswered = false;
  #isRerouted = false;

  constructor(
    private readonly replica: Replica,
    private readonly unanswered: Set<ReplicaListener>,
    private readonly listener: ReadListener,
    private readonly instead: () => void,
  ) {
    unanswered.add(this);
    begin(replica);
  }

  get aborted(): boolean {
    return this.#isRerouted || this.listener.aborted;
  }

  get caller(): string {
    return this.listener.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number, links?: string | null): void {
    this.#end();
    if (!this.#isRerouted) this.listener.onResult(cell, reads, links);
  }

  onError(error: unknown): void {
    // A failure after the answer is not the replica's.
    const isLate = this.#isAnswered;
    this.#end();
    if (this.#isRerouted) return;
    if (isLate || !mayLieInReplica(error, this.replica)) this.listener.onError(error);
    else this.instead();
  }

  /** The replica does not answer: the primary does. */
  reroute(): void {
    this.#end();
    this.#isRerouted = true;
    this.instead();
  }

  #end(): void {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    this.replica.outstanding--;
    this.unanswered.delete(this);
  }
}

/**
 * Errors of values, limits and time would be the same on the primary. Others may not occur there: those of changes that the replica has not
 * replayed, of missing rights, and of statements that were cancelled because they blocked the replay.
 */
function mayLieInReplica(error: unknown, replica: Replica): boolean {
  if (error instanceof ServiceError) return false;
  const failure = asError(error);
  const code = 'code' in failure ? String(failure.code) : '';
  if (/^(CONNECTION_|CONNECT_|E[A-Z]|08|57P)/.test(code)) replica.suspect();
  return !/^(2[123]|54|57014|P0)/.test(code);
}
