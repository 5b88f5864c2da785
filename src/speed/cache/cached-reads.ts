/**
 * Answers reads from memory, and keeps their results. Only results of the primary are kept: a replica may be behind the changes that were
 * reported.
 */
import type { BoundRead, ReadExecutor, ReadListener } from '../../server/execute/reads/read-executor.js';
import { ReadLayer } from '../../server/execute/reads/read-layer.js';
import { isTime } from './cacheable.js';
import { ComparingListener, KeepingListener, type ReadCache } from './read-cache.js';

export class CachedReads extends ReadLayer {
  constructor(
    next: ReadExecutor,
    private readonly cache: ReadCache,
  ) {
    super(next, cache);
  }

  execute(read: BoundRead, listener: ReadListener): void {
    const { cache } = this;
    const { compiled, from } = read;
    if (!cache.mayKeep(compiled)) {
      this.next.execute(read, listener);
      return;
    }
    if (from === null) {
      this.next.execute(read, new ComparingListener(listener, cache, compiled, () => cache.keyOf(read)));
      return;
    }
    const key = cache.keyOf(read);
    const kept = cache.find(read, key);
    const joined = kept ? null : cache.joinable(read, key);
    if (kept) listener.onKept?.(kept, kept.shape.isTimeless && !read.values.some(isTime));
    else if (joined) joined.join(listener);
    else this.#read(read, listener, key, from);
  }

  #read(read: BoundRead, listener: ReadListener, key: string, from: { readonly address: string }): void {
    const { cache } = this;
    const entry = cache.begin(read, key, from);
    if (entry !== null) read.need = null;
    // Also if it is not kept: two forms of a statement would not share a batch.
    read.links ||= cache.hasLinks(read.compiled);
    this.next.execute(
      read,
      entry === null
        ? new ComparingListener(listener, cache, read.compiled, () => key)
        : new KeepingListener(listener, cache, entry),
    );
  }
}
