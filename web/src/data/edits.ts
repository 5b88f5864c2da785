/**
 * Changes that are not saved yet. Like the payload, they form a tree: an item of the root has values, and items of other collections
 * below its relations. Saving sends the whole tree as one payload, which the service writes in one transaction.
 */
import { computed, type Signal, signal } from '@preact/signals';
import { whenForgotten } from '../state';
import { joinKey } from './key';

export type Key = string | number;
export type Row = Readonly<Record<string, unknown>>;

/** All columns of a composite key, which `keyOfRow` combined into one value. */
export function keyColumns(key: Key, fields: readonly string[]): Row {
  const [first = ''] = fields;
  return fields.length === 1 ? { [first]: key } : JSON.parse(String(key));
}

/** The body of `DELETE /items/{collection}`. */
export function deletionOf(keys: readonly Key[], fields: readonly string[]): unknown {
  if (fields.length === 1) return keys;
  const items = keys.map((key) =>
    Object.fromEntries(Object.entries(keyColumns(key, fields)).map(([name, value]) => [name, { _eq: value }])),
  );
  return { query: { filter: { _or: items } } };
}

/** The position of an item: its key in the root collection, then relation and key, and so on. */
export type ItemPath = readonly [root: Key, ...steps: Step[]];

export interface Step {
  readonly field: string;
  readonly kind: 'one' | 'many';
  /** For an item that is not saved yet: a name that this page gave it. */
  readonly key: Key;
  /** The key of the related collection; absent if the item is not saved yet. */
  readonly keyFields: readonly string[];
}

/** A row that is not saved yet. It has its name, and its path finds its values. */
const NEW = '$new';

export function newKeyOf(row: Row): string | null {
  return typeof row[NEW] === 'string' ? row[NEW] : null;
}

type Edit =
  | {
      readonly kind: 'value';
      readonly path: ItemPath;
      readonly field: string;
      /** The value in the payload: for a related item, its key. */
      readonly value: unknown;
      /** The value in the grid: for a related item, the chosen item. */
      readonly shown: unknown;
    }
  | { readonly kind: 'create'; readonly path: ItemPath; readonly values: Row; readonly shown: Row }
  | { readonly kind: 'remove'; readonly path: ItemPath };

export type Replaced = Extract<Edit, { kind: 'value' }> & { readonly base: unknown };

