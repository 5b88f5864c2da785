/** The public types of the service inside of a Node program. */

import type { ChangeEvent } from '../../server/changes/changes.js';
import type { As, CompiledRequest, LateralApi, RequestEvent, TransactionApi } from '../../server/execute/hooks/api.js';

/** Something that the service logs. */
export interface LogEvent {
  readonly kind: string;
}

export type { ChangeEvent };

export interface LateralEvents {
  /** Needs live queries. Listeners must be added before `start()`. */
  change: [event: ChangeEvent];
  /** Listeners must be added before `start()`. */
  request: [event: RequestEvent];
  log: [event: LogEvent];
}

/** Where a `Request` comes from. */
export interface FetchOptions {
  /** The caller. By default, the caller that the credentials of the request identify. */
  readonly as?: As;
  /** The address of the client. Without it, policies that are limited to addresses do not apply. */
  readonly address?: string;
}

export interface Lateral extends LateralApi {
  /** Adds a listener. The service does not catch its errors. */
  on<Name extends keyof LateralEvents>(name: Name, listener: (...values: LateralEvents[Name]) => void): this;
  /** Rejects with a message that says what is wrong. With `listen: false` it opens no port. */
  start(options?: { readonly listen?: boolean; readonly signal?: AbortSignal }): Promise<this>;
  /** Finishes the running requests, then stops everything that was started. */
  stop(): Promise<void>;
  /** The URL of the service; '' without a port. */
  readonly url: string;
  /** The first administrator if this start created one, else null. */
  readonly administrator: { readonly email: string; readonly password: string; readonly token: string } | null;
  /** Resolves if the service fails later: it must be stopped then. */
  readonly failure: Promise<Error>;
  /** Answers a request as the port does. */
  readonly fetch: (request: Request, options?: FetchOptions) => Promise<Response>;
  /** All writes of `work` are committed together, or none. After a conflict with another transaction `work` runs again. */
  transaction<Result>(work: (tx: TransactionApi) => Promise<Result>, options: { readonly as: As }): Promise<Result>;
  /** The statement of a read, such as `new Request('http://lateral/items/articles?limit=1')`. It is not run. */
  compile(request: Request, options: { readonly as: As }): Promise<CompiledRequest>;
}
