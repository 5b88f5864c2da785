/**
 * How a read gets its result: what a read is when its values are bound, who waits for it, and the executor that sends it. The server knows
 * this interface; `speed` has executors that batch reads, choose plans and servers, and answer from memory.
 */
import type { LinkedForm } from '../../../compiler/compile/read.js';
import type { Model } from '../../../compiler/model/model.js';
import type { OperationPlan, ReadPlan } from '../../../compiler/plan/plan.js';
import type { Values } from '../../../compiler/sql/parameter.js';
import type { CallerSettings } from '../../access/database-caller.js';
import type { Identity } from '../../access/identity.js';
import type { PlanKind } from '../../batching/shape-stats.js';
import type { Database } from '../../postgres/pools/database.js';
import type { LogPosition } from '../../postgres/pools/sessions.js';
import type { BilledCaller } from '../caller-budget.js';
import type { ReadNeed } from '../consistency.js';
import type { CompiledRead } from './compiled-read.js';
import type { KeptAnswer } from './kept-answer.js';

/** A read that may share one statement with others. */
export interface Shape {
  readonly statement: { readonly text: string; readonly parameters: readonly unknown[] };
  /** The kind of its answer: `operation` has several lists. */
  readonly result?: string;
  /** The plan and the model that it was compiled from. Without them, it is not compiled for many sets of values. */
  readonly plan?: ReadPlan | OperationPlan;
  readonly model?: Model;
  /** Whether connections do not keep the statement: it is parsed and planned each time. */
  readonly isUnprepared?: boolean;
  /** Whether each read is planned for its values, though connections keep the statement. */
  readonly isPlannedPerRead?: boolean;
  /** Whether its rows are found before they are sorted. */
  readonly isFenced?: boolean;
  /** The plan for links, if it is not compiled for many sets of values. */
  readonly linkedPlan?: ReadPlan | OperationPlan;
  /** Its rows bring links before the cell: which ones, and the text that the figures of the shape are for. */
  readonly linked?: LinkedForm & { readonly plainText: string };
}

/** A read with its values. The executors that pass it on may change the form and the server. */
export interface BoundRead {
  readonly compiled: CompiledRead;
  /** The form in which it is sent. */
  shape: Shape;
  readonly caller: Identity;
  /** The values of the request, and those of the statement. */
  readonly values: Values;
  readonly parameters: (string | null)[];
  /** Whether the connection keeps the statement for the next time. */
  readonly prepare: boolean;
  /** The settings of the caller that its transaction begins with, or null. */
  readonly settings: CallerSettings | null;
  /** The position that a replica needs to serve it, or null if the primary has to. */
  need: ReadNeed | null;
  /** The client, if the result may come from memory: its address distinguishes callers without an account. Otherwise null. */
  readonly from: { readonly address: string } | null;
  /** Whether the listener wants the links of the result. */
  links: boolean;
}

/** Waits for an answer. */
export interface ReadListener {
  /** Whether the client has disconnected: then its read is not sent. */
  readonly aborted: boolean;
  /** The caller, to share connections fairly; '' for none. */
  readonly caller?: string;
  /**
   * The cell, borrowed from the connection during the call, or null if there is none. `reads` shared the statement. `links` are those of the
   * result, null if there are none, undefined if they are not known.
   */
  onResult(cell: Buffer | null, reads: number, links?: string | null): void;
  onError(error: unknown): void;
  /**
   * The answer is in memory. Only reads that may be answered from memory need it. `isRepeatable`: an equal request of the caller has the
   * same answer, which no value such as `$NOW` changes.
   */
  onKept?(answer: KeptAnswer, isRepeatable: boolean): void;
}

/** Sends reads to PostgreSQL. */
export interface ReadSender {
  /** A warm read needs no promise: the listener may be called before this returns. */
  execute(read: BoundRead, listener: ReadListener): void;
}

/** The executor of a thread: the plain one, or layers around it (`ReadLayer`). */
export interface ReadExecutor extends ReadSender {
  /**
   * The form in which the read is sent: a statement may need different plans for different values. The choice is made at the cost of
   * `billed`; with null it is not made.
   */
  shapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller | null): Shape;
  /** As `shapeOf`, when the choice is made. */
  settledShapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller): Promise<Shape>;
  /** Whether one plan serves all values of the read. If that is not known, it does not. */
  hasOnePlan(compiled: CompiledRead): boolean;
  /** Makes the choices of forms again: the indexes are others. */
  chooseAgain(): void;
  /** Runs a read of several batches, which stays on one server. `run` is repeated on the primary if a replica fails and `mayRepeat`. */
  stream<Result>(
    read: Pick<BoundRead, 'compiled' | 'need'>,
    run: (database: Database) => Promise<Result>,
    mayRepeat: () => boolean,
  ): Promise<Result>;
  /** Results in memory, or null if none are kept. */
  readonly memory: ResultMemory | null;
}

export type BoundTexts = readonly (string | null)[];

/** Results of the primary in memory. */
export interface ResultMemory {
  /** Whether a caller, who has seen the database at that position, may get results from memory. */
  serves(caller: Identity, from: { readonly address: string }, seen?: LogPosition): boolean;
  /** Why results of the statement are not kept, or null if they are. */
  reason(compiled: CompiledRead): string | null;
}

/** Callers without an account share a budget for background work. */
export const NO_ADDRESS = { address: '' };

/** For which values PostgreSQL plans a shape: for none in particular, or for those of each read. */
export function planKindOf({ isFenced, isPlannedPerRead, isUnprepared }: Shape): PlanKind {
  if (isFenced) return 'fenced';
  return isPlannedPerRead || isUnprepared ? 'custom' : 'generic';
}
