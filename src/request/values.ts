/** Where the values of a filter go while it is parsed: into a separate list, or, those of a rule, into the AST itself. */
import { invalidQuery } from '../base/errors.js';
import type { Slot, Value, Values } from '../sql/parameter.js';

export interface ValueSink {
  /** Counts the parts of a request: each becomes a part of the statement. */
  count(nodes: number): void;
  /** Counts a search term; answers how many there are. */
  countTerm(): number;
  add(value: Value): Slot;
}

/** The values of a rule are the same for every request it concerns, so they are part of the shape. */
export const CONSTANTS: ValueSink = { count: () => {}, countTerm: () => 1, add: (constant) => ({ constant }) };

/** The values of a request: the AST keeps only their slots. */
export class ValueList implements ValueSink {
  readonly #values: Value[] = [];
  #nodes = 0;
  #terms = 0;

  constructor(private readonly maxNodes: number) {}

  count(nodes: number): void {
    this.#nodes += nodes;
    if (this.#nodes > this.maxNodes)
      throw invalidQuery(`The query has more than ${this.maxNodes} parts`, {
        option: 'MAX_QUERY_NODES',
        limit: this.maxNodes,
      });
  }

  countTerm(): number {
    return ++this.#terms;
  }

  add(value: Value): number {
    return this.#values.push(value) - 1;
  }

  /** Grows with all that is counted and added. */
  get size(): number {
    return this.#values.length + this.#nodes + this.#terms;
  }

  done(): Values {
    return this.#values;
  }
}
