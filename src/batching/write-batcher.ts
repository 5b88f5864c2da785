/**
 * Batches of writes. Flat writes of one shape that wait for a connection share a statement, and so a commit; each gets its own answer.
 * Nothing waits for a batch to fill: a write is sent at once while fewer than `MAX_IN_FLIGHT` statements of its shape are in flight.
 * If a batch fails, PostgreSQL has undone all of it, and each write is sent by itself. So is a write whose row another transaction
 * holds. A connection that is lost at the commit leaves the outcome of each write unknown, and none is sent again.
 */
import { performance } from 'node:perf_hooks';
import type { Session, TransactionStatement } from '../postgres/pools/sessions.js';
import type { BoundStatement } from '../postgres/wire/wire-query.js';
import { arrayLiteral } from '../sql/literal.js';

/** Statements of one shape at a time: the fewer they are, the larger are the batches. */
const MAX_IN_FLIGHT = 2;
/** Milliseconds after which a statement is no longer counted: it may wait for a row that another transaction holds. */
const SLOW_MS = 50;
const MAX_BATCH_WRITES = 64;
/** Milliseconds for which a caller whose write failed a batch writes alone. */
const ALONE_MS = 10_000;
/** A batch of new rows does not wait for a row that another transaction holds. */
const LOCK_TIMEOUT = {
  text: "select pg_catalog.set_config('lock_timeout', '50ms', true)",
  parameters: [],
  prepare: true,
} as const;

/** A flat write of one request. */
export interface BatchedWrite {
  readonly statement: TransactionStatement;
  /** The text for many rows. */
  readonly batchText: string;
  /** The key of the row that it changes, or null for a new row: two changes of one row need two statements. */
  readonly key: string | null;
  /** Identifies the caller. */
  readonly caller: string;
}

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

/** Lends a connection of the pool. */
export type UseSession = <Result>(work: (session: Session) => Promise<Result>) => Promise<Result>;

export class WriteBatcher {
  /** How many statements carried 0, 1, 2 … writes, for metrics. */
  readonly sizes = new Float64Array(MAX_BATCH_WRITES + 1);
  /** Batches whose writes were sent again, one by one. */
  splits = 0;
  readonly #queues = new Map<string, Queue>();
  /** Callers who write alone, and until when. */
  readonly #alone = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;

  constructor(private readonly useSession: UseSession) {}

  /** The cell of the row that was written, or null if there is none. */
  write(write: BatchedWrite): Promise<Buffer | null> {
    if (this.#isAlone(write.caller)) return this.#sendAlone(write);
    const queue = this.#queueOf(write.batchText);
    return new Promise((resolve, reject) => {
      queue.waiting.push({ write, resolve, reject });
      this.#advance(write.batchText, queue);
    });
  }

  #queueOf(text: string): Queue {
    const known = this.#queues.get(text);
    if (known) return known;
    const queue: Queue = { inFlight: new Set(), waiting: [] };
    this.#queues.set(text, queue);
    return queue;
  }

  #isAlone(caller: string): boolean {
    const until = this.#alone.get(caller);
    if (until === undefined) return false;
    if (until > performance.now()) return true;
    this.#alone.delete(caller);
    return false;
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
      for (const [text, queue] of this.#queues) this.#advance(text, queue);
    }, SLOW_MS).unref();
  }

  /** Settles each of them, and never rejects. */
  async #send(pending: readonly Pending[]): Promise<void> {
    const [first] = pending;
    if (first && pending.length === 1) return this.#settleAlone(first);
    this.sizes[pending.length] = (this.sizes[pending.length] ?? 0) + 1;
    const left = new Map(pending.map((each, index) => [index + 1, each]));
    try {
      const bodies = await this.useSession((session) => runBatch(session, pending));
      for (const [number, body] of bodies) {
        left.get(number)?.resolve(body);
        left.delete(number);
      }
    } catch (error) {
      if (!isUndone(error)) {
        for (const { reject } of pending) reject(error);
        return;
      }
      this.splits++;
    }
    // They are sent side by side, and do not keep the next batch waiting.
    for (const each of left.values()) void this.#settleAlone(each, pending.length > 1);
  }

  async #settleAlone({ write, resolve, reject }: Pending, isSplit = false): Promise<void> {
    try {
      resolve(await this.#sendAlone(write));
    } catch (error) {
      if (isSplit) this.#alone.set(write.caller, performance.now() + ALONE_MS);
      reject(error);
    }
  }

  async #sendAlone({ statement }: BatchedWrite): Promise<Buffer | null> {
    this.sizes[1] = (this.sizes[1] ?? 0) + 1;
    const [body = null] = await this.useSession((session) => session.runPipelined([statement]));
    return body;
  }
}

/** The first writes that wait, without a second change of any row. */
function takeTogether(queue: Queue): Pending[] {
  const [taken, left]: [Pending[], Pending[]] = [[], []];
  const keys = new Set<string>();
  for (const pending of queue.waiting) {
    const { key } = pending.write;
    const isFree = key === null || !keys.has(key);
    if (key !== null) keys.add(key);
    if (isFree && taken.length < MAX_BATCH_WRITES) taken.push(pending);
    else left.push(pending);
  }
  queue.waiting = left;
  return taken;
}

async function runBatch(session: Session, pending: readonly Pending[]): Promise<Map<number, Buffer | null>> {
  const bodies = new Map<number, Buffer | null>();
  const [first] = pending;
  if (!first) return bodies;
  const { batchText, key, statement } = first.write;
  const batch: BoundStatement = {
    text: batchText,
    prepare: true,
    parameters: statement.parameters.map((_, position) =>
      arrayLiteral(pending.map(({ write }) => write.statement.parameters[position] ?? null)),
    ),
  };
  const settings = key === null ? [LOCK_TIMEOUT] : [];
  await session.runBatch(settings, batch, (number, body) => bodies.set(number, body));
  return bodies;
}

/** Whether PostgreSQL refused the statement, so that nothing of it was done. */
function isUndone(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return /^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53|57P|58)/.test(code);
}
