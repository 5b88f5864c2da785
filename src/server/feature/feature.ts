/** The interface of a feature. */
import type { EventTable, Observer } from '../../base/observe.js';
import type { PermissionRow } from '../../compiler/access/permissions.js';
import type { Operations } from '../../compiler/graphql/operations.js';
import type { SystemResource } from '../../compiler/model/system-resources.js';
import type { Identities } from '../access/identities.js';
import type { Policies } from '../access/policies.js';
import type { AuthServices, OtherLogins } from '../api/accounts/auth.js';
import type { ApiRoute } from '../api/action.js';
import type { GraphqlPage } from '../api/graphql/endpoint.js';
import type { PersistedQueries } from '../api/graphql/persisted.js';
import type { ItemsServices } from '../api/items/item-writes.js';
import type { LiveReads } from '../api/items/live-reads.js';
import type { ExportItems } from '../api/items/stream-items.js';
import type { Metric } from '../api/server/metric.js';
import type { Gather } from '../api/server/metrics.js';
import type { ResourceRoutes } from '../api/system-collections.js';
import type { Changes } from '../changes/changes.js';
import type { ConfigWith } from '../config/config.js';
import type { NoOptions, OptionTable } from '../config/option-kinds.js';
import type { Extension } from '../execute/hooks/definition.js';
import type { ReadHooks } from '../execute/hooks/read-hooks.js';
import type { UserHooks } from '../execute/hooks/user-hooks.js';
import type { WriteHook } from '../execute/hooks/write-hook.js';
import type { PlanFacts } from '../execute/reads/reads.js';
import type { RequestSource } from '../http/app.js';
import type { Limits } from '../http/limiter.js';
import type { RequestRecorder } from '../http/request-recorder.js';
import type { SocketProtocol } from '../http/websocket.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import type { Checks } from '../postgres/health.js';
import type { Database } from '../postgres/pools/database.js';
import type { CommandEntry } from './command.js';
import type { Core } from './core.js';
import type { DatabaseSource } from './database-source.js';
import type { Dialect } from './dialect.js';
import type { DiagnosisContext, Finding } from './finding.js';

/**
 * A part of the product that can be deleted with its folder and its line in app/features.ts. A manifest imports types, options and log
 * events only, and code in the functions that need it: commands read all manifests. `build.mjs` loads the code of the service with the service.
 */
export interface Feature<Exports = unknown, Options extends OptionTable = NoOptions, Event = never> {
  /** The name of its folder in src/features, sql/features and test/features. */
  readonly name: string;
  /** The features that its files import, or whose tables it uses. They are opened before it. */
  readonly needs?: readonly Feature[];
  /** Rows of `lateral --help` and docs/configuration.md. Their values are in `config`. */
  readonly options?: Options;
  /** The heading of its options. */
  readonly topic?: string;
  /** Its events in the log. `Event` has their types. */
  readonly events?: EventTable;
  /** Its tables, which are collections of the service. */
  readonly tables?: FeatureTables;
  /** Commands of the program, by their names. */
  readonly commands?: Readonly<Record<string, CommandEntry>>;
  /** Checks and consequences of writes to its tables, also of those that a command makes. */
  hooks?(config: ConfigWith<Options>): Promise<readonly WriteHook[]>;
  /** Hooks that users write, for a serving thread or a command, or null if there are none. One feature may have them. */
  openHooks?(context: HooksContext<Options, Event>): Promise<OpenHooks | null>;
  /** The stream of changes of a serving thread or a command, or null if there is none. One feature may have it. */
  openChanges?(context: ChangesContext<Options, Event>): Promise<Changes | null>;
  /** Facts about the plan of a read, which `Prefer: explain` shows. */
  explain?(): Promise<PlanFacts>;
  /** Prepares a process or worker thread that only serves, unlike that of a program of users. */
  prepareProcess?(context: StartContext<Options, Event>): Promise<void>;
  /** Another API that clients may use, or null if the options turn it off. One feature may have it. */
  dialect?(config: ConfigWith<Options>): Promise<Dialect | null>;
  /** A database for services without DATABASE_URL. One feature may have it. */
  database?(context: StartContext<Options, Event>): Promise<DatabaseSource>;
  /** A line that the program prints when the service is ready, or null for none. */
  announce?(config: ConfigWith<Options>): string | null;
  /** The part of each serving thread, or null if the options turn the feature off. */
  open?(context: FeatureContext<Options, Event>): Promise<FeaturePart<Exports> | null>;
  /** Starts work that exists once in a process, however many threads serve. Returns how to stop it. */
  openOnce?(context: ProcessContext<Options, Event>): Promise<() => Promise<void>>;
  /** Findings for `lateral doctor`. */
  diagnose?(context: DiagnosisContext<Options>): Promise<readonly Finding[]>;
}

export interface FeatureTables {
  /** Files of `folder`. Each runs once, in the order of the names of all migrations: the name begins with the next number. */
  readonly migrations?: readonly string[];
  /** sql/features/<name> if absent. */
  readonly folder?: string;
  /** Tables that are items to their readers. */
  readonly resources?: readonly SystemResource[];
  /** Permissions of users with `app_access`. */
  readonly appPermissions?: readonly PermissionRow[];
}

