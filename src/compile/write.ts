/**
 * Write plan → one chain of common table expressions. For each list of rows: its input, read from the one parameter with the
 * keys of new rows allocated beforehand, then the statement that writes it. Children take the keys of their parents from
 * the parents' input, so correct parentage needs no order among the statements; each still waits for those it refers to,
 * because triggers look at the tables. What must not happen raises inside the statement, so all of it is undone.
 */
import type { Collection, Field } from '../mirror/model.js';
import type { Release, WriteColumn, WriteNode, WritePlan } from '../plan/write.js';
import {
  alias,
  expression,
  type Fragment,
  identifier,
  integer,
  join,
  literal,
  nothing,
  parameter,
  sql,
} from '../sql/fragment.js';
import { type Statement, statement } from '../sql/statement.js';
import { columnName, tableName, typeName } from './source.js';

/** With `receipts`, a receipt for the request is stored by the statement that writes: see sql/system/005_receipts.sql. */
export function compileWrite(plan: WritePlan, receipts: Collection | null): Statement {
  return statement(new Chain(plan, receipts).compile());
}

const DOCUMENT = sql`${parameter({ kind: 'text', slot: 0 })}::json`;

class Chain {
  readonly #plan: WritePlan;
  readonly #receipts: Collection | null;
  readonly #parts: Fragment[] = [];

  constructor(plan: WritePlan, receipts: Collection | null) {
    this.#plan = plan;
    this.#receipts = receipts;
  }

