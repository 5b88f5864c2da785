/** Questions that two servers over the same tables must answer alike, made from the model and a few items of it. */
import { elementAt } from '../../base/narrow.js';
import {
  type Collection,
  DATE_TYPES,
  type Field,
  isSecretField,
  type Model,
  NUMBER_TYPES,
} from '../../compiler/model/model.js';

type QuestionKind = 'list' | 'item' | 'nested' | 'filter' | 'aggregate' | 'GraphQL';

export interface Question {
  readonly kind: QuestionKind;
  readonly path: string;
  /** The body of a POST. */
  readonly body?: string;
  /** The collections that it reads, the root first. */
  readonly collections: readonly string[];
  /** The last of the relations on the way. */
  readonly relation?: string;
}

export type Item = Readonly<Record<string, unknown>>;

/** Collections whose items can be named by one column, and which both servers serve under /items. */
export function comparable(model: Model): readonly Collection[] {
  return [...model.collections.values()].filter(({ system, key }) => !system && key.length === 1);
}

/** `items` are a few of the collection, as an administrator reads them. `thorough` adds questions about single columns: only one caller needs them. */
export function questionsOf(
  collection: Collection,
  model: Model,
  items: readonly Item[],
  thorough: boolean,
): readonly Question[] {
  const key = keyOf(collection);
  const targets = relationsOf(collection).flatMap(targetsOf);
  if (collection.singleton) return [ask('item', collection, {}, targets)];
  return [
    ...lists(collection, targets),
    ...items.slice(0, 2).map((item) => ask('item', { name: collection.name, item: String(item[key]) }, {}, targets)),
    ...(thorough ? columnsOf(collection) : []).flatMap((field) => aboutField(collection, field, items)),
    ...relationsOf(collection).flatMap((field) =>
      aboutRelation(collection, field, model).map((question) => ({ relation: field.name, ...question })),
    ),
    ...aggregates(collection),
    ...inGraphql(collection, model),
  ];
}

/** The name of the only key column. */
function keyOf({ key }: Collection): string {
  return elementAt(key, 0).name;
}

function columnsOf(collection: Collection): readonly Field[] {
  return [...collection.fields.values()].filter(
    (field) => field.column !== null && !field.computed && !isSecretField(field),
  );
}

function relationsOf(collection: Collection): readonly Field[] {
  return [...collection.fields.values()].filter(({ relation }) => relation !== null);
}

/** Collections that a relation leads to. */
function targetsOf({ relation }: Field): readonly string[] {
  if (!relation) return [];
  if (relation.kind === 'many-to-any') return relation.allowedCollections;
  return [relation.kind === 'many-to-one' ? relation.oneCollection : relation.manyCollection];
}

/** Without `fields` an answer has the keys of related items: `targets` are asked as well. */
function lists(collection: Collection, targets: readonly string[]): readonly Question[] {
  const sort = keyOf(collection);
  const page = { sort, limit: '3' };
  return [
    ask('list', collection, page, targets),
    ask('list', collection, { ...page, sort: `-${sort}`, offset: '1', meta: 'total_count,filter_count' }, targets),
    ask('list', collection, { ...page, page: '2', fields: sort }),
    ask('list', collection, { ...page, search: 'a', fields: sort }),
    ask('list', collection, { ...page, fields: 'no_such_field' }),
  ];
}

const TEXTS: ReadonlySet<string> = new Set(['string', 'text']);

function aboutField(collection: Collection, { name, type }: Field, items: readonly Item[]): readonly Question[] {
  const key = keyOf(collection);
  const base = { sort: key, limit: '10', fields: `${key},${name}` };
  const where = (operator: string, value: string): Question =>
    ask('filter', collection, { ...base, [`filter[${name}][${operator}]`]: value });
  const questions = [where('_null', 'true')];
  if (type === 'json' || type === 'csv') return questions;
  questions.push(ask('list', collection, { ...base, sort: `-${name},${key}` }));
  const value = items.map((item) => item[name]).find((each) => typeof each === 'string' || typeof each === 'number');
  if (value === undefined) return questions;
  const text = String(value);
  questions.push(where('_eq', text), where('_in', text));
  if (TEXTS.has(type)) questions.push(where('_icontains', text.slice(0, 3)), where('_starts_with', text.slice(0, 2)));
  if (NUMBER_TYPES.has(type) || DATE_TYPES.has(type)) questions.push(where('_gt', text), where('_lte', text));
  if (DATE_TYPES.has(type)) questions.push(ask('list', collection, { ...base, fields: `${key},year(${name})` }));
  return questions;
}

