/** Internal statements name the service's tables and functions alone; their schema is known once the service starts. */
import { withCatalog } from './catalog-names.js';
import { quoteIdentifier } from './fragment.js';

/** Texts, quoted names and comments stay as they are: a name in them belongs to the user, or is no name. */
const TOKENS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?<![\w.$])service_\w+/g;

/** `from service_users` becomes `from "public".service_users`. For texts of ours, never for what came with a request. */
export function qualify(text: string, schema: string): string {
  const prefix = `${quoteIdentifier(schema)}.`;
  return text.replace(TOKENS, (token) => (token.startsWith('service_') ? prefix + token : token));
}

/** The same of a whole statement of ours, with the schema of PostgreSQL's own operators and functions too. */
export function qualifyOwn(text: string, schema: string): string {
  return qualify(withCatalog(text), schema);
}
