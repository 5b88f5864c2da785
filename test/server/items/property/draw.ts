/**
 * Random decisions, all drawn from one fast-check generator: the same seed gives the same models, rows and requests, on
 * every machine.
 */
import fc from 'fast-check';

/** Something built from decisions; shrinking is done on what was built, see shrink.ts. */
export function drawn<Built>(build: (draw: Draw) => Built): fc.Arbitrary<Built> {
  return fc.gen().map((next) => build(new Draw(next)));
}

const anyInteger = (): fc.Arbitrary<number> => fc.noBias(fc.integer({ min: 0, max: 0x7fffffff }));

export class Draw {
  readonly #next: fc.GeneratorValue;

  constructor(next: fc.GeneratorValue) {
    this.#next = next;
  }

  /** Both bounds included. */
  integer(least: number, most: number): number {
    return least + (this.#next(anyInteger) % (most - least + 1));
  }

  chance(percent: number): boolean {
    return this.integer(1, 100) <= percent;
  }

  pick<Item>(list: readonly Item[]): Item {
    if (list.length === 0) throw new Error('there is nothing to pick from');
    return list[this.integer(0, list.length - 1)] as Item;
  }

  /** Different positions of the list, in random order. */
  some<Item>(list: readonly Item[], least: number, most: number): Item[] {
    const left = [...list];
    const count = Math.min(left.length, this.integer(least, most));
    return Array.from({ length: count }, () => left.splice(this.integer(0, left.length - 1), 1)[0] as Item);
  }

  repeat<Item>(least: number, most: number, make: (position: number) => Item): Item[] {
    return Array.from({ length: this.integer(least, most) }, (_, position) => make(position));
  }
}
