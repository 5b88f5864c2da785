/** The names of Directus for the tables of the service, outside of the model: in documents of the schema, in paths and in messages. */
import { ownName as ownOf, type Synonyms, shownName, synonymsOf } from '../../mirror/synonyms.js';
import { systemTables } from '../../postgres/catalog/system-tables.js';

/** The version of Directus whose API is spoken: tools compare it. */
export const DIRECTUS_VERSION = '12.4.1';

export type Rename = (name: string) => string;

let synonyms: Synonyms | null = null;

/** Built with the first use: the names are read from the files of sql/system. */
export function directusSynonyms(): Synonyms {
  synonyms ??= synonymsOf(systemTables());
  return synonyms;
}

export function ownName(name: string): string {
  return ownOf(directusSynonyms(), name);
}

export function directusName(name: string): string {
  return shownName(directusSynonyms(), name);
}

/** Renames every name in a text that is no data. */
export function renamedText(text: string): string {
  return text.replace(/\bservice_\w+/g, directusName);
}
