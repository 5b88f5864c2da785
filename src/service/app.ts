/**
 * What each serving thread has: connections, compiled statements, cached identities, GraphQL schemas and the
 * routes over them. What there is only once is in service.ts, and reaches a thread as `Shared` and by broadcasts.
 */
import { isMainThread } from 'node:worker_threads';
import { ForeignTokens } from '../access/foreign-tokens.js';
import { Identities, type Lookup } from '../access/identities.js';
import type { Policies } from '../access/policies.js';
import { Tokens } from '../access/tokens.js';
import { type ResolveUser, resolveExternalUser } from '../accounts/external-users.js';
import { Logins } from '../accounts/logins.js';
import { openMailer } from '../accounts/mailer.js';
import { lookUpAccount } from '../accounts/shares.js';
import { accountRoutes } from '../api/accounts/account.js';
import { authRoutes } from '../api/accounts/auth.js';
import { meRoutes } from '../api/accounts/me.js';
import { registrationRoutes } from '../api/accounts/registration.js';
import { sharesRoutes } from '../api/accounts/shares.js';
import { signInRoutes } from '../api/accounts/sign-in.js';
import { FAMILY_SDL_TYPE, familyNames, withFamilySchema } from '../api/directus/compatibility.js';
import { familySynonyms } from '../api/directus/names.js';
import { assetsRoutes } from '../api/files/assets.js';
import { actionsOf } from '../api/graphql/actions.js';
import { graphqlRoutes } from '../api/graphql/endpoint.js';
import { itemsRoutes } from '../api/items/items.js';
import { functionRoutes } from '../api/items/rpc.js';
import { versionsRoutes } from '../api/items/versions.js';
import { websocketProtocol } from '../api/realtime/directus-protocol.js';
import { graphqlSocketProtocol } from '../api/realtime/graphql-protocol.js';
import { collectionsRoutes } from '../api/schema/collections.js';
import { fieldsRoutes } from '../api/schema/fields.js';
import { relationsRoutes } from '../api/schema/relations.js';
import { schemaRoutes } from '../api/schema/snapshots.js';
import { suggestionsRoutes } from '../api/schema/suggestions.js';
import { explorerRoutes } from '../api/server/explorer.js';
import { collect, type Gather, type Metric, metricsRoutes } from '../api/server/metrics.js';
import { serverRoutes } from '../api/server/server.js';
import { shapesRoutes } from '../api/server/shapes.js';
import { specsRoutes } from '../api/server/specs.js';
import { utilsRoutes } from '../api/server/utils.js';
import { systemRoutes } from '../api/system-collections.js';
import { assertNever } from '../base/assert-never.js';
import type { Event, Observer } from '../base/observe.js';
import type { ShapeReport } from '../batching/shape-stats.js';
import type { Config } from '../config/config.js';
import { SessionConsistency } from '../engine/consistency.js';
import { Reads } from '../engine/reads/reads.js';
import { userStore } from '../engine/system-collections/user-writes.js';
import { Writes } from '../engine/writes/writes.js';
import { Operations } from '../graphql/operations.js';
import { PersistedQueries, readAllowList } from '../graphql/persisted.js';
import { Schemas } from '../graphql/schema.js';
import { availableSystemFields } from '../graphql/system-fields.js';
import { createCookies } from '../http/cookies.js';
import type { Limits } from '../http/limiter.js';
import type { EdgeNames } from '../http/reply.js';
import { type Route, Router } from '../http/router.js';
import type { SocketProtocol } from '../http/websocket.js';
import { LiveQueries } from '../live/queries/live-queries.js';
import type { Mirror } from '../mirror/watch.js';
import { type Checks, checkHealth, type Health, Readiness } from '../postgres/health.js';
import { Database, type DatabaseOptions } from '../postgres/pools/database.js';
import { ReplicaBoard } from '../postgres/replicas/replica-board.js';
import { ReplicaServer, serverBuffer } from '../postgres/replicas/replica-server.js';
import { Replica, type ReplicaMemory, Replicas } from '../postgres/replicas/replicas.js';
import type { ParseLimits } from '../request/parse-context.js';
import { SchemaChanges } from '../schema/change/change.js';
import { Images } from '../storage/images.js';
import { Storages } from '../storage/storage.js';

/** Everything behind HTTP. */
export interface Core {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly schemaChanges: SchemaChanges;
  /** Null where there are none. */
  readonly replicas: Replicas | null;
}