export class Edits {
  readonly keyFields: readonly string[];
  /** In order of creation; the last edit of a cell applies. */
  readonly all = signal<readonly Edit[]>([]);
  readonly errors = signal<ReadonlyMap<string, string>>(new Map());
  readonly #shown = computed(() => {
    const cells = this.all.value.flatMap((edit): [string, { shown: unknown }][] => {
      if (edit.kind === 'value') return [[cellId(edit.path, edit.field), edit]];
      if (edit.kind === 'remove') return [];
      return Object.entries(edit.shown).map(([field, shown]) => [cellId(edit.path, field), { shown }]);
    });
    return new Map(cells);
  });
  readonly #removed = computed(
    () => new Set(this.all.value.flatMap(({ kind, path }) => (kind === 'remove' ? [JSON.stringify(path)] : []))),
  );
  #named = 0;
  /** The value that the user saw before the first change of a cell. */
  readonly #bases = new Map<string, unknown>();
  /** The states before each change, and those that were undone. */
  readonly #past = signal<readonly (readonly Edit[])[]>([]);
  readonly #future = signal<readonly (readonly Edit[])[]>([]);

  constructor(keyFields: readonly string[]) {
    this.keyFields = keyFields;
  }

  set(path: ItemPath, field: string, value: unknown, shown: unknown = value): void {
    this.#set({ kind: 'value', path, field, value, shown }, false);
  }

  /** As `set`, but what is typed into one input is one change, and not one for each letter. */
  type(path: ItemPath, field: string, value: unknown, shown: unknown = value): void {
    const last = this.all.value.at(-1);
    const joins = last?.kind === 'value' && cellId(last.path, last.field) === cellId(path, field);
    this.#set({ kind: 'value', path, field, value, shown }, joins);
  }

  #set(edit: Extract<Edit, { kind: 'value' }>, joins: boolean): void {
    const { path, field } = edit;
    // Changes of the item that it referred to would now apply to another item.
    const kept = this.all.value.filter((each) => !isBelow(each.path, path, field));
    this.#change([...(joins ? kept.slice(0, -1) : kept), edit], joins);
    this.#forgetErrors(cellId(path, field));
  }

  /** Remembers the value of a saved item that the next change replaces. */
  note(path: ItemPath, field: string, value: unknown): void {
    if (!this.find(path, field)) this.#bases.set(cellId(path, field), value);
  }

  /** The changed values of the items of the root, with the value that each replaces. */
  get replaced(): Replaced[] {
    const cells = this.all.value.flatMap((edit): [string, Replaced][] => {
      if (edit.kind !== 'value' || edit.path.length > 1) return [];
      const id = cellId(edit.path, edit.field);
      return this.#bases.has(id) ? [[id, { ...edit, base: this.#bases.get(id) }]] : [];
    });
    return [...new Map(cells).values()];
  }

  /** Another user has changed the value: the next attempt to save replaces the new one. */
  reportChanged(path: ItemPath, field: string, now: unknown, message: string): void {
    const id = cellId(path, field);
    this.#bases.set(id, now);
    this.errors.value = new Map([...this.errors.value, [id, message]]);
  }

  /** Takes back the changes of one field. */
  reset(path: ItemPath, field: string): void {
    const id = cellId(path, field);
    this.#change(this.all.value.filter((edit) => edit.kind !== 'value' || cellId(edit.path, edit.field) !== id));
    this.#forgetErrors(id);
  }

  /** A new item of a relation; its references show the chosen items. */
  create(parent: ItemPath, field: string, values: Row, shown: Row): void {
    const key = `new ${++this.#named}`;
    const path: ItemPath = [...parent, { field, kind: 'many', key, keyFields: [] }];
    this.#change([...this.all.value, { kind: 'create', path, values, shown }]);
  }

  /** Removes an item from its relation; a new item is discarded. */
  remove(path: ItemPath): void {
    const id = JSON.stringify(path);
    const isNew = this.all.value.some((edit) => edit.kind === 'create' && JSON.stringify(edit.path) === id);
    if (isNew) this.#change(this.all.value.filter((edit) => !startsWith(edit.path, path)));
    else if (!this.#removed.value.has(id)) this.#change([...this.all.value, { kind: 'remove', path }]);
  }

  keep(path: ItemPath): void {
    const id = JSON.stringify(path);
    this.#change(this.all.value.filter((edit) => edit.kind !== 'remove' || JSON.stringify(edit.path) !== id));
  }

  isRemoved(path: ItemPath): boolean {
    return this.#removed.value.has(JSON.stringify(path));
  }

  /** The new rows of a relation, the newest first. */
  created(parent: ItemPath, field: string): Row[] {
    return this.all.value
      .flatMap((edit) => {
        const step = edit.path.at(-1);
        const isHere =
          edit.kind === 'create' && edit.path.length === parent.length + 1 && startsWith(edit.path, parent);
        return isHere && typeof step === 'object' && step.field === field ? [{ [NEW]: step.key }] : [];
      })
      .reverse();
  }

  /** Undefined if the cell has not changed. */
  find(path: ItemPath, field: string): { readonly shown: unknown } | undefined {
    return this.#shown.value.get(cellId(path, field));
  }

  errorAt(path: ItemPath, field: string): string | undefined {
    return this.errors.value.get(cellId(path, field));
  }

  /** The number of changed cells and items; a new item counts as one. */
  get count(): number {
    const changed = this.all.value.map((edit) => {
      const step = edit.path.at(-1);
      const isOfNew = typeof step === 'object' && step.keyFields.length === 0;
      return edit.kind === 'value' && !isOfNew ? cellId(edit.path, edit.field) : JSON.stringify(edit.path);
    });
    return new Set(changed).size;
  }

  /** The changed fields of all items. */
  get fields(): string[] {
    return this.all.value.flatMap(fieldsOf);
  }

  get mayUndo(): boolean {
    return this.#past.value.length > 0;
  }

  get mayRedo(): boolean {
    return this.#future.value.length > 0;
  }

  undo(): void {
    this.#step(this.#past, this.#future);
  }

  redo(): void {
    this.#step(this.#future, this.#past);
  }

  #step(from: Signal<readonly (readonly Edit[])[]>, to: Signal<readonly (readonly Edit[])[]>): void {
    const state = from.value.at(-1);
    if (!state) return;
    to.value = [...to.value, this.all.value];
    from.value = from.value.slice(0, -1);
    this.all.value = state;
    this.errors.value = new Map();
  }

  #change(next: readonly Edit[], joinsLast = false): void {
    if (!joinsLast || !this.mayUndo) this.#past.value = [...this.#past.value, this.all.value];
    this.#future.value = [];
    this.all.value = next;
  }

  clear(): void {
    this.#begin([]);
  }

  /** Drops the changes of deleted items, which could no longer be saved. */
  forgetItems(keys: readonly Key[]): void {
    const kept = (edits: readonly Edit[]): Edit[] => edits.filter(({ path: [root] }) => !keys.includes(root));
    this.all.value = kept(this.all.value);
    this.#past.value = this.all.value.length === 0 ? [] : this.#past.value.map(kept);
    this.#future.value = [];
    this.errors.value = new Map();
  }

  /** Keeps the changes that were made while the others were being saved. */
  forgetSaved(saved: readonly Edit[]): void {
    const created = saved.filter(({ kind }) => kind === 'create');
    const isOfCreated = ({ path }: Edit): boolean => created.some((edit) => startsWith(path, edit.path));
    this.#begin(this.all.value.filter((edit) => !saved.includes(edit) && !isOfCreated(edit)));
  }

  #begin(edits: readonly Edit[]): void {
    this.all.value = edits;
    this.#past.value = edits.length === 0 ? [] : [[]];
    this.#future.value = [];
    this.errors.value = new Map();
    this.#bases.clear();
  }

  /** The body of `PATCH /items/{collection}`: the items of the root, each with its changes and those below it. */
  payload(): Row[] {
    const roots = new Map<string, Node>();
    for (const edit of this.all.value) {
      const [root, ...steps] = edit.path;
      let node = childOf(roots, root, this.keyFields);
      for (const step of steps) {
        const below = node.below.get(step.field) ?? { kind: step.kind, items: new Map<string, Node>() };
        node.below.set(step.field, below);
        node = childOf(below.items, step.key, step.keyFields);
      }
      if (edit.kind === 'value') node.values[edit.field] = edit.value;
      else if (edit.kind === 'create') Object.assign(node.values, edit.values);
      else node.isRemoved = true;
    }
    return [...roots.values()].map(payloadOf);
  }

  /** An error of the service names collection, field and path, so it is shown at its cell. */
  placeError(field: string, path: readonly unknown[], message: string): boolean {
    const edits = this.all.value.filter((edit) => fieldsOf(edit).includes(field));
    const roots = [...new Set(this.all.value.map(({ path: [root] }) => String(root)))];
    const index = path.find((step) => typeof step === 'number');
    const root = typeof index === 'number' ? roots[index] : undefined;
    const found = edits.find((edit) => root !== undefined && String(edit.path[0]) === root) ?? edits[0];
    if (!found) return false;
    this.errors.value = new Map([...this.errors.value, [cellId(found.path, field), message]]);
    // A new item may have a value in a hidden column.
    return found.kind === 'value';
  }

  #forgetErrors(id: string): void {
    if (!this.errors.value.has(id)) return;
    const errors = new Map(this.errors.value);
    errors.delete(id);
    this.errors.value = errors;
  }
}

