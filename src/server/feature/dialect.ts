/** The names and types of another API, for clients that were written for it. */
import type { Synonyms } from '../../compiler/model/synonyms.js';
import type { ActionRoute } from '../api/action.js';
import type { NameMapping } from '../http/reply.js';

export interface Dialect {
  /** Its names for the service's own collections. */
  readonly synonyms: Synonyms;
  /** Translates requests and replies. */
  readonly names: NameMapping;
  /** The version that clients read in /server/info. */
  readonly version: string;
  /** The media type of GET /server/ping. */
  readonly pongType: string;
  /** The media type of a GraphQL schema. */
  readonly sdlType: string;
  /** The routes of the schema with its names. */
  schemaRoutes(routes: readonly ActionRoute[]): readonly ActionRoute[];
}
