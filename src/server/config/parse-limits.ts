/** The limits of a request, from the options of the service. */
import type { ParseLimits } from '../../compiler/request/parse-context.js';
import type { Config } from './config.js';

export function parseLimits(config: Config): ParseLimits {
  return {
    nodes: config.MAX_QUERY_NODES,
    relationalDepth: config.MAX_RELATIONAL_DEPTH,
    bracketDepth: config.QUERYSTRING_MAX_PARSE_DEPTH,
    arrayLength: config.QUERYSTRING_ARRAY_LIMIT,
    jsonDepth: config.MAX_JSON_QUERY_DEPTH,
    pageSize: config.QUERY_LIMIT_MAX,
    wholeRows: config.STREAM_ABOVE,
    strict: config.STRICT_PARAMETERS,
  };
}
