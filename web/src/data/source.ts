/** The rows of a grid: keyset pages, loaded while scrolling, and the number of rows. */
import { signal } from '@preact/signals';
import { type Answer, call, itemsPath, messageOf } from '../api';
import type { FilterJson } from '../filter/filter';
import { subscribe } from '../live';
import { type Collection, type Field, type Model, type Relation, titleField } from '../model';
import type { Row } from './edits';
import { identifyingFields } from './item';

export interface View {
  readonly collection: string;
  readonly columns: readonly string[];
  readonly sort: readonly string[];
  readonly filter: FilterJson | null;
  readonly search: string;
}

const PAGE = 100;
const MOST_FOLLOWED = 1_000;

/** The fields that a column needs. */
function requestedFields(view: View, model: Model): string[] {
  const collection = model.get(view.collection);
  if (!collection) return [];
  const asked = view.columns.flatMap((name) => fieldsOf(name, collection, model));
  return [...new Set([...collection.keys.flatMap((name) => fieldsOf(name, collection, model)), ...asked])];
}

function fieldsOf(name: string, collection: Collection, model: Model): string[] {
  const { relation } = collection.fields.get(name) ?? {};
  if (relation?.kind === 'many')
    return [`count(${name})`, ...farNames(relation, model).map((each) => `${name}.${each}`)];
  if (relation?.kind === 'any') return [name, ...namesOfAny(name, relation, model)];
  const target = relation?.kind === 'one' ? model.get(relation.to) : undefined;
  if (target?.keys.length === 0 && relation?.kind === 'one' && relation.by !== null) return [`${name}.*`];
  if (!target || target.keys.length === 0) return [name];
  return identifyingFields(target).map((each) => `${name}.${each}`);
}

/** The field that leads from a junction to the other side, or null. */
export function farOf({ to, far }: Extract<Relation, { kind: 'many' }>, model: Model): Field | null {
  const field = far === null ? undefined : model.get(to)?.fields.get(far);
  return field?.relation && field.relation.kind !== 'many' ? field : null;
}

/** For each collection of a many-to-any relation, the fields that name its items, and the field that names the collection. */
function namesOfAny(name: string, { among, by }: Extract<Relation, { kind: 'any' }>, model: Model): string[] {
  const named = among.flatMap((to) => {
    const target = model.get(to);
    return target && target.keys.length > 0 ? identifyingFields(target).map((each) => `${name}:${to}.${each}`) : [];
  });
  return [...(by === null ? [] : [by]), ...named];
}

/** For a list through a junction, the fields that name the items of the other side. */
function farNames(relation: Extract<Relation, { kind: 'many' }>, model: Model): string[] {
  const far = farOf(relation, model);
  if (far?.relation?.kind === 'any') return namesOfAny(far.name, far.relation, model);
  const target = far?.relation?.kind === 'one' ? model.get(far.relation.to) : undefined;
  if (!far || !target || target.keys.length === 0) return [];
  return identifyingFields(target).map((each) => `${far.name}.${each}`);
}

/** The number of names that a cell shows of a list through a junction. */
const MOST_NAMES = 3;

/** All fields that the record page shows: those of columns, and the titles of related items. */
export function recordFields(collection: Collection, model: Model): string[] {
  const fields = [...collection.fields.values()].filter(
    ({ relation, column }) => (column || relation) && relation?.kind !== 'many',
  );
  return [...new Set(fields.flatMap(({ name }) => fieldsOf(name, collection, model)))];
}

export class RowSource {
  readonly rows = signal<readonly Row[]>([]);
  readonly count = signal<number | null>(null);
  /** True from the beginning, so that a list that was not loaded yet does not look empty. */
  readonly loading = signal(true);
  readonly error = signal<string | null>(null);
  readonly view: View;
  readonly #model: Model;
  /** The cursor of the next page, or null at the end. */
  #cursor: string | null = '';
  #request: AbortController | null = null;
  #unsubscribe: (() => void) | null = null;
  #followed = 0;

  constructor(view: View, model: Model) {
    this.view = view;
    this.#model = model;
  }

  get complete(): boolean {
    return this.#cursor === null;
  }

  /** Loads the first page, or as many rows as were loaded before. */
  async load(rows = PAGE): Promise<void> {
    this.#cursor = '';
    await this.#fetch(Math.min(Math.max(rows, PAGE), 1_000), []);
  }

  /** Nothing to load: the list belongs to an item that is not saved yet. */
  settle(): void {
    this.#cursor = null;
    this.loading.value = false;
    this.count.value = 0;
  }

  async more(): Promise<void> {
    if (this.loading.value || this.complete || this.error.value) return;
    await this.#fetch(PAGE, this.rows.value);
  }

  stop(): void {
    this.#request?.abort();
    this.unfollow();
  }

  unfollow(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = null;
    this.#followed = 0;
  }

