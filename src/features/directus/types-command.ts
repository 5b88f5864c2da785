/**
 * The model as the TypeScript schema of `@directus/sdk` (`createDirectus<Schema>`): one interface per collection, and one of all
 * collections. Dates, times, JSON and comma separated lists have literal types: from these the SDK derives the functions and operators
 * of a field. In responses the SDK replaces them with the types of the values.
 */

import { singleKey } from '../../compiler/model/item-key.js';
import type { Collection, Field, Model, Overload } from '../../compiler/model/model.js';
import { systemResources } from '../../compiler/model/system-resources.js';
import type { Program } from '../../server/feature/command.js';

const TYPES_HELP = `Usage: lateral types [--option value ...]

Prints the collections as a TypeScript schema for @directus/sdk.

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function printTypes(
  flags: readonly string[],
  { createObserver, readConfig, readFlags, withCore }: Program,
): Promise<void> {
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  await withCore(config, createObserver('warn'), console.error, async ({ mirror }) => {
    console.log(describeTypes(mirror.model));
  });
}

/** Labels that the SDK replaces by the type of a value: an enum with such a label would be mistaken for it. */
const LITERALS: ReadonlySet<string> = new Set(['json', 'csv', 'datetime', 'date', 'time']);

interface TypeProperty {
  /** The name under which the SDK asks for the collection. */
  readonly key: string;
  readonly type: string;
  readonly collection: Collection;
}

type Members = ReadonlyMap<string, TypeProperty>;

function describeTypes(model: Model): string {
  const members = membersOf(model);
  const each = [...members.values()];
  const root = each.map(
    ({ key, type, collection }) => `  ${quoteKey(key)}: ${type}${collection.singleton ? '' : '[]'};`,
  );
  return [
    '/** The schema of the service for the SDK. Relations are keys, or items where their fields are asked for. */',
    `export interface Schema {\n${root.join('\n')}\n}`,
    ...each.map((member) => describeCollection(member, members)),
    ...describeFunctions(model, members),
    '',
  ].join('\n\n');
}

/** Arguments and results of /rpc: the forms of a function are a union. Empty without functions. */
function describeFunctions({ functions }: Model, members: Members): string[] {
  if (functions.size === 0) return [];
  const entries = [...functions.values()].map(({ name, note, overloads }) => {
    const forms = overloads.map((overload) => {
      const list = overload.arguments.map(
        ({ name: argument, field, required }) => `${quoteKey(argument)}${required ? '' : '?'}: ${plainType(field)}`,
      );
      return `{ arguments: {${list.length > 0 ? ` ${list.join('; ')} ` : ''}}; returns: ${resultType(overload, members)} }`;
    });
    return `${comment(note ?? overloads[0]?.comment, '  ')}  ${quoteKey(name)}: ${forms.join(' | ')};`;
  });
  return [`/** What functions take and return. */\nexport interface Functions {\n${entries.join('\n')}\n}`];
}

function resultType({ returns }: Overload, members: Members): string {
  if (returns.kind === 'nothing') return 'null';
  const fields = returns.kind === 'items' ? [] : [...returns.collection.fields.values()];
  const one =
    returns.kind === 'items'
      ? (members.get(returns.collection)?.type ?? 'unknown')
      : returns.kind === 'record'
        ? `{ ${fields.map((field) => `${quoteKey(field.name)}: ${plainType(field)}`).join('; ')} }`
        : fields.map(plainType).join();
  if (returns.set) return listOf(one);
  return returns.kind === 'value' ? one : `${one} | null`;
}

/** The SDK puts values in the place of its literals for collections alone. */
function plainType(field: Field): string {
  const type = valueType(field);
  const value = type === "'json'" ? 'unknown' : type === "'csv'" ? 'string[]' : type.startsWith("'") ? 'string' : type;
  return value === 'unknown' ? value : `${value} | null`;
}

/** By collection: those of the user, then our own, unless the user has a table of the name that the SDK gives one. */
function membersOf({ collections }: Model): Members {
  // The SDK knows them by names of its own.
  const system = systemResources()
    .filter(({ sdk }) => sdk)
    .map(({ name }) => ({
      key: `directus_${name}`,
      collection: collections.get(`service_${name}`),
    }));
  const own = [...collections.values()].filter((collection) => !collection.system);
  const listed = [
    ...own.map((collection) => ({ key: collection.name, collection })),
    ...system.flatMap(({ key, collection }) =>
      collection?.system && !collections.has(key) ? [{ key, collection }] : [],
    ),
  ].sort((one, other) => (one.key < other.key ? -1 : 1));
  const types = nameAll(listed.map(({ collection }) => collection));
  return new Map(
    listed.map(({ key, collection }) => [
      collection.name,
      { key, collection, type: types.get(collection.name) ?? collection.name },
    ]),
  );
}

function describeCollection({ collection, type }: TypeProperty, members: Members): string {
  const fields = [...collection.fields.values()].flatMap((field) => {
    const type = fieldType(field, collection, members);
    return type === null
      ? []
      : [`${comment(field.meta?.['note'] ?? field.column?.comment, '  ')}  ${quoteKey(field.name)}: ${type};`];
  });
  const note = comment(collection.meta?.['note'] ?? collection.comment, '');
  return `${note}export interface ${type} {\n${fields.join('\n')}\n}`;
}

/** Returns null if the field has no value, such as a group. */
function fieldType(field: Field, collection: Collection, members: Members): string | null {
  const { relation, column } = field;
  const nullable = (types: readonly string[]): string =>
    [...new Set(column?.is_nullable === false ? types : [...types, 'null'])].join(' | ');
  const related = (name: string): string | string[] => members.get(name)?.type ?? [];
  switch (relation?.kind) {
    case 'one-to-one': {
      const one = members.get(relation.manyCollection);
      return one ? nullable([keyType(one.collection), one.type]) : null;
    }
    case 'one-to-many': {
      const many = members.get(relation.manyCollection);
      return many ? `${listOf(keyType(many.collection))} | ${many.type}[]` : null;
    }
    case 'many-to-one':
      return nullable([valueType(field), ...[relation.oneCollection].flatMap(related)]);
    case 'many-to-any':
      return nullable([valueType(field), ...relation.allowedCollections.flatMap(related)]);
    default:
      return column ? nullable([scopesOf(field, collection) ?? valueType(field)]) : null;
  }
}

/** A key of several columns is one string. */
function keyType(collection: Collection): string {
  const key = singleKey(collection);
  return key ? valueType(key) : 'string';
}

/** The column that says where an item of a many-to-any relation is: by its literals the SDK knows what may be selected. */
function scopesOf({ name }: Field, { fields }: Collection): string | null {
  for (const { relation } of fields.values()) {
    if (relation?.kind !== 'many-to-any' || relation.collectionField !== name) continue;
    return relation.allowedCollections.map((each) => JSON.stringify(each)).join(' | ') || null;
  }
  return null;
}

function listOf(type: string): string {
  return type.includes(' ') ? `(${type})[]` : `${type}[]`;
}

function valueType({ type, column }: Field): string {
  if (column?.is_array) return 'unknown[]';
  const labels = column?.enum_values ?? [];
  if (labels.length > 0 && !labels.some((label) => LITERALS.has(label))) {
    return labels.map((label) => JSON.stringify(label)).join(' | ');
  }
  switch (type) {
    case 'integer':
    case 'float':
      return 'number';
    case 'bigInteger':
    case 'decimal':
      // Shown as strings, so that no digit is lost. The SDK offers the operators of order to numbers alone.
      return 'string | number';
    case 'boolean':
      return 'boolean';
    case 'dateTime':
    case 'timestamp':
      return "'datetime'";
    case 'date':
    case 'time':
    case 'json':
    case 'csv':
      return `'${type}'`;
    case 'unknown':
      return 'unknown';
    default:
      return type.startsWith('geometry') ? 'unknown' : 'string';
  }
}

/** `articles_tags` is `ArticlesTags`; names that become equal get numbers. */
function nameAll(collections: readonly Collection[]): Map<string, string> {
  const usedNames = new Set(['Schema', 'Functions']);
  const names = new Map<string, string>();
  for (const { name } of collections) {
    const words = name.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '');
    const spelled = words.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('');
    const base = /^\p{L}/u.test(spelled) ? spelled : `Collection${spelled}`;
    let unique = base;
    for (let count = 2; usedNames.has(unique); count++) unique = `${base}${count}`;
    usedNames.add(unique);
    names.set(name, unique);
  }
  return names;
}

function quoteKey(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

function comment(note: unknown, indent: string): string {
  if (typeof note !== 'string' || note === '') return '';
  return `${indent}/** ${note.replace(/\s+/g, ' ').replaceAll('*/', '* /')} */\n`;
}

export const COMMANDS = {
  types: { help: TYPES_HELP, run: printTypes },
};
