/**
 * Batches of writes. Flat writes of one shape that wait for a connection share a statement, and so a commit; each gets its own answer.
 * Nothing waits for a batch to fill: a write is sent at once while fewer than `MAX_IN_FLIGHT` statements of its shape are in flight.
 * If a batch fails, PostgreSQL has undone all of it, and each write is sent by itself. So is a write whose row another transaction
 * holds. A connection that is lost at the commit leaves the outcome of each write unknown, and none is sent again.
 */
import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';
import { outcomeUnknown } from '../../base/errors.js';
import { codeOf, propertiesOf } from '../../base/narrow.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { BatchedWrite, WriteExecutor } from '../../server/execute/writes/write-executor.js';
import { NOT_SHOWN, type Session } from '../../server/postgres/pools/sessions.js';
import type { BoundStatement } from '../../server/postgres/wire/wire-query.js';

/** Statements of one shape at a time: the fewer they are, the larger are the batches. */
const MAX_IN_FLIGHT = 2;
/** Milliseconds after which a statement is no longer counted: it may wait for a row that another transaction holds. */
const SLOW_MS = 50;
const MAX_BATCH_WRITES = 64;
/** Characters of the values in a batch. A larger write is sent alone. */
const MAX_BATCH_LENGTH = 262_144;
/** Milliseconds for which a caller whose write failed or held up a batch writes alone, and how many callers are remembered. */
const ALONE_MS = 10_000;
const MAX_ALONE = 10_000;
/** The code of the error if a batch has waited too long for a lock. */
const LOCK_NOT_AVAILABLE = '55P03';
/** After so many milliseconds a batch that was not running has waited with the limit of the session, not with its own. */
const TABLE_WAIT_MS = 500;

interface Pending {
  readonly write: BatchedWrite;
  readonly resolve: (body: Buffer | null) => void;
  readonly reject: (error: unknown) => void;
}

interface Queue {
  /** When each statement that is in flight was sent. */
  readonly inFlight: Set<{ readonly sentAt: number }>;
  waiting: Pending[];
}

/** Lends a connection of the pool in the turn of the caller, or of the service with ''. */
export type UseSession = <Result>(work: (session: Session) => Promise<Result>, caller: string) => Promise<Result>;

export class WriteBatcher implements WriteExecutor {
  /** How many statements carried 0, 1, 2 … writes, for metrics. */
  readonly sizes = new Float64Array(MAX_BATCH_WRITES + 1);
  /** Batches whose writes were sent again, one by one. */
  splits = 0;
  readonly #queues = new Map<string, Queue>();
  /** Callers who write alone. */
  readonly #alone = new LRUCache<string, true>({ max: MAX_ALONE, ttl: ALONE_MS });
  #gathering: NodeJS.Immediate | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(private readonly useSession: UseSession) {}