  /** Keeps the loaded rows up to date with the database until `stop`. */
  follow(onFailed: (message: string) => void): void {
    this.#unsubscribe?.();
    this.#followed = Math.min(Math.max(this.rows.value.length, PAGE), MOST_FOLLOWED);
    this.#unsubscribe = subscribe(
      itemsPath(this.view.collection),
      { query: this.#query(this.#followed, []) },
      {
        onAnswer: (text) => {
          const { data, meta = {} } = JSON.parse(text) as { data: Row[]; meta?: Answer<unknown>['meta'] };
          const beyond = this.rows.value.slice(this.#followed);
          // More rows were loaded than the live query covers. They stay, unless the list has become shorter than that.
          if (beyond.length === 0 || data.length < this.#followed) this.#take(data, meta, this.#followed, []);
          else this.rows.value = [...data, ...beyond];
        },
        onFailed,
      },
    );
  }

  /** Whether more rows were loaded than are kept up to date. */
  get outgrown(): boolean {
    return this.rows.value.length > this.#followed && this.#followed < MOST_FOLLOWED;
  }

  #query(limit: number, before: readonly Row[]): Row {
    // A table without a key can only continue at an offset.
    const start = this.#isKeyless ? { offset: before.length } : { cursor: before.length === 0 ? '' : this.#cursor };
    // Counting the rows of a view would run it once more.
    const isView = this.#model.get(this.view.collection)?.isView;
    const counted = before.length === 0 && !isView ? { meta: ['estimated_count'] } : {};
    return { ...queryOf(this.view, this.#model), limit, ...start, ...counted };
  }

  get #isKeyless(): boolean {
    return this.#model.get(this.view.collection)?.keys.length === 0;
  }

  #take(rows: readonly Row[], meta: Answer<unknown>['meta'], limit: number, before: readonly Row[]): void {
    const next = this.#isKeyless ? '' : meta['next_cursor'];
    this.#cursor = typeof next === 'string' && rows.length === limit ? next : null;
    this.rows.value = [...before, ...rows];
    const count = meta['estimated_count'];
    if (typeof count === 'number') this.count.value = count;
    if (this.#cursor === null) this.count.value = this.rows.value.length;
  }

  async #fetch(limit: number, before: readonly Row[]): Promise<void> {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.loading.value = true;
    this.error.value = null;
    try {
      const { collection } = this.view;
      const { data, meta } = this.#model.get(collection)?.singleton
        ? await call<Row[] | Row>('GET', itemsPath(collection), { signal: request.signal })
        : await call<Row[] | Row>('SEARCH', itemsPath(collection), {
            body: { query: this.#query(limit, before) },
            signal: request.signal,
          });
      this.#take(Array.isArray(data) ? data : [data], meta, limit, before);
    } catch (error) {
      if (request.signal.aborted) return;
      this.error.value = messageOf(error);
    }
    if (this.#request === request) this.loading.value = false;
  }
}

/** The parameters that a list, an export and a count share. */
export function queryOf(view: View, model: Model): Record<string, unknown> {
  const collection = model.get(view.collection);
  const named = view.columns.filter((name) => {
    const relation = collection?.fields.get(name)?.relation;
    return relation?.kind === 'many' && farNames(relation, model).length > 0;
  });
  return {
    fields: requestedFields(view, model),
    ...(named.length > 0 ? { deep: Object.fromEntries(named.map((name) => [name, { _limit: MOST_NAMES }])) } : {}),
    ...(view.filter ? { filter: view.filter } : {}),
    ...(view.sort.length > 0 ? { sort: view.sort } : {}),
    ...(view.search === '' ? {} : { search: view.search }),
  };
}

/** The fields that the grid requests: for a related item, those of its title. */
export function questionOf(view: View, model: Model): Record<string, unknown> {
  const collection = model.get(view.collection);
  const fields = collection ? view.columns.flatMap((name) => fieldsOf(name, collection, model).slice(-1)) : [];
  const { deep: _, ...query } = queryOf(view, model);
  return { ...query, fields };
}

const MOST_COLUMNS = 12;

/**
 * The order of columns: the key, the title, references, short values, long values, lists. Within each group, the order of the table.
 * Hidden fields are left out. If there are many, long and then short values are left out, but never relations.
 */
export function initialColumns(collection: Collection): string[] {
  const shown = titleFirst(collection).filter(({ name, hidden }) => !hidden && !collection.keys.includes(name));
  const title = titleField(collection);
  const isKept = ({ name, relation }: Field): boolean => relation !== null || name === title;
  const room = MOST_COLUMNS - collection.keys.length - shown.filter(isKept).length;
  const plain = new Set(shown.filter((field) => !isKept(field)).slice(0, Math.max(0, room)));
  const names = shown.filter((field) => isKept(field) || plain.has(field)).map(({ name }) => name);
  return [...collection.keys, ...names];
}

/** The fields with a column or a relation, in the order of columns. */
export function titleFirst(collection: Collection): Field[] {
  const title = titleField(collection);
  const rank = ({ name, relation, type, isKey }: Field): number => {
    if (isKey) return -1;
    if (name === title) return 0;
    if (relation) return relation.kind === 'one' ? 1 : 4;
    return type === 'text' || type === 'json' ? 3 : 2;
  };
  return [...collection.fields.values()]
    .filter((field) => field.column || field.relation)
    .sort((one, other) => rank(one) - rank(other));
}

/** The columns of a related list. Through a junction, the other side comes first, and the key of the junction is left out. */
export function nestedColumns(collection: Collection, by: string | null, far: Field | null): string[] {
  const columns = initialColumns(collection).filter((name) => name !== by);
  if (!far) return columns;
  const isOwnKey = (name: string): boolean => collection.key === name && !collection.fields.get(name)?.relation;
  const named = far.relation?.kind === 'any' && far.relation.by !== null ? [far.relation.by] : [];
  const first = [far.name, ...named];
  return [...first, ...columns.filter((name) => !first.includes(name) && !isOwnKey(name))];
}
