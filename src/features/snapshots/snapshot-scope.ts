/** The parts of the model that another database can create, and that a snapshot therefore contains. Results are cached. */

import { invalidPayload } from '../../base/errors.js';
import { groupBy } from '../../base/narrow.js';
import type { MetadataRow } from '../../compiler/model/catalog-document.js';
import type { Collection, Column, Field, Model } from '../../compiler/model/model.js';
import { checkNewName } from '../../server/schema/change/plan-names.js';
import { isPortableType } from './apply-columns.js';
import { enumKey, enumNameOf, type SnapshotForeignKey, type SnapshotIndex } from './parse-snapshot.js';

/** The result of sql/features/snapshots/snapshot.sql, by the names of collections. */
export interface Details {
  /** The types of columns as PostgreSQL prints them, by collection and column. */
  readonly types: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Plain ones over several columns, in a fixed order. */
  readonly indexes: readonly IndexDetail[];
  /** The values of enums, by `enumKey`. */
  readonly enums: ReadonlyMap<string, readonly string[]>;
  /** The columns of primary keys, by collection. */
  readonly primaryKeys: ReadonlyMap<string, readonly string[]>;
  /** Foreign keys of several columns, in a fixed order. */
  readonly foreignKeys: readonly ForeignKeyDetail[];
  /** Columns that PostgreSQL computes when they are read. */
  readonly virtual: readonly { readonly collection: string; readonly name: string }[];
  /** Columns whose default is that of their domain. */
  readonly domainDefaults: readonly { readonly collection: string; readonly name: string }[];
  /** Keys WITHOUT OVERLAPS, and foreign keys NOT ENFORCED: in another database they would become plain ones. */
  readonly constraints: readonly ConstraintDetail[];
  /** Rows of service_functions. */
  readonly functions: readonly MetadataRow[];
}

export interface ForeignKeyDetail extends SnapshotForeignKey {
  readonly collection: string;
  readonly name: string;
  /** Whether it sets some of its columns to null, not all of them. */
  readonly some: boolean;
}

/** `type` is the letter of pg_constraint. */
interface ConstraintDetail {
  readonly collection: string;
  readonly name: string;
  readonly type: 'p' | 'u' | 'f';
}

interface IndexDetail extends SnapshotIndex {
  readonly collection: string;
  readonly name: string;
  readonly constraint: boolean;
}

export class SnapshotScope {
  readonly #indexes: ReadonlyMap<string, readonly IndexDetail[]>;
  readonly #foreignKeys: ReadonlyMap<string, readonly ForeignKeyDetail[]>;
  readonly #virtual: ReadonlySet<string>;
  readonly #domainDefaults: ReadonlySet<string>;
  /** Names of constraints that would become plain ones, by collection. */
  readonly #unusual: ReadonlySet<string>;
  readonly #unusualKeys: ReadonlySet<string>;
  readonly #fields = new Map<Field, boolean>();
  readonly #collections = new Map<Collection, boolean>();

  constructor(
    readonly model: Model,
    readonly details: Details,
  ) {
    this.#indexes = groupBy(details.indexes, ({ collection }) => collection);
    this.#foreignKeys = groupBy(details.foreignKeys, ({ collection }) => collection);
    this.#virtual = new Set(details.virtual.map(({ collection, name }) => pairOf(collection, name)));
    this.#domainDefaults = new Set(details.domainDefaults.map(({ collection, name }) => pairOf(collection, name)));
    this.#unusual = new Set(details.constraints.map(({ collection, name }) => pairOf(collection, name)));
    this.#unusualKeys = new Set(details.constraints.flatMap((each) => (each.type === 'p' ? [each.collection] : [])));
  }

  indexesOf(collection: string): readonly IndexDetail[] {
    return this.#indexes.get(collection) ?? [];
  }

  foreignKeysOf(collection: string): readonly ForeignKeyDetail[] {
    return this.#foreignKeys.get(collection) ?? [];
  }

