/**
 * Statistics of the last minutes about the statements of each shape: their number, duration and rows. Memory is bounded: of too many
 * shapes, those stay that took the most time.
 */
import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';

/** Planned once for all values, planned for each read, or with its rows found before they are sorted. */
export type PlanKind = 'generic' | 'custom' | 'fenced';

/** How long a window is, and how many are kept; the last one is not complete. */
const WINDOW_MS = 60_000;
const WINDOWS = 5;
const MAX_SHAPES = 300;
const MAX_TEXT_LENGTH = 4_000_000;
/** The rows of one out of so many answers are counted. */
const ANSWERS_PER_SAMPLE = 64;
/** Four buckets for each doubling, the first up to 0.01 ms. */
const BUCKETS_PER_DOUBLING = 4;
const FIRST_BUCKET = 26;
const BUCKETS = 96;

/** A short name for a statement, for traces. */
export function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 16);
}

const MAX_CACHED_DIGESTS = 1_000;
const digests = new LRUCache<string, string>({ max: MAX_CACHED_DIGESTS });

/** The same, computed once for a statement that comes again. */
export function shapeDigest(text: string): string {
  const known = digests.get(text);
  if (known !== undefined) return known;
  const digest = digestOf(text);
  digests.set(text, digest);
  return digest;
}

/** The statistics of one thread about a shape: plain data that can be added to other threads' statistics. */
export interface ShapeReport {
  readonly text: string;
  readonly plan: PlanKind;
  readonly parameters: number;
  /** Requests that were answered, and the statements that carried them. */
  readonly calls: number;
  readonly statements: number;
  readonly failed: number;
  /** Requests that were answered from memory, without a statement. */
  readonly hits: number;
  readonly totalMs: number;
  readonly maxMs: number;
  /** Answers whose rows were counted, and their rows. */
  readonly samples: number;
  readonly sampledRows: number;
  readonly buckets: readonly number[];
}

type Counts = Omit<ShapeReport, 'text' | 'plan' | 'parameters'>;
type Window = typeof NOTHING & { number: number; readonly buckets: Uint32Array };

/** The budget of a shape in this thread. */
interface ShapeBudget {
  /** Milliseconds that 99 of 100 statements should take at most. */
  readonly p99: number;
  /** Statements that took longer. */
  exceeded: number;
}

export class ShapeRecord {
  /** The budget, or null if none is set. */
  budget: ShapeBudget | null = null;
  /** False as soon as the record was dropped from the reports. */
  isKept = true;
  #window: Window | null = null;
  readonly #windows: Window[] = [];
  #untilSample = 0;

  constructor(
    readonly text: string,
    readonly plan: PlanKind,
    readonly parameters: number,
  ) {}

  /** Adds a statement that carried so many reads. */
  add(now: number, ms: number, calls: number, failed: boolean): void {
    const window = this.#current(now);
    window.calls += calls;
    window.statements++;
    if (failed) window.failed++;
    if (this.budget !== null && ms > this.budget.p99) this.budget.exceeded++;
    window.totalMs += ms;
    if (ms > window.maxMs) window.maxMs = ms;
    const bucket = bucketOf(ms);
    window.buckets[bucket] = (window.buckets[bucket] ?? 0) + 1;
  }

  /** Adds an answer from memory. */
  addHit(now: number): void {
    this.#current(now).hits++;
  }

  /** Counts the rows of some of the answers. */
  sample(answer: Buffer | null, isOperation: boolean): void {
    if (this.#untilSample-- > 0) return;
    this.#addRows(performance.now(), countRows(answer, isOperation));
  }

  /** Adds a statement that was sent by itself. */
  addSingle(ms: number, rows: number, failed: boolean): void {
    const now = performance.now();
    this.add(now, ms, 1, failed);
    if (!failed) this.#addRows(now, rows);
  }

  #addRows(now: number, rows: number): void {
    this.#untilSample = ANSWERS_PER_SAMPLE - 1;
    const window = this.#current(now);
    window.samples++;
    window.sampledRows += rows;
  }

  #current(now: number): Window {
    const number = Math.floor(now / WINDOW_MS);
    if (this.#window?.number === number) return this.#window;
    this.#forget(number);
    this.#window = { ...NOTHING, number, buckets: new Uint32Array(BUCKETS) };
    this.#windows.push(this.#window);
    return this.#window;
  }

  #forget(latest: number): void {
    while (this.#windows[0] && this.#windows[0].number <= latest - WINDOWS) this.#windows.shift();
  }

  /** Returns null if there were no statements lately. */
  report(now: number): ShapeReport | null {
    this.#forget(Math.floor(now / WINDOW_MS));
    if (this.#windows.length === 0) return null;
    const { text, plan, parameters } = this;
    const reports = this.#windows.map(
      ({ number: _, buckets, ...counts }): Counts => ({ ...counts, buckets: [...buckets] }),
    );
    return { text, plan, parameters, ...reports.reduce(addCounts) };
  }
}

const NOTHING = { calls: 0, statements: 0, failed: 0, hits: 0, totalMs: 0, maxMs: 0, samples: 0, sampledRows: 0 };

export function addReports(one: ShapeReport, other: ShapeReport): ShapeReport {
  return { ...one, ...addCounts(one, other) };
}

function addCounts(one: Counts, other: Counts): Counts {
  return {
    calls: one.calls + other.calls,
    statements: one.statements + other.statements,
    failed: one.failed + other.failed,
    hits: one.hits + other.hits,
    totalMs: one.totalMs + other.totalMs,
    maxMs: Math.max(one.maxMs, other.maxMs),
    samples: one.samples + other.samples,
    sampledRows: one.sampledRows + other.sampledRows,
    buckets: one.buckets.map((count, bucket) => count + (other.buckets[bucket] ?? 0)),
  };
}

