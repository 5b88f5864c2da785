/**
 * The request AST: what a client asks, in one vocabulary for REST, SEARCH and GraphQL, before any name is looked up. It
 * holds no values: they lie in a list beside it and the AST names their positions (slots). Two requests that differ only in
 * values have the same AST, so its text is the shape under which compiled statements are kept.
 */
import type { Values } from '../sql/parameter.js';

/** A position in the list of values. */
export type Slot = number;

export interface ReadRequest {
  readonly kind: 'read';
  readonly collection: string;
  readonly target: Target;
  readonly query: Query;
}

export type Target = { readonly kind: 'list' } | { readonly kind: 'item'; readonly key: Slot };

export interface Query {
  /** Null stands for everything at this level. */
  readonly fields: readonly Selection[] | null;
  readonly sort: readonly SortKey[] | null;
  readonly limit: Limit | null;
  readonly offset: Slot | null;
  readonly page: Slot | null;
}

export type Selection =
  | { readonly kind: 'wildcard'; readonly fields: readonly Selection[] }
  | { readonly kind: 'field'; readonly name: string; readonly fields: readonly Selection[] };

export interface SortKey {
  readonly path: readonly string[];
  readonly descending: boolean;
}

export type Limit = { readonly kind: 'all' } | { readonly kind: 'slot'; readonly slot: Slot };

/** A parsed request: its shape, and the values that go with it. */
export interface Parsed {
  readonly request: ReadRequest;
  readonly values: Values;
  readonly shape: string;
}
