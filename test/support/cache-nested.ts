/**
 * Random nested reads for the oracle of the cache: lists with filters, orders, limits and offsets of their own, junctions, references to any
 * collection, counts, versions and operations of several parts. And the writes that decide which rows such reads show.
 */
import type { TransactionSql } from 'postgres';
import type { Row, Table, Written } from './cache-journal.js';

/** Tables without stamps: answers with their rows are compared at rest. */
export const LINK_SCHEMA = `
create table labels (id int primary key, name text, level int not null default 0);
create table people_labels (id int primary key, person int references people on delete cascade on update cascade,
  label int references labels on delete cascade on update cascade, rank int);
create table blocks (id int primary key, person int references people on delete cascade on update cascade, collection text, item text, rank int);
insert into labels select n, 'label ' || n, n % 6 from generate_series(1, 12) n;
insert into people_labels select n, 1 + n % 20, 1 + n % 12, n % 5 from generate_series(1, 60) n;
insert into blocks select n, 1 + n % 20, case when n % 2 = 0 then 'teams' else 'labels' end, (1 + n % 12)::text, n % 5 from generate_series(1, 40) n;
insert into service_collections (collection, hidden, singleton, accountability) values
  ('labels', false, false, null), ('people_labels', false, false, null), ('blocks', false, false, null);
insert into service_fields (collection, field, special, interface) values
  ('people', 'labels', 'm2m', 'list-m2m'), ('people', 'blocks', 'o2m', 'list-o2m'), ('blocks', 'item', 'm2a', 'm2a');
insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field, one_collection_field, one_allowed_collections) values
  ('people_labels', 'person', 'people', 'labels', 'label', null, null), ('people_labels', 'label', 'labels', null, 'person', null, null),
  ('blocks', 'person', 'people', 'blocks', null, null, null), ('blocks', 'item', null, null, null, 'collection', 'teams,labels');
`;

export const LINK_COLLECTIONS = ['labels', 'people_labels', 'blocks'] as const;

type Draw = (below: number) => number;

const PLAIN = ['id', 'stamp', 'level', 'owner'];
const below = (path: string): string[] => PLAIN.map((field) => `${path}.${field}`);

const BRANCHES: Readonly<Record<'teams' | 'people' | 'notes', readonly (readonly string[])[]>> = {
  teams: [
    below('people'),
    below('people.notes'),
    ['people.labels.label.name'],
    ['count(people)'],
    below('people.team'),
    ['people'],
  ],
  people: [
    below('team'),
    below('notes'),
    below('team.people'),
    below('notes.person'),
    ['labels.label.name', 'labels.rank'],
    ['labels.label'],
    ['blocks.rank', 'blocks.item:teams.name', 'blocks.item:labels.name'],
    ['count(notes)'],
    ['count(labels)', 'labels.id'],
    ['notes'],
    ['team'],
  ],
  notes: [
    below('person'),
    below('person.team'),
    below('person.notes'),
    ['person.labels.label.name'],
    ['person.team.people.name'],
  ],
};

/** Parameters of a list: of the lists that are named, at any depth. */
const LISTS: Readonly<Record<string, { readonly filters: readonly object[]; readonly sorts: readonly string[] }>> = {
  people: {
    filters: [
      { level: { _gte: 2 } },
      { team: { level: { _lte: 4 } } },
      { notes: { _some: { level: { _gte: 3 } } } },
      { name: { _contains: 'a' } },
    ],
    sorts: ['id', '-id', '-level', 'team.name', '-stamp'],
  },
  notes: {
    filters: [
      { level: { _lte: 3 } },
      { person: { team: { level: { _gte: 1 } } } },
      { level: { _in: [1, 2, 5] } },
      { name: { _ncontains: '7' } },
    ],
    sorts: ['id', '-id', 'level', '-stamp', 'person.level'],
  },
  labels: {
    filters: [{ rank: { _gte: 1 } }, { label: { level: { _gte: 2 } } }, { label: { name: { _contains: '1' } } }],
    sorts: ['id', '-rank', 'label.name'],
  },
  blocks: { filters: [{ rank: { _lte: 3 } }, { collection: { _eq: 'teams' } }], sorts: ['id', '-rank'] },
};

export interface NestedRead {
  readonly table: 'teams' | 'people' | 'notes';
  /** Null for a read of several parts. */
  readonly key: number | null;
  readonly path: string;
}

export class NestedReads {
  constructor(
    private readonly draw: Draw,
    private readonly keys: (table: Table) => number[],
  ) {}

