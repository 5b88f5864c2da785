/**
 * The request AST: what a client asks, in one vocabulary for REST, SEARCH and GraphQL, before any name is looked up. It
 * holds no values: they are in a separate list and the AST names their positions (slots). Two requests that differ only in
 * values have the same AST, so its text is the shape under which compiled statements are kept.
 */
import type { Slot, Values } from '../sql/parameter.js';

export type { Slot };

export interface ReadRequest {
  readonly kind: 'read';
  /** Or the name of the function that is called. */
  readonly collection: string;
  /** The rows are those that a function returns. */
  readonly call?: CallRequest;
  /** The only row is the recorded one that this text names: a row as it was when it changed. */
  readonly image?: number;
  readonly target: ReadTarget;
  /** The key of the content version that the items are shown as. */
  readonly version?: Slot;
  /** Whether items may say which version they are shown as: GraphQL and files hold what was asked for alone. */
  readonly showsVersion?: true;
  readonly query: Query;
  /** Whether the items are wanted one by one, for a file. */
  readonly export: boolean;
  /** Whether the row part of an entity tag follows the body of a single item. */
  readonly tagged?: true;
  /** Whether fields that the caller may not see are left out instead of refused. */
  readonly partial?: true;
}

/** The arguments of a call, by name. */
export interface CallRequest {
  readonly arguments: readonly { readonly name: string; readonly slot: Slot }[];
}

export type ReadTarget =
  | { readonly kind: 'list' }
  /** `known`: the caller has not tried the key, but has just written the item, or is it. */
  | { readonly kind: 'item'; readonly key: Slot; readonly known?: true }
  /** `shown`: the keys are JSON values as in responses, not texts. With `documents`, some of them are neither texts nor numbers. */
  | { readonly kind: 'keys'; readonly keys: Slot; readonly known?: true; readonly shown?: 'values' | 'documents' }
  /** Items that were just written, in the order of their keys. */
  | { readonly kind: 'written'; readonly keys: Slot }
  /** Items that are about to be written. `limited`: the query has a limit. */
  | { readonly kind: 'selected'; readonly limited: boolean };

export interface Query {
  /** Null stands for everything at this level. */
  readonly fields: readonly Selection[] | null;
  readonly alias: readonly Alias[];
  readonly filter: Filter | null;
  readonly search: Slot | null;
  readonly sort: readonly SortKey[] | null;
  readonly limit: PageLimit | null;
  readonly offset: Slot | null;
  readonly page: Slot | null;
  /** Keyset paging: null when it is not asked for, 'first' for the page without a cursor; which of its values are null. */
  readonly cursor: 'first' | { readonly slot: Slot; readonly nulls: readonly boolean[] } | null;
  readonly aggregate: readonly Aggregate[] | null;
  readonly groupBy: readonly Expression[] | null;
  readonly having: Filter | null;
  readonly groupFields: readonly GroupSelection[] | null;
  /** Queries of the relations below, by the name under which the relation is shown. */
  readonly deep: readonly { readonly name: string; readonly query: Query }[];
  readonly meta: readonly MetaCount[];
  /** Whether wildcards expand the relation they came from. */
  readonly backlink: boolean;
}

export type MetaCount = 'total_count' | 'filter_count' | 'estimated_count';

export type Selection =
  | { readonly kind: 'wildcard'; readonly fields: readonly Selection[]; readonly whole?: true }
  /**
   * The name may carry the scope of a many-to-any relation: `item:headings`. `whole` says that the field is selected as well as fields
   * below it: `author,author.name`.
   */
  | { readonly kind: 'field'; readonly name: string; readonly fields: readonly Selection[]; readonly whole?: true }
  | { readonly kind: 'function'; readonly output: string; readonly call: FunctionCall; readonly field: string }
  | ShapedSelection;