function aboutRelation(collection: Collection, field: Field, model: Model): readonly Question[] {
  const { name, relation } = field;
  const key = keyOf(collection);
  const base = { sort: key, limit: '5' };
  if (!relation) return [];
  if (relation.kind === 'many-to-any') {
    const fields = relation.allowedCollections.map((each) => `${name}:${each}.*`).join(',');
    return [
      ask(
        'nested',
        collection,
        { ...base, fields: `${key},${relation.collectionField},${fields}` },
        relation.allowedCollections,
      ),
    ];
  }
  const isMany = relation.kind === 'one-to-many';
  const target = model.collections.get(isMany ? relation.manyCollection : relation.oneCollection);
  const [targetKey] = target?.key ?? [];
  if (!target || !targetKey) return [];
  // Each server has its own fields in system tables.
  const inside = target.system ? targetKey.name : '*';
  const touched = [target.name];
  const nested = { ...base, fields: `${key},${name}.${inside}` };
  const questions = [ask('nested', collection, nested, touched)];
  if (target.system) return questions;
  questions.push(
    ask(
      'filter',
      collection,
      { ...base, fields: key, [`filter[${name}][${targetKey.name}][_nnull]`]: 'true' },
      touched,
    ),
  );
  if (!isMany) return questions;
  return [
    ...questions,
    ask(
      'nested',
      collection,
      { ...nested, [`deep[${name}][_limit]`]: '1', [`deep[${name}][_sort]`]: `-${targetKey.name}` },
      touched,
    ),
    ask(
      'filter',
      collection,
      { ...base, fields: key, [`filter[${name}][_none][${targetKey.name}][_nnull]`]: 'true' },
      touched,
    ),
    ...deeper(collection, field, target, model),
  ];
}

/** Through a list to what its items refer to, as through a junction. */
function deeper(collection: Collection, field: Field, target: Collection, model: Model): readonly Question[] {
  const key = keyOf(collection);
  const references = relationsOf(target).filter(
    ({ relation }) =>
      relation?.kind === 'many-to-one' &&
      relation.manyCollection === target.name &&
      model.collections.get(relation.oneCollection)?.system === false,
  );
  return references.map((reference) => {
    const fields = `${key},${field.name}.${reference.name}.*`;
    const one = reference.relation?.kind === 'many-to-one' ? reference.relation.oneCollection : '';
    const question = ask('nested', collection, { sort: key, limit: '3', fields }, [target.name, one]);
    return { ...question, relation: reference.name };
  });
}

function aggregates(collection: Collection): readonly Question[] {
  const key = keyOf(collection);
  const columns = columnsOf(collection);
  const numbers = columns.filter(({ type, relation }) => NUMBER_TYPES.has(type) && relation === null).slice(0, 3);
  const groups = columns.filter(({ type }) => type === 'string' || type === 'boolean').slice(0, 2);
  return [
    ask('aggregate', collection, { 'aggregate[count]': '*', 'aggregate[countDistinct]': key }),
    ...numbers.map(({ name }) =>
      ask('aggregate', collection, {
        'aggregate[min]': name,
        'aggregate[max]': name,
        'aggregate[sum]': name,
        'aggregate[avg]': name,
      }),
    ),
    ...groups.map(({ name }) =>
      ask('aggregate', collection, { 'aggregate[count]': key, 'groupBy[]': name, sort: name, limit: '-1' }),
    ),
  ];
}

/** A reference to a system table that is not here: there it is an object, here a key. */
function leadsToTheirs({ column }: Field): boolean {
  return column?.foreign_key_table?.startsWith('directus_') === true;
}

function inGraphql(collection: Collection, model: Model): readonly Question[] {
  const key = keyOf(collection);
  if (!/^[A-Za-z]\w*$/.test(collection.name)) return [];
  const isName = ({ name }: Field): boolean => /^[A-Za-z_]\w*$/.test(name);
  const plain = columnsOf(collection).filter(
    (field) => field.relation === null && field.type !== 'unknown' && isName(field) && !leadsToTheirs(field),
  );
  const selections = plain.map(({ name }) => name);
  const touched: string[] = [];
  for (const { name, relation } of relationsOf(collection).filter(isName)) {
    if (!relation || relation.kind === 'many-to-any') continue;
    const target = model.collections.get(
      relation.kind === 'many-to-one' ? relation.oneCollection : relation.manyCollection,
    );
    const [targetKey] = target?.key ?? [];
    if (!target || !targetKey) continue;
    selections.push(`${name} { ${targetKey.name} }`);
    touched.push(target.name);
  }
  const call = (text: string, collections: readonly string[]): Question => ({
    kind: 'GraphQL',
    path: '/graphql',
    body: JSON.stringify({ query: text }),
    collections: [collection.name, ...collections],
  });
  const order = `limit: 3, sort: ["${key}"]`;
  return [
    call(`{ ${collection.name}(${order}) { ${[...new Set([key, ...selections])].join(' ')} } }`, touched),
    call(`{ ${collection.name}(${order}) { ${key} } }`, []),
    call(`{ ${collection.name}_aggregated { count { ${key} } } }`, []),
  ];
}

function ask(
  kind: QuestionKind,
  { name, item }: { readonly name: string; readonly item?: string },
  parameters: Readonly<Record<string, string>> = {},
  others: readonly string[] = [],
): Question {
  const path = `/items/${encodeURIComponent(name)}${item === undefined ? '' : `/${encodeURIComponent(item)}`}`;
  const query = Object.entries(parameters).map((pair) => pair.map(encodeURIComponent).join('='));
  return { kind, path: query.length === 0 ? path : `${path}?${query.join('&')}`, collections: [name, ...others] };
}