  #pick<Entry>(entries: readonly Entry[]): Entry {
    return entries[this.draw(entries.length)] as Entry;
  }

  make(): NestedRead {
    const table = this.#pick(['teams', 'people', 'people', 'people', 'notes'] as const);
    const key = this.#pick(this.keys(table).slice(0, 20));
    const kind = this.draw(20);
    if (kind === 0) return { table, key: null, path: `/graphql?query=${encodeURIComponent(this.#parts())}` };
    if (kind === 1)
      return {
        table: 'people',
        key: null,
        path: `/items/people/${1 + this.draw(3)}?version=draft&fields=id,name,team.name,notes.name`,
      };
    const fields = [...PLAIN, 'name', ...this.#branches(table)];
    const deep = this.#deep(fields);
    const query = new URLSearchParams({ fields: fields.join() });
    if (Object.keys(deep).length > 0) query.set('deep', JSON.stringify(deep));
    if (kind < 15) return { table, key, path: `/items/${table}/${key}?${query}` };
    query.set('limit', String(1 + this.draw(5)));
    query.set('sort', this.#pick(['id', '-id', '-level,id']));
    if (this.draw(2) === 0) query.set('filter', JSON.stringify({ id: { _in: [key, key + 1, key + 2] } }));
    if (this.draw(4) === 0) query.set('offset', '1');
    return { table, key: null, path: `/items/${table}?${query}` };
  }

  #branches(table: NestedRead['table']): string[] {
    const count = 1 + this.draw(3);
    const branches = Array.from({ length: count }, () => this.#pick(BRANCHES[table])).flat();
    const prefixes = branches
      .filter((field) => field.includes('.'))
      .map((field) => field.slice(0, field.lastIndexOf('.')));
    // A relation is shown by its fields or by its keys.
    const distinct = [...new Set(branches)].filter(
      (field) => field.includes('(') || !prefixes.some((each) => each === field || each.startsWith(`${field}.`)),
    );
    return distinct;
  }

  #deep(fields: readonly string[]): Record<string, unknown> {
    const deep: Record<string, unknown> = {};
    const lists = [...new Set(fields.flatMap((field) => (field.includes('(') ? [] : field.split('.').slice(0, 1))))];
    for (const list of lists) {
      const choices = LISTS[list];
      if (!choices || this.draw(2) === 0) continue;
      const parameters: Record<string, unknown> = {};
      if (this.draw(2) === 0) parameters['_filter'] = this.#pick(choices.filters);
      if (this.draw(2) === 0) parameters['_sort'] = this.#pick(choices.sorts);
      if (this.draw(2) === 0) parameters['_limit'] = 1 + this.draw(4);
      if (this.draw(5) === 0) Object.assign(parameters, { _offset: 1, _sort: this.#pick(['id', '-id']) });
      if (this.draw(8) === 0) parameters['_search'] = 'a';
      if (Object.keys(parameters).length > 0) deep[list] = parameters;
    }
    return deep;
  }

  #parts(): string {
    const person = this.#pick(this.keys('people').slice(0, 20));
    const note = this.#pick(this.keys('notes').slice(0, 20));
    return `{ a: people_by_id(id: ${person}) { id name notes(limit: 3, sort: ["-level", "id"]) { id name } team { name } }
      b: notes_by_id(id: ${note}) { id person { name team { name } } } c: teams(limit: 2, sort: ["id"]) { id people { name } } }`;
  }
}

/** Writes of links, one of them at a time. `touch` notes rows of the journal before they are written. */
export class LinkWriter {
  constructor(
    private readonly draw: Draw,
    private readonly keys: (table: Table) => number[],
    private readonly touch: (table: Table, keys: readonly number[]) => void,
  ) {}

  #pick<Entry>(entries: readonly Entry[]): Entry {
    return entries[this.draw(entries.length)] as Entry;
  }

  #key(table: Table): number {
    return this.#pick(this.keys(table).slice(0, 20));
  }

  async write(tx: TransactionSql): Promise<Written[]> {
    const kind = this.draw(12);
    if (kind < 2) return this.#move(tx);
    if (kind === 2) return this.#swap(tx);
    if (kind === 3) return this.#reassign(tx);
    await this.#writeLinks(tx, kind);
    return [];
  }

  /** A note gets another parent, or none. */
  async #move(tx: TransactionSql): Promise<Written[]> {
    const id = this.#key('notes');
    const person = this.draw(6) === 0 ? null : this.#key('people');
    this.touch('notes', [id]);
    const rows = await tx<
      Row[]
    >`update notes set person = ${person} where id = ${id} returning id, stamp, level, owner::text`;
    return [{ table: 'notes', rows }];
  }

  /** Two notes get each other's parent. */
  async #swap(tx: TransactionSql): Promise<Written[]> {
    const ids = [this.#key('notes'), this.#key('notes')].sort((one, other) => one - other);
    this.touch('notes', ids);
    const rows = await tx<Row[]>`update notes n set person = o.person from notes o
      where n.id = any(${ids}) and o.id = any(${ids}) and n.id <> o.id returning n.id, n.stamp, n.level, n.owner::text`;
    return [{ table: 'notes', rows }];
  }

  async #reassign(tx: TransactionSql): Promise<Written[]> {
    const id = this.#key('people');
    this.touch('people', [id]);
    const rows = await tx<Row[]>`update people set team = ${this.#key('teams')} where id = ${id}
      returning id, stamp, level, owner::text`;
    return [{ table: 'people', rows }];
  }

  async #writeLinks(tx: TransactionSql, kind: number): Promise<void> {
    const [link, block] = [1 + this.draw(60), 1 + this.draw(40)];
    const label = 1 + this.draw(12);
    if (kind === 4)
      await tx`update labels set name = ${`label ${this.draw(1_000)}`}, level = ${this.draw(6)} where id = ${label}`;
    if (kind === 5) await tx`update people_labels set person = ${this.#key('people')} where id = ${link}`;
    if (kind === 6) await tx`update people_labels set label = ${label}, rank = ${this.draw(5)} where id = ${link}`;
    // The same key, perhaps below another parent.
    if (kind === 7) await tx`delete from people_labels where id = ${link}`;
    if (kind === 7 || kind === 8)
      await tx`insert into people_labels values (${link}, ${this.#key('people')}, ${label}, ${this.draw(5)}) on conflict do nothing`;
    if (kind === 9)
      await tx`update blocks set collection = ${this.#pick(['teams', 'labels'])}, item = ${String(1 + this.draw(12))} where id = ${block}`;
    if (kind === 10) await tx`update blocks set person = ${this.#key('people')} where id = ${block}`;
    if (kind === 11) await tx`delete from ${tx(this.#pick(['blocks', 'people_labels']))} where id = ${block}`;
    if (kind === 11)
      await tx`insert into blocks values (${block}, ${this.#key('people')}, 'labels', ${String(label)}, ${this.draw(5)}) on conflict do nothing`;
  }
}
