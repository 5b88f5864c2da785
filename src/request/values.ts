/** Collects the values of a request while it is parsed; the AST keeps only their slots. */
import type { Value, Values } from '../sql/parameter.js';
import type { Slot } from './ast.js';

export class ValueList {
  readonly #values: Value[] = [];

  add(value: Value): Slot {
    return this.#values.push(value) - 1;
  }

  done(): Values {
    return this.#values;
  }
}
