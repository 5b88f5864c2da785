/** The public types of the calls that hooks, routes and programs make. */

/** The key of an item: a value, or for a key of several columns its text as answers show it. */
export type ItemKey = string | number;

export type Item = Record<string, unknown>;

/** A query as `SEARCH` takes it: `{ fields, filter, sort, limit, deep, … }`. */
export type ItemsQuery = Readonly<Record<string, unknown>>;

/** Items by their keys, or by a query. */
export type ItemsSelection = { readonly keys: readonly ItemKey[] } | { readonly query: ItemsQuery };

/** The caller of a request: an administrator, the public, a user, a role, or the holder of a token. */
export type As =
  | 'administrator'
  | 'public'
  | { readonly user: string }
  | { readonly role: string }
  | { readonly token: string };

/** Reads and writes of one collection. Answers are those of `/items`, without their envelope. */
export interface Items<Row extends object = Item> {
  read(query?: ItemsQuery): Promise<Row[]>;
  /** Rejects with FORBIDDEN if there is no such item. */
  readOne(key: ItemKey, query?: ItemsQuery): Promise<Row>;
  /** `query` says which fields the answer has. The answer is null if the caller may not read the item. */
  create(data: object, query?: ItemsQuery): Promise<Row | null>;
  createMany(data: readonly object[], query?: ItemsQuery): Promise<Row[] | null>;
  update(key: ItemKey, data: object, query?: ItemsQuery): Promise<Row | null>;
  updateMany(selection: ItemsSelection, data: object, query?: ItemsQuery): Promise<Row[] | null>;
  delete(key: ItemKey | ItemsSelection): Promise<void>;
}

/** Calls in a transaction. `as` is the caller of the transaction by default. */
export interface TransactionApi {
  items<Row extends object = Item>(collection: string, options?: { readonly as?: As }): Items<Row>;
}

/** Calls with connections of their own. */
export interface LateralApi {
  items<Row extends object = Item>(collection: string, options: { readonly as: As }): Items<Row>;
  /** The data of the answer. Rejects with the first error if there are any. */
  graphql<Data = Record<string, unknown>>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    options: { readonly as: As },
  ): Promise<Data>;
}

/** A request that was answered, or whose client has left. */
export interface RequestEvent {
  readonly id: string;
  readonly method: string;
  /** The path of the route, or null if no route was found. */
  readonly route: string | null;
  readonly status: number;
  readonly ms: number;
}

/** A read as its SQL and the values of its parameters. */
export interface CompiledRequest {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
}
