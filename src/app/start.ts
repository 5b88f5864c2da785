/**
 * The composition root: what exists once, however many threads serve. It starts the database, the mirror and the threads, in this order,
 * and stops them in reverse.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../base/errors.js';
import { countEvents, type Event, type Observer } from '../base/observe.js';
import { packagePath } from '../base/package-files.js';
import { atMost } from '../base/time-limit.js';
import type { Collection, Model } from '../compiler/model/model.js';
import { Identities } from '../server/access/identities.js';
import { Policies } from '../server/access/policies.js';
import { PolicyWatch } from '../server/access/policy-watch.js';
import { openSecret } from '../server/access/tokens.js';
import { type Credentials, listenForSessions, lookUpAccount, makeAdministrator } from '../server/accounts/accounts.js';
import { forgetSessions } from '../server/accounts/logins.js';
import { adminAnswers } from '../server/api/server/server.js';
import type { Config } from '../server/config/config.js';
import type { Extension } from '../server/execute/hooks/definition.js';
import { deleteExpiredKeys } from '../server/execute/writes/idempotency.js';
import type { Program, Report } from '../server/feature/command.js';
import type { DatabaseSource, StartedDatabase } from '../server/feature/database-source.js';
import type { ProcessContext } from '../server/feature/feature.js';
import type { LocalServer } from '../server/feature/local-server.js';
import { openTables } from '../server/feature/tables.js';
import { openAdmin } from '../server/http/admin-server.js';
import type { RequestListener } from '../server/http/app.js';
import { deleteExpiredCounts, openLimitStore } from '../server/http/limit-store.js';
import { createLimits } from '../server/http/limiter.js';
import { chooseTransport } from '../server/http/listen.js';
import { prepareThread } from '../server/node/prepare-thread.js';
import { loginObstacle, settingObstacle, unreadableTables } from '../server/postgres/catalog/caller-login.js';
import { catalogSourceOf, findOtherSchemas, listen, policiesOf } from '../server/postgres/catalog/catalog.js';
import { Installation } from '../server/postgres/catalog/installation.js';
import { findLeftovers } from '../server/postgres/catalog/leftovers.js';
import { type MigrateOptions, migrate } from '../server/postgres/catalog/migrate.js';
import { systemTables } from '../server/postgres/catalog/system-tables.js';
import { WatchingMirror } from '../server/postgres/catalog/watch.js';
import { type Health, joinHealth, Readiness, unhealthy } from '../server/postgres/health.js';
import type { Database } from '../server/postgres/pools/database.js';
import { openDatabase } from '../server/postgres/pools/open-database.js';
import { differenceOf, identityOf } from '../server/postgres/pools/server-identity.js';
import type { ExecutorSources, Executors } from '../server/threads/executors.js';
import type { Speed } from '../server/threads/speed.js';
import type { Core } from '../server/threads/thread-parts.js';
import {
  type MainBroadcast,
  type MainContext,
  type ServingOptions,
  SingleThread,
  type Threads,
  urlOf,
} from '../server/threads/threads.js';
import { MAKERS } from './app.js';
import { checkWorkers, featuresOf } from './chosen-features.js';
import { createCore, synonymsOf } from './core.js';
import { diagnose, inOrder } from './open-features.js';
import { openLog, options, optionsOf } from './options.js';
import { speed as fast } from './speed.js';

export interface Service {
  readonly url: string;
  /** The URL of the admin listener, or null if there is none. */
  readonly adminUrl: string | null;
  /** The connection string of the served database, with its credentials. */
  readonly databaseUrl: string;
  /** The account that this start created, or null if there were users already. */
  readonly administrator: Credentials | null;
  /** A path worth trying first. */
  readonly example: string;
  stop(): Promise<void>;
  /** Resolves if the service fails: it must be stopped then. */
  readonly failure: Promise<Error>;
  /** The server of this thread, or null if other threads serve. */
  readonly local: LocalServer | null;
}

/** Resolves when all threads have applied the message. */
type Send = (message: MainBroadcast) => Promise<void>;

/** The program of a worker thread. */
const WORKER = packagePath('dist', 'src', 'app', 'worker.js');

/** Milliseconds for each part to end: some would wait for a server that does not answer. */
const CLOSE_TIMEOUT_MS = 500;

/** Milliseconds for all parts to end, after the time for running requests. */
const CLOSE_ALL_TIMEOUT_MS = 1_000;

