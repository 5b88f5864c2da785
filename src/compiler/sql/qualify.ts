/** Internal statements name the service's tables and functions alone; their schema is known once the service starts. */
import { withCatalog } from './catalog-names.js';
import { quoteIdentifier } from './fragment.js';

/** Texts, quoted names and comments stay as they are: a name in them belongs to the user, or is no name. */
const TOKENS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?<![\w.$])service_\w+/g;

/** `from service_users` becomes `from "public".service_users`. Only for the service's own statements, never for text from a request. */
export function qualify(text: string, schema: string): string {
  const prefix = `${quoteIdentifier(schema)}.`;
  return text.replace(TOKENS, (token) => (token.startsWith('service_') ? prefix + token : token));
}

/** Qualifies the tables, operators and functions of a whole statement. */
export function qualifyOwn(text: string, schema: string): string {
  return qualify(withCatalog(text), schema);
}