  compile(): Fragment {
    const { nodes, releases } = this.#plan;
    this.#parts.push(...nodes.map((node, position) => this.#input(node, position)));
    this.#parts.push(...releases.map((release, position) => releaseInput(release, position)));
    for (const position of this.#order()) this.#write(nodes[position] as WriteNode, position);
    this.#releaseAll('delete');
    this.#releaseAll('nullify');
    if (this.#receipts) this.#parts.push(sql`${alias('q')} as (${receipt(this.#receipts)})`);
    const checks = nodes.flatMap((node, position) => (node.verb === 'update' ? [missing(position)] : []));
    if (this.#receipts)
      checks.push(sql`case when (select count(*) from ${alias('q')}) = 0 then service_raise('repeated') end`);
    const answer = this.#plan.makesKeys ? this.#rootKeys() : sql`null::text`;
    const columns = join([sql`${answer} as ${alias('keys')}`, ...checks, ...this.#sequences()], sql`, `);
    return sql`with ${join(this.#parts, sql`, `)} select ${columns}`;
  }

  #input(node: WriteNode, position: number): Fragment {
    const key = node.collection.primaryKey;
    const columns = [sql`n int4`, sql`k ${typeName(key)}`];
    node.columns.forEach((column, index) => {
      if (column.holdsValues) columns.push(sql`${identifier(`c${index}`)} ${inputType(column.field)}`);
      if (column.mixed) columns.push(sql`${identifier(`p${index}`)} bool`);
      if (column.endOf) columns.push(sql`${identifier(`e${index}`)} int4`);
      columns.push(...column.references.map((_, table) => sql`${identifier(`r${index}_${table}`)} int4`));
    });
    const rows = sql`json_to_recordset(${DOCUMENT} -> 'nodes' -> ${integer(position)}) as ${alias('x')} (${join(columns, sql`, `)})`;
    const made = node.verb === 'insert' ? keyExpression(key) : null;
    const given = sql`${alias('x')}.k`;
    const names = inputNames(node).map((name) => sql`, ${alias('x')}.${identifier(name)}`);
    const allocated = made ? sql`case when ${given} is null then ${made} else ${given} end` : given;
    // Materialized: the next value of a sequence must be taken once, though the rows are read in several places.
    return sql`${input(position)} as materialized (select ${alias('x')}.n, ${allocated} as k${join(names, nothing)} from ${rows} order by ${alias('x')}.n)`;
  }

  #write(node: WriteNode, position: number): void {
    if (node.verb !== 'insert') this.#parts.push(sql`${written(position)} as (${this.#update(node, position)})`);
    if (node.verb === 'insert')
      this.#parts.push(sql`${written(position)} as (${this.#insert(node, position, nothing)})`);
    if (node.verb === 'upsert') {
      const table = tableName(node.collection);
      const key = columnName(node.collection.primaryKey);
      const absent = sql` where not exists (select from ${table} ${alias('e')} where ${alias('e')}.${key} = ${alias('i')}.k)`;
      this.#parts.push(sql`${alias(`m${position}`)} as (${this.#insert(node, position, absent)})`);
    }
  }

  #insert(node: WriteNode, position: number, where: Fragment): Fragment {
    const columns = node.columns.filter((column) => column.only !== 'update');
    const key = node.collection.primaryKey;
    const names = [columnName(key), ...columns.map((column) => columnName(column.field))];
    const values = [sql`${alias('i')}.k`, ...columns.map((column) => this.#newValue(node, column))];
    return sql`insert into ${tableName(node.collection)} (${join(names, sql`, `)}) overriding system value select ${join(values, sql`, `)} from ${input(position)} ${alias('i')}${this.#references(node)}${where} order by ${alias('i')}.n returning ${columnName(key)}`;
  }

  #update(node: WriteNode, position: number): Fragment {
    const columns = node.columns.filter((column) => column.only !== 'insert');
    const key = columnName(node.collection.primaryKey);
    const table = sql`${tableName(node.collection)} ${alias('t')}`;
    const same = sql`${alias('t')}.${key} = ${alias('i')}.k`;
    if (columns.length === 0) {
      return sql`select ${alias('t')}.${key} from ${input(position)} ${alias('i')} join ${table} on ${same} for no key update of ${alias('t')}`;
    }
    const changes = columns.map((column) => {
      const value = this.#value(node, column);
      const kept = column.mixed
        ? sql`case when ${present(node, column)} then ${value} else ${alias('t')}.${columnName(column.field)} end`
        : value;
      return sql`${columnName(column.field)} = ${kept}`;
    });
    return sql`update ${table} set ${join(changes, sql`, `)} from ${input(position)} ${alias('i')}${this.#references(node)} where ${same} returning ${alias('t')}.${key}`;
  }

  #newValue(node: WriteNode, column: WriteColumn): Fragment {
    const value = this.#value(node, column);
    if (!column.mixed) return value;
    const initial = column.field.column?.default_expression ?? null;
    return sql`case when ${present(node, column)} then ${value} else ${initial === null ? sql`null` : expression(initial)} end`;
  }

  /** A value of the row itself, the key of a new row, or a place behind the last row of the parent. */
  #value(node: WriteNode, column: WriteColumn): Fragment {
    const index = node.columns.indexOf(column);
    const options: Fragment[] = [];
    if (column.holdsValues) options.push(inputValue(column.field, sql`${alias('i')}.${identifier(`c${index}`)}`));
    options.push(
      ...column.references.map((_, table) => sql`${alias(`r${index}_${table}`)}.k::${typeName(column.field)}`),
    );
    if (column.endOf) options.push(this.#end(node, column.endOf, column, index));
    return options.length === 1 ? (options[0] as Fragment) : sql`coalesce(${join(options, sql`, `)})`;
  }

  #end(node: WriteNode, foreignKey: Field, column: WriteColumn, index: number): Fragment {
    const parent = node.columns.find((each) => each.field === foreignKey);
    if (!parent) throw new Error('a row without a parent has no place behind its siblings');
    const last = sql`select max(${alias('s')}.${columnName(column.field)}) from ${tableName(node.collection)} ${alias('s')} where ${alias('s')}.${columnName(foreignKey)} = ${this.#value(node, parent)}`;
    return sql`coalesce((${last}), 0) + ${alias('i')}.${identifier(`e${index}`)}`;
  }

  /** A statement stands behind those it waits for. */
  #order(): number[] {
    const order = new Set<number>();
    const place = (position: number): void => {
      if (order.has(position)) return;
      for (const earlier of this.#awaited(this.#plan.nodes[position] as WriteNode)) place(earlier);
      order.add(position);
    };
    for (const position of this.#plan.nodes.keys()) place(position);
    return [...order];
  }

  /** The statements that make the rows a list refers to; two tables whose new rows refer to each other cannot wait for each other. */
  #awaited(node: WriteNode): Set<number> {
    const positions = node.columns.flatMap((column) => column.references.map((name) => this.#maker(name)));
    return new Set(
      positions.filter((position) => this.#plan.nodes[position] !== node && !this.#refersBack(position, node)),
    );
  }

  /** Where new rows of a table are made. */
  #maker(name: string): number {
    return this.#plan.nodes.findIndex((each) => each.verb === 'insert' && each.collection.name === name);
  }

  /** Joins to the input of the rows referred to, and a wait for the statement that makes them. */
  #references(node: WriteNode): Fragment {
    const joins: Fragment[] = [];
    node.columns.forEach((column, index) => {
      column.references.forEach((name, table) => {
        const position = this.#maker(name);
        const row = alias(`r${index}_${table}`);
        joins.push(
          sql` left join ${input(position)} ${row} on ${row}.n = ${alias('i')}.${identifier(`r${index}_${table}`)}`,
        );
      });
    });
    for (const position of this.#awaited(node))
      joins.push(sql` cross join (select count(*) from ${written(position)}) ${alias(`w${position}`)}`);
    return join(joins, nothing);
  }

  #refersBack(position: number, node: WriteNode): boolean {
    const seen = new Set<WriteNode>();
    const reaches = (from: WriteNode): boolean => {
      if (from === node) return true;
      if (seen.has(from)) return false;
      seen.add(from);
      const names = new Set(from.columns.flatMap((column) => column.references));
      return this.#plan.nodes.some(
        (each) => each.verb === 'insert' && names.has(each.collection.name) && reaches(each),
      );
    };
    return reaches(this.#plan.nodes[position] as WriteNode);
  }

  /** One statement per table and action: a row that leaves two relations is changed once, one that is deleted not at all. */
  #releaseAll(action: Release['action']): void {
    const releases = this.#plan.releases
      .map((release, position) => ({ release, position }))
      .filter((each) => each.release.action === action);
    for (const collection of new Set(releases.map(({ release }) => release.collection))) {
      const members = releases.filter(({ release }) => release.collection === collection);
      const key = columnName(collection.primaryKey);
      const conditions = members.map(({ release, position }) => released(release, position));
      const kept = [...this.#kept(collection), ...(action === 'nullify' ? this.#deleted(collection) : [])];
      const where = join([sql`(${join(conditions, sql` or `)})`, ...kept], sql` and `);
      const name = alias(`${action === 'delete' ? 'd' : 'u'}${members[0]?.position ?? 0}`);
      const table = sql`${tableName(collection)} ${alias('t')}`;
      if (action === 'delete') {
        this.#parts.push(sql`${name} as (delete from ${table} where ${where} returning ${alias('t')}.${key})`);
        continue;
      }
      const changes = members.map(({ release }, index) => {
        const column = columnName(release.field);
        return sql`${column} = case when ${conditions[index] as Fragment} then null else ${alias('t')}.${column} end`;
      });
      this.#parts.push(
        sql`${name} as (update ${table} set ${join(changes, sql`, `)} where ${where} returning ${alias('t')}.${key})`,
      );
    }
  }

  /** Rows that the payload names stay, or go where it says. */
  #kept(collection: Collection): Fragment[] {
    return this.#plan.nodes.flatMap((node, position) => {
      if (node.verb === 'insert' || node.collection !== collection) return [];
      return [
        sql`not exists (select from ${input(position)} ${alias('k')} where ${alias('k')}.k = ${alias('t')}.${columnName(collection.primaryKey)})`,
      ];
    });
  }

  #deleted(collection: Collection): Fragment[] {
    return this.#plan.releases.flatMap((release, position) =>
      release.action === 'delete' && release.collection === collection ? [sql`not ${released(release, position)}`] : [],
    );
  }

  /** In the order of the payload, as texts. */
  #rootKeys(): Fragment {
    const position = this.#plan.nodes.findIndex(
      (node) => node.verb === 'insert' && node.collection === this.#plan.collection,
    );
    if (position < 0) return sql`'[]'::text`;
    const rows = sql`json_array_elements_text(${DOCUMENT} -> 'root') with ordinality as ${alias('o')} (n, place)`;
    return sql`(select json_agg(${alias('i')}.k::text order by ${alias('o')}.place)::text from ${rows} join ${input(position)} ${alias('i')} on ${alias('i')}.n = ${alias('o')}.n::int4)`;
  }

  /** A sequence stays ahead of keys that were supplied. */
  #sequences(): Fragment[] {
    return this.#plan.nodes.flatMap((node, position) => {
      const sequence = node.collection.primaryKey.column?.sequence;
      if (!sequence || node.verb === 'update') return [];
      const name = sql`${literal(sequence)}::regclass`;
      const highest = sql`select max(k)::int8 as k from ${input(position)}`;
      return [
        sql`(select setval(${name}, ${alias('h')}.k) from (${highest}) ${alias('h')} where ${alias('h')}.k > coalesce(pg_sequence_last_value(${name}), 0))`,
      ];
    });
  }
}