/** The 99th percentile of the durations, at most a fifth too long. */
export function p99({ buckets, statements, maxMs }: ShapeReport): number {
  let slower = Math.floor(statements / 100);
  for (let bucket = buckets.length - 1; bucket >= 0; bucket--) {
    slower -= buckets[bucket] ?? 0;
    if (slower < 0) return Math.min(maxMs, 2 ** ((bucket + 1 - FIRST_BUCKET) / BUCKETS_PER_DOUBLING));
  }
  return maxMs;
}

function bucketOf(ms: number): number {
  const bucket = Math.floor(Math.log2(ms) * BUCKETS_PER_DOUBLING) + FIRST_BUCKET;
  // Zero has no logarithm.
  return bucket > 0 ? Math.min(bucket, BUCKETS - 1) : 0;
}

interface MeasuredWrite {
  readonly statement: { readonly text: string; readonly parameters: readonly unknown[] };
  readonly rows: number;
}

export class ShapeStats {
  readonly #records: Readonly<Record<PlanKind, Map<string, ShapeRecord>>> = {
    generic: new Map(),
    custom: new Map(),
    fenced: new Map(),
  };
  #length = 0;
  /** By the digest of the statement. */
  readonly budgets = new Map<string, ShapeBudget>();

  /** Takes the milliseconds by digest. Counts of shapes that keep a budget go on. */
  setBudgets(milliseconds: ReadonlyMap<string, number>): void {
    const former = new Map(this.budgets);
    this.budgets.clear();
    for (const [digest, p99] of milliseconds)
      this.budgets.set(digest, { p99, exceeded: former.get(digest)?.exceeded ?? 0 });
    for (const record of this.#all) record.budget = this.#budgetOf(record.text);
  }

  #budgetOf(text: string): ShapeBudget | null {
    return this.budgets.size === 0 ? null : (this.budgets.get(shapeDigest(text)) ?? null);
  }

  of(text: string, plan: PlanKind, parameters: number): ShapeRecord {
    const records = this.#records[plan];
    const cached = records.get(text);
    if (cached) return cached;
    const record = new ShapeRecord(text, plan, parameters);
    record.budget = this.#budgetOf(text);
    records.set(text, record);
    this.#length += text.length;
    if (this.#size > MAX_SHAPES || this.#length > MAX_TEXT_LENGTH) this.#drop(record);
    return record;
  }

  /** Measures a write: its statement and what is sent with it. */
  time<Result>(statement: MeasuredWrite['statement'], rows: number, send: () => Promise<Result>): Promise<Result> {
    return this.timeTogether([{ statement, rows }], send);
  }

  /** Writes that were sent together share their time. */
  async timeTogether<Result>(writes: readonly MeasuredWrite[], send: () => Promise<Result>): Promise<Result> {
    const begun = performance.now();
    let failed = true;
    try {
      const result = await send();
      failed = false;
      return result;
    } finally {
      const share = (performance.now() - begun) / writes.length;
      for (const { statement, rows } of writes)
        this.of(statement.text, 'generic', statement.parameters.length).addSingle(share, rows, failed);
    }
  }

  get reports(): ShapeReport[] {
    const now = performance.now();
    return this.#all.flatMap((record) => record.report(now) ?? []);
  }

  get #size(): number {
    return this.#records.generic.size + this.#records.custom.size + this.#records.fenced.size;
  }

  get #all(): ShapeRecord[] {
    return Object.values(this.#records).flatMap((records) => [...records.values()]);
  }

  /** Drops the half that took the least time, but not the latest. */
  #drop(latest: ShapeRecord): void {
    const now = performance.now();
    const totals = new Map(this.#all.map((record) => [record, record.report(now)?.totalMs ?? 0]));
    const byTime = [...totals].sort(([, one], [, other]) => one - other).map(([record]) => record);
    for (const record of byTime.slice(0, Math.ceil(byTime.length / 2))) {
      if (record === latest) continue;
      record.isKept = false;
      this.#records[record.plan].delete(record.text);
      this.#length -= record.text.length;
    }
  }
}

/** Bytes: of a longer answer only the beginning is read, and the rest is estimated from it. */
const MAX_READ_BYTES = 65_536;

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * Counts the items of an answer in its bytes, because PostgreSQL writes all of them as one cell: `{"meta":{...},"data":[...]}`,
 * `{"data":{...}}`, or for a GraphQL operation `{"data":{"articles":[...],"tags_by_id":{...}}}`.
 */
export function countRows(answer: Buffer | null, isOperation: boolean): number {
  if (answer === null) return 0;
  const end = Math.min(answer.length, MAX_READ_BYTES);
  const level = isOperation ? 3 : 2;
  let depth = 0;
  let rows = 0;
  let inList = false;
  let hasLists = false;
  let objects = 0;
  for (let at = 0; at < end; at++) {
    const byte = answer[at];
    if (byte === QUOTE) at = endOfString(answer, at + 1, end);
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) {
      depth++;
      if (depth === level) {
        inList = byte === OPEN_ARRAY;
        if (!inList) objects++;
        else if (answer[at + 1] !== CLOSE_ARRAY) rows++;
        hasLists ||= inList;
      }
    } else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) depth--;
    else if (byte === COMMA && inList && depth === level) rows++;
  }
  if (isOperation) rows += objects;
  else if (!hasLists) return Math.min(objects, 1);
  return end === answer.length ? rows : Math.round((rows * answer.length) / end);
}

function endOfString(answer: Buffer, start: number, end: number): number {
  let at = start;
  while (at < end && answer[at] !== QUOTE) at += answer[at] === BACKSLASH ? 2 : 1;
  return at;
}
