/** Compiled statements, kept by the shape of their request: each is compiled and checked by PostgreSQL's grammar once. */
import { LRUCache } from 'lru-cache';
import type { Observer } from '../../base/observe.js';
import type { Steps } from '../../base/time-slices.js';
import type { Model } from '../../compiler/model/model.js';
import type { Statement } from '../../compiler/sql/fragment.js';
import type { Mirror } from '../postgres/catalog/watch.js';

interface CompiledStatement {
  readonly statement: Statement;
}

export interface StatementCacheLimits {
  readonly shapes: number;
  /** Bytes that compiled shapes may take. */
  readonly shapeMemory: number;
}

export class StatementCache<Compiled extends CompiledStatement = CompiledStatement> {
  readonly #shapes: LRUCache<string, Compiled>;
  /**
   * Statements that were used before: from then on they are prepared. On the connections of streams a prepared statement is
   * never dropped, on the others it takes the place of another: shapes that come once must not become one.
   */
  readonly #used = new WeakSet<Compiled>();

  constructor(
    private readonly mirror: Mirror,
    limits: StatementCacheLimits,
    private readonly observe: Observer,
  ) {
    this.#shapes = new LRUCache<string, Compiled>({
      max: limits.shapes,
      maxSize: limits.shapeMemory,
      sizeCalculation: memoryOf,
    });
    mirror.onChange(() => this.#shapes.clear());
  }

  /** How many are kept. */
  get size(): number {
    return this.#shapes.size;
  }

  /** The statement for the latest model. */
  find(shape: string): Compiled | undefined {
    return this.#shapes.get(shape);
  }

  /** A statement for a former model is neither found nor kept among those of the latest. */
  *get(shape: string, model: Model, compile: () => Steps<Compiled>): Steps<Compiled> {
    const cached = model === this.mirror.model ? this.#shapes.get(shape) : undefined;
    if (cached) return cached;
    const start = performance.now();
    const compiled = yield* compile();
    if (model === this.mirror.model) this.#shapes.set(shape, compiled);
    const { text } = compiled.statement;
    this.observe({ kind: 'shape-compiled', shape, text, milliseconds: performance.now() - start });
    return compiled;
  }

  /** Whether connections are to prepare it: it was used before. From now on it was. */
  isReused(compiled: Compiled): boolean {
    if (this.#used.has(compiled)) return true;
    this.#used.add(compiled);
    return false;
  }
}

/** About the bytes that a statement takes, with its shape and, of a read, the plan that its other forms are compiled from. */
function memoryOf({ statement }: CompiledStatement, shape: string): number {
  return 8_192 + 6 * (statement.text.length + shape.length);
}