  primaryKeyOf(collection: string): readonly string[] {
    return this.details.primaryKeys.get(collection) ?? [];
  }

  isVirtual(collection: string, name: string): boolean {
    return this.#virtual.size > 0 && this.#virtual.has(pairOf(collection, name));
  }

  hasDomainDefault(collection: string, name: string): boolean {
    return this.#domainDefaults.size > 0 && this.#domainDefaults.has(pairOf(collection, name));
  }

  isEnforced(collection: string, constraint: string): boolean {
    return this.#unusual.size === 0 || !this.#unusual.has(pairOf(collection, constraint));
  }

  typeOf(collection: string, column: Column): string {
    return this.details.types[collection]?.[column.name] ?? column.data_type;
  }

  /** The values of the enum that a type is. */
  valuesOf(type: string): readonly string[] | undefined {
    const name = enumNameOf(type);
    return name ? this.details.enums.get(enumKey(name)) : undefined;
  }

  isPortable(field: Field): boolean {
    return cached(this.#fields, field, () => this.#canBeCreated(field));
  }

  /** Whether all of them are fields of the collection that can be created. */
  arePortable({ fields }: Pick<Collection, 'fields'>, names: readonly string[]): boolean {
    return names.every((name) => {
      const field = fields.get(name);
      return field !== undefined && this.isPortable(field);
    });
  }

  isIncluded(collection: Collection): boolean {
    return cached(this.#collections, collection, () => this.#goesAlong(collection));
  }

  isIncludedKey(key: ForeignKeyDetail): boolean {
    const holds = (collection: string, names: readonly string[]): boolean => {
      const table = this.model.collections.get(collection);
      return table !== undefined && this.isIncluded(table) && this.arePortable(table, names);
    };
    return !key.some && holds(key.collection, key.fields) && holds(key.related_collection, key.related_fields);
  }

  #goesAlong(collection: Collection): boolean {
    const { name, fields } = collection;
    if (!isTable(collection) || !isPortableCollectionName(name) || this.#unusualKeys.has(name)) return false;
    return (
      this.arePortable(collection, this.primaryKeyOf(name)) &&
      [...fields.values()].some((field) => field.column !== null && this.isPortable(field))
    );
  }

  #canBeCreated({ collection, name, column }: Field): boolean {
    if (!isPortableName(name) || this.isVirtual(collection, name)) return false;
    if (column === null) return true;
    const type = this.typeOf(collection, column);
    return isPortableType(type) && (!this.valuesOf(type) || isPortableName(enumNameOf(type)?.name ?? ''));
  }
}

function cached<Key>(results: Map<Key, boolean>, key: Key, compute: () => boolean): boolean {
  const result = results.get(key) ?? compute();
  results.set(key, result);
  return result;
}

export function isTable({ kind }: Pick<Collection, 'kind'>): boolean {
  return kind === 'table' || kind === 'partitioned';
}

function pairOf(collection: string, name: string): string {
  return JSON.stringify([collection, name]);
}

/**
 * The names that a snapshot may hold are more than a request may create, since it may come from an older database:
 * letters and digits of any script, and between them characters that are harmless in a URL, a field path and a shell.
 */
const NAME = /^[\p{L}_][\p{L}\p{M}\p{N}_$]*(?:[ .-][\p{L}\p{M}\p{N}_$]+)*$/u;

/** Whether a collection of that name can be created in another database. */
function isPortableCollectionName(name: string): boolean {
  return isValidName(name) && !name.startsWith('pg_');
}

export function checkSpelling(name: string, what: 'collection' | 'field' | 'type'): void {
  checkNewName(name);
  if (!isValidName(name)) throw invalidPayload(`${JSON.stringify(name)} cannot be the name of a ${what}`);
}

/** Whether a field of that name can be created in another database. */
function isPortableName(name: string): boolean {
  return isValidName(name) && Buffer.byteLength(name) <= 63;
}

function isValidName(name: string): boolean {
  return NAME.test(name) && !name.startsWith('__');
}