/** What every thread has to know at once. */
export type Broadcast =
  /** All of them, as JSON. */
  | { readonly kind: 'policies'; readonly text: string }
  /** Something that decides who may do what: a user, a role, a token. */
  | { readonly kind: 'access' }
  | { readonly kind: 'sessions-ended'; readonly sessions: readonly string[] }
  /** It does not answer. */
  | { readonly kind: 'replica-lost'; readonly replica: number }
  | { readonly kind: 'persisted-query'; readonly digest: string; readonly text: string };

/** What the threads have in common, as one of them sees it. */
export interface Shared {
  readonly secret: string;
  readonly limits: Limits;
  /** Resolves when all threads, this one included, have applied it. */
  broadcast(message: Broadcast): Promise<void>;
  /** Resolves when all threads know the users and policies as they are now. */
  accessChanged(): Promise<void>;
  /** Under which the service listens. */
  url(): string;
  /** Where this thread is the one that counts them: there is one log. */
  readonly events: ReadonlyMap<Event['kind'], number>;
  /** The metrics of all threads. */
  readonly gather: Gather;
  /** What all threads have counted of the shapes of their statements. */
  readonly shapes: () => Promise<readonly ShapeReport[]>;
  /** Of all threads. */
  readonly health: () => Promise<Health>;
}

export interface WorkerApp {
  readonly router: Router;
  /** Null where clients use the names that there are. */
  readonly names: EdgeNames | null;
  /** What is spoken over WebSockets. */
  readonly sockets: readonly SocketProtocol[];
  apply(message: Broadcast): void;
  /** The metrics of this thread. */
  collect(): Promise<readonly Metric[]>;
  /** Whether this thread can do its work. */
  check(): Promise<Checks>;
  /** Requests that still come are answered; none should be sent. Resolves when nothing of this thread is left in the database. */
  stopping(): Promise<void>;
  /** Those that transform images. */
  endProcesses(): Promise<void>;
}

/** Where the server is not our own there may be a pooler in between: `checksSessions` once for all threads. */
export function openDatabase(
  config: Config,
  url: string,
  given: Pick<DatabaseOptions, 'checksSessions' | 'identity' | 'signal'>,
  observe: Observer,
): Promise<Database> {
  return Database.open({ ...databaseOptions(config, url), ...given, observe });
}

/** Null where none are named. With the memory of another thread, they are what that one looks at. */
export function openReplicas(config: Config, memory?: ReplicaMemory): Replicas | null {
  const urls = config.DATABASE_REPLICA_URLS;
  if (urls.length === 0) return null;
  const board = new ReplicaBoard(urls.length, memory?.board);
  const servers = memory?.servers ?? serverBuffer(urls.length);
  const replicas = urls.map((url, index) => {
    const options = databaseOptions(config, url);
    const connectTimeout = Math.min(options.connectTimeout || REPLICA_CONNECT_MS, REPLICA_CONNECT_MS);
    const choice = new ReplicaServer(servers, index);
    const database = Database.openLater({ ...options, asksPositions: false, connectTimeout, choice });
    return new Replica(index, database, board, choice);
  });
  return new Replicas(board, servers, replicas, config.REPLICA_WAIT);
}

/** Milliseconds: while one cannot be reached the primary can. */
const REPLICA_CONNECT_MS = 1_000;

function databaseOptions(config: Config, url: string): DatabaseOptions {
  return {
    url,
    schema: config.DATABASE_SCHEMA,
    otherSchemas: config.DATABASE_SCHEMAS.slice(1),
    connections: config.DATABASE_POOL_SIZE,
    sessions: config.DATABASE_WRITE_POOL_SIZE,
    streams: config.DATABASE_STREAM_POOL_SIZE,
    imports: config.IMPORT_MAX_CONCURRENCY,
    waitTimeout: config.DATABASE_WAIT_TIMEOUT,
    statementTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    connectTimeout: config.DATABASE_CONNECT_TIMEOUT,
    largestAnswer: config.MAX_RESPONSE_SIZE,
    answerMemory: config.RESPONSE_MEMORY,
    uploadTimeout: config.BODY_TIMEOUT,
    pooler: config.DATABASE_POOLER,
    directUrl: config.DATABASE_DIRECT_URL,
    poll: config.SCHEMA_POLL_INTERVAL,
    staleness: config.MAX_STALENESS,
    startTimeout: config.DATABASE_START_TIMEOUT,
    asksPositions: config.DATABASE_REPLICA_URLS.length > 0,
    synonyms: config.DIRECTUS_COMPATIBILITY ? familySynonyms() : null,
  };
}

