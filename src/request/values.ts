/** Collects the values of a request while it is parsed; the AST keeps only their slots. */
import { invalidQuery } from '../errors.js';
import type { Value, Values } from '../sql/parameter.js';
import type { Slot } from './ast.js';

export class ValueList {
  readonly #values: Value[] = [];
  readonly #maxNodes: number;
  #nodes = 0;

  constructor(maxNodes: number) {
    this.#maxNodes = maxNodes;
  }

  /** Counts the parts of a request: each becomes a part of the statement. */
  count(nodes: number): void {
    this.#nodes += nodes;
    if (this.#nodes > this.#maxNodes)
      throw invalidQuery(`The query has more than MAX_QUERY_NODES (${this.#maxNodes}) parts`);
  }

  add(value: Value): Slot {
    return this.#values.push(value) - 1;
  }

  done(): Values {
    return this.#values;
  }
}