export interface FeaturePart<Exports = unknown> {
  /** Features that need this one get it by `use`. */
  readonly exports?: Exports;
  readonly routes?: readonly ApiRoute[];
  /** Routes that replace those of a resource, by its name. */
  readonly resources?: Readonly<Record<string, ResourceRoutes>>;
  /** Login methods other than the password. One feature may have them. */
  readonly logins?: OtherLogins;
  /** Pages of accounts, as paths: links in emails may lead to them. */
  readonly accountPages?: readonly string[];
  /** Facts in GET /server/info. */
  readonly info?: Readonly<Record<string, unknown>>;
  /** Called when all routes are known. */
  sockets?(): readonly SocketProtocol[];
  readonly graphqlPage?: GraphqlPage;
  metrics?(): readonly Metric[];
  check?(): Checks | Promise<Checks>;
  /** Answers reads again whenever their result changes. One feature may have it. */
  readonly live?: LiveReads;
  /** Answers reads of items with files. One feature may have it. */
  readonly exportItems?: ExportItems;
  /** Records answered requests. One feature may have it. */
  readonly recorder?: RequestRecorder;
  /** Answers a question that a thread has asked all threads. */
  onQuestion?(question: unknown): unknown;
  /** Gets what a thread, or the work of the process, has broadcast. */
  onBroadcast?(payload: string): void;
  /** A user, role or token has changed. */
  onAccessChange?(): void;
  onSessionsEnded?(): void;
  /** Notifications may have been missed. */
  onReload?(): void;
  /** Called when requests are answered: work in the background would delay the start. The start fails if it rejects. */
  start?(): void | Promise<void>;
  /** Called once, when the service begins to stop. Requests are still answered. */
  stop?(): Promise<void>;
  /** Called while the last requests end. */
  close?(): Promise<void>;
  /** Called when they have ended. */
  end?(): Promise<void>;
}

/** The services that hooks of users get when they are opened, before reads and writes are made. */
export interface HooksContext<Options extends OptionTable = NoOptions, Event = never> {
  readonly config: ConfigWith<Options>;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly observe: Observer<Event>;
  /** Hooks and routes of the program that the service runs in. */
  readonly extensions: readonly Extension[];
}

/** For the stream of changes, which reads and live queries use. */
export interface ChangesContext<Options extends OptionTable = NoOptions, Event = never>
  extends StartContext<Options, Event> {
  readonly database: Database;
  readonly mirror: Mirror;
}

/** The hooks of users in a serving thread or a command. */
export interface OpenHooks {
  readonly writes: UserHooks;
  readonly reads: ReadHooks;
  /** The part of a serving thread. */
  open(context: FeatureContext): FeaturePart;
  /** For a command, which has no service that hooks could call. `identities` are the callers that they name. */
  connect(identities: Identities): void;
  /** Resolves when no work after commits is running. */
  idle(): Promise<void>;
}

/** The services of one thread. */
export interface FeatureContext<Options extends OptionTable = NoOptions, Event = never> {
  readonly config: ConfigWith<Options>;
  readonly core: Core;
  readonly identities: Identities;
  readonly items: ItemsServices;
  /** Signs users in. */
  readonly access: AuthServices;
  readonly limits: Limits;
  /** The other API that clients may use, or null. */
  readonly dialect: Dialect | null;
  readonly observe: Observer<Event>;
  /** The metrics of all threads. */
  readonly gather: Gather;
  /** All routes of the service. They are complete when requests are answered. */
  routes(): readonly ApiRoute[];
  /** The parser of GraphQL documents, and the documents that clients name by a digest. It is there when sockets are made. */
  graphql(): { readonly operations: Operations; readonly persisted: PersistedQueries };
  /** The hooks that `openHooks` has opened. */
  readonly hooks: OpenHooks | null;
  /** Answers a request as the port does. Throws before requests are answered. */
  fetch(request: Request, source: RequestSource): Promise<Response>;
  /** Reads the schema and the permissions again, in all threads. */
  reload(): Promise<void>;
  /** Sends to the parts of this feature in all threads. Resolves when each has got it. */
  broadcast(payload: string): Promise<void>;
  /** Asks the parts of this feature in all threads. A thread that does not answer in time is left out. */
  ask(question: unknown): Promise<readonly unknown[]>;
  /** The exports of a feature in `needs`, or null if its options turn it off. */
  use<Exports>(feature: Feature<Exports>): Exports | null;
}

/** For work before a database is open. */
export interface StartContext<Options extends OptionTable = NoOptions, Event = never> {
  readonly config: ConfigWith<Options>;
  readonly observe: Observer<Event>;
}

/** The services of the process. */
export interface ProcessContext<Options extends OptionTable = NoOptions, Event = never>
  extends StartContext<Options, Event> {
  readonly database: Database;
  /** Sends to the parts of this feature in all threads. */
  broadcast(payload: string): Promise<void>;
}