export function createCore(
  config: Config,
  { database, mirror, policies, replicas }: Pick<Core, 'database' | 'mirror' | 'policies' | 'replicas'>,
  observe: Observer,
): Core {
  const readLimits = {
    defaultLimit: config.QUERY_LIMIT_DEFAULT,
    maxNodes: config.MAX_QUERY_NODES,
    shapes: config.SHAPE_CACHE_SIZE,
    shapeMemory: config.SHAPE_CACHE_MEMORY,
    callerBudget: { share: config.CALLER_LOOP_SHARE, burst: config.CALLER_LOOP_BURST },
    cost: config.MAX_QUERY_COST,
    batchTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    batching: config.READ_BATCHING,
    statisticsInterval: config.STATISTICS_POLL_INTERVAL,
  };
  const consistency = replicas && new SessionConsistency(database, replicas);
  const reads = new Reads({ database, mirror, policies, replicas, consistency }, readLimits, observe);
  const writeLimits = {
    maxRows: config.MAX_BATCH_MUTATION,
    parse: parseLimits(config),
    shapes: config.SHAPE_CACHE_SIZE,
    shapeMemory: config.SHAPE_CACHE_MEMORY / 2,
    idempotencyLifetime: `${config.IDEMPOTENCY_TTL} milliseconds`,
    storages: config.STORAGE_LOCATIONS.map(({ name }) => name),
  };
  const writes = new Writes({ database, mirror, policies, reads, consistency }, writeLimits, observe);
  const schemaChanges = new SchemaChanges(database, mirror, {
    lockTimeout: config.SCHEMA_LOCK_TIMEOUT,
    patience: config.SCHEMA_CHANGE_TIMEOUT,
  });
  return { database, mirror, policies, reads, writes, schemaChanges, replicas };
}