/** Selections that say where they stand and what they look like, as GraphQL's do; lists of fields hold either these or the others. */
export type ShapedSelection =
  | { readonly kind: 'value'; readonly output: string; readonly field: string; readonly as: Representation }
  | { readonly kind: 'function'; readonly output: string; readonly call: FunctionCall; readonly field: string }
  /** The related items, also if no field of them is selected. */
  | {
      readonly kind: 'related';
      readonly output: string;
      readonly field: string;
      readonly query: Query;
      readonly fields: readonly ShapedSelection[];
      /** For a many-to-any relation: the fields that are requested of each collection. */
      readonly scopes: readonly { readonly collection: string; readonly fields: readonly ShapedSelection[] }[];
    }
  /** Selections of the same item, as a nested object. */
  | { readonly kind: 'object'; readonly output: string; readonly fields: readonly ShapedSelection[] }
  | { readonly kind: 'constant'; readonly output: string; readonly text: string }
  /** The entity tag of the item's row. */
  | { readonly kind: 'tag'; readonly output: string };

/** How a value is written: as its type is by default, as a string, or as a number whatever its precision. */
export type Representation = 'default' | 'text' | 'number';

/** The outputs of a group, if they are not the default: groups at the top, functions behind them. */
export type GroupSelection =
  | { readonly kind: 'groups'; readonly output: string }
  | { readonly kind: 'aggregate'; readonly output: string; readonly aggregate: Aggregate; readonly as: Representation }
  | { readonly kind: 'object'; readonly output: string; readonly fields: readonly GroupSelection[] }
  | { readonly kind: 'constant'; readonly output: string; readonly text: string };

export interface Alias {
  readonly name: string;
  readonly target: Expression;
}

/** A path to a field, or to a function of one: `author.name`, `year(author.born)`. */
export interface Expression {
  readonly path: readonly string[];
  readonly call: FunctionCall | null;
  /** As it was written, for messages and for output names. */
  readonly text: string;
}

export const DATE_FUNCTIONS = ['year', 'month', 'week', 'day', 'weekday', 'hour', 'minute', 'second'] as const;
export type DateFunction = (typeof DATE_FUNCTIONS)[number];

export type FunctionCall =
  | { readonly kind: DateFunction }
  | { readonly kind: 'count' }
  /** How well a text matches the full text search of the request: in sorts only. */
  | { readonly kind: 'rank' }
  | { readonly kind: 'json'; readonly path: Slot };

export interface SortKey {
  readonly expression: Expression;
  readonly descending: boolean;
}

/**
 * The size of a page is part of the shape while it is small: PostgreSQL then keeps one plan for it, where a parameter would
 * have it planned again for every request. Applications have a handful of page sizes.
 */
export type PageLimit =
  | { readonly kind: 'all' }
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'slot'; readonly slot: Slot; readonly large: boolean };

export const AGGREGATES = [
  'count',
  'countDistinct',
  'countAll',
  'sum',
  'sumDistinct',
  'avg',
  'avgDistinct',
  'min',
  'max',
] as const;
export type AggregateFunction = (typeof AGGREGATES)[number];

export interface Aggregate {
  readonly function: AggregateFunction;
  /** Null counts rows. */
  readonly field: Expression | null;
}

export type Filter =
  | { readonly kind: 'and' | 'or'; readonly filters: readonly Filter[] }
  /** A condition on a field, or on the related rows. */
  | { readonly kind: 'field'; readonly name: string; readonly filter: Filter }
  | { readonly kind: 'function'; readonly expression: Expression; readonly filter: Filter }
  | { readonly kind: 'some' | 'none'; readonly filter: Filter }
  | { readonly kind: 'json'; readonly filter: JsonFilter }
  /** A condition on the number of elements of an array. */
  | { readonly kind: 'length'; readonly filter: Filter }
  | { readonly kind: 'follow'; readonly arguments: readonly string[]; readonly filter: Filter }
  | {
      readonly kind: 'compare';
      readonly operator: Operator;
      readonly value: Operand;
      /** The configuration of a full text search, if the request names one. It is part of the shape: an index belongs to one configuration. */
      readonly configuration?: string;
    };

export type JsonFilter =
  | { readonly kind: 'and' | 'or'; readonly filters: readonly JsonFilter[] }
  | {
      readonly kind: 'path';
      readonly path: Slot;
      readonly operator: Operator;
      readonly value: Operand;
      readonly numeric: boolean;
    };

