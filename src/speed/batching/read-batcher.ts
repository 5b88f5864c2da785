/**
 * Batches of reads. The cost of sending a statement, not PostgreSQL, limits small reads. So when a connection becomes free, the waiting
 * requests of one shape become one statement, and each is answered from its own row. Only requests that were not sent yet join: none
 * is answered from a snapshot older than its arrival. A request that need not wait is sent at once, by itself.
 */
import { performance } from 'node:perf_hooks';
import { ServiceError, serviceUnavailable } from '../../base/errors.js';
import { codeOf } from '../../base/narrow.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import { haveEqualSettings, textFor } from '../../server/access/database-caller.js';
import { ShapeStats } from '../../server/batching/shape-stats.js';
import { linkedShape } from '../../server/execute/reads/linked-shape.js';
import type { BoundRead, ReadListener, ReadSender, Shape } from '../../server/execute/reads/read-executor.js';
import type { Connection } from '../../server/postgres/wire/connection.js';
import { settingQuery, transactionQuery, type WireQuery } from '../../server/postgres/wire/wire-query.js';
import { type ConnectionSlot, ConnectionSlots } from './connection-slots.js';
import { MAX_BATCH_MS, MAX_BATCH_READS } from './cost-model.js';
import { MAX_BATCH_WAIT_MS, PendingRead, ShapeQueue } from './shape-queue.js';

/** Between two checks for statements whose clients have all left, and for reads that have waited too long. */
const SWEEP_INTERVAL_MS = 500;
/** Reads from memory between two statements, from which on the client of a statement is not the only one. */
const MANY_ANSWERED = 4;

/** Returns whether the reads wait again. */
type OnEnd = (error: Error | null, unsent: boolean, isSplit: boolean) => boolean;

export class ReadBatcher implements ReadSender {
  /** How many statements carried 0, 1, 2 … reads, for metrics. */
  readonly sizes = new Float64Array(MAX_BATCH_READS + 1);
  /** Batches whose reads were sent again, one by one. */
  splits = 0;
  /** How many reads this thread has answered from memory, so far. */
  answeredFromMemory: () => number = () => 0;
  /** The number when a statement was sent last. */
  #answeredBefore = 0;
  /** Whether a read has waited too long, and nothing was answered since. */
  isStarved = false;
  readonly #slots: ConnectionSlots;
  readonly #maxReads: number;
  /** Whether the transactions of several callers can be sent together. */
  readonly #pipelines: boolean;
  readonly #queues = new WeakMap<Shape, ShapeQueue>();
  /** Shapes with waiting reads, in the order of their turns. */
  #turns: ShapeQueue[] = [];
  readonly #deadlines = new Deadlines(MAX_BATCH_MS);
  #scheduled = false;
  /** Whether the last statement carried one read, and no other statement was in flight. */
  #wasAlone = false;
  #timer: NodeJS.Timeout | null = null;
  #sweeper: NodeJS.Timeout | null = null;
  #sweeps = 0;
  readonly #waitSweeps: number;

  /** Without `batching`, each read is a statement of its own. A read that waits longer than `waitTimeoutMs` fails. */
  constructor(
    connections: readonly Connection[],
    batching: boolean,
    waitTimeoutMs: number,
    private readonly stats: ShapeStats = new ShapeStats(),
  ) {
    this.#slots = new ConnectionSlots(connections, () => this.#schedule());
    this.#waitSweeps = Math.ceil(waitTimeoutMs / SWEEP_INTERVAL_MS);
    this.#maxReads = batching ? MAX_BATCH_READS : 1;
    this.#pipelines = connections.every((connection) => connection.keepsSession);
  }

