/** A layer around an executor of reads. The executor inside does what the layer does not change. */
import type { Database } from '../../postgres/pools/database.js';
import type { BilledCaller } from '../caller-budget.js';
import type { CompiledRead } from './compiled-read.js';
import type { BoundRead, BoundTexts, ReadExecutor, ReadListener, ResultMemory, Shape } from './read-executor.js';

export abstract class ReadLayer implements ReadExecutor {
  readonly memory: ResultMemory | null;

  constructor(
    protected readonly next: ReadExecutor,
    memory = next.memory,
  ) {
    this.memory = memory;
  }

  abstract execute(read: BoundRead, listener: ReadListener): void;

  shapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller | null): Shape {
    return this.next.shapeOf(compiled, values, billed);
  }

  settledShapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller): Promise<Shape> {
    return this.next.settledShapeOf(compiled, values, billed);
  }

  hasOnePlan(compiled: CompiledRead): boolean {
    return this.next.hasOnePlan(compiled);
  }

  chooseAgain(): void {
    this.next.chooseAgain();
  }

  stream<Result>(
    read: Pick<BoundRead, 'compiled' | 'need'>,
    run: (database: Database) => Promise<Result>,
    mayRepeat: () => boolean,
  ): Promise<Result> {
    return this.next.stream(read, run, mayRepeat);
  }
}
