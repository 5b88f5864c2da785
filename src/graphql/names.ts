/**
 * Names of types and root fields. Collections keep their own names; what is generated beside them gives way where a
 * collection is called the same. What cannot be written in GraphQL at all is left out, with the relations that lead to it.
 */
import type { Collection, Field, Model } from '../mirror/model.js';

const NAME = /^(?!__)[_A-Za-z][_0-9A-Za-z]*$/;

/** Names of types that stand in every schema. */
const RESERVED: ReadonlySet<string> = new Set([
  ...['Query', 'Mutation', 'Subscription', 'Int', 'Float', 'String', 'Boolean', 'ID', 'Void'],
  ...[
    'Date',
    'DateTime',
    'JSON',
    'Hash',
    'GraphQLBigInt',
    'GraphQLGeoJSON',
    'GraphQLStringOrFloat',
    'GraphQLJsonFilter',
  ],
  ...['date_functions', 'time_functions', 'datetime_functions', 'count_functions', 'json_functions'],
  ...['date_function_filter', 'time_function_filter', 'datetime_function_filter', 'count_function_filter'],
  ...['string', 'number', 'boolean', 'date', 'big_int', 'json', 'geometry', 'hash', 'id'].map(
    (name) => `${name}_filter_operators`,
  ),
  ...['delete_one', 'delete_many', 'auth_tokens', 'auth_mode', 'uid', 'Point', 'Polygon'],
]);

export function isExpressible(collection: Collection): boolean {
  if (!NAME.test(collection.name) || RESERVED.has(collection.name)) return false;
  // A type needs a field.
  return expressibleFields(collection).some((field) => field.column);
}

/** The fields of a collection that GraphQL can name. */
export function expressibleFields(collection: Collection): Field[] {
  return [...collection.fields.values()].filter((field) => NAME.test(field.name));
}

/** Gives each generated type a name of its own. */
export class TypeNames {
  readonly #taken: Set<string>;

  constructor(model: Model) {
    this.#taken = new Set([...RESERVED, ...model.collections.keys()]);
  }

  take(wanted: string): string {
    let name = wanted;
    while (this.#taken.has(name)) name += '_';
    this.#taken.add(name);
    return name;
  }
}

/** `service_users` is `users` among the root fields of the system. */
export function rootName(collection: Collection): string {
  return collection.system ? collection.name.replace(/^service_/, '') : collection.name;
}
