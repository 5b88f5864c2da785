/** Statements of writes, kept by their shape: compiled and checked by PostgreSQL's grammar once. */
import { LRUCache } from 'lru-cache';
import { holdsTable, type Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import { qualify } from '../sql/qualify.js';
import type { Statement } from '../sql/statement.js';
import { verify } from '../sql/verify.js';

/** Does the work at somebody's cost. */
type Pay = (work: () => Statement) => Statement;

export class StatementCache {
  readonly #mirror: Mirror;
  readonly #observe: Observer;
  readonly #shapes: LRUCache<string, Statement>;
  /** Statements that were used before: from then on they are prepared. */
  readonly #used = new WeakSet<Statement>();

  /** `memory` in bytes. */
  constructor(mirror: Mirror, shapes: number, memory: number, observe: Observer) {
    this.#mirror = mirror;
    this.#observe = observe;
    this.#shapes = new LRUCache({ max: shapes, maxSize: memory, sizeCalculation: memoryOf });
    mirror.onChange(() => this.#shapes.clear());
  }

  /** How many are kept. */
  get size(): number {
    return this.#shapes.size;
  }

  /** What was planned on a former model must neither be found nor kept among the shapes of the latest. */
  get(shape: string, model: Model, compile: () => Statement, pay: Pay = (work) => work()): Statement {
    const isLatest = model === this.#mirror.model;
    const known = isLatest ? this.#shapes.get(shape) : undefined;
    if (known) return known;
    const start = performance.now();
    const statement = pay(() => {
      const compiled = compile();
      // The functions that end a statement from inside are where the service's tables are.
      const made = { ...compiled, text: qualify(compiled.text, model.system) };
      verify(made.text, 'write', (schema, name) => holdsTable(model, schema, name));
      return made;
    });
    if (isLatest) this.#shapes.set(shape, statement);
    this.#observe({ kind: 'shape-compiled', shape, text: statement.text, milliseconds: performance.now() - start });
    return statement;
  }

  /** Answers whether the statement was used before, and remembers that it is now. */
  isKnown(statement: Statement): boolean {
    if (this.#used.has(statement)) return true;
    this.#used.add(statement);
    return false;
  }
}

/** About the bytes that a statement takes, with its shape and, of a read, the plan that its other forms are compiled from. */
export function memoryOf({ text }: Statement, shape: string): number {
  return 8_192 + 6 * (text.length + shape.length);
}
