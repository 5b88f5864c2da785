/** The limits of requests that are compiled without a service. By default they are those of the service without options. */
import type { DocumentLimits } from '../../compiler/graphql/limits.js';
import type { PlanLimits } from '../../compiler/plan/read.js';
import type { ParseLimits } from '../../compiler/request/parse-context.js';

/** Each limit has an option of the service: see docs/configuration.md. */
export interface CompilerLimits {
  /** `QUERY_LIMIT_DEFAULT`: items per list if a request sets no limit. */
  readonly defaultLimit: number;
  /** `QUERY_LIMIT_MAX`; null for no limit. */
  readonly maxLimit: number | null;
  /** `MAX_QUERY_NODES`: fields, conditions, sort keys and the like of one request. */
  readonly queryNodes: number;
  /** `MAX_RELATIONAL_DEPTH` */
  readonly relationalDepth: number;
  /** `MAX_JSON_QUERY_DEPTH` */
  readonly jsonDepth: number;
  /** `QUERYSTRING_MAX_PARSE_DEPTH` */
  readonly bracketDepth: number;
  /** `QUERYSTRING_ARRAY_LIMIT` */
  readonly arrayLength: number;
  /** `STREAM_ABOVE` */
  readonly streamAbove: number;
  /** `STRICT_PARAMETERS` */
  readonly strict: boolean;
  /** `MAX_BATCH_MUTATION`: items that a request may write; null for no limit. */
  readonly writtenItems: number | null;
  /** `GRAPHQL_QUERY_TOKEN_LIMIT` */
  readonly documentTokens: number;
  /** `GRAPHQL_QUERY_DEPTH_LIMIT` */
  readonly documentDepth: number;
  /** `GRAPHQL_QUERY_NODE_LIMIT` */
  readonly documentNodes: number;
  /** `GRAPHQL_QUERY_ALIAS_LIMIT` */
  readonly documentAliases: number;
}

export const DEFAULT_LIMITS: CompilerLimits = {
  defaultLimit: 100,
  maxLimit: null,
  queryNodes: 1_000,
  relationalDepth: 10,
  jsonDepth: 10,
  bracketDepth: 10,
  arrayLength: 500,
  streamAbove: 10_000,
  strict: false,
  writtenItems: null,
  documentTokens: 5_000,
  documentDepth: 15,
  documentNodes: 1_000,
  documentAliases: 200,
};

/** The limits as the stages of a request take them. */
export interface StageLimits {
  readonly parse: ParseLimits;
  readonly plan: PlanLimits;
  readonly document: DocumentLimits;
  readonly writtenItems: number | null;
}

export function stageLimits(given: Partial<CompilerLimits>): StageLimits {
  const all = { ...DEFAULT_LIMITS, ...given };
  const { relationalDepth, jsonDepth, bracketDepth, arrayLength, strict, writtenItems } = all;
  const depths = { relationalDepth, jsonDepth, bracketDepth, arrayLength, strict };
  return {
    parse: { ...depths, nodes: all.queryNodes, pageSize: all.maxLimit, wholeRows: all.streamAbove },
    plan: { defaultLimit: all.defaultLimit, maxNodes: all.queryNodes },
    document: {
      tokens: all.documentTokens,
      depth: all.documentDepth,
      nodes: all.documentNodes,
      aliases: all.documentAliases,
      introspection: true,
    },
    writtenItems,
  };
}
