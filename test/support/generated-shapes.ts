/** Requests for every collection of a model: filters by common, rare and absent values, pages, nested items, aggregates. Always the same for a seed. */
import type { Collection, Field, Model } from '../../src/compiler/model/model.js';
import type { Sql } from './service.js';

const NUMBERS = new Set(['integer', 'bigInteger', 'decimal', 'float']);
const MOMENTS = new Set(['date', 'dateTime', 'timestamp']);
const TEXTS = new Set(['string', 'text']);

/** A generator of whole numbers below a bound (mulberry32). */
function randomOf(seed: number): (bound: number) => number {
  let state = seed;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) % bound;
  };
}

type Random = ReturnType<typeof randomOf>;

/** Values of columns: the most common one, one of the rarest, and one in between. */
type Values = ReadonlyMap<string, readonly string[]>;

export async function generateShapes(model: Model, sql: Sql, count: number, seed = 1): Promise<readonly string[]> {
  const random = randomOf(seed);
  const served = [...model.collections.values()].filter(({ system, key }) => !system && key.length > 0);
  const samples = new Map<Collection, Values>();
  for (const collection of served) samples.set(collection, await sampleOf(collection, sql));
  const found = new Set<string>();
  for (let attempt = 0; found.size < count && attempt < count * 20; attempt++) {
    const collection = served[random(served.length)] as Collection;
    found.add(shapeOf(collection, samples, model, random));
  }
  return [...found];
}

async function sampleOf({ schema, table, fields }: Collection, sql: Sql): Promise<Values> {
  const values = new Map<string, readonly string[]>();
  for (const { name, type, column } of fields.values()) {
    if (
      !column ||
      column.is_array ||
      !(NUMBERS.has(type) || MOMENTS.has(type) || TEXTS.has(type) || type === 'boolean')
    )
      continue;
    const rows = await sql<{ value: string }[]>`
      select ${sql(column.name)}::text as value from (select * from ${sql(schema)}.${sql(table)} limit 50000) sampled
      where ${sql(column.name)} is not null group by 1 order by count(*) desc, 1`;
    const pick = [rows[0], rows[Math.floor(rows.length / 2)], rows.at(-1)];
    const distinct = [...new Set(pick.flatMap((row) => (row ? [row.value] : [])))];
    if (distinct.length > 0) values.set(name, distinct);
  }
  return values;
}

function shapeOf(
  collection: Collection,
  samples: ReadonlyMap<Collection, Values>,
  model: Model,
  random: Random,
): string {
  const values = samples.get(collection) ?? new Map();
  const kind = random(10);
  const parts: string[] = [];
  if (kind === 0) {
    const key = collection.key.length === 1 ? values.get(collection.key[0]?.name ?? '')?.[1] : undefined;
    if (key) return `GET /items/${collection.name}/${encodeURIComponent(key)}${nested(collection, random, '?')}`;
  }
  if (kind === 1) parts.push(...aggregate(collection, values, random));
  else {
    if (random(2) === 0)
      parts.push(`sort=${random(2) === 0 ? '-' : ''}${anyOf([...values.keys()], random) ?? collection.key[0]?.name}`);
    parts.push(`limit=${[5, 10, 100][random(3)]}`);
    const fields = nested(collection, random, '');
    if (fields !== '') parts.push(fields);
  }
  if (kind >= 2) parts.push(...conditions(collection, samples, model, random));
  return `GET /items/${collection.name}?${parts.join('&')}`;
}

function anyOf<Entry>(list: readonly Entry[], random: Random): Entry | undefined {
  return list.length === 0 ? undefined : list[random(list.length)];
}

function nested({ fields }: Collection, random: Random, before: string): string {
  const relations = [...fields.values()].filter(({ relation }) => relation && relation.kind !== 'many-to-any');
  const relation = random(3) === 0 ? anyOf(relations, random) : undefined;
  return relation ? `${before}fields=*,${relation.name}.*` : '';
}

function aggregate({ fields }: Collection, values: Values, random: Random): string[] {
  const group = anyOf([...values.keys()], random);
  const number = [...fields.values()].find(({ type }) => NUMBERS.has(type));
  return [
    number && random(2) === 0 ? `aggregate[sum]=${number.name}` : 'aggregate[count]=*',
    ...(group && random(2) === 0 ? [`groupBy=${group}`] : []),
  ];
}

function conditions(
  collection: Collection,
  samples: ReadonlyMap<Collection, Values>,
  model: Model,
  random: Random,
): string[] {
  const own = condition(collection, samples.get(collection) ?? new Map(), '', random);
  const toOne = [...collection.fields.values()].filter(({ relation }) => relation?.kind === 'many-to-one');
  const toMany = [...collection.fields.values()].filter(({ relation }) => relation?.kind === 'one-to-many');
  const through = random(4) === 0 ? anyOf(random(2) === 0 ? toOne : toMany, random) : undefined;
  const { relation } = through ?? {};
  const target =
    relation?.kind === 'many-to-one'
      ? relation.oneCollection
      : relation?.kind === 'one-to-many'
        ? relation.manyCollection
        : null;
  const related = target === null ? undefined : model.collections.get(target);
  if (!through || !related) return own === null ? [] : [own];
  const prefix = relation?.kind === 'one-to-many' ? `[${through.name}][_some]` : `[${through.name}]`;
  const other = condition(related, samples.get(related) ?? new Map(), prefix, random);
  return [own, other].slice(random(2)).flatMap((each) => each ?? []);
}

function condition({ fields }: Collection, values: Values, prefix: string, random: Random): string | null {
  const field = fields.get(anyOf([...values.keys()], random) ?? '');
  const value = anyOf(values.get(field?.name ?? '') ?? [], random);
  if (!field || value === undefined) return null;
  const [operator, written] = comparison(field, random(8) === 0 ? absent(field) : value, random);
  return `filter${prefix}[${field.name}][${operator}]=${encodeURIComponent(written)}`;
}

function absent({ type }: Field): string {
  return NUMBERS.has(type) ? '-7' : MOMENTS.has(type) ? '1900-01-01' : type === 'boolean' ? 'true' : 'no such value';
}

function comparison({ type }: Field, value: string, random: Random): readonly [string, string] {
  const moment = value.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00');
  if (MOMENTS.has(type))
    return [['_gt', '_lt', '_eq'][random(3)] as string, type === 'date' ? value.slice(0, 10) : moment];
  if (NUMBERS.has(type)) return [['_eq', '_gt', '_lt', '_in'][random(4)] as string, value];
  if (TEXTS.has(type))
    return [['_eq', '_eq', '_contains', '_icontains', '_starts_with', '_in'][random(6)] as string, value.slice(0, 20)];
  return ['_eq', value === 'true' || value === 't' ? 'true' : 'false'];
}
