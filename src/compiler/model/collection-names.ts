/**
 * Gives the tables of several schemas their collection names. A table of the first schema keeps its name. A table of another schema is
 * called schema_table. A row of service_collections with the schema and table gives it another name, before all others. Names are unique:
 * of two tables, the one of the later schema is refused. So adding a schema takes no name from an existing collection. Synonyms of the
 * service's own collections (synonyms.ts) are reserved, so directus_users always means one table.
 */
import type { MetadataRow, TableEntry } from './catalog-document.js';
import { type Synonyms, shownName } from './synonyms.js';

/** Where the tables are: those that are served, and the service's own. */
export interface SchemaNames {
  /** The first of the schemas. */
  readonly schema: string;
  readonly schemas: readonly string[];
  readonly system: string;
  /** Other names of the service's own collections; absent or null if they have none. */
  readonly synonyms?: Synonyms | null | undefined;
}

interface CollectionNames {
  /** By the number of the table; one without a name is not served. */
  readonly names: ReadonlyMap<number, string>;
  /** With the reason in words; a table whose name is taken as schema.table. */
  readonly refused: ReadonlyMap<string, string>;
}

/** `rows` of service_collections, by collection. */
export function nameCollections(
  tables: readonly TableEntry[],
  { schema: first, schemas, system: home, synonyms }: SchemaNames,
  rows: ReadonlyMap<string, MetadataRow>,
): CollectionNames {
  const names = new Map<number, string>();
  const refused = new Map<string, string>();
  const holders = new Map<string, TableEntry>();
  for (const entry of tables) {
    if (!entry[4]) continue;
    names.set(entry[0], entry[1]);
    holders.set(entry[1], entry);
    holders.set(shownName(synonyms ?? undefined, entry[1]), entry);
  }
  const declared = declaredNames(rows, first, holders);
  const strangers = otherInstallations(tables, first, home);
  const directus = schemasWith(DIRECTUS_MARKS, tables);
  const usual = usualNames(tables, first, holders);
  const rankOf = (entry: TableEntry): number => (declared.has(keyOf(entry)) ? -1 : schemas.indexOf(entry[3]));
  const claims = tables.filter(([, , , , system]) => !system).sort((one, other) => rankOf(one) - rankOf(other));
  for (const entry of claims) {
    const [table, relation, , schema] = entry;
    const name = declared.get(keyOf(entry)) ?? usual.get(table) ?? relation;
    const holder = holders.get(name);
    if (strangers.has(schema) && isOwn(holders.get(relation), relation))
      refused.set(name, 'belongs to another installation of the service');
    else if (directus.has(schema) && relation.startsWith('directus_') && !rows.has(name))
      refused.set(
        name,
        'belongs to Directus: lateral adopt takes it over, a row of service_collections with its table serves it as it is, under a name of its own',
      );
    else if (holder) refused.set(`${schema}.${relation}`, collisionOf(name, holder));
    else {
      names.set(table, name);
      holders.set(name, entry);
    }
  }
  return { names, refused };
}

/** Whether it is a table of the service that is called so itself. */
function isOwn(holder: TableEntry | undefined, name: string): boolean {
  return holder?.[4] === true && holder[1] === name;
}

function collisionOf(name: string, [, table, , schema]: TableEntry): string {
  return `would be called "${name}", like the table "${table}" of schema "${schema}": add a row with its schema and table to service_collections to give it another name`;
}

/** Rows that name a table, by its schema and name. The names of the service's own collections are not theirs to give. */
function declaredNames(
  rows: ReadonlyMap<string, MetadataRow>,
  first: string,
  ours: ReadonlyMap<string, TableEntry>,
): ReadonlyMap<string, string> {
  const declared = new Map<string, string>();
  for (const [name, { schema, table }] of [...rows].sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (typeof table !== 'string' || ours.has(name)) continue;
    const key = JSON.stringify([typeof schema === 'string' ? schema : first, table]);
    if (!declared.has(key)) declared.set(key, name);
  }
  return declared;
}

/** A table of the first schema that has a name of the service's own, or another name of one, is known by its schema too. */
function usualNames(
  tables: readonly TableEntry[],
  first: string,
  ours: ReadonlyMap<string, TableEntry>,
): ReadonlyMap<number, string> {
  const usedNames = new Set(tables.flatMap(([, name, , schema]) => (schema === first ? [name] : [])));
  return new Map(
    tables.map(([table, relation, , schema]) => {
      if (schema !== first) return [table, `${schema}_${relation}`];
      let name = relation;
      if (ours.has(relation)) {
        do name = `${schema}_${name}`;
        while (usedNames.has(name));
        usedNames.add(name);
      }
      return [table, name];
    }),
  );
}

/** A schema with all of these tables belongs to the service. */
const MARKS = ['service_migrations', 'service_schema', 'service_collections', 'service_users'];

/** A schema with all of these tables belongs to Directus. They contain passwords and tokens in plain text. */
const DIRECTUS_MARKS = ['directus_migrations', 'directus_settings', 'directus_collections', 'directus_users'];

/** Schemas that hold the tables of an installation that serves something else: its users and tokens are no collections here. */
function otherInstallations(tables: readonly TableEntry[], first: string, home: string): ReadonlySet<string> {
  return new Set([...schemasWith(MARKS, tables)].filter((schema) => schema !== first && schema !== home));
}

function schemasWith(marks: readonly string[], tables: readonly TableEntry[]): ReadonlySet<string> {
  const markCounts = new Map<string, number>();
  for (const [, name, kind, schema] of tables)
    if (kind === 'r' && marks.includes(name)) markCounts.set(schema, (markCounts.get(schema) ?? 0) + 1);
  return new Set([...markCounts].flatMap(([schema, count]) => (count === marks.length ? [schema] : [])));
}

function keyOf([, table, , schema]: TableEntry): string {
  return JSON.stringify([schema, table]);
}