  execute(read: BoundRead, listener: ReadListener): void {
    if (read.links) read.shape = linkedShape(read);
    const queue = this.#queueOf(read.shape);
    if (queue.waiting.length === 0) queue.answered = this.answeredFromMemory();
    queue.waiting.push(new PendingRead(read, listener, this.#sweeps));
    this.#enter(queue);
    if (this.#isAlone) this.#advance();
    else this.#schedule();
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_INTERVAL_MS).unref();
  }

  #queueOf(shape: Shape): ShapeQueue {
    const cached = this.#queues.get(shape);
    if (cached) return cached;
    const queue = new ShapeQueue(shape, this.stats, this.#pipelines);
    this.#queues.set(shape, queue);
    return queue;
  }

  /** Connections that have a statement in flight. */
  get busy(): number {
    return this.#slots.busy;
  }

  /** Reads that were not sent yet. */
  get waiting(): number {
    return this.#turns.reduce((sum, queue) => sum + queue.waiting.length + queue.individual.length, 0);
  }

  #enter(queue: ShapeQueue): void {
    if (queue.isQueued) return;
    queue.isQueued = true;
    this.#turns.push(queue);
  }

  /**
   * Whether a read has probably arrived alone: nothing is in flight, and the read before was alone. To wait until others may have entered
   * would cost a client that sends one request at a time more than it gains.
   */
  get #isAlone(): boolean {
    if (!this.#wasAlone || this.#scheduled || this.#turns.length > 1 || this.#slots.busy > 0) return false;
    return this.answeredFromMemory() - this.#answeredBefore < MANY_ANSWERED;
  }

  /** Runs after all reads that arrived together have entered. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#advance();
    });
  }

  /** Each waiting shape sends once, then the others have their turn. */
  #advance(): void {
    const now = performance.now();
    const waiting: ShapeQueue[] = [];
    while (this.#turns.length > 0) {
      const turns = this.#turns;
      this.#turns = [];
      for (const queue of turns) {
        if (!this.#maySend(queue, now)) {
          waiting.push(queue);
          continue;
        }
        queue.isQueued = false;
        this.#send(queue, now);
        if (!queue.isEmpty) this.#enter(queue);
      }
    }
    if (waiting.length === 0) return;
    this.#turns = [...waiting, ...this.#turns];
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#advance();
    }, MAX_BATCH_WAIT_MS + 1).unref();
  }

  #maySend(queue: ShapeQueue, now: number): boolean {
    if (this.#maxReads > 1 && queue.individual.length === 0) {
      if (queue.shouldWait(now)) return false;
      if (queue.shouldGather(now, this.answeredFromMemory())) {
        this.#schedule();
        return false;
      }
      if (queue.busySlot) return true;
    }
    return this.#slots.mayTake(queue);
  }

  #send(queue: ShapeQueue, now: number): void {
    // A read that was split from a batch joins no other batch, and is not sent behind one.
    const isIndividual = queue.individual.length > 0;
    const maxReads = Math.min(queue.maxReads, this.#maxReads, queue.waiting.length);
    const { caller } = queue;
    // As `maySend` has found it: the callers of the next reads may change how many connections the shape may use.
    const behind = this.#maxReads > 1 && !isIndividual ? queue.busySlot : null;
    const reads = queue.next(maxReads > 1 && !queue.isBatchable ? 1 : maxReads);
    const [first] = reads;
    if (first === undefined) return;
    this.#wasAlone = reads.length === 1 && this.#slots.busy === 0;
    const slot = behind ?? this.#slots.take(queue, caller);
    queue.onSent(reads.length, slot, now);
    this.#answeredBefore = this.answeredFromMemory();
    const onEnd: OnEnd = (error, unsent, isSplit) => {
      const ms = queue.onAnswered(reads.length, slot, now);
      if (!unsent) {
        this.isStarved = false;
        queue.learn(ms, reads.length, slot, error !== null);
      }
      if (slot.load === 0) this.#slots.release(slot, !unsent);
      const again = unsent && !isSplit && this.#mayReturn(reads);
      if (again) {
        for (const read of reads) read.isReturned = true;
        queue.waiting.unshift(...reads);
        this.#enter(queue);
      }
      if (this.#turns.length > 0) this.#schedule();
      return again;
    };
    // A read behind another statement counts as a batch too, so that it can be split off.
    const isBatch = reads.length > 1 || behind !== null;
    const isPipeline = this.#pipelines && reads.length > 1 && queue.isApart;
    if (!isPipeline) this.sizes[reads.length] = (this.sizes[reads.length] ?? 0) + 1;
    if (!isBatch)
      slot.connection.run(...withSettings(plainQuery(queue, reads, first.prepare, onEnd), first, queue.shape));
    else if (isPipeline) this.#sendPipeline(queue, reads, slot, onEnd);
    else {
      const [query] = this.#batchQueries(queue, [reads], slot.connection, onEnd);
      if (query) slot.connection.run(...withSettings(query, first, queue.shape));
    }
  }

  /**
   * Reads of different callers: each caller has a transaction, and all are sent together. No statement is sent behind them: if one fails,
   * the connection has to end its transaction first.
   */
  #sendPipeline(queue: ShapeQueue, reads: readonly PendingRead[], slot: ConnectionSlot, onEnd: OnEnd): void {
    slot.isPipeline = true;
    const groups = groupByCaller(reads);
    const queries = this.#batchQueries(queue, groups, slot.connection, onEnd);
    const isAbandoned = queries[0]?.isAbandoned;
    const messages: WireQuery[] = [isAbandoned ? { ...BEGIN, isAbandoned } : BEGIN];
    for (const [index, query] of queries.entries()) {
      const { [0]: first, length = 0 } = groups[index] ?? [];
      this.sizes[length] = (this.sizes[length] ?? 0) + 1;
      if (first) messages.push(...withSettings(query, first, queue.shape), COMMIT_AND_BEGIN);
    }
    messages[messages.length - 1] = COMMIT;
    slot.connection.run(...messages);
  }

  /** Stops statements whose clients have all left, and fails reads that have waited too long. */
  #sweep(): void {
    this.#sweeps++;
    if (this.#slots.busy > 0) this.#slots.stopAbandoned();
    if (this.#turns.length > 0) this.#expire();
    else if (this.#slots.busy === 0 && this.#sweeper) {
      clearInterval(this.#sweeper);
      this.#sweeper = null;
    }
  }

  #expire(): void {
    for (const queue of this.#turns)
      for (const read of queue.takeExpired(this.#sweeps - this.#waitSweeps)) {
        this.isStarved = true;
        read.onError(serviceUnavailable('database', 'All connections are taken', { option: 'DATABASE_WAIT_TIMEOUT' }));
      }
  }

  /** If a connection could not be opened, another one may do. Connections that are being opened are waited for once. */
  #mayReturn(reads: readonly PendingRead[]): boolean {
    if (this.#slots.isAnyOpen) return true;
    return this.#slots.isAnyOpening && reads.every((read) => !read.isReturned);
  }

  /** A statement for each group of reads. If one read fails, each is sent by itself, so that the others succeed. */
  #batchQueries(
    queue: ShapeQueue,
    groups: readonly (readonly PendingRead[])[],
    connection: Connection,
    onEnd: OnEnd,
  ): WireQuery[] {
    const [reads = []] = groups.length === 1 ? groups : [groups.flat()];
    // Without values, all of them read the same.
    if (groups.length === 1 && reads[0]?.parameters.length === 0) return [plainQuery(queue, reads, true, onEnd)];
    let isSplit = false;
    const split = (): void => {
      isSplit = true;
      this.splits++;
      queue.individual.push(...reads.filter((read) => !read.isAnswered));
      this.#enter(queue);
      this.#schedule();
    };
    const deadline = this.#deadlines.add(() => {
      queue.markSlow();
      split();
      connection.stopAbandoned();
    });
    const isAbandoned = (): boolean => isSplit || reads.every(isGone);
    const end = (error: Error | null, unsent: boolean): void => {
      this.#deadlines.remove(deadline);
      // After a split, each read is answered by its own statement.
      if (onEnd(error, unsent, isSplit) || isSplit || reads.every((read) => read.isAnswered)) return;
      if (error === null) for (const group of groups) endUnanswered(group);
      else if (mayDependOnValues(error)) split();
      else for (const read of reads) read.onError(error);
    };
    return groups.map((group, index) =>
      groupQuery(queue, group, isAbandoned, index === groups.length - 1 ? end : ignore),
    );
  }
}

