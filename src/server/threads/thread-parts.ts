/** The parts of a serving thread. `app` makes them, because only it knows the features. */
import type { Observer } from '../../base/observe.js';
import type { Synonyms } from '../../compiler/model/synonyms.js';
import type { Metric } from '../api/server/metric.js';
import type { Gather } from '../api/server/metrics.js';
import type { Config } from '../config/config.js';
import type { Extension } from '../execute/hooks/definition.js';
import type { Core as FeatureCore } from '../feature/core.js';
import type { OpenHooks } from '../feature/feature.js';
import type { LocalServer } from '../feature/local-server.js';
import type { Limits } from '../http/limiter.js';
import type { NameMapping } from '../http/reply.js';
import type { RequestRecorder } from '../http/request-recorder.js';
import type { Router } from '../http/router.js';
import type { SocketProtocol } from '../http/websocket.js';
import type { Checks, Health } from '../postgres/health.js';
import type { ExecutorSources, Executors } from './executors.js';

/** A change that every thread applies at once. */
export type Broadcast =
  /** All policies, as JSON. */
  | { readonly kind: 'policies'; readonly text: string }
  /** A user, role or token has changed. */
  | { readonly kind: 'access' }
  | { readonly kind: 'sessions-ended'; readonly sessions: readonly string[] }
  /** A message to the executors. */
  | { readonly kind: 'executors'; readonly message: string }
  | { readonly kind: 'persisted-query'; readonly digest: string; readonly text: string }
  /** The schema of the service's tables, and why the database cannot be served, or null. */
  | {
      readonly kind: 'installation';
      readonly system: string;
      readonly tables: readonly string[];
      readonly obstacle: string | null;
    }
  /** Notifications may have been missed. */
  | { readonly kind: 'reload' }
  | { readonly kind: 'feature'; readonly name: string; readonly payload: string };

/** A thread's access to the state that all threads share. */
export interface Shared {
  readonly secret: string;
  readonly limits: Limits;
  /** Resolves when all threads, this one included, have applied it. */
  broadcast(message: Broadcast): Promise<void>;
  /** Resolves when all threads have the present users and policies. */
  accessChanged(): Promise<void>;
  /** The URL under which the service listens. */
  url(): string;
  /** Counts of logged events, if this thread counts them: there is one log. */
  readonly events: ReadonlyMap<string, number>;
  /** Answers a request in this thread as the port does. */
  readonly fetch: LocalServer['fetch'];
  /** The metrics of all threads. */
  readonly gather: Gather;
  /** Asks the parts of a feature in all threads. */
  readonly ask: (feature: string, question: unknown) => Promise<readonly unknown[]>;
  /** The health of all threads. */
  readonly health: () => Promise<Health>;
}

export interface App extends Pick<LocalServer, 'items' | 'watchChanges'> {
  readonly router: Router;
  /** Translates the names of the service for clients of another API, such as Directus; null if clients use the names of the service. */
  readonly names: NameMapping | null;
  /** Requests are answered from now on. Work in the background begins: before, it would delay the start. */
  serving(): Promise<void>;
  /** The WebSocket protocols. */
  readonly sockets: readonly SocketProtocol[];
  /** Changes whenever a token may belong to another caller. */
  generation(): number;
  apply(message: Broadcast): void;
  /** The answer of a feature's part in this thread. */
  ask(feature: string, question: unknown): unknown;
  readonly recorder: RequestRecorder;
  /** The metrics of this thread. */
  collect(): Promise<readonly Metric[]>;
  /** The health of this thread. */
  check(): Promise<Checks>;
  /** Reports that it is not ready, and ends subscriptions; requests are still answered. Resolves when its slots and publications are dropped. */
  stopping(): Promise<void>;
  /** Ends the processes that transform images. */
  endProcesses(): Promise<void>;
  /** The last request has ended. */
  ended(): Promise<void>;
}

/** The core of a thread. */
export interface Core extends FeatureCore {
  readonly executors: Executors;
  /** The hooks of users, or null if there are none. */
  readonly hooks: OpenHooks | null;
}

/** The parts that a core is made from. */
export interface CoreSources extends Pick<Core, 'database' | 'mirror' | 'policies'> {
  openExecutors(sources: ExecutorSources): Executors;
  /** Hooks and routes of the program that the service runs in. */
  readonly extensions?: readonly Extension[];
}

/** How the parts are made. */
export interface ThreadMakers {
  createCore(config: Config, sources: CoreSources, observe: Observer): Promise<Core>;
  createApp(config: Config, core: Core, shared: Shared, observe: Observer): Promise<App>;
  /** The names of the service's own collections that clients of another API use, or null. */
  synonymsOf(config: Config): Promise<Synonyms | null>;
  /** Prepares a process or worker thread that only serves. */
  prepareProcess(config: Config, observe: Observer): Promise<void>;
}
