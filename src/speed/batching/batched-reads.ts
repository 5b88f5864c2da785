/** Sends reads in batches. The executor inside, which sends each by itself, is left out. */
import type { BoundRead, ReadExecutor, ReadListener } from '../../server/execute/reads/read-executor.js';
import { ReadLayer } from '../../server/execute/reads/read-layer.js';
import type { ReadBatcher } from './read-batcher.js';

export class BatchedReads extends ReadLayer {
  constructor(
    next: ReadExecutor,
    private readonly batcher: ReadBatcher,
  ) {
    super(next);
  }

  execute(read: BoundRead, listener: ReadListener): void {
    this.batcher.execute(read, listener);
  }
}
