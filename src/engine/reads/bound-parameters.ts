/** The values that are bound to a statement, found again by the slots of the request that they came from. */
import type { BoundValues } from '../../plan/selectivity.js';
import type { Parameter, Slot } from '../../sql/parameter.js';

/** Of a longer list nothing is said. */
const MAX_ENTRIES = 200;

export class BoundParameters implements BoundValues {
  readonly #positions = new Map<string, number>();
  readonly #limit: number;
  readonly #offset: number;
  #values: readonly (string | null)[] = [];

  constructor(parameters: readonly Parameter[]) {
    parameters.forEach((parameter, position) => {
      if (parameter.kind === 'value' || parameter.kind === 'list')
        this.#positions.set(positionKey(parameter.kind, parameter.slot), position);
      if (parameter.kind === 'entry')
        this.#positions.set(positionKey(`entry ${parameter.position}`, parameter.slot), position);
    });
    this.#limit = parameters.findIndex(({ kind }) => kind === 'limit');
    this.#offset = parameters.findIndex(({ kind }) => kind === 'offset' || kind === 'page');
  }

  /** The same for these values, until it is called again. */
  with(values: readonly (string | null)[]): this {
    this.#values = values;
    return this;
  }

  get limit(): number {
    return Number(this.#values[this.#limit] ?? 0);
  }

  get skipped(): number {
    return Number(this.#values[this.#offset] ?? 0);
  }

  value(slot: Slot): string | null | undefined {
    return this.#at(positionKey('value', slot));
  }

  entry(slot: Slot, position: number): string | null | undefined {
    return this.#at(positionKey(`entry ${position}`, slot));
  }

  list(slot: Slot): readonly (string | null)[] | undefined {
    const text = this.#at(positionKey('list', slot));
    if (text === null || text === undefined) return undefined;
    const entries: (string | null)[] = [];
    for (const [entry, quoted] of text.matchAll(/"((?:[^"\\]|\\.)*)"|NULL/gs)) {
      if (entries.length === MAX_ENTRIES) return undefined;
      entries.push(entry === 'NULL' ? null : (quoted ?? '').replace(/\\(.)/gs, '$1'));
    }
    return entries;
  }

  #at(key: string): string | null | undefined {
    const position = this.#positions.get(key);
    return position === undefined ? undefined : this.#values[position];
  }
}

function positionKey(kind: string, slot: Slot): string {
  return typeof slot === 'number' ? `${kind} ${slot}` : `${kind} ${JSON.stringify(slot)}`;
}
