/** Random reads of the tables of the oracle of the cache, and how to find the rows in their answers. */
import type { Row, Table } from './cache-journal.js';
import { NestedReads } from './cache-nested.js';

/** Conditions on a row, which the service applies as a rule or a filter. */
export interface Condition {
  readonly column: 'level' | 'owner';
  readonly operator: '_lte' | '_gte' | '_eq';
  readonly value: number | string;
}

export function holds(conditions: readonly Condition[], row: Row): boolean {
  return conditions.every(({ column, operator, value }) => {
    const found = row[column];
    if (found === null || found === undefined) return false;
    if (operator === '_eq') return found === value;
    return operator === '_lte' ? found <= value : found >= value;
  });
}

export function filterOf(conditions: readonly Condition[]): object {
  return conditions.length === 0
    ? {}
    : { _and: conditions.map(({ column, operator, value }) => ({ [column]: { [operator]: value } })) };
}

export interface FoundRow {
  readonly table: Table;
  readonly row: Row;
}

/** Figures of an aggregate. */
export interface Figures {
  readonly count: number;
  readonly max: number | null;
}

export interface Shape {
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'SEARCH';
  readonly path: string;
  readonly body?: string;
  readonly table: Table | null;
  /** The read shows all rows of the table that fulfil the conditions; null if it shows only some. */
  readonly complete: readonly Condition[] | null;
  /** The key of the only row that it shows. */
  readonly key?: number;
  rows(json: unknown): FoundRow[];
  /** Null if it is no aggregate. */
  figures(json: unknown): Figures | null;
}

type Draw = (below: number) => number;

const RELATED: Readonly<Partial<Record<Table, Readonly<Record<string, Table>>>>> = {
  teams: { people: 'people' },
  people: { team: 'teams', notes: 'notes' },
  notes: { person: 'people' },
};

