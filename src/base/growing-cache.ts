/**
 * A cache of the entries that were used last. With `max`, LRUCache allocates room for all entries at once: milliseconds and megabytes
 * per thread for caches that most services never fill. With a size of one per entry it grows.
 */
import { LRUCache } from 'lru-cache';

export function growingCache<Value extends NonNullable<unknown>>(most: number): LRUCache<string, Value> {
  return new LRUCache({ maxSize: most, sizeCalculation: () => 1 });
}
