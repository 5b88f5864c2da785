/**
 * Changes that are not saved yet. They form a tree, as the payload does: an item of the root has values, and below its relations
 * items of other collections. Saving sends the whole tree as one payload, which the service carries out as one statement.
 */
import { computed, signal } from '@preact/signals';
import { whenForgotten } from '../state';

export type Key = string | number;
export type Row = Readonly<Record<string, unknown>>;

/** Of a key of several columns all of them: what `keyOfRow` made one value of. */
export function keyColumns(key: Key, fields: readonly string[]): Row {
  const [first = ''] = fields;
  return fields.length === 1 ? { [first]: key } : JSON.parse(String(key));
}

/** What `DELETE /items/{collection}` takes. */
export function deletionOf(keys: readonly Key[], fields: readonly string[]): unknown {
  if (fields.length === 1) return keys;
  const items = keys.map((key) =>
    Object.fromEntries(Object.entries(keyColumns(key, fields)).map(([name, value]) => [name, { _eq: value }])),
  );
  return { query: { filter: { _or: items } } };
}

/** Where an item stands: its key in the root collection, then relation and key, and so on. */
export type ItemPath = readonly [root: Key, ...steps: Step[]];

export interface Step {
  readonly field: string;
  readonly kind: 'one' | 'many';
  readonly key: Key;
  /** The key of the collection it leads to. */
  readonly keyFields: readonly string[];
}

interface Edit {
  readonly path: ItemPath;
  readonly field: string;
  /** What is sent: of a related item its key. */
  readonly value: unknown;
  /** What the grid shows: of a related item what was chosen. */
  readonly shown: unknown;
}

export class Edits {
  readonly keyFields: readonly string[];
  /** In the order in which they were made; the last of a cell counts. */
  readonly all = signal<readonly Edit[]>([]);
  readonly errors = signal<ReadonlyMap<string, string>>(new Map());
  readonly #byCell = computed(() => new Map(this.all.value.map((edit) => [cellId(edit.path, edit.field), edit])));

  constructor(keyFields: readonly string[]) {
    this.keyFields = keyFields;
  }

  set(path: ItemPath, field: string, value: unknown, shown: unknown = value): void {
    // What was changed in the item that it referred to would be changed in another one now.
    const kept = this.all.value.filter((edit) => !isBelow(edit.path, path, field));
    this.all.value = [...kept, { path, field, value, shown }];
    this.#forgetError(cellId(path, field));
  }

  /** Undefined where the cell was not changed. */
  find(path: ItemPath, field: string): { readonly shown: unknown } | undefined {
    return this.#byCell.value.get(cellId(path, field));
  }

  errorAt(path: ItemPath, field: string): string | undefined {
    return this.errors.value.get(cellId(path, field));
  }

  /** How many cells differ. */
  get cells(): number {
    return this.#byCell.value.size;
  }

  undo(): void {
    const last = this.all.value.at(-1);
    if (!last) return;
    this.all.value = this.all.value.slice(0, -1);
    this.#forgetError(cellId(last.path, last.field));
  }

  revert(path: ItemPath, field: string): void {
    const id = cellId(path, field);
    this.all.value = this.all.value.filter((edit) => cellId(edit.path, edit.field) !== id);
    this.#forgetError(id);
  }

  clear(): void {
    this.all.value = [];
    this.errors.value = new Map();
  }

  /** What `PATCH /items/{collection}` takes: the items of the root, each with what changed in it and below it. */
  payload(): Row[] {
    const roots = new Map<string, Node>();
    for (const { path, field, value } of this.all.value) {
      const [root, ...steps] = path;
      let node = childOf(roots, String(root), keyColumns(root, this.keyFields));
      for (const step of steps) {
        const below = node.below.get(step.field) ?? { kind: step.kind, items: new Map<string, Node>() };
        node.below.set(step.field, below);
        node = childOf(below.items, String(step.key), keyColumns(step.key, step.keyFields));
      }
      node.values[field] = value;
    }
    return [...roots.values()].map(payloadOf);
  }

  /** An error of the service names collection, field and path: it is shown at the cell it is about. */
  placeError(field: string, path: readonly unknown[], message: string): boolean {
    const edits = this.all.value.filter((edit) => edit.field === field);
    const roots = [...new Set(this.all.value.map(({ path: [root] }) => String(root)))];
    const index = path.find((step) => typeof step === 'number');
    const root = typeof index === 'number' ? roots[index] : undefined;
    const found = edits.find((edit) => root !== undefined && String(edit.path[0]) === root) ?? edits[0];
    if (!found) return false;
    this.errors.value = new Map([...this.errors.value, [cellId(found.path, field), message]]);
    return true;
  }

  #forgetError(id: string): void {
    if (!this.errors.value.has(id)) return;
    const errors = new Map(this.errors.value);
    errors.delete(id);
    this.errors.value = errors;
  }
}

interface Node {
  readonly values: Record<string, unknown>;
  readonly below: Map<string, { readonly kind: 'one' | 'many'; readonly items: Map<string, Node> }>;
}

function childOf(nodes: Map<string, Node>, key: string, values: Row): Node {
  const known = nodes.get(key);
  if (known) return known;
  const made: Node = { values: { ...values }, below: new Map() };
  nodes.set(key, made);
  return made;
}

function payloadOf({ values, below }: Node): Row {
  const payload: Record<string, unknown> = { ...values };
  for (const [field, { kind, items }] of below) {
    const made = [...items.values()].map(payloadOf);
    payload[field] = kind === 'one' ? made[0] : { create: [], update: made, delete: [] };
  }
  return payload;
}

function isBelow(path: ItemPath, above: ItemPath, field: string): boolean {
  const step = path[above.length];
  if (typeof step !== 'object' || step.field !== field) return false;
  return JSON.stringify(path.slice(0, above.length)) === JSON.stringify(above);
}

/** By collection, so that those who look elsewhere find their changes again. */
const pending = new Map<string, Edits>();
whenForgotten(() => pending.clear());

export function editsOf(collection: string, keyFields: readonly string[]): Edits {
  const known = pending.get(collection);
  if (known && known.keyFields.join() === keyFields.join()) return known;
  const made = new Edits(keyFields);
  pending.set(collection, made);
  return made;
}

addEventListener('beforeunload', (event) => {
  if ([...pending.values()].some((edits) => edits.cells > 0)) event.preventDefault();
});

/** How many changes of a collection are not saved. */
export function pendingOf(collection: string): number {
  return pending.get(collection)?.cells ?? 0;
}

function cellId(path: ItemPath, field: string): string {
  return JSON.stringify([path, field]);
}
