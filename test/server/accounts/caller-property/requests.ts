/** Random requests, each with the SQL that must have the same result. */
import type { Answer, Sql } from '../../../support/service.js';
import { type Column, childrenOf, type Random, randomValue, type Table } from './schema.js';

export interface Compared {
  readonly method: 'GET' | 'PATCH' | 'POST' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  readonly isLive?: boolean;
  /** Whether several statements are compared with one, which may be refused for another reason first. */
  readonly isSeveral?: boolean;
  readonly expected: (tx: Sql) => Promise<unknown>;
  readonly actual: (answer: Answer) => unknown;
}

export const DENIED = 'denied';

type Row = Readonly<Record<string, unknown>>;

const dataOf = ({ json }: Answer): unknown => (json as { data?: unknown }).data;
const rowsOf = (answer: Answer): readonly Row[] => dataOf(answer) as readonly Row[];

const OPERATORS = { _eq: '=', _neq: '<>', _gte: '>=', _lt: '<' } as const;

interface Condition {
  readonly column: string;
  readonly operator: keyof typeof OPERATORS;
  readonly value: string | number | boolean;
}

export class Requests {
  constructor(
    private readonly random: Random,
    private readonly tables: readonly Table[],
    private readonly users: readonly string[],
    private readonly isLiveTested: boolean,
  ) {}

  read(): Compared {
    const { random } = this;
    const table = random.pick(this.tables);
    const child = random.pick(this.tables.filter(({ parent }) => parent !== null));
    if (this.isLiveTested && random.chance(2)) return { ...this.#list(table), isLive: true };
    switch (random.below(8)) {
      case 0:
        return this.#byKey(table);
      case 1:
        return this.#nestedLists(child);
      case 2:
        return this.#nestedItems(child);
      case 3:
        return this.#filterByChildren(child);
      case 4:
        return this.#filterByParent(child);
      case 5:
        return this.#aggregate(table);
      case 6:
        return this.#graphql(table);
      default:
        return this.#list(table);
    }
  }

  #condition({ columns }: Table): Condition {
    const { random } = this;
    const column = random.pick(columns.filter(({ type }) => type !== 'uuid'));
    const operator = column.type === 'integer' ? random.pick(['_eq', '_neq', '_gte', '_lt'] as const) : '_eq';
    return { column: column.name, operator, value: randomValue(random, column, this.users) };
  }

