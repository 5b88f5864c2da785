/** The parser of GraphQL documents, with the limits of the options. */
import { Operations } from '../../../compiler/graphql/operations.js';
import { Schemas } from '../../../compiler/graphql/schema.js';
import type { Config } from '../../config/config.js';
import { parseLimits } from '../../config/parse-limits.js';
import type { ApiRoute } from '../action.js';
import { systemFieldsOf } from './actions.js';

/** Parses documents of GraphQL; `routes` are those that root fields may call. */
export function createOperations(config: Config, routes: readonly ApiRoute[]): Operations {
  const limits = {
    tokens: config.GRAPHQL_QUERY_TOKEN_LIMIT,
    depth: config.GRAPHQL_QUERY_DEPTH_LIMIT,
    nodes: config.GRAPHQL_QUERY_NODE_LIMIT,
    aliases: config.GRAPHQL_QUERY_ALIAS_LIMIT,
    introspection: config.GRAPHQL_INTROSPECTION,
  };
  const schemas = new Schemas(config.GRAPHQL_SCHEMA_CACHE_CAPACITY, systemFieldsOf(routes));
  return new Operations(schemas, limits, parseLimits(config), config.SHAPE_CACHE_MEMORY / 2);
}