function fieldsOf(edit: Edit): string[] {
  if (edit.kind === 'value') return [edit.field];
  return edit.kind === 'create' ? Object.keys(edit.values) : [];
}

interface Node {
  readonly key: Key;
  readonly keyFields: readonly string[];
  readonly values: Record<string, unknown>;
  readonly below: Map<string, { readonly kind: 'one' | 'many'; readonly items: Map<string, Node> }>;
  isRemoved: boolean;
}

function childOf(nodes: Map<string, Node>, key: Key, keyFields: readonly string[]): Node {
  const known = nodes.get(String(key));
  if (known) return known;
  const values = keyFields.length === 0 ? {} : keyColumns(key, keyFields);
  const made: Node = { key, keyFields, values: { ...values }, below: new Map(), isRemoved: false };
  nodes.set(String(key), made);
  return made;
}

const OPERATORS = ['_increment', '_decrement', '_append', '_merge', '_set'];

/** JSON that looks like an operator of a change is sent as a value. */
function asLiteral(value: unknown): unknown {
  const isOperator =
    typeof value === 'object' && value !== null && OPERATORS.some((name) => Object.hasOwn(value, name));
  return isOperator ? { _set: value } : value;
}

function payloadOf({ values, below }: Node): Row {
  const entries = Object.entries(values).map(([name, value]) => [name, asLiteral(value)] as const);
  const payload: Record<string, unknown> = Object.fromEntries(entries);
  for (const [field, { kind, items }] of below) {
    const kept = [...items.values()].filter(({ isRemoved }) => !isRemoved);
    const removed = [...items.values()].filter(({ isRemoved }) => isRemoved);
    const [one] = kept;
    payload[field] =
      kind === 'one'
        ? one && payloadOf(one)
        : {
            create: kept.filter(({ keyFields }) => keyFields.length === 0).map(payloadOf),
            update: kept.filter(({ keyFields }) => keyFields.length > 0).map(payloadOf),
            delete: removed.map(({ key, keyFields }) => joinKey(Object.values(keyColumns(key, keyFields)))),
          };
  }
  return payload;
}

function startsWith(path: ItemPath, above: ItemPath): boolean {
  return JSON.stringify(path.slice(0, above.length)) === JSON.stringify(above);
}

function isBelow(path: ItemPath, above: ItemPath, field: string): boolean {
  const step = path[above.length];
  return typeof step === 'object' && step.field === field && startsWith(path, above);
}

/** By collection, so that changes stay while the user visits other collections. */
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
  if ([...pending.values()].some((edits) => edits.count > 0)) event.preventDefault();
});

/** The number of unsaved changes of a collection. */
export function pendingOf(collection: string): number {
  return pending.get(collection)?.count ?? 0;
}

function cellId(path: ItemPath, field: string): string {
  return JSON.stringify([path, field]);
}