  #shown({ columns }: Table): string[] {
    return [
      'id',
      ...this.random.some(
        columns.map(({ name }) => name),
        40,
      ),
    ];
  }

  #list(table: Table): Compared {
    const { column, operator, value } = this.#condition(table);
    const shown = this.#shown(table);
    const where = `where ${column} ${OPERATORS[operator]} $1`;
    return {
      method: 'GET',
      path: `/items/${table.name}?fields=${shown.join()}&filter[${column}][${operator}]=${value}&sort=id&limit=10&meta=filter_count`,
      expected: async (tx) => [
        (
          await tx.unsafe<Row[]>(`select ${shown.join()} from ${table.name} ${where} order by id limit 10`, [value])
        ).map((row) => shown.map((name) => row[name])),
        Number((await tx.unsafe(`select count(*) from ${table.name} ${where}`, [value]))[0]?.['count']),
      ],
      actual: (answer) => [
        rowsOf(answer).map((row) => shown.map((name) => row[name])),
        (answer.json as { meta: { filter_count: number } }).meta.filter_count,
      ],
    };
  }

  #byKey(table: Table): Compared {
    const id = 1 + this.random.below(60);
    const shown = this.#shown(table);
    return {
      method: 'GET',
      path: `/items/${table.name}/${id}?fields=${shown.join()}`,
      expected: async (tx) => {
        const [row] = await tx.unsafe<Row[]>(`select ${shown.join()} from ${table.name} where id = $1`, [id]);
        return row ? shown.map((name) => row[name]) : DENIED;
      },
      actual: (answer) => shown.map((name) => (dataOf(answer) as Row)[name]),
    };
  }

  #nestedLists(child: Table): Compared {
    const [list, rank] = [childrenOf(child), this.random.below(10)];
    return {
      method: 'GET',
      path: `/items/${child.parent}?fields=id,${list}.id&sort=id&limit=20&filter[rank][_lt]=${rank}&deep[${list}][_sort]=id&deep[${list}][_limit]=-1`,
      expected: async (tx) =>
        (
          await tx.unsafe<Row[]>(
            `select id, array(select id from ${child.name} where parent = p.id order by id) as list
             from ${child.parent} p where rank < $1 order by id limit 20`,
            [rank],
          )
        ).map(({ id, list: ids }) => [id, ids]),
      actual: (answer) => rowsOf(answer).map((row) => [row['id'], (row[list] as Row[]).map(({ id }) => id)]),
    };
  }

  #nestedItems(child: Table): Compared {
    const rank = this.random.below(10);
    return {
      method: 'GET',
      path: `/items/${child.name}?fields=id,parent.id,parent.rank&sort=id&limit=20&filter[rank][_gte]=${rank}`,
      expected: async (tx) =>
        (
          await tx.unsafe<Row[]>(
            `select id, (select array[p.id, p.rank] from ${child.parent} p where p.id = c.parent) as parent
             from ${child.name} c where rank >= $1 order by id limit 20`,
            [rank],
          )
        ).map(({ id, parent }) => [id, parent]),
      actual: (answer) =>
        rowsOf(answer).map(({ id, parent }) => [id, parent === null ? null : Object.values(parent as object)]),
    };
  }

  #filterByChildren(child: Table): Compared {
    const rank = this.random.below(10);
    return this.#ids(
      `/items/${child.parent}?fields=id&sort=id&limit=-1&filter[${childrenOf(child)}][rank][_eq]=${rank}`,
      `select id from ${child.parent} p where exists (select from ${child.name} c where c.parent = p.id and c.rank = $1) order by id`,
      rank,
    );
  }

  #filterByParent(child: Table): Compared {
    const rank = this.random.below(10);
    return this.#ids(
      `/items/${child.name}?fields=id&sort=id&limit=-1&filter[parent][rank][_gte]=${rank}`,
      `select id from ${child.name} c where exists (select from ${child.parent} p where p.id = c.parent and p.rank >= $1) order by id`,
      rank,
    );
  }

  #ids(path: string, text: string, value: number): Compared {
    return {
      method: 'GET',
      path,
      expected: async (tx) => (await tx.unsafe<Row[]>(text, [value])).map(({ id }) => id),
      actual: (answer) => rowsOf(answer).map(({ id }) => id),
    };
  }

  #aggregate({ name }: Table): Compared {
    const sorted = (groups: readonly unknown[][]): unknown[][] =>
      [...groups].sort((a, b) => (String(a) < String(b) ? -1 : 1));
    return {
      method: 'GET',
      path: `/items/${name}?aggregate[count]=id&aggregate[sum]=rank&groupBy[]=org&limit=-1`,
      expected: async (tx) =>
        sorted(
          (
            await tx.unsafe<Row[]>(`select org, count(id)::int as n, sum(rank)::int as s from ${name} group by org`)
          ).map(({ org, n, s }) => [org, n, s]),
        ),
      actual: (answer) =>
        sorted(
          rowsOf(answer).map(({ org, count, sum }) => [
            org,
            Number((count as Row)['id']),
            Number((sum as Row)['rank']),
          ]),
        ),
    };
  }

  #graphql(table: Table): Compared {
    const rank = this.random.below(10);
    const { name } = table;
    const shown = this.#shown(table);
    const query = `{ ${name}(limit: 5, sort: ["id"], filter: { rank: { _neq: ${rank} } }) { ${shown.join(' ')} } ${name}_aggregated(filter: { rank: { _neq: ${rank} } }) { countAll } }`;
    return {
      method: 'POST',
      path: '/graphql',
      body: { query },
      expected: async (tx) => [
        (
          await tx.unsafe<Row[]>(`select ${shown.join()} from ${name} where rank <> $1 order by id limit 5`, [rank])
        ).map((row) => shown.map((each) => (each === 'id' ? String(row[each]) : row[each]))),
        Number((await tx.unsafe(`select count(*) from ${name} where rank <> $1`, [rank]))[0]?.['count']),
      ],
      actual: (answer) => {
        const data = dataOf(answer) as Readonly<Record<string, readonly Row[]>>;
        return [
          data[name]?.map((row) => shown.map((each) => (each === 'id' ? String(row[each]) : row[each]))),
          data[`${name}_aggregated`]?.[0]?.['countAll'],
        ];
      },
    };
  }

  write(): Compared {
    const { random } = this;
    const table = random.pick(this.tables);
    switch (random.below(9)) {
      case 0:
      case 1:
      case 2:
        return this.#create(table);
      case 3:
        return this.#createNested(random.pick(this.tables.filter(({ parent }) => parent !== null)));
      case 4:
        return this.#delete(table);
      case 5:
        return this.#changeSelected(table);
      case 6:
        return this.#mutate(table);
      default:
        return this.#change(table);
    }
  }

  #values({ columns, parent }: Table): Record<string, string | number | boolean> {
    const chosen: readonly Column[] = this.random.some(columns, 50);
    const values = Object.fromEntries(
      chosen.map((column) => [column.name, randomValue(this.random, column, this.users)]),
    );
    return parent !== null && this.random.chance(50) ? { ...values, parent: 1 + this.random.below(70) } : values;
  }

  #create(table: Table): Compared {
    const values = { id: 1 + this.random.below(120), ...this.#values(table) };
    return {
      method: 'POST',
      path: `/items/${table.name}?fields=id`,
      body: values,
      expected: (tx) => insert(tx, table.name, values),
      actual: () => 'written',
    };
  }

  #createNested(child: Table): Compared {
    const parent = this.tables.find(({ name }) => name === child.parent) as Table;
    const root = { id: 1 + this.random.below(200), ...this.#values({ ...parent, parent: null }) };
    const rows = [1, 2].map(() => this.#values({ ...child, parent: null }));
    return {
      method: 'POST',
      path: `/items/${parent.name}?fields=id`,
      body: { ...root, [childrenOf(child)]: rows },
      isSeveral: true,
      expected: async (tx) => {
        await insert(tx, parent.name, root);
        for (const row of rows) await insert(tx, child.name, { ...row, parent: root.id });
        return 'written';
      },
      actual: () => 'written',
    };
  }

  #change(table: Table): Compared {
    const [id, values] = [1 + this.random.below(60), this.#values(table)];
    return {
      method: 'PATCH',
      path: `/items/${table.name}/${id}?fields=id`,
      body: values,
      expected: (tx) => update(tx, table.name, values, 'id', id),
      actual: () => 'written',
    };
  }

  #mutate(table: Table): Compared {
    const [id, rank] = [1 + this.random.below(60), this.random.below(10)];
    return {
      method: 'POST',
      path: '/graphql',
      body: { query: `mutation { update_${table.name}_item(id: ${id}, data: { rank: ${rank} }) { id } }` },
      expected: (tx) => update(tx, table.name, { rank }, 'id', id),
      actual: () => 'written',
    };
  }

  /** As many rows as the caller may change. PostgreSQL may refuse where no row is selected; nothing is changed either way. */
  #changeSelected(table: Table): Compared {
    const [rank, score] = [this.random.below(10), this.random.below(10)];
    return {
      method: 'PATCH',
      path: `/items/${table.name}?fields=id`,
      body: { query: { filter: { rank: { _eq: rank } }, limit: -1 }, data: { rank: score } },
      expected: async (tx) => {
        const text = `update ${table.name} set rank = $1 where rank = $2 returning id`;
        return (await tx.unsafe(text, [score, rank])).length || DENIED;
      },
      actual: (answer) => rowsOf(answer).length || DENIED,
    };
  }

  #delete(table: Table): Compared {
    const id = 1 + this.random.below(120);
    return {
      method: 'DELETE',
      path: `/items/${table.name}/${id}`,
      expected: async (tx) =>
        (await tx.unsafe(`delete from ${table.name} where id = $1 returning id`, [id])).length === 1
          ? 'written'
          : DENIED,
      actual: () => 'written',
    };
  }
}

type Values = Readonly<Record<string, string | number | boolean>>;

async function insert(tx: Sql, table: string, values: Values): Promise<string> {
  const names = Object.keys(values);
  const places = names.map((_, index) => `$${index + 1}`);
  await tx.unsafe(
    `insert into ${table} (${names.join()}) values (${places.join()}) returning id`,
    Object.values(values),
  );
  return 'written';
}

async function update(tx: Sql, table: string, values: Values, key: string, id: number): Promise<string> {
  const changes = Object.keys(values).map((name, index) => `${name} = $${index + 2}`);
  const text = `update ${table} set ${changes.join()} where ${key} = $1 returning id`;
  return (await tx.unsafe(text, [id, ...Object.values(values)])).length === 1 ? 'written' : DENIED;
}
