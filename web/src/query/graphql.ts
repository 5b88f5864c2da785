/** Converts a query to a GraphQL document, and back. */
import { type FieldNode, Kind, parse, type ValueNode } from 'graphql';
import { fromJson, toJson } from '../filter/filter';
import type { Model } from '../model';
import { type Aggregate, EMPTY, type Level, listOf, type Node, objectOf, type Query } from './query';

export function toGraphql({ collection, level, aggregates, groupBy }: Query): string {
  if (aggregates.length === 0 && groupBy.length === 0)
    return `query {\n  ${collection}${argumentsOf(level)} {\n${selection(level, 2)}\n  }\n}`;
  const byName = new Map<string, string[]>();
  for (const { name, field } of aggregates) byName.set(name, [...(byName.get(name) ?? []), field]);
  const fields = [...byName].flatMap(([name, of]) => {
    const named = of.filter((each) => each !== '*');
    return [
      ...(named.length < of.length ? ['    countAll'] : []),
      ...(named.length > 0 ? [`    ${name} { ${named.join(' ')} }`] : []),
    ];
  });
  const grouped = groupBy.length > 0 ? [`groupBy: ${literal(groupBy)}`] : [];
  const inner = [...(groupBy.length > 0 ? ['    group'] : []), ...fields].join('\n');
  return `query {\n  ${collection}_aggregated${argumentsOf(level, grouped)} {\n${inner}\n  }\n}`;
}

function argumentsOf({ filter, search, sort, limit }: Level, others: readonly string[] = []): string {
  const json = toJson(filter);
  const parts = [
    ...others,
    ...(json ? [`filter: ${literal(json)}`] : []),
    ...(search === '' ? [] : [`search: ${literal(search)}`]),
    ...(sort.length > 0 ? [`sort: ${literal(sort)}`] : []),
    ...(limit === null ? [] : [`limit: ${limit}`]),
  ];
  return parts.length > 0 ? `(${parts.join(', ')})` : '';
}

function selection({ fields }: Level, depth: number): string {
  const indent = '  '.repeat(depth);
  if (fields.length === 0) return `${indent}__typename`;
  return fields
    .map(({ name, level }) => {
      const call = /^(\w+)\((\w+)\)$/.exec(name);
      if (call) return `${indent}${call[2]}_func { ${call[1]} }`;
      if (!level) return indent + name;
      return `${indent}${name}${argumentsOf(level)} {\n${selection(level, depth + 1)}\n${indent}}`;
    })
    .join('\n');
}

function literal(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (typeof value === 'object' && value !== null)
    return `{ ${Object.entries(value)
      .map(([name, inner]) => `${name}: ${literal(inner)}`)
      .join(', ')} }`;
  return JSON.stringify(value);
}

/** Throws a message that names the unsupported part. */
export function fromGraphql(text: string, model: Model): Query {
  const document = parse(text);
  const [operation, ...others] = document.definitions;
  if (operation?.kind !== Kind.OPERATION_DEFINITION || operation.operation !== 'query' || others.length > 0)
    throw new Error('The document must be one query');
  const [root, ...more] = operation.selectionSet.selections;
  if (root?.kind !== Kind.FIELD || more.length > 0) throw new Error('The query must have one root field');
  refuseUnknown(root, [...ARGUMENTS, 'groupBy']);
  const name = root.name.value;
  if (model.has(name)) return { collection: name, level: levelOf(root, name, model), aggregates: [], groupBy: [] };
  const grouped = name.replace(/_aggregated$/, '');
  if (!model.has(grouped)) throw new Error(`There is no collection "${name}"`);
  const { groupBy } = argumentsFrom(root);
  const aggregates = fieldsOf(root).flatMap((field): Aggregate[] => {
    if (field.name.value === 'group') return [];
    if (field.name.value === 'countAll') return [{ name: 'count', field: '*' }];
    return fieldsOf(field).map((inner) => ({ name: field.name.value, field: inner.name.value }));
  });
  const level = { ...levelOf(root, grouped, model), fields: [] };
  return { collection: grouped, level, aggregates, groupBy: listOf(groupBy) };
}

function levelOf(node: FieldNode, collection: string, model: Model): Level {
  const { filter, sort, limit, search } = argumentsFrom(node);
  const fields = fieldsOf(node).flatMap((field): Node[] => {
    const name = field.name.value;
    refuseUnknown(field, ARGUMENTS);
    if (name === '__typename') return [];
    const relation = model.get(collection)?.fields.get(name)?.relation;
    if (relation && relation.kind !== 'any') return [{ name, level: levelOf(field, relation.to, model) }];
    const called = name.replace(/_func$/, '');
    if (called !== name && !model.get(collection)?.fields.has(name))
      return fieldsOf(field).map((inner) => ({ name: `${inner.name.value}(${called})`, level: null }));
    return [{ name, level: null }];
  });
  return {
    ...EMPTY,
    fields,
    filter: fromJson(objectOf(filter)),
    sort: listOf(sort),
    limit: typeof limit === 'number' ? limit : null,
    search: typeof search === 'string' ? search : '',
  };
}

const ARGUMENTS: readonly string[] = ['filter', 'sort', 'limit', 'search'];

/** Refuses parts that the tree cannot show: the next change would lose them. */
function refuseUnknown({ alias, directives = [], arguments: given = [] }: FieldNode, known: readonly string[]): void {
  const argument = given.find(({ name }) => !known.includes(name.value));
  if (argument) throw new Error(`The argument "${argument.name.value}" cannot be shown in the tree`);
  if (alias) throw new Error('Aliases cannot be shown in the tree');
  if (directives.length > 0) throw new Error('Directives cannot be shown in the tree');
}

function fieldsOf(node: FieldNode): FieldNode[] {
  return (node.selectionSet?.selections ?? []).flatMap((each) => {
    if (each.kind !== Kind.FIELD) throw new Error('Fragments cannot be shown in the tree');
    return [each];
  });
}

function argumentsFrom(node: FieldNode): Record<string, unknown> {
  return Object.fromEntries((node.arguments ?? []).map(({ name, value }) => [name.value, plainValue(value)]));
}

function plainValue(node: ValueNode): unknown {
  switch (node.kind) {
    case Kind.INT:
    case Kind.FLOAT:
      return Number(node.value);
    case Kind.STRING:
    case Kind.BOOLEAN:
    case Kind.ENUM:
      return node.value;
    case Kind.NULL:
      return null;
    case Kind.LIST:
      return node.values.map(plainValue);
    case Kind.OBJECT:
      return Object.fromEntries(node.fields.map(({ name, value }) => [name.value, plainValue(value)]));
    default:
      throw new Error('Variables cannot be shown in the tree: write the values');
  }
}
