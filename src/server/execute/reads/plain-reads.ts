/** Sends each read as one prepared statement, which has its connection alone. `speed` has executors that send them faster. */
import { performance } from 'node:perf_hooks';
import { serviceUnavailable } from '../../../base/errors.js';
import { Limiter, type Place } from '../../../base/limiter.js';
import { textFor } from '../../access/database-caller.js';
import type { ShapeRecord, ShapeStats } from '../../batching/shape-stats.js';
import type { Database, ReadQueue } from '../../postgres/pools/database.js';
import type { Connection } from '../../postgres/wire/connection.js';
import { settingQuery, type WireQuery } from '../../postgres/wire/wire-query.js';
import type { CompiledRead } from './compiled-read.js';
import { type BoundRead, planKindOf, type ReadExecutor, type ReadListener, type Shape } from './read-executor.js';

/** Milliseconds between two checks for statements whose clients have left. */
const SWEEP_INTERVAL_MS = 500;

export class PlainReads implements ReadExecutor, ReadQueue {
  readonly memory = null;
  /** How many statements carried 0 and 1 reads, for metrics. */
  readonly sizes = new Float64Array(2);
  readonly splits = 0;
  /** Decides which read is next. */
  readonly #turns: Limiter;
  /** The connection that was used last comes last: it has prepared more statements. */
  readonly #free: Connection[];
  readonly #busy = new Set<Connection>();
  #sweeper: NodeJS.Timeout | null = null;

  constructor(
    private readonly database: Database,
    private readonly stats: ShapeStats,
  ) {
    const { readConnections, waitTimeout } = database;
    this.#free = [...readConnections];
    const refusal = (): Error =>
      serviceUnavailable('database', 'All connections are taken', { option: 'DATABASE_WAIT_TIMEOUT' });
    this.#turns = new Limiter(readConnections.length, { waitTimeout, refusal });
    database.readQueue = this;
  }

  get busy(): number {
    return this.#busy.size;
  }

  get waiting(): number {
    return this.#turns.waiting;
  }

  get isStarved(): boolean {
    return this.#turns.isStarved;
  }

  execute(read: BoundRead, listener: ReadListener): void {
    const turn = { caller: listener.caller ?? '', client: listener };
    const entered = this.#turns.enter(turn);
    if (!(entered instanceof Promise)) this.#send(read, listener, entered);
    else entered.then((place) => this.#send(read, listener, place)).catch((error: unknown) => listener.onError(error));
  }

  #send(read: BoundRead, listener: ReadListener, place: Place): void {
    const connection = this.#free.pop();
    if (!connection) throw new Error('no connection is free');
    this.#busy.add(connection);
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_INTERVAL_MS).unref();
    this.sizes[1] = (this.sizes[1] ?? 0) + 1;
    const begun = performance.now();
    const record = this.#recordOf(read.shape);
    const query = plainQuery(read, listener, record, (error, unsent) => {
      const now = performance.now();
      this.#busy.delete(connection);
      if (unsent) this.#free.unshift(connection);
      else {
        this.#free.push(connection);
        record.add(now, now - begun, 1, error !== null);
      }
      place.leave();
      // A connection could not be opened, but another one is open.
      if (!unsent || !this.#free.at(-1)?.isOpen) return false;
      this.execute(read, listener);
      return true;
    });
    connection.run(...(read.settings ? [settingQuery(read.settings, query), query] : [query]));
  }

  #recordOf(shape: Shape): ShapeRecord {
    return this.stats.of(shape.statement.text, planKindOf(shape), shape.statement.parameters.length);
  }

  #sweep(): void {
    for (const connection of this.#busy) connection.stopAbandoned();
    if (this.#busy.size > 0 || this.#sweeper === null) return;
    clearInterval(this.#sweeper);
    this.#sweeper = null;
  }

  shapeOf(compiled: CompiledRead): Shape {
    return compiled;
  }

  hasOnePlan(): boolean {
    return false;
  }

  async settledShapeOf(compiled: CompiledRead): Promise<Shape> {
    return compiled;
  }

  stream<Result>(_: unknown, run: (database: Database) => Promise<Result>): Promise<Result> {
    return run(this.database);
  }

  chooseAgain(): void {}
}

/** `onEnd` returns whether the read is sent again. */
function plainQuery(
  { shape, parameters, prepare, settings }: BoundRead,
  listener: ReadListener,
  record: ShapeRecord,
  onEnd: (error: Error | null, unsent: boolean) => boolean,
): WireQuery {
  let isAnswered = false;
  const answer = (cell: Buffer | null): void => {
    isAnswered = true;
    try {
      listener.onResult(cell, 1);
    } catch (error) {
      listener.onError(error);
    }
  };
  return {
    text: textFor(shape.statement.text, settings),
    parameters,
    prepare,
    columns: 1,
    isAbandoned: () => listener.aborted,
    row: (_, cell) => {
      record.sample(cell, shape.result === 'operation');
      if (!isAnswered) answer(cell);
    },
    end: (error, unsent) => {
      if (onEnd(error, unsent) || isAnswered) return;
      if (error === null) answer(null);
      else listener.onError(error);
    },
  };
}
