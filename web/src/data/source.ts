/** The rows of a grid: keyset pages, loaded while scrolling, and the number of rows. */
import { signal } from '@preact/signals';
import { type Answer, call, itemsPath, messageOf } from '../api';
import type { FilterJson } from '../filter/filter';
import { subscribe } from '../live';
import { type Collection, type Field, type Model, titleField } from '../model';
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
  if (relation?.kind === 'many') return [`count(${name})`];
  const target = relation?.kind === 'one' ? model.get(relation.to) : undefined;
  if (target?.keys.length === 0 && relation?.kind === 'one' && relation.by !== null) return [`${name}.*`];
  if (!target || target.keys.length === 0) return [name];
  return identifyingFields(target).map((each) => `${name}.${each}`);
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
  return {
    fields: requestedFields(view, model),
    ...(view.filter ? { filter: view.filter } : {}),
    ...(view.sort.length > 0 ? { sort: view.sort } : {}),
    ...(view.search === '' ? {} : { search: view.search }),
  };
}

/** The fields that the grid requests: for a related item, those of its title. */
export function questionOf(view: View, model: Model): Record<string, unknown> {
  const collection = model.get(view.collection);
  const fields = collection ? view.columns.flatMap((name) => fieldsOf(name, collection, model).slice(-1)) : [];
  return { ...queryOf(view, model), fields };
}

const MOST_COLUMNS = 12;

/**
 * The order of columns: the key, the title, references, short values, long values, lists. Within each group, the order of the table.
 * Hidden fields are left out.
 */
export function initialColumns(collection: Collection): string[] {
  const fields = [...collection.fields.values()].filter((field) => field.column || field.relation);
  const title = titleField(collection);
  const rank = ({ name, relation, type }: Field): number => {
    if (name === title) return 0;
    if (relation) return relation.kind === 'one' ? 1 : 4;
    return type === 'text' || type === 'json' ? 3 : 2;
  };
  const shown = fields
    .filter(({ name, hidden }) => !hidden && !collection.keys.includes(name))
    .sort((one, other) => rank(one) - rank(other));
  const names = shown.map((field) => field.name);
  return [...collection.keys, ...names].slice(0, MOST_COLUMNS);
}