function isItem(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The rows in an item of a table, at any depth. */
function walk(table: Table, value: unknown, found: FoundRow[]): FoundRow[] {
  if (Array.isArray(value)) for (const each of value) walk(table, each, found);
  if (!isItem(value)) return found;
  const { id, stamp, level, owner } = value;
  if (typeof stamp === 'number')
    found.push({
      table,
      row: {
        id: Number(id),
        stamp,
        level: typeof level === 'number' ? level : null,
        owner: typeof owner === 'string' ? owner : null,
      },
    });
  for (const [field, related] of Object.entries(RELATED[table] ?? {})) walk(related, value[field], found);
  return found;
}

function dataOf(json: unknown): unknown {
  return isItem(json) ? json['data'] : undefined;
}

function figuresIn(value: unknown): Figures | null {
  const item = Array.isArray(value) ? value[0] : value;
  if (!isItem(item)) return null;
  const { count, max } = item;
  const stamp = isItem(max) ? max['stamp'] : null;
  const number = isItem(count) ? count['id'] : count;
  return { count: Number(number), max: typeof stamp === 'number' ? stamp : null };
}

const PLAIN = ['id', 'stamp', 'level', 'owner'];
const FIELDS: Readonly<Record<Table, readonly (readonly string[])[]>> = {
  teams: [PLAIN, [...PLAIN, 'name'], [...PLAIN, ...PLAIN.map((field) => `people.${field}`)], ['*']],
  people: [
    PLAIN,
    ['*'],
    [...PLAIN, 'name', ...PLAIN.map((field) => `team.${field}`)],
    [...PLAIN, ...PLAIN.map((field) => `notes.${field}`)],
    [...PLAIN, 'team.*', 'notes.*'],
  ],
  notes: [
    PLAIN,
    ['*'],
    [...PLAIN, ...PLAIN.map((field) => `person.${field}`), ...PLAIN.map((field) => `person.team.${field}`)],
  ],
  bulk: [PLAIN, ['*']],
  flash: [PLAIN, ['*'], [...PLAIN, 'name']],
};

/** A selection of GraphQL, such as `id team { id }`. */
function selection(fields: readonly string[]): string {
  const nested = new Map<string, string[]>();
  const own: string[] = [];
  for (const field of fields) {
    const [first = '', ...rest] = field.split('.');
    if (rest.length === 0) own.push(...(first === '*' ? [...PLAIN, 'name'] : [first]));
    else nested.set(first, [...(nested.get(first) ?? []), rest.join('.')]);
  }
  return [...new Set(own), ...[...nested].map(([field, inner]) => `${field} { ${selection(inner)} }`)].join(' ');
}

/** Values of GraphQL, without quotes around names. */
function literal(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (!isItem(value)) return JSON.stringify(value);
  return `{ ${Object.entries(value)
    .map(([name, each]) => `${name}: ${literal(each)}`)
    .join(', ')} }`;
}

interface ListQuery {
  readonly table: Table;
  readonly fields: readonly string[];
  readonly filter: object;
  readonly sort: string;
  readonly limit: number;
}

type Sent = Pick<Shape, 'method' | 'path'> & Partial<Pick<Shape, 'body'>>;

function byUrl({ table, fields, filter, sort, limit }: ListQuery): Sent {
  const query = new URLSearchParams({ fields: fields.join(), sort, limit: String(limit) });
  if (Object.keys(filter).length > 0) query.set('filter', JSON.stringify(filter));
  return { method: 'GET', path: `/items/${table}?${query}` };
}

function bySearch({ table, ...query }: ListQuery): Sent {
  return { method: 'SEARCH', path: `/items/${table}`, body: JSON.stringify({ query }) };
}

function byGraphql({ table, fields, filter, sort, limit }: ListQuery, isGet: boolean): Sent {
  const query = `{ ${table}(filter: ${literal(filter)}, sort: ["${sort}"], limit: ${limit}) { ${selection(fields)} } }`;
  return graphql(query, isGet);
}

function graphql(query: string, isGet: boolean): Sent {
  return isGet
    ? { method: 'GET', path: `/graphql?${new URLSearchParams({ query })}` }
    : { method: 'POST', path: '/graphql', body: JSON.stringify({ query }) };
}

/** Lists answer `data: [...]`, and GraphQL `data: { people: [...] }`. */
function rowsOf(table: Table, json: unknown): FoundRow[] {
  const data = dataOf(json);
  const items = isItem(data) ? (data[table] ?? data[`${table}_by_id`] ?? data) : data;
  return walk(table, items, []);
}

function shape(name: string, sent: Sent, rest: Pick<Shape, 'table' | 'complete'> & Partial<Shape>): Shape {
  const { table } = rest;
  return {
    name,
    rows: (json) => (table === null ? [] : rowsOf(table, json)),
    figures: () => null,
    ...sent,
    ...rest,
  };
}

const OPERATORS = ['_lte', '_gte', '_eq'] as const;

/** Conditions on relations: which rows fulfil them depends on other tables. */
const RELATED_FILTERS: Readonly<Partial<Record<Table, (level: number) => object>>> = {
  teams: (level) => ({ people: { _some: { level: { _gte: level } } } }),
  people: (level) => ({ team: { level: { _lte: level } } }),
  notes: (level) => ({ person: { team: { level: { _gte: level } } } }),
};

/**
 * Limits of lists with all rows of a table. REST streams a list without a limit, which is never kept: if all of them were such lists, no
 * list from memory would be searched for missing rows. A dashboard names its limit.
 */
const COMPLETE_LIMITS = [500, 500, 500, -1] as const;

export class ShapeMaker {
  readonly #nested: NestedReads;

  constructor(
    private readonly draw: Draw,
    private readonly keys: (table: Table) => number[],
  ) {
    this.#nested = new NestedReads(draw, keys);
  }

  #pick<Entry>(entries: readonly Entry[]): Entry {
    return entries[this.draw(entries.length)] as Entry;
  }

  #conditions(): Condition[] {
    if (this.draw(3) === 0) return [];
    return [{ column: 'level', operator: this.#pick(OPERATORS), value: this.draw(6) }];
  }

  make(number: number): Shape {
    const table = this.#pick(['teams', 'people', 'people', 'notes', 'bulk', 'flash'] as const);
    const kind = this.draw(16);
    if (kind >= 10) return this.#nestedRead(number);
    if (kind < 3) return this.#byKey(number, table);
    if (kind < 7) return this.#list(number, table);
    if (kind < 9) return this.#aggregate(number, table);
    return this.#other(number);
  }

  #byKey(number: number, table: Table): Shape {
    const key = this.#pick(this.keys(table));
    const fields = this.#pick(FIELDS[table]);
    const way = this.draw(4);
    const sent: Sent =
      way === 0
        ? graphql(`{ ${table}_by_id(id: ${key}) { ${selection(fields)} } }`, this.draw(2) === 0)
        : { method: 'GET', path: `/items/${table}/${key}?fields=${fields.join()}` };
    return shape(`${number} ${table} ${key}`, sent, { table, complete: null, key });
  }

  #nestedRead(number: number): Shape {
    const { table, key, path } = this.#nested.make();
    const sent: Sent = { method: 'GET', path };
    const isKnown = path.startsWith(`/items/${table}`) && !path.includes('version');
    if (!isKnown) return shape(`${number} nested`, sent, { table: null, complete: null });
    return shape(`${number} nested ${table} ${key}`, sent, { table, complete: null, ...(key === null ? {} : { key }) });
  }

  #list(number: number, table: Table): Shape {
    const conditions = this.#conditions();
    const isComplete = (table === 'teams' || table === 'people' || table === 'flash') && this.draw(2) === 0;
    const related = isComplete ? undefined : RELATED_FILTERS[table]?.(this.draw(6));
    const filter = related && this.draw(2) === 0 ? related : filterOf(conditions);
    const query: ListQuery = {
      table,
      fields: this.#pick(FIELDS[table]),
      filter,
      sort: isComplete ? 'id' : this.#pick(['id', '-id', '-stamp', 'level']),
      limit: isComplete ? this.#pick(COMPLETE_LIMITS) : 1 + this.draw(12),
    };
    const sent = [
      () => byUrl(query),
      () => byUrl(query),
      () => bySearch(query),
      () => byGraphql(query, true),
      () => byGraphql(query, false),
    ];
    return shape(`${number} list of ${table}`, this.#pick(sent)(), {
      table,
      complete: isComplete ? conditions : null,
    });
  }

  #aggregate(number: number, table: Table): Shape {
    const conditions = this.#conditions();
    const filter = filterOf(conditions);
    const isGraphql = this.draw(3) === 0;
    const query = new URLSearchParams({ 'aggregate[count]': '*', 'aggregate[max]': 'stamp' });
    if (conditions.length > 0) query.set('filter', JSON.stringify(filter));
    const sent: Sent = isGraphql
      ? graphql(
          `{ ${table}_aggregated(filter: ${literal(filter)}) { count { id } max { stamp } } }`,
          this.draw(2) === 0,
        )
      : { method: 'GET', path: `/items/${table}?${query}` };
    return shape(`${number} aggregate of ${table}`, sent, {
      table,
      complete: conditions,
      rows: () => [],
      figures: (json) => {
        const data = dataOf(json);
        return figuresIn(isItem(data) ? data[`${table}_aggregated`] : data);
      },
    });
  }

  /** Reads whose answers are only compared at rest, some of which are never kept. */
  #other(number: number): Shape {
    const table = this.#pick(['teams', 'people', 'flash'] as const);
    const paths = [
      `/items/${table}?aggregate[count]=*&aggregate[sum]=level&groupBy[]=level&sort=level`,
      `/items/${table}?limit=3&fields=id&meta=filter_count,total_count`,
      `/items/${table}?search=a&fields=id,name&limit=5`,
      '/items/seniors?fields=*&sort=id&limit=20',
      '/items/loose?fields=*&sort=ref&limit=20',
      '/items/notes?fields=id,person.team.name&sort=-person.level,id&limit=8',
    ];
    return shape(`${number} other`, { method: 'GET', path: this.#pick(paths) }, { table: null, complete: null });
  }
}
