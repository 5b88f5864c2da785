/**
 * Several writes in one transaction, in their order. Statements that need nothing from each other are sent together, up to one Sync: a
 * transaction of ten such writes is two round trips, the second of which commits.
 */
import { elementAt } from '../../../base/narrow.js';
import { within } from '../../../base/time-limit.js';
import type { Model } from '../../../compiler/model/model.js';
import type { ValueReference } from '../../../compiler/plan/write/reference-places.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import type { IdempotencyKey, WriteRequest } from '../../../compiler/request/write.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import type { ShapeStats } from '../../batching/shape-stats.js';
import type { CallerSlice } from '../../node/turns.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session, TransactionStatement } from '../../postgres/pools/sessions.js';
import { BatchMemory, type ResponseMemory } from '../../postgres/wire/response-memory.js';

/** A write of a transaction, or the call of a function that may write. */
export type TransactionStep =
  | {
      readonly kind: 'write';
      /** Steps before it whose keys the request contains. */
      readonly needs: readonly number[];
      readonly request: (written: WrittenKeys) => WriteRequest;
      /** The references in the request that stand for values. Absent if it has no references. */
      readonly values?: (model: Model) => readonly ValueReference[];
    }
  | { readonly kind: 'call'; readonly query: Parsed };

/** The keys of the items that each step has created, as responses show them. */
export type WrittenKeys = ReadonlyMap<number, readonly unknown[]>;

export interface TransactionOptions {
  /** Gets the step that an error belongs to: the one that is planned or was refused; null while no step is. */
  readonly at: (step: number | null) => void;
  /** The transaction is carried out once, however often it is sent. */
  readonly idempotencyKey: IdempotencyKey | null;
  /** The response. Bodies are null for steps without one. */
  readonly bodyOf: (bodies: readonly (Buffer | null)[]) => Buffer;
}

/** The statements of a write that needs nothing in between. */
export interface PipelinedWrite {
  /** The one that writes, and those behind it. */
  readonly statements: readonly [TransactionStatement, ...TransactionStatement[]];
  /** Rows that it writes, for the statistics. */
  readonly rows: number;
  /** The body, from the cells of the statements. Throws if they show a refusal. */
  readonly bodyOf: (cells: readonly (Buffer | null)[]) => Buffer | null;
  /** The keys of new items, if a later step refers to them. */
  readonly keysOf: ((cells: readonly (Buffer | null)[]) => readonly unknown[]) | null;
  readonly asFailure: (error: unknown) => unknown;
}

interface PendingWrite {
  readonly step: number;
  readonly write: PipelinedWrite;
}

/** Where a write stands in its transaction. */
export interface StepPlace {
  readonly index: number;
  /** Whether a later step contains its keys. */
  readonly isReferenced: boolean;
  readonly values: (model: Model) => readonly ValueReference[];
}

const NO_VALUES = (): readonly ValueReference[] => [];

/** How the kinds of steps are carried out. */
interface StepRunner {
  /** Adds it to the pipeline, or carries it out behind those that wait there. */
  readonly write: (request: WriteRequest, place: StepPlace) => Promise<void>;
  readonly call: (query: Parsed) => Promise<Buffer | null>;
}

/** The state of one attempt: what waits to be sent, and the results so far. */
export class TransactionPipeline {
  readonly keys = new Map<number, readonly unknown[]>();
  readonly #bodies: (Buffer | null)[] = [];
  readonly #memory: BatchMemory;
  #pending: PendingWrite[] = [];

  constructor(
    readonly session: Session,
    private readonly reads: { readonly shapeStats: ShapeStats; readonly responseMemory: ResponseMemory },
    private readonly at: TransactionOptions['at'],
    private readonly slice: CallerSlice,
  ) {
    this.#memory = new BatchMemory(reads.responseMemory);
  }