/** The reads with equal settings, in the order of their arrival. */
function groupByCaller(reads: readonly PendingRead[]): readonly (readonly PendingRead[])[] {
  const groups: PendingRead[][] = [];
  const byCaller = new Map<string | undefined, PendingRead[][]>();
  for (const read of reads) {
    const caller = read.settings?.caller.digest;
    const known = byCaller.get(caller);
    const group = known?.find(([first]) => haveEqualSettings(first?.settings ?? null, read.settings));
    if (group) group.push(read);
    else {
      const added = [read];
      groups.push(added);
      if (known) known.push(added);
      else byCaller.set(caller, [added]);
    }
  }
  return groups;
}

/** Whether the group has one result for all of its reads: the statement for one read costs PostgreSQL less than that for several. */
function hasOneResult([first, second]: readonly PendingRead[]): boolean {
  return first?.parameters.length === 0 || (second === undefined && first?.settings != null);
}

/** A statement for reads with equal settings. */
function groupQuery(
  queue: ShapeQueue,
  reads: readonly PendingRead[],
  isAbandoned: () => boolean,
  end: WireQuery['end'],
): WireQuery {
  const isOne = hasOneResult(reads);
  const [parameters, settings] = [reads[0]?.parameters ?? [], reads[0]?.settings ?? null];
  return {
    text: textFor(isOne ? queue.shape.statement.text : queue.batchText, settings),
    parameters: isOne
      ? parameters
      : parameters.map((_, position) => arrayLiteral(reads.map((read) => read.parameters[position] ?? null))),
    prepare: true,
    ...columnsOf(queue.shape, isOne ? 1 : 2),
    isRead: true,
    isAbandoned,
    row: (number, cell, links) => {
      queue.sample(cell);
      if (isOne) for (const read of reads) read.onResult(cell, reads.length, links);
      else reads[number - 1]?.onResult(cell, reads.length, links);
    },
    end,
  };
}