/** The value of an operator, or null if the operator takes none. */
export type Operand =
  | { readonly kind: 'slot'; readonly slot: Slot }
  /** A field of the caller: `$CURRENT_USER.company`. */
  | { readonly kind: 'variable'; readonly variable: CallerVariable; readonly path: readonly string[] }
  | null;

export const CALLER_VARIABLES = ['$CURRENT_USER', '$CURRENT_ROLE', '$CURRENT_ROLES', '$CURRENT_POLICIES'] as const;

export type CallerVariable = (typeof CALLER_VARIABLES)[number];

export const SCALAR_OPERATORS = ['eq', 'neq', 'lt', 'lte', 'gt', 'gte'] as const;
export const LIST_OPERATORS = ['in', 'nin', 'between', 'nbetween'] as const;
export const TEST_OPERATORS = ['null', 'nnull', 'empty', 'nempty'] as const;
export const TEXT_OPERATORS = [
  'contains',
  'ncontains',
  'icontains',
  'starts_with',
  'nstarts_with',
  'istarts_with',
  'nistarts_with',
  'ends_with',
  'nends_with',
  'iends_with',
  'niends_with',
] as const;
export const GEOMETRY_OPERATORS = [
  'intersects',
  'nintersects',
  'intersects_bbox',
  'nintersects_bbox',
  'within',
  'covers',
] as const;
/** These compare with a geometry and a distance. */
export const DISTANCE_OPERATORS = ['dwithin'] as const;

export const ARRAY_OPERATORS = ['contains_all', 'contains_any', 'contained_in'] as const;
export const RANGE_OPERATORS = ['contains_value', 'overlaps', 'adjacent'] as const;
export const DOCUMENT_OPERATORS = ['json_contains', 'has_key'] as const;
export const NETWORK_OPERATORS = ['within_network'] as const;
export const TREE_OPERATORS = ['descendant_of', 'ancestor_of'] as const;
export const SEARCH_OPERATORS = ['fts', 'similar'] as const;

export const OPERATORS = [
  ...SCALAR_OPERATORS,
  ...LIST_OPERATORS,
  ...TEST_OPERATORS,
  ...TEXT_OPERATORS,
  ...GEOMETRY_OPERATORS,
  ...DISTANCE_OPERATORS,
  ...ARRAY_OPERATORS,
  ...RANGE_OPERATORS,
  ...DOCUMENT_OPERATORS,
  ...NETWORK_OPERATORS,
  ...TREE_OPERATORS,
  ...SEARCH_OPERATORS,
] as const;

/** The last two are for rules about what is written, not for queries. */
export type Operator = (typeof OPERATORS)[number] | 'regex' | 'submitted';

export const NO_QUERY: Query = Object.freeze({
  fields: null,
  alias: [],
  filter: null,
  search: null,
  sort: null,
  limit: null,
  offset: null,
  page: null,
  cursor: null,
  aggregate: null,
  groupBy: null,
  having: null,
  groupFields: null,
  deep: [],
  meta: [],
  backlink: true,
});

/** Several reads that one statement answers, in their order. */
export interface OperationRequest {
  readonly kind: 'operation';
  readonly parts: readonly OperationPart[];
}

export type OperationPart =
  | {
      readonly kind: 'read';
      readonly name: string;
      readonly request: ReadRequest;
      /** The error, as JSON, that the answer carries where the item is missing. */
      readonly missing: number | null;
    }
  /** JSON that is known beforehand, or null with the error that stands for it. */
  | { readonly kind: 'json'; readonly name: string; readonly value: number; readonly error: number | null };

export interface ParsedOperation {
  readonly request: OperationRequest;
  readonly values: Values;
  readonly shape: string;
}

/** A parsed request: its shape, and the values that go with it. */
export interface Parsed {
  readonly request: ReadRequest;
  readonly values: Values;
  readonly shape: string;
  /** The format of the response. It is not part of the shape. */
  readonly format: ExportFormat | null;
  /** For exports as GeoJSON: the field with the geometry of a feature. */
  readonly geometry?: string;
  /** Whether the response is the data alone, without `{"data": …}`. It is not part of the shape. */
  readonly bare?: true;
}

export const EXPORT_FORMATS = ['csv', 'csv_utf8', 'json', 'ndjson', 'xml', 'yaml', 'geojson'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];