/** A request that comes again finds its receipt, unless that has expired; one that runs beside the first waits for it. */
function receipt(receipts: Collection): Fragment {
  const text = (slot: number): Fragment => sql`${parameter({ kind: 'text', slot })}::text`;
  const expired = sql`${alias('t')}.expires < now()`;
  const values = sql`${text(1)}, ${text(2)}, now() + ${text(3)}::interval`;
  return sql`insert into ${tableName(receipts)} as ${alias('t')} (id, fingerprint, expires) values (${values}) on conflict (id) do update set fingerprint = excluded.fingerprint, expires = excluded.expires, body = null where ${expired} returning 1`;
}

function input(position: number): Fragment {
  return alias(`i${position}`);
}

function written(position: number): Fragment {
  return alias(`w${position}`);
}

function inputNames(node: WriteNode): string[] {
  return node.columns.flatMap((column, index) => [
    ...(column.holdsValues ? [`c${index}`] : []),
    ...(column.mixed ? [`p${index}`] : []),
    ...(column.endOf ? [`e${index}`] : []),
    ...column.references.map((_, table) => `r${index}_${table}`),
  ]);
}

function present(node: WriteNode, column: WriteColumn): Fragment {
  return sql`${alias('i')}.${identifier(`p${node.columns.indexOf(column)}`)}`;
}