export async function createWorkerApp(
  config: Config,
  core: Core,
  shared: Shared,
  observe: Observer,
): Promise<WorkerApp> {
  const { database, mirror, policies, reads, writes, schemaChanges } = core;
  const tokens = new Tokens(shared.secret);
  const lookup: Lookup = (key) => lookUpAccount(database, key);
  const users = userStore(writes);
  const resolveUser: ResolveUser = (mapping, user) => resolveExternalUser(mapping, user, database, users);
  const identities = new Identities(
    lookup,
    [tokens, new ForeignTokens(config.JWT_ISSUERS, resolveUser)],
    config.SESSION_COOKIE_NAME,
    config.MAX_STALENESS,
    (administrator, as) => observe({ kind: 'viewed-as', administrator, as }),
  );
  writes.onAccessChange(() => shared.accessChanged());
  const access = {
    config,
    identities,
    tokens,
    logins: new Logins(database, config.SESSION_COOKIE_TTL, {
      usersChanged: () => shared.broadcast({ kind: 'access' }),
      sessionsEnded: (sessions) => shared.broadcast({ kind: 'sessions-ended', sessions }),
    }),
    cookies: createCookies(config),
    loginLimit: shared.limits.logins,
    mailer: await openMailer(config.EMAIL_TRANSPORT, observe),
    publicUrl: () => config.PUBLIC_URL ?? shared.url(),
  };
  const readiness = new Readiness(shared.health);
  const live = openLive(config, core, observe);
  const metrics = { config, events: shared.events, ...core, identities, live, router: () => router };
  const items = { identities, mirror, policies, reads, writes, limits: parseLimits(config), live };
  const files = { ...items, config, storages: new Storages(config.STORAGE_LOCATIONS), images: new Images(config) };
  const readAnew = async (): Promise<void> => {
    await mirror.refresh(true);
    await shared.accessChanged();
  };
  const described = [fieldsRoutes, collectionsRoutes, relationsRoutes].flatMap((routesOf) =>
    routesOf({ identities, policies, schemaChanges }),
  );
  const routes: Route[] = [
    ...specsRoutes({
      ...items,
      operations: () => graphql.operations,
      introspection: config.GRAPHQL_INTROSPECTION,
      routes: () => allRoutes,
      publicUrl: access.publicUrl,
      sdlType: config.DIRECTUS_COMPATIBILITY ? FAMILY_SDL_TYPE : 'text/plain',
    }),
    ...serverRoutes({ config, identities, database, health: shared.health, readiness }),
    ...metricsRoutes(metrics, shared.gather),
    ...shapesRoutes({ identities, database, shapes: shared.shapes }),
    ...authRoutes(access),
    ...signInRoutes({ ...access, resolveUser }),
    ...accountRoutes(access),
    ...registrationRoutes({ ...access, policies, writes, registrationLimit: shared.limits.registrations, observe }),
    ...utilsRoutes({ ...files, observe, readAnew }),
    ...(config.DIRECTUS_COMPATIBILITY ? withFamilySchema(described) : described),
    ...schemaRoutes({ config, identities, schemaChanges }),
    ...suggestionsRoutes({ identities, policies, schemaChanges }),
    ...meRoutes(items),
    ...versionsRoutes({ ...items, database, limits: { parse: items.limits } }),
    ...sharesRoutes({ ...access, database, reads, limits: items.limits }),
    ...assetsRoutes(files),
    ...systemRoutes(files),
    ...itemsRoutes(items),
    ...functionRoutes(items),
    ...(config.EXPLORER ? explorerRoutes() : []),
  ];
  const persisted = openPersistedQueries(config, shared);
  const operations = createOperations(config, routes);
  mirror.onChange(() => operations.forget());
  const graphql = {
    ...{ identities, mirror, policies, reads, writes, operations, persisted, live },
    ide: config.GRAPHQL_INTROSPECTION,
  };
  const allRoutes: readonly Route[] = [...routes, ...graphqlRoutes({ ...graphql, actions: actionsOf(routes) })];
  const router = new Router(allRoutes);
  const limit = shared.limits.requests;
  const sockets = [
    websocketProtocol({ ...items, config, authentication: access, limit, observe }),
    graphqlSocketProtocol({ ...items, operations, persisted, config, limit, observe }),
  ];
  const apply = (message: Broadcast): void => {
    switch (message.kind) {
      case 'policies':
        policies.apply(message.text);
        break;
      case 'access':
        identities.forget();
        live.rightsChanged();
        break;
      case 'sessions-ended':
        for (const session of message.sessions) identities.forgetSession(session);
        live.sessionsEnded();
        break;
      case 'replica-lost':
        core.replicas?.all[message.replica]?.abandon();
        break;
      case 'persisted-query':
        persisted.take(message.digest, message.text);
        break;
      default:
        assertNever(message);
    }
  };
  return {
    router,
    names: config.DIRECTUS_COMPATIBILITY ? familyNames : null,
    sockets: config.WEBSOCKETS_ENABLED ? sockets : [],
    apply,
    collect: () => collect(metrics),
    check: async () => ({
      ...(await checkHealth({ database, mirror, replicas: isMainThread ? core.replicas : null })),
      ...(await live.check()),
    }),
    stopping: () => {
      readiness.stop();
      return live.stop();
    },
    endProcesses: () => files.images.stop(),
  };
}

export function openLive(config: Config, core: Core, observe: Observer): LiveQueries {
  const limits = {
    mode: config.LIVE,
    interval: config.LIVE_INTERVAL,
    maxWal: config.LIVE_MAX_WAL,
    subscriptions: config.LIVE_MAX_SUBSCRIPTIONS,
    perCaller: config.LIVE_MAX_SUBSCRIPTIONS_PER_USER,
    keys: config.LIVE_MAX_REMEMBERED_KEYS,
  };
  return new LiveQueries(core, limits, observe);
}

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

function createOperations(config: Config, routes: readonly Route[]): Operations {
  const limits = {
    tokens: config.GRAPHQL_QUERY_TOKEN_LIMIT,
    depth: config.GRAPHQL_QUERY_DEPTH_LIMIT,
    nodes: config.GRAPHQL_QUERY_NODE_LIMIT,
    aliases: config.GRAPHQL_QUERY_ALIAS_LIMIT,
    introspection: config.GRAPHQL_INTROSPECTION,
  };
  const schemas = new Schemas(config.GRAPHQL_SCHEMA_CACHE_CAPACITY, availableSystemFields(routes));
  return new Operations(schemas, limits, parseLimits(config), config.SHAPE_CACHE_MEMORY / 2);
}

function openPersistedQueries(config: Config, shared: Shared): PersistedQueries {
  const file = config.GRAPHQL_ALLOW_LIST;
  return new PersistedQueries(file === null ? null : readAllowList(file), (digest, text) =>
    shared.broadcast({ kind: 'persisted-query', digest, text }),
  );
}