/** Milliseconds that a part gets when that is used up, and that the embedded PostgreSQL gets. */
const LEAST_MS = 100;
const LEAST_EMBEDDED_MS = 700;

const MAINTENANCE_INTERVAL_MS = 600_000;

/** The parts that were started, to be stopped in reverse order, also if a later step fails. */
class Started {
  readonly #closers: { readonly close: (left: number) => Promise<void>; readonly timeoutMs: number }[] = [];
  readonly #timeoutMs: number;
  #stopped: Promise<void> | null = null;

  constructor({ SHUTDOWN_TIMEOUT }: Config) {
    this.#timeoutMs = SHUTDOWN_TIMEOUT + CLOSE_ALL_TIMEOUT_MS;
  }

  /** Waits at most `timeoutMs` for its end. `close` gets the milliseconds that are left for all parts. */
  add(close: (left: number) => Promise<void>, timeoutMs = CLOSE_TIMEOUT_MS): void {
    this.#closers.push({ close, timeoutMs });
  }

  /** A second call waits for the same end. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const deadline = performance.now() + this.#timeoutMs;
    for (const { close, timeoutMs } of this.#closers.splice(0).reverse()) {
      const left = deadline - performance.now();
      if (timeoutMs === Infinity) await close(left);
      else await atMost(Math.min(timeoutMs, Math.max(left, LEAST_MS)), close(left));
    }
  }
}

/** The input of every step of a start. */
interface Start {
  readonly config: Config;
  readonly observe: Observer;
  readonly report: Report;
  readonly started: Started;
  /** Ends the wait for a database that cannot be reached. */
  readonly signal?: AbortSignal | undefined;
}

export interface StartOptions {
  /** Ends the wait for a database that cannot be reached. */
  readonly signal?: AbortSignal | undefined;
  /** Whether it opens its port. Without one, only the program itself sends requests. True by default. */
  readonly listens?: boolean;
  /** Called after each request. */
  readonly onRequest?: RequestListener | null;
  /** Extensions of the program, in addition to those of EXTENSIONS. */
  readonly extensions?: readonly Extension[];
  /** How reads and writes are executed, for tests. */
  readonly speed?: Speed;
}

export async function startService(
  config: Config,
  log: Observer,
  report: Report,
  { signal, listens = true, onRequest = null, extensions = [], speed = fast }: StartOptions = {},
): Promise<Service> {
  const { observe, counts } = countEvents(log);
  const started = new Started(config);
  try {
    return await serve({ config, observe, report, started, signal }, counts, { listens, onRequest, extensions }, speed);
  } catch (error) {
    await started.stop();
    throw error;
  }
}

async function serve(
  start: Start,
  events: MainContext['events'],
  serving: ServingOptions,
  speed: Speed,
): Promise<Service> {
  const { config, observe, started } = start;
  if (!serving.listens && config.WORKERS > 1) throw new StartError('WORKERS must be 1 for a service without a port');
  if (serving.extensions.length > 0 && config.WORKERS > 1)
    throw new StartError('WORKERS must be 1 for extensions of the program: name their modules in EXTENSIONS');
  checkWorkers(config);
  // Before the database is touched: a server that does not load must not leave tables there.
  const { obstacle } = serving.listens ? await chooseTransport(config) : { obstacle: null };
  if (obstacle !== null) observe({ kind: 'server-replaced', obstacle });
  const threads: Threads =
    config.WORKERS === 1
      ? new SingleThread(config, observe, serving, { ...MAKERS, openExecutors: speed.open })
      : speed.openThreads(config, observe, { file: WORKER, divided: optionsOf(featuresOf(config)).divided });
  const admin = await startAdmin(start, threads);
  const { main, messages } = await startMain(start, threads, events, speed);
  started.add(() => threads.stop(), Infinity);
  const url = await threads.serve(main);
  // Last, so that a start that fails does not create an account whose password is never shown.
  start.signal?.throwIfAborted();
  const { administrator, unused } = await makeAdministrator(config, main.database);
  await threads.broadcast({ kind: 'serving' });
  admin.onServing();
  const listening = serving.listens ? [{ kind: 'listening', url } as const] : [];
  const noEffect = unused.length > 0 ? [{ kind: 'administrator-exists', unused } as const] : [];
  for (const message of [...listening, ...messages, ...noEffect]) observe(message);
  const stop = async (): Promise<void> => {
    admin.onStopping();
    threads.drain();
    // Load balancers need some time to notice; requests that they send meanwhile are answered.
    if (config.DRAIN_DELAY > 0) await sleep(config.DRAIN_DELAY);
    await started.stop();
  };
  let stopped: Promise<void> | null = null;
  return {
    url,
    adminUrl: admin.url,
    databaseUrl: main.databaseUrl,
    administrator,
    example: examplePath(main.mirror.model),
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
    failure: threads.failure,
    local: threads.local,
  };
}

/** Starts the parts that exist once. The messages are logged when the service listens: a start that fails says only why. */
async function startMain(
  start: Start,
  threads: Threads,
  events: MainContext['events'],
  speed: Speed,
): Promise<{ readonly main: MainContext; readonly messages: readonly Event[] }> {
  const { config, observe, started } = start;
  const own = { ...start, config: threads.mainConfig };
  const broadcast: Send = (message) => threads.broadcast(message);
  const { database, databaseUrl, embedded, mirror, policies } = await startSources(own, broadcast);
  await checkLogin(start, database);
  const shared = await speed.share({
    config: own.config,
    database,
    mirror,
    observe,
    broadcast: (message) => void broadcast({ kind: 'executors', message }),
  });
  started.add(() => shared.close(), Infinity);
  const messages = [await describeServed(mirror.model, database), ...(await describeLeft(config, database))];
  const secret = await openSecret(config.SECRET, embedded?.directory ?? null, (event) => messages.push(event));
  await broadcastChanges(database, broadcast, started);
  startMaintenance(start, database);
  await startFeatures(start, database, broadcast);
  const store = await openLimitStore(config, database, observe);
  started.add(() => store.close());
  const accessChanged = async (): Promise<void> => {
    void broadcast({ kind: 'access' });
    await policies.reload();
  };
  const limits = createLimits(config, store);
  const main = { database, databaseUrl, mirror, shared, secret, limits, events, accessChanged };
  return { main, messages };
}

/** With DATABASE_CALLER=claims or role, the start fails if the login could see more than its callers. */
async function checkLogin({ config, observe }: Start, database: Database): Promise<void> {
  const { DATABASE_CALLER: mode, DATABASE_ANON_ROLE: anon, DATABASE_ROLES: roles } = config;
  if (mode === 'service') return;
  const obstacle = await loginObstacle(database, mode === 'role' ? [...(anon === null ? [] : [anon]), ...roles] : []);
  if (obstacle !== null) throw new StartError(`DATABASE_CALLER=${mode}: ${obstacle}`);
  const refused = await settingObstacle(database, config.DATABASE_SETTINGS);
  if (refused !== null) throw new StartError(`DATABASE_SETTINGS: ${refused}`);
  const tables = mode === 'role' ? await unreadableTables(database) : [];
  if (tables.length > 0) observe({ kind: 'login-unprivileged', tables });
}

interface Admin {
  readonly url: string | null;
  onServing(): void;
  onStopping(): void;
}

/** Started first and stopped last, so that load balancers learn when requests are accepted. */
async function startAdmin({ config, observe, started }: Start, threads: Threads): Promise<Admin> {
  let state: 'starting' | 'serving' | 'stopping' = 'starting';
  const health = async (): Promise<Health> =>
    state === 'serving' ? threads.health() : joinHealth(new Map([['main', unhealthy('service:state', state)]]));
  const readiness = new Readiness(health);
  const { ADMIN_HOST: host, ADMIN_PORT: port } = config;
  let url: string | null = null;
  if (port !== null) {
    const metrics = config.METRICS !== 'off';
    const server = await openAdmin(
      host,
      port,
      adminAnswers({ metrics, health, gather: threads.gather, readiness, hasStarted: () => state !== 'starting' }),
    );
    started.add(() => server.close());
    url = urlOf({ HOST: host }, server.port);
    observe({ kind: 'admin-listening', url });
  }
  return {
    url,
    onServing: () => {
      state = 'serving';
    },
    onStopping: () => {
      state = 'stopping';
      readiness.stop();
    },
  };
}

/** For commands, which need a database that exists and serve nothing: everything is stopped after the work. */
export async function withCore<Result>(
  options: Config,
  observe: Observer,
  report: Report,
  work: (core: Core) => Promise<Result>,
): Promise<Result> {
  const config = await findDatabase(options);
  const started = new Started(config);
  const policies = new Policies();
  try {
    const sources = await startSources({ config, observe, report, started }, async (message) => {
      if (message.kind === 'policies') policies.apply(message.text);
    });
    const openExecutors = (given: ExecutorSources): Executors => fast.open(config, given, null);
    const core = await createCore(config, { ...sources, policies, openExecutors }, observe);
    core.hooks?.connect(identitiesOf(config, sources.database));
    const result = await work(core);
    await core.hooks?.idle();
    return result;
  } finally {
    await started.stop();
  }
}

/** The callers that hooks of a command name. */
function identitiesOf({ SESSION_COOKIE_NAME: cookieName, MAX_STALENESS: stalenessMs }: Config, database: Database) {
  return new Identities((key) => lookUpAccount(database, key), { verifiers: [], cookieName, stalenessMs });
}

/** For commands that inspect a database, which may lack the service's own tables. */
export async function withDatabase<Result>(
  options: Config,
  observe: Observer,
  report: Report,
  work: (database: Database) => Promise<Result>,
): Promise<Result> {
  const config = await findDatabase(options);
  const started = new Started(config);
  try {
    const { database } = await openSource({ config, observe, report, started });
    return await work(database);
  } finally {
    await started.stop();
  }
}

/** A command creates no database. If a service runs on the embedded one, the command uses that. */
async function findDatabase(config: Config): Promise<Config> {
  if (config.DATABASE_URL !== null) return config;
  const source = await databaseSource(config);
  const running = await source.findRunning();
  if (running !== null) return { ...config, DATABASE_URL: running };
  const obstacle = await source.obstacle();
  if (obstacle !== null) throw new StartError(`there is no database: set --database-url or DATABASE_URL (${obstacle})`);
  return config;
}

/** The source of a database where no DATABASE_URL is set. */
async function databaseSource(config: Config, observe: Observer = () => {}): Promise<DatabaseSource> {
  const feature = featuresOf(config).find(({ database }) => database !== undefined);
  if (!feature?.database) throw new StartError('there is no database: set --database-url or DATABASE_URL');
  return feature.database({ config, observe });
}

/** For commands that send requests to a service. */
async function withService<Result>(
  config: Config,
  observe: Observer,
  report: Report,
  work: (url: string) => Promise<Result>,
): Promise<Result> {
  const service = await startService(config, observe, report);
  try {
    return await work(service.url);
  } finally {
    await service.stop();
  }
}

export const PROGRAM: Program = {
  readWords: (...words) => options.words(...words),
  readFlags: (words) => options.flags(words),
  readConfig: (environment) => options.config(environment),
  misspelt: (environment) => options.misspelt(environment),
  diagnose: async (context) => [
    ...(await fast.diagnose(context)),
    ...(await diagnose(featuresOf(context.config), context)),
  ],
  createObserver: openLog,
  withCore,
  withDatabase,
  withService,
};

/** The database, and everything that is known about it. */
interface Sources {
  readonly database: Database;
  readonly databaseUrl: string;
  /** The database that this start has started, or null if DATABASE_URL names one. */
  readonly embedded: StartedDatabase | null;
  readonly mirror: WatchingMirror;
  readonly policies: PolicyWatch;
}

async function openSource(start: Start): Promise<Pick<Sources, 'database' | 'databaseUrl' | 'embedded'>> {
  const { config, observe, report, started, signal } = start;
  let databaseUrl = config.DATABASE_URL;
  let embedded: StartedDatabase | null = null;
  if (databaseUrl === null) {
    const source = await databaseSource(config, observe);
    const made = await source.start({ report, signal });
    started.add((left) => made.stop(Math.max(left, LEAST_EMBEDDED_MS)), Infinity);
    databaseUrl = made.url;
    embedded = made;
  }
  const checksSessions = config.DATABASE_URL !== null;
  const database = await openDatabase(
    config,
    databaseUrl,
    { checksSessions, signal, synonyms: await synonymsOf(config) },
    observe,
  );
  started.add(() => database.close(), Infinity);
  return { database, databaseUrl, embedded };
}

async function startSources(start: Start, broadcast: Send): Promise<Sources> {
  const { config, observe, started } = start;
  const { database, databaseUrl, embedded } = await openSource(start);
  await prepareTables(start, database, embedded?.loadsDemo === true);
  await prepareThread();
  const reload = async (): Promise<void> => {
    await policies.reload();
    await broadcast({ kind: 'access' });
    await broadcast({ kind: 'reload' });
  };
  const installation = new Installation(database, {
    requested: config.SYSTEM_SCHEMA,
    prepare: () => prepareTables(start, database, false),
    reload,
    onChange: async () => {
      const { system, obstacle } = database;
      observe({ kind: 'database-replaced', obstacle });
      await broadcast({ kind: 'installation', system, tables: [...systemTables()], obstacle });
    },
  });
  const mirror = await WatchingMirror.start(
    catalogSourceOf(database, installation),
    observe,
    config.SCHEMA_POLL_INTERVAL,
    ({ text }, version) => void broadcast({ kind: 'schema', text, version }),
  );
  started.add(() => mirror.close());
  const policies: PolicyWatch = await PolicyWatch.start(policiesOf(database), observe, (text) => {
    void broadcast({ kind: 'policies', text });
  });
  started.add(() => policies.close());
  return { database, databaseUrl, embedded, mirror, policies };
}

/** Creates the service's tables, or updates them. */
async function prepareTables(start: Start, database: Database, demo: boolean): Promise<void> {
  const { SYSTEM_SCHEMA: system } = start.config;
  const { migrations: files } = openTables(featuresOf(start.config));
  const options: MigrateOptions = { demo, system, files };
  const { config, observe, signal } = start;
  // Bypasses a pooler if possible: it may cut off long statements.
  const { DATABASE_DIRECT_URL: url } = config;
  if (url === null) return migrate(database, options, observe);
  const past: Config = { ...config, DATABASE_POOLER: 'none', DATABASE_DIRECT_URL: null };
  const direct = await openDatabase(past, url, { checksSessions: true, signal }, observe);
  try {
    const difference = differenceOf(await identityOf(database), await identityOf(direct));
    if (difference) throw new StartError(`DATABASE_DIRECT_URL: it is another ${difference} than that of DATABASE_URL`);
    await migrate(direct, options, observe);
    database.system = direct.system;
  } finally {
    await direct.close();
  }
}

/** Deletes what has expired. */
function startMaintenance({ config, started }: Start, database: Database): void {
  const work = (): unknown =>
    Promise.allSettled([
      deleteExpiredKeys(database),
      forgetSessions(database, config.SESSION_COOKIE_TTL),
      deleteExpiredCounts(database),
    ]);
  const timer = setInterval(work, MAINTENANCE_INTERVAL_MS).unref();
  started.add(async () => clearInterval(timer));
}

/** Starts the work of features that exists once. */
async function startFeatures({ config, observe, started }: Start, database: Database, broadcast: Send): Promise<void> {
  for (const { name, openOnce } of inOrder(featuresOf(config))) {
    const context: ProcessContext = {
      config,
      database,
      observe,
      broadcast: (payload) => broadcast({ kind: 'feature', name, payload }),
    };
    const stop = await openOnce?.(context);
    if (stop) started.add(stop);
  }
}

async function describeServed({ schemas, collections, refused }: Model, database: Database): Promise<Event> {
  const served = [...collections.values()].filter(({ system }) => !system);
  const others = await findOtherSchemas(database);
  return { kind: 'collections-served', schemas, collections: served, refused, others };
}

/** Tables of features that the service does not have. */
async function describeLeft(config: Config, database: Database): Promise<readonly Event[]> {
  const { tables, triggers } = await findLeftovers(database, openTables(featuresOf(config)).migrations);
  return tables.length === 0 ? [] : [{ kind: 'tables-left', tables, triggers: triggers.length }];
}

/** Broadcasts the changes of other instances. */
async function broadcastChanges(database: Database, broadcast: Send, started: Started): Promise<void> {
  // Cached identities expire by themselves, so that health can be read while the database cannot be reached.
  const access = (): void => void broadcast({ kind: 'access' });
  started.add(await listen(database, 'service_access', access, { stale: () => {} }));
  started.add(
    await listenForSessions(database, (session) => void broadcast({ kind: 'sessions-ended', sessions: [session] })),
  );
}

/** The collection with the most relations shows best what one statement can read. */
function examplePath(model: Model): string {
  const relations = (collection: Collection): number =>
    [...collection.fields.values()].filter((field) => field.relation !== null).length;
  const [first] = [...model.collections.values()]
    .filter((collection) => !collection.system)
    .sort((one, other) => relations(other) - relations(one));
  return first ? `/items/${encodeURIComponent(first.name)}?limit=1&fields=*.*` : '/server/info';
}
