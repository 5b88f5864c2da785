/** The public types of extensions: hooks and routes. */
import type { As, Item, ItemKey, Items, LateralApi } from './api.js';

/** The caller of a request as a hook sees it. */
export interface HookCaller {
  /** The id of the user, or null for the public. */
  readonly user: string | null;
  readonly role: string | null;
  readonly roles: readonly string[];
  readonly administrator: boolean;
}

/** Calls in the transaction of the write. They end with the hook. */
export interface HookTransaction {
  /**
   * `as` is the caller of the write (`'caller'`, the default) or any other. With `hooks: false` no extension is called for these writes: a
   * hook that writes to its own collection needs it.
   */
  items<Row extends object = Item>(
    collection: string,
    options?: { readonly as?: As | 'caller'; readonly hooks?: boolean },
  ): Items<Row>;
}

/** `upsert` creates the item or updates it. `unlink` clears the reference of items that leave a list. */
export type HookAction = 'create' | 'update' | 'upsert' | 'unlink' | 'delete';

interface WriteContext {
  readonly collection: string;
  readonly action: HookAction;
  readonly caller: HookCaller;
  /** The id of the request, as the log has it; '' if there is none. */
  readonly requestId: string;
  /** Counts from 1: after a conflict the write runs again, with its hooks. */
  readonly attempt: number;
}

export interface BeforeWriteContext extends WriteContext {
  /** The fields of the item, with nested items in them; empty for `unlink` and `delete`. A hook may change it, or return another. */
  readonly payload: Item;
  /** The keys of the items that the payload is written to. Empty for new items, and if only the statement knows them. */
  readonly keys: readonly ItemKey[];
  readonly tx: HookTransaction;
}

export interface AfterWriteContext extends WriteContext {
  /** The columns that were written, without passwords and references to items of the same request. */
  readonly payload: Readonly<Item>;
  readonly keys: readonly ItemKey[];
  readonly tx: HookTransaction;
}

export interface AfterCommitContext extends Omit<AfterWriteContext, 'tx'> {
  readonly api: LateralApi;
}

export interface BeforeReadContext {
  readonly collection: string;
  readonly caller: HookCaller;
  /** The collections that the request names, and its method and path. */
  readonly query: { readonly collections: readonly string[]; readonly method: string; readonly path: string };
}

/** A hook for all collections of the extension, or one for each collection. It may be asynchronous. */
export type Hook<Context> =
  | ((context: Context) => unknown)
  | { readonly [collection: string]: (context: Context) => unknown };

export interface RouteRequest<Body = unknown> {
  readonly method: string;
  /** The named segments of the path, decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  /** The body as JSON, or undefined. It meets the schema of the route. */
  readonly body: Body;
  readonly caller: HookCaller;
  readonly requestId: string;
  /** The API. `as: 'caller'` has the permissions of the caller. */
  readonly api: CallerApi;
}

export interface CallerApi {
  items<Row extends object = Item>(collection: string, options: { readonly as: As | 'caller' }): Items<Row>;
  graphql<Data = Record<string, unknown>>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    options: { readonly as: As | 'caller' },
  ): Promise<Data>;
}

/** JSON Schema: `type`, `properties`, `required`, `items`, `enum`, `minimum`, `maximum`, `minLength`, `maxLength`, `additionalProperties`. */
export type RouteSchema = Readonly<Record<string, unknown>>;

export interface RouteOptions {
  /** For the OpenAPI document. */
  readonly summary?: string;
  /** Callers that do not meet it get a 401 or 403. The default is `users`. */
  readonly allow?: 'anyone' | 'users' | 'administrators';
  /** The schema of the body; a body that does not meet it is refused with 400. */
  readonly body?: RouteSchema;
  /** The schema of the answer, for the OpenAPI document. */
  readonly answer?: RouteSchema;
}

/** The answer is sent as JSON, `{ "data": … }`, or as it is if it is a `Response`. Undefined is 204. */
type RouteHandler<Body> = (request: RouteRequest<Body>) => unknown;

/** Paths are below `/ext/<name>`, for example `/orders/:id`. */
export interface ExtensionRouter {
  get(path: string, options: RouteOptions, handle: RouteHandler<undefined>): void;
  post<Body = unknown>(path: string, options: RouteOptions, handle: RouteHandler<Body>): void;
  patch<Body = unknown>(path: string, options: RouteOptions, handle: RouteHandler<Body>): void;
  delete(path: string, options: RouteOptions, handle: RouteHandler<undefined>): void;
}

export interface Extension {
  /** Lower-case letters, digits and hyphens: it is a part of URLs. */
  readonly name: string;
  /** The collections of hooks that are given as a function. By default all, except those of the service itself. */
  readonly collections?: readonly string[];
  /** Runs inside the transaction, before rules and validations. Returns the payload, or changes it. It must have no effects elsewhere: it may run again. */
  readonly beforeWrite?: Hook<BeforeWriteContext>;
  /** Runs inside the transaction, once for each row. */
  readonly afterWrite?: Hook<AfterWriteContext>;
  /** Runs after the commit. Its errors are logged and change nothing. */
  readonly afterCommit?: Hook<AfterCommitContext>;
  /** Returns a filter that rows must meet in addition to the caller's rules, or nothing. */
  readonly beforeRead?: Hook<BeforeReadContext>;
  routes?(router: ExtensionRouter): void;
  start?(api: LateralApi): unknown;
  stop?(): unknown;
}

/** Checks the types of an extension. */
export function defineExtension(extension: Extension): Extension {
  return extension;
}
