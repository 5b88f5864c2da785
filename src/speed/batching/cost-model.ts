/**
 * The cost of the reads of one shape, learned from the durations of their statements. It decides how they are batched and which
 * connections they get. It knows no clock, no connection and no request.
 */

/** Slow reads leave some connections to others, and so do unknown ones; cheap reads wait for one another and share connections. */
export type CostClass = 'unknown' | 'cheap' | 'moderate' | 'slow';

export const MAX_BATCH_READS = 64;
/** After this time a batch is split: one of its reads is slow, and each is sent by itself. */
export const MAX_BATCH_MS = 250;

/** The longest that a batch should take, by the cost of its reads. */
const BATCH_BUDGET_MS = 4;
/** A read is cheap if at least so many fit into the budget. One backend serves more of the cheapest reads than Node can handle. */
const CHEAP_READS_PER_BATCH = 8;
const CHEAPEST_READS_PER_BATCH = 80;
/** Connections that reads of one shape may share before they are limited. */
const MAX_SLOTS_PER_SHAPE = 2;
/** A read is slow above this: on a busy machine fast reads are not cheap, but must not count as slow either. */
const SLOW_READ_MS = 50;
/** The overhead of a statement, at most. */
const STATEMENT_OVERHEAD_MS = 0.1;
/** A batch pays off if it takes at most so many times longer than a single read; else none is tried for so many statements. */
const MAX_BATCH_SLOWDOWN = 1.25;
const STATEMENTS_BETWEEN_TRIALS = 16;
/** How far the known cost moves towards a lower and a higher one. */
const FALL_RATE = 0.5;
const RISE_RATE = 0.01;

export class CostModel {
  /**
   * Milliseconds per read, null before the first answer. It falls fast and rises slowly: the cost of a read is its duration on an idle
   * machine; the rest is waiting, which batches make shorter.
   */
  #costMs: number | null = null;
  /** Milliseconds of a statement with one read, null before the first. */
  #singleMs: number | null = null;
  #statementsBeforeTrial = 0;
  costClass: CostClass = 'unknown';
  /** Reads that one statement should carry at most. */
  batchSize = 1;
  /**
   * Reads that a statement may carry although they do not seem cheap: if all CPUs are busy, even the cheapest reads take long, and hardly
   * longer in a batch. It grows while batches pay off.
   */
  trialSize = 1;
  /** Connections that its statements share. */
  maxSlots = MAX_SLOTS_PER_SHAPE;

  /** The expected duration of a statement with so many reads; null before the first answer. */
  expectedMs(reads: number): number | null {
    return this.#costMs === null ? null : STATEMENT_OVERHEAD_MS + this.#costMs * reads;
  }

  /** Most failures are fast: a failure is ignored unless it took long. */
  learn(ms: number, reads: number, failed: boolean): void {
    if (!failed) this.#judgeTrial(ms, reads);
    const cost = ms / reads;
    if (failed && cost < (this.#costMs ?? SLOW_READ_MS)) return;
    const known = this.#costMs ?? cost;
    this.#setCost(known + (cost - known) * (cost < known ? FALL_RATE : RISE_RATE));
  }

  /** After a batch that took too long, reads are sent one by one until some of them were faster. */
  markSlow(): void {
    this.#setCost(MAX_BATCH_MS);
  }

  #setCost(costMs: number): void {
    this.#costMs = costMs;
    this.costClass =
      costMs > SLOW_READ_MS ? 'slow' : costMs * CHEAP_READS_PER_BATCH <= BATCH_BUDGET_MS ? 'cheap' : 'moderate';
    const affordable = Math.min(MAX_BATCH_READS, Math.floor(BATCH_BUDGET_MS / costMs));
    this.batchSize = this.costClass === 'cheap' ? affordable : Math.max(affordable, this.trialSize);
    this.maxSlots = costMs * CHEAPEST_READS_PER_BATCH <= BATCH_BUDGET_MS ? 1 : MAX_SLOTS_PER_SHAPE;
  }

  #judgeTrial(ms: number, reads: number): void {
    const known = this.#singleMs ?? ms;
    if (reads === 1) this.#singleMs = known + (ms - known) / 4;
    if (reads < this.trialSize || --this.#statementsBeforeTrial > 0) return;
    const pays = reads === 1 || ms <= MAX_BATCH_SLOWDOWN * known;
    if (!pays) this.#statementsBeforeTrial = STATEMENTS_BETWEEN_TRIALS;
    this.trialSize = pays && ms * 4 < MAX_BATCH_MS ? Math.min(MAX_BATCH_READS, reads * 2) : Math.max(1, reads >> 1);
  }
}
