/** A query as a tree: the builder edits it, and every language is generated from it and parsed into it. */
import { type FilterJson, fromJson, type Group, NO_FILTER, toJson } from '../filter/filter';
import { type Model, titleField } from '../model';

export interface Level {
  readonly fields: readonly Node[];
  readonly filter: Group;
  readonly sort: readonly string[];
  /** The limit, or null if the default applies. */
  readonly limit: number | null;
  readonly search: string;
}

export interface Node {
  /** A field, or a function of one: `count(comments)`. */
  readonly name: string;
  /** For a relation: the query of the related items. */
  readonly level: Level | null;
}

export interface Aggregate {
  readonly name: string;
  readonly field: string;
}

export interface Query {
  readonly collection: string;
  readonly level: Level;
  readonly aggregates: readonly Aggregate[];
  readonly groupBy: readonly string[];
}

/** The parameters of `SEARCH /items/{collection}`. */
export type QueryJson = Readonly<Record<string, unknown>>;

export const EMPTY: Level = { fields: [], filter: NO_FILTER, sort: [], limit: null, search: '' };

export const AGGREGATES = ['count', 'countDistinct', 'sum', 'avg', 'min', 'max'] as const;

/** The limit of a new query. */
export const FIRST_LIMIT = 10;

export function firstQuery(collection: string, model: Model): Query {
  const described = model.get(collection);
  const names = [...(described?.keys ?? []), titleField(described)].filter((name) => name !== null);
  const fields = [...new Set(names)].map((name): Node => {
    const relation = described?.fields.get(name)?.relation;
    const title = relation?.kind === 'one' ? titleField(model.get(relation.to)) : null;
    return { name, level: title === null ? null : { ...EMPTY, fields: [{ name: title, level: null }] } };
  });
  return { collection, level: { ...EMPTY, fields, limit: FIRST_LIMIT }, aggregates: [], groupBy: [] };
}

export function toQueryJson({ level, aggregates, groupBy }: Query): QueryJson {
  const isGrouped = aggregates.length > 0 || groupBy.length > 0;
  const aggregate: Record<string, string[]> = {};
  for (const { name, field } of aggregates) aggregate[name] = [...(aggregate[name] ?? []), field];
  const deep = deepOf(level);
  const parameters = parametersOf(level);
  return {
    ...(isGrouped ? {} : { fields: pathsOf(level) }),
    ...(isGrouped && aggregates.length > 0 ? { aggregate } : {}),
    ...(groupBy.length > 0 ? { groupBy } : {}),
    ...parameters,
    ...(deep && !isGrouped ? { deep } : {}),
  };
}

function parametersOf({ filter, sort, limit, search }: Level): QueryJson {
  const json = toJson(filter);
  return {
    ...(json ? { filter: json } : {}),
    ...(search === '' ? {} : { search }),
    ...(sort.length > 0 ? { sort } : {}),
    ...(limit === null ? {} : { limit }),
  };
}

function pathsOf({ fields }: Level): string[] {
  if (fields.length === 0) return ['*'];
  return fields.flatMap(({ name, level }) =>
    level && level.fields.length > 0 ? pathsOf(level).map((path) => `${name}.${path}`) : [name],
  );
}

function deepOf({ fields }: Level): QueryJson | null {
  const entries = fields.flatMap(({ name, level }): [string, QueryJson][] => {
    if (!level) return [];
    const own = Object.entries(parametersOf(level)).map(([key, value]) => [`_${key}`, value] as const);
    const made = { ...Object.fromEntries(own), ...deepOf(level) };
    return Object.keys(made).length > 0 ? [[name, made]] : [];
  });
  return entries.length > 0 ? Object.fromEntries(entries) : null;
}

export function fromQueryJson(collection: string, json: QueryJson, model: Model): Query {
  const level = levelOf(json, '');
  const paths = listOf(json['fields']);
  const fields = treeOf(paths, objectOf(json['deep']), collection, model);
  const aggregate = objectOf(json['aggregate']);
  const aggregates = Object.entries(aggregate).flatMap(([name, value]) =>
    listOf(value).map((field) => ({ name, field })),
  );
  return { collection, level: { ...level, fields }, aggregates, groupBy: listOf(json['groupBy']) };
}

function levelOf(json: QueryJson, prefix: string): Level {
  const limit = json[`${prefix}limit`];
  return {
    fields: [],
    filter: fromJson(objectOf(json[`${prefix}filter`]) as FilterJson),
    sort: listOf(json[`${prefix}sort`]),
    limit: limit === undefined || limit === null || Number.isNaN(Number(limit)) ? null : Number(limit),
    search: typeof json[`${prefix}search`] === 'string' ? String(json[`${prefix}search`]) : '',
  };
}

function treeOf(paths: readonly string[], deep: QueryJson, collection: string, model: Model): Node[] {
  const below = new Map<string, string[]>();
  for (const path of paths) {
    const at = path.includes('(') ? -1 : path.indexOf('.');
    const [name, rest] = at < 0 ? [path, null] : [path.slice(0, at), path.slice(at + 1)];
    const known = below.get(name) ?? [];
    below.set(name, rest === null ? known : [...known, rest]);
  }
  return [...below].flatMap(([name, inner]): Node[] => {
    if (name === '*') {
      const fields = [...(model.get(collection)?.fields.values() ?? [])];
      return fields.filter(({ column }) => column).map((field) => ({ name: field.name, level: null }));
    }
    const relation = model.get(collection)?.fields.get(name)?.relation;
    if (!relation || relation.kind === 'any' || (inner.length === 0 && !deep[name])) return [{ name, level: null }];
    const own = objectOf(deep[name]);
    return [{ name, level: { ...levelOf(own, '_'), fields: treeOf(inner, own, relation.to, model) } }];
  });
}

export function listOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.map(String);
  return typeof value === 'string' && value !== '' ? value.split(',').map((each) => each.trim()) : [];
}

export function objectOf(value: unknown): QueryJson {
  if (typeof value === 'string') {
    try {
      return objectOf(JSON.parse(value));
    } catch {
      return {};
    }
  }
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as QueryJson) : {};
}
