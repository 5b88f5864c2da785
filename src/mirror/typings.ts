/** The model as TypeScript: one interface per collection, as REST shows its items, and one of all collections. */
import type { Collection, Field, Model } from './model.js';

export function describeTypes(model: Model): string {
  const collections = [...model.collections.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  const names = nameAll(collections);
  const typeOf = (name: string): string | null => names.get(name) ?? null;
  const parts = collections.map((collection) =>
    describeCollection(collection, names.get(collection.name) ?? '', typeOf),
  );
  const members = collections.map(({ name, singleton }) => `  ${key(name)}: ${typeOf(name)}${singleton ? '' : '[]'};`);
  return [
    '/** The collections of the service, as REST shows them. Relations are keys, or items where their fields are asked for. */',
    `export interface Schema {\n${members.join('\n')}\n}`,
    ...parts,
    '',
  ].join('\n\n');
}

function describeCollection(collection: Collection, name: string, typeOf: (name: string) => string | null): string {
  const fields = [...collection.fields.values()].flatMap((field) => {
    const type = fieldType(field, typeOf);
    return type === null
      ? []
      : [`${comment(field.meta?.note ?? field.column?.comment, '  ')}  ${key(field.name)}: ${type};`];
  });
  const note = comment(collection.meta?.note ?? collection.comment, '');
  return `${note}export interface ${name} {\n${fields.join('\n')}\n}`;
}

/** Null for what has no value: groups and presentation. */
function fieldType(field: Field, typeOf: (name: string) => string | null): string | null {
  const { relation, column } = field;
  const nullable = (type: string): string => (column?.is_nullable === false ? type : `${type} | null`);
  switch (relation?.kind) {
    case 'one-to-many': {
      const related = typeOf(relation.manyCollection);
      return related === null ? null : `(${related} | string | number)[]`;
    }
    case 'many-to-one': {
      const related = typeOf(relation.oneCollection);
      return nullable(related === null ? valueType(field) : `${valueType(field)} | ${related}`);
    }
    case 'many-to-any': {
      const related = relation.allowedCollections.flatMap((name) => typeOf(name) ?? []);
      return nullable([valueType(field), ...related].join(' | '));
    }
    default:
      return column ? nullable(valueType(field)) : null;
  }
}

function valueType({ type, column }: Field): string {
  if (column?.is_array) return 'unknown[]';
  if (column?.enum_values) return column.enum_values.map((value) => JSON.stringify(value)).join(' | ') || 'string';
  switch (type) {
    case 'integer':
    case 'float':
      return 'number';
    case 'boolean':
      return 'boolean';
    case 'json':
    case 'unknown':
      return 'unknown';
    case 'csv':
      return 'string[]';
    default:
      return type.startsWith('geometry') ? 'unknown' : 'string';
  }
}

/** `articles_tags` is `ArticlesTags`; names that become the same are told apart by numbers. */
function nameAll(collections: readonly Collection[]): Map<string, string> {
  const taken = new Set(['Schema']);
  const names = new Map<string, string>();
  for (const { name } of collections) {
    const words = name.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '');
    const spelled = words.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('');
    const base = /^\p{L}/u.test(spelled) ? spelled : `Collection${spelled}`;
    let unique = base;
    for (let count = 2; taken.has(unique); count++) unique = `${base}${count}`;
    taken.add(unique);
    names.set(name, unique);
  }
  return names;
}

function key(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

function comment(note: unknown, indent: string): string {
  if (typeof note !== 'string' || note === '') return '';
  return `${indent}/** ${note.replace(/\s+/g, ' ').replaceAll('*/', '* /')} */\n`;
}