/** The key that a new row gets: what the database itself would give it. */
function keyExpression(key: Field): Fragment | null {
  const { column } = key;
  if (column?.identity && column.sequence) return sql`nextval(${literal(column.sequence)}::regclass)`;
  return column?.default_expression ? expression(column.default_expression) : null;
}

function inputType(field: Field): Fragment {
  return field.type.startsWith('geometry') ? sql`text` : typeName(field);
}

function inputValue(field: Field, value: Fragment): Fragment {
  return field.type.startsWith('geometry') ? sql`st_setsrid(st_geomfromgeojson(${value}), 4326)` : value;
}

function releaseInput(release: Release, position: number): Fragment {
  const types = sql`parent ${typeName(release.from.primaryKey)}, child ${typeName(release.collection.primaryKey)}`;
  const rows = sql`json_to_recordset(${DOCUMENT} -> 'releases' -> ${integer(position)}) as ${alias('x')} (${types})`;
  return sql`${alias(`x${position}`)} as materialized (select ${alias('x')}.parent, ${alias('x')}.child from ${rows})`;
}

function released(release: Release, position: number): Fragment {
  const key = sql`${alias('t')}.${columnName(release.collection.primaryKey)}`;
  const parent = sql`${alias('y')}.parent = ${alias('t')}.${columnName(release.field)}`;
  return sql`exists (select from ${alias(`x${position}`)} ${alias('y')} where ${parent} and (${alias('y')}.child is null or ${alias('y')}.child = ${key}))`;
}

/** An item that is to be changed has to be there. */
function missing(position: number): Fragment {
  return sql`case when (select count(*) from ${written(position)}) < (select count(*) from ${input(position)}) then service_raise('missing') end`;
}