/** `plain`: the columns without links. */
function columnsOf({ linked }: Shape, plain: 1 | 2): Pick<WireQuery, 'columns' | 'hasLinks'> {
  if (!linked) return { columns: plain };
  return { columns: plain === 1 ? 2 : 3, hasLinks: true };
}

/** The statement of the group has ended: a result without a row is empty. */
function endUnanswered(reads: readonly PendingRead[]): void {
  for (const read of reads) {
    if (hasOneResult(reads)) read.onResult(null, reads.length, null);
    else read.onError(new Error('a batch was not answered in full'));
  }
}

/** One set of values, or none: all reads get the same answer. */
function plainQuery(queue: ShapeQueue, reads: readonly PendingRead[], prepare: boolean, onEnd: OnEnd): WireQuery {
  const [first] = reads;
  return {
    text: first?.settings ? textFor(queue.shape.statement.text, first.settings) : queue.shape.statement.text,
    parameters: first?.parameters ?? [],
    prepare,
    ...columnsOf(queue.shape, 1),
    isAbandoned: () => reads.every(isGone),
    row: (_, cell, links) => {
      queue.sample(cell);
      for (const read of reads) read.onResult(cell, reads.length, links);
    },
    end: (error, unsent) => {
      if (onEnd(error, unsent, false)) return;
      for (const read of reads) {
        if (error === null) read.onResult(null, reads.length, null);
        else read.onError(error);
      }
    },
  };
}

function isGone(read: PendingRead): boolean {
  return read.isGone;
}

/** Whether the values of one read may have caused the failure, or a timeout. A lost connection would fail again. */
function mayDependOnValues(error: Error): boolean {
  if (error instanceof ServiceError) return error.status < 500;
  const code = codeOf(error);
  return code === '57014' || (/^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53300|57|58)/.test(code));
}

/** Puts the settings of the caller, and the setting that plans for each value, before the statement. They apply until the end of its transaction. */
function withSettings(query: WireQuery, { settings }: PendingRead, { isPlannedPerRead }: Shape): WireQuery[] {
  const queries = settings ? [settingQuery(settings, query), query] : [query];
  if (isPlannedPerRead) queries.unshift(settingQuery(PLAN_PER_READ, query));
  return queries;
}

const ignore = (): void => {};

const BEGIN = transactionQuery('begin');
const COMMIT = transactionQuery('commit');
/** The next transaction keeps only the isolation level and the access mode. */
const COMMIT_AND_BEGIN = transactionQuery('commit and chain');
const PLAN_PER_READ = {
  text: "select pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true)",
  parameters: [],
};

export interface Deadline {
  readonly dueAt: number;
  readonly onMissed: () => void;
}

/** Calls back if something takes too long. One timer for all: a timer for each would cost several times as much. */
export class Deadlines {
  /** In the order in which they are due, because all have the same timeout. */
  readonly #watched = new Set<Deadline>();
  #timer: NodeJS.Timeout | null = null;

  constructor(private readonly timeoutMs: number) {}

  /** Calls `onMissed` after the timeout, unless the deadline is removed before. */
  add(onMissed: () => void): Deadline {
    const deadline = { dueAt: performance.now() + this.timeoutMs, onMissed };
    this.#watched.add(deadline);
    if (this.#timer === null) this.#wake(this.timeoutMs);
    return deadline;
  }

  remove(deadline: Deadline): void {
    this.#watched.delete(deadline);
  }

  #check(): void {
    const now = performance.now();
    for (const deadline of this.#watched) {
      if (deadline.dueAt > now) {
        this.#wake(deadline.dueAt - now);
        return;
      }
      this.#watched.delete(deadline);
      deadline.onMissed();
    }
    this.#timer = null;
  }

  #wake(ms: number): void {
    this.#timer = setTimeout(() => this.#check(), ms).unref();
  }
}