  /** Answers the bodies, in the order of the steps. */
  async run(steps: readonly TransactionStep[], runner: StepRunner): Promise<readonly (Buffer | null)[]> {
    const referenced = new Set(steps.flatMap((step) => (step.kind === 'write' ? step.needs : [])));
    for (const [index, step] of steps.entries()) {
      if (index > 0) await this.slice.pause();
      const isReady = step.kind === 'write' && !step.needs.some((needed) => this.#isPending(needed));
      if (!isReady) await this.flush();
      this.begin(index);
      if (step.kind === 'call') this.receive(index, await runner.call(step.query));
      else {
        const { request, values = NO_VALUES } = step;
        await runner.write(request(this.keys), { index, isReferenced: referenced.has(index), values });
      }
    }
    await this.flush();
    // An error of the commit belongs to no step.
    this.at(null);
    return this.#bodies;
  }

  /** Errors from now on belong to the step. */
  begin(step: number): void {
    this.at(step);
  }

  add(step: number, write: PipelinedWrite): void {
    this.#pending.push({ step, write });
  }

  #isPending(step: number): boolean {
    return this.#pending.some((pending) => pending.step === step);
  }

  /** Bodies of all steps count together against the limits of a response. */
  receive(step: number, body: Buffer | null): void {
    this.at(step);
    const refused = this.#memory.receive(body?.length ?? 0);
    if (refused) throw refused;
    this.#bodies[step] = body;
  }

  /** Sends what waits. */
  async flush(): Promise<void> {
    const pending = this.#pending;
    if (pending.length === 0) return;
    this.#pending = [];
    this.at(null);
    const cells = await this.#send(pending);
    let start = 0;
    for (const { step, write } of pending) {
      this.at(step);
      const own = cells.slice(start, start + write.statements.length);
      start += own.length;
      this.receive(step, write.bodyOf(own));
      if (write.keysOf) this.keys.set(step, write.keysOf(own));
    }
    this.at(null);
  }

  async #send(pending: readonly PendingWrite[]): Promise<readonly (Buffer | null)[]> {
    const statements = pending.flatMap(({ write }) => write.statements);
    const owners = pending.flatMap((each) => each.write.statements.map(() => each));
    const measured = pending.map(
      ({
        write: {
          statements: [statement],
          rows,
        },
      }) => ({ statement, rows }),
    );
    const failed: PendingWrite[] = [];
    try {
      return await this.reads.shapeStats.timeTogether(measured, () =>
        this.session.cells(statements, (position) => {
          failed.push(elementAt(owners, position));
        }),
      );
    } catch (error) {
      const [refused] = failed;
      if (!refused) throw error;
      this.at(refused.step);
      throw refused.write.asFailure(error);
    }
  }

  release(): void {
    this.#memory.clear();
  }
}

/** Runs the work in a transaction. */
export type Begin<Result> = (work: (session: Session) => Promise<Result>) => Promise<Result>;

/**
 * A transaction that begins when `prepare` asks for it. `finish` gets the session, or null if there is no transaction. If `prepare` fails, the
 * transaction is undone.
 */
export async function beginLate<Prepared, Result>(
  begin: Begin<Result>,
  prepare: (open: () => Promise<Session>) => Promise<Prepared>,
  finish: (prepared: Prepared, session: Session | null) => Promise<Result>,
): Promise<Result> {
  let ended: Promise<Result> | null = null;
  let opened: Promise<Session> | null = null;
  const open = (): Promise<Session> => {
    opened ??= new Promise((resolve, reject) => {
      ended = begin(async (session) => {
        resolve(session);
        return finish(await prepared, session);
      });
      ended.catch(reject);
    });
    return opened;
  };
  // Not before the next turn: `open` waits for it.
  const prepared = Promise.resolve().then(() => prepare(open));
  const result = await prepared.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if (ended !== null) return ended;
  if ('error' in result) throw result.error;
  return finish(result.value, null);
}

/** Milliseconds for the question whether a statement waits. */
const QUESTION_TIMEOUT_MS = 1_000;

const WAITS_FOR_LOCK = withCatalog(`
  select 1 from pg_stat_activity where pid = $1::int4 and wait_event_type = 'Lock'`);

/** Whether the process waits for a lock. PostgreSQL does not say so if it cancels a statement that waits in the queue of a row. */
export async function waitsForLock(database: Database, processId: number): Promise<boolean> {
  const asked = within(database.rows(WAITS_FOR_LOCK, [String(processId)]), QUESTION_TIMEOUT_MS);
  return (await asked.catch(() => [])).length > 0;
}