  /** The cell of the row that was written, or null if there is none. */
  write(write: BatchedWrite): Promise<Buffer | null> {
    if (this.#alone.has(write.caller) || lengthOf(write) > MAX_BATCH_LENGTH) return this.#sendAlone(write);
    const queue = this.#queueOf(write.batchText);
    return new Promise((resolve, reject) => {
      queue.waiting.push({ write, resolve, reject });
      this.#gather();
    });
  }

  /** Writes whose requests arrived together are sent together, as soon as all of them were read. */
  #gather(): void {
    this.#gathering ??= setImmediate(() => {
      this.#gathering = null;
      this.#advanceAll();
    });
  }

  #advanceAll(): void {
    for (const [text, queue] of this.#queues) this.#advance(text, queue);
  }

  #queueOf(text: string): Queue {
    const known = this.#queues.get(text);
    if (known) return known;
    const queue: Queue = { inFlight: new Set(), waiting: [] };
    this.#queues.set(text, queue);
    return queue;
  }

  #advance(text: string, queue: Queue): void {
    while (queue.waiting.length > 0 && this.#maySend(queue)) {
      const pending = takeTogether(queue);
      const statement = { sentAt: performance.now() };
      queue.inFlight.add(statement);
      void this.#send(pending).finally(() => {
        queue.inFlight.delete(statement);
        if (queue.waiting.length === 0 && queue.inFlight.size === 0) this.#queues.delete(text);
        this.#advance(text, queue);
      });
    }
    if (queue.waiting.length > 0) this.#wake();
  }

  #maySend({ inFlight }: Queue): boolean {
    if (inFlight.size < MAX_IN_FLIGHT) return true;
    const slow = performance.now() - SLOW_MS;
    let counted = 0;
    for (const { sentAt } of inFlight) if (sentAt > slow) counted++;
    return counted < MAX_IN_FLIGHT;
  }

  /** Writes behind slow statements are sent although none of these has ended. */
  #wake(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#advanceAll();
    }, SLOW_MS).unref();
  }

  /** Settles each of them, and never rejects. */
  async #send(pending: readonly Pending[]): Promise<void> {
    const [first] = pending;
    if (first && pending.length === 1) return this.#settleAlone(first);
    this.sizes[pending.length] = (this.sizes[pending.length] ?? 0) + 1;
    const left = new Map(pending.map((each, index) => [index + 1, each]));
    let isWritten = false;
    let isHeld = false;
    let unshown = 0;
    const start = performance.now();
    try {
      const answers = await this.useSession((session) => runBatch(session, pending), callerOf(pending));
      unshown = answers.filter(([number]) => number === 0).length;
      for (const [number, body] of answers) {
        left.get(number)?.resolve(body);
        left.delete(number);
      }
      isWritten = true;
    } catch (error) {
      isHeld = codeOf(error) === LOCK_NOT_AVAILABLE;
      // Behind the lock of the table each write has had its time.
      const isLate = isHeld && !wasRunning(error) && performance.now() - start > TABLE_WAIT_MS;
      if (!isUndone(error) || isLate) {
        for (const { reject } of pending) reject(error);
        return;
      }
      this.splits++;
    }
    // They are sent side by side, and do not keep the next batch waiting.
    for (const each of left.values()) {
      // A row that was written and could not be shown must not be written again.
      if (isWritten && (each.write.key === null || unshown === left.size)) each.resolve(NOT_SHOWN);
      else if (unshown > 0 && !each.write.isRepeatable) each.reject(outcomeUnknown());
      else void this.#settleAlone(each, true, isHeld ? SLOW_MS : Number.POSITIVE_INFINITY);
    }
  }

  /** A caller whose write took longer than `limitMs` is taken for the one who waited for a lock. */
  async #settleAlone(
    { write, resolve, reject }: Pending,
    isSplit = false,
    limitMs = Number.POSITIVE_INFINITY,
  ): Promise<void> {
    const start = performance.now();
    const mark = (): void => void (isSplit && this.#alone.set(write.caller, true));
    try {
      const body = await this.#sendAlone(write);
      if (body === null || performance.now() - start > limitMs) mark();
      resolve(body);
    } catch (error) {
      mark();
      reject(error);
    }
  }

  async #sendAlone({ statement, caller }: BatchedWrite): Promise<Buffer | null> {
    this.sizes[1] = (this.sizes[1] ?? 0) + 1;
    const [body = null] = await this.useSession((session) => session.runPipelined([statement]), caller);
    return body;
  }
}

/** The first writes that wait, without a second change of any row. */
function takeTogether(queue: Queue): Pending[] {
  const [taken, left]: [Pending[], Pending[]] = [[], []];
  const keys = new Set<string>();
  let [position, length] = [0, 0];
  for (; position < queue.waiting.length && taken.length < MAX_BATCH_WRITES && length < MAX_BATCH_LENGTH; position++) {
    const pending = queue.waiting[position] as Pending;
    const { key } = pending.write;
    if (key !== null && keys.has(key)) left.push(pending);
    else taken.push(pending);
    if (key !== null) keys.add(key);
    length += lengthOf(pending.write);
  }
  queue.waiting = [...left, ...queue.waiting.slice(position)];
  return taken;
}

/** The caller of all of them, or '' if there are several. */
function callerOf(pending: readonly Pending[]): string {
  const callers = new Set(pending.map(({ write }) => write.caller));
  const [only = ''] = callers.size === 1 ? callers : [];
  return only;
}

function lengthOf({ statement }: BatchedWrite): number {
  let length = 0;
  for (const value of statement.parameters) length += value?.length ?? 0;
  return length;
}

/** The number and the cell of each row that was written. */
async function runBatch(session: Session, pending: readonly Pending[]): Promise<[number, Buffer | null][]> {
  const answers: [number, Buffer | null][] = [];
  const [first] = pending;
  if (!first) return answers;
  const { batchText, statement } = first.write;
  const batch: BoundStatement = {
    text: batchText,
    prepare: true,
    parameters: statement.parameters.map((_, position) =>
      arrayLiteral(pending.map(({ write }) => write.statement.parameters[position] ?? null)),
    ),
  };
  await session.runBatch(batch, (number, body) => answers.push([number, body]));
  return answers;
}

/** Whether PostgreSQL refused the statement, so that nothing of it was done. */
function isUndone(error: unknown): boolean {
  const code = codeOf(error);
  return /^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53|57P|58)/.test(code);
}

/** Whether the statement ran when it had to wait: PostgreSQL then names the row or the trigger. Behind the lock of a table it names none. */
function wasRunning(error: unknown): boolean {
  return propertiesOf(error)['where'] !== undefined;
}
