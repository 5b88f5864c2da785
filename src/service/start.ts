/**
 * The composition root: what there is once, however many threads serve. Options → database → mirror → threads, and the way
 * back when the service stops.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Policies } from '../access/policies.js';
import { PolicyWatch } from '../access/policy-watch.js';
import { openSecret } from '../access/secret.js';
import { type Credentials, createAdministrator, listenForSessions } from '../accounts/accounts.js';
import { adminAnswers } from '../api/server/admin.js';
import { StartError } from '../base/errors.js';
import { countEvents, type Event, type Observer } from '../base/observe.js';
import type { Config } from '../config/config.js';
import { findRunning, holdsCluster, startEmbedded } from '../embedded/cluster.js';
import { openAdmin } from '../http/admin-server.js';
import { openLimitStore } from '../http/limit-store.js';
import { createLimits } from '../http/limiter.js';
import type { Collection, Model } from '../mirror/model.js';
import { WatchingMirror } from '../mirror/watch.js';
import { catalogSourceOf, findOtherSchemas, listen, policiesOf } from '../postgres/catalog/catalog.js';
import { type MigrateOptions, migrate } from '../postgres/catalog/migrate.js';
import { type Health, joinHealth, Readiness, unhealthy } from '../postgres/health.js';
import type { Database } from '../postgres/pools/database.js';
import { differenceOf, identityOf } from '../postgres/pools/server-identity.js';
import { loadGrammar } from '../sql/grammar.js';
import { type Core, createCore, openDatabase } from './app.js';
import { maintain } from './maintenance.js';
import { watchReplicas } from './threads/replica-checks.js';
import { SingleThread } from './threads/single-thread.js';
import { type MainBroadcast, type Threads, urlOf } from './threads/threads.js';
import { centralConfig, WorkerPool } from './threads/worker-pool.js';

export interface Service {
  readonly url: string;
  /** Of the admin listener; null where there is none. */
  readonly adminUrl: string | null;
  /** The database that is mirrored, with its credentials. */
  readonly databaseUrl: string;
  /** The account that was made by this start; null when there were users already. */
  readonly administrator: Credentials | null;
  /** A path worth trying first. */
  readonly example: string;
  stop(): Promise<void>;
  /** Resolves if the service fails: it must be stopped then. */
  readonly failure: Promise<Error>;
}

type Report = (message: string) => void;

/** For each of the things that were started to end: some would wait for a server that does not answer. */
const CLOSE_TIMEOUT_MS = 500;

/** Beyond the time of running requests, shared by all of them. */
const CLOSE_ALL_TIMEOUT_MS = 1_000;

/** What one of them gets when that is used up, and the embedded PostgreSQL. */
const LEAST_MS = 100;
const LEAST_EMBEDDED_MS = 700;

/** What was started, to be stopped in reverse order, also when a later step fails. */
class Started {
  readonly #closers: { readonly close: (left: number) => Promise<void>; readonly timeoutMs: number }[] = [];
  readonly #timeoutMs: number;
  #stopped: Promise<void> | null = null;

  constructor({ SHUTDOWN_TIMEOUT }: Config) {
    this.#timeoutMs = SHUTDOWN_TIMEOUT + CLOSE_ALL_TIMEOUT_MS;
  }

  /**
   * After `timeoutMs` its end is not waited for any more; Infinity for what ends by itself. `close` gets how many are
   * left for all.
   */
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
      await ended(close(left), timeoutMs === Infinity ? timeoutMs : Math.min(timeoutMs, Math.max(left, LEAST_MS)));
    }
  }
}

async function ended(closed: Promise<void>, timeoutMs: number): Promise<void> {
  if (timeoutMs === Infinity) return closed;
  const done = new AbortController();
  await Promise.race([closed, sleep(timeoutMs, undefined, { signal: done.signal }).catch(() => {})]).finally(() =>
    done.abort(),
  );
}

/** `signal` ends the wait for a database that cannot be reached. */
export async function startService(
  config: Config,
  log: Observer,
  report: Report,
  signal?: AbortSignal,
): Promise<Service> {
  const { observe, counts: events } = countEvents(log);
  const started = new Started(config);
  try {
    const threads: Threads = config.WORKERS === 1 ? new SingleThread(config, observe) : new WorkerPool(config, observe);
    const admin = await startAdmin(config, threads, observe, started);
    const own = config.WORKERS === 1 ? config : centralConfig(config);
    const broadcast = (message: MainBroadcast): void => void threads.broadcast(message);
    const { database, databaseUrl, mirror, policies } = await startSources(
      own,
      observe,
      report,
      started,
      broadcast,
      signal,
    );
    const { replicas, close } = await watchReplicas(own, { database, mirror }, observe, broadcast);
    started.add(close, Infinity);
    const served = await describeServed(mirror.model, database);
    // A start that fails says why and nothing else.
    const advice: Event[] = [];
    const directory = config.DATABASE_URL === null ? config.DATA_DIR : null;
    const secret = await openSecret(config.SECRET, directory, (event) => advice.push(event));
    await broadcastChanges(database, broadcast, started);
    started.add(await maintain(database, config, observe));
    const store = await openLimitStore(config, database, observe);
    started.add(() => store.close());
    const accessChanged = async (): Promise<void> => {
      broadcast({ kind: 'access' });
      await policies.reload();
    };
    started.add(() => threads.stop(), Infinity);
    const url = await threads.serve({
      database,
      databaseUrl,
      mirror,
      replicas,
      secret,
      limits: createLimits(config, store),
      events,
      accessChanged,
    });
    // Last, so that a start that fails has made no account whose password nobody has seen.
    const administrator = await makeAdministrator(config, database);
    await threads.broadcast({ kind: 'serving' });
    admin.onServing();
    observe({ kind: 'listening', url });
    observe(served);
    advice.forEach(observe);
    let stopped: Promise<void> | null = null;
    const stop = async (): Promise<void> => {
      admin.onStopping();
      threads.drain();
      // Balancers need a moment to notice; what they send meanwhile is answered.
      if (config.DRAIN_DELAY > 0) await sleep(config.DRAIN_DELAY);
      await started.stop();
    };
    return {
      url,
      adminUrl: admin.url,
      databaseUrl,
      administrator,
      example: examplePath(mirror.model),
      stop: () => {
        stopped ??= stop();
        return stopped;
      },
      failure: threads.failure,
    };
  } catch (error) {
    await started.stop();
    throw error;
  }
}

interface Admin {
  readonly url: string | null;
  onServing(): void;
  onStopping(): void;
}

/** Started first and stopped last: load balancers learn that requests are not accepted yet, or any more. */
async function startAdmin(config: Config, threads: Threads, observe: Observer, started: Started): Promise<Admin> {
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

/** For commands that need a database that already exists, but serve nothing: all is stopped when the work is done. */
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
    const sources = await startSources(config, observe, report, started, (message) => {
      if (message.kind === 'policies') policies.apply(message.text);
    });
    return await work(createCore(config, { ...sources, policies, replicas: null }, observe));
  } finally {
    await started.stop();
  }
}

/** The same for those that look at the database as it is, also where the service's own tables are not there. */
export async function withDatabase<Result>(
  options: Config,
  observe: Observer,
  report: Report,
  work: (database: Database) => Promise<Result>,
): Promise<Result> {
  const config = await findDatabase(options);
  const started = new Started(config);
  try {
    const { database } = await openSource(config, observe, report, started);
    return await work(database);
  } finally {
    await started.stop();
  }
}

/** A command creates no database; while a service runs on the embedded one it uses that one. */
async function findDatabase(config: Config): Promise<Config> {
  const { DATABASE_URL, DATA_DIR } = config;
  if (DATABASE_URL !== null) return config;
  const running = await findRunning(DATA_DIR);
  if (running !== null) return { ...config, DATABASE_URL: running };
  if (!(await holdsCluster(DATA_DIR)))
    throw new StartError(
      `there is no database: set --database-url or DATABASE_URL (DATA_DIR ${DATA_DIR} has no embedded one)`,
    );
  return config;
}

/** Where everything that is known of the database comes from. */
interface Sources {
  readonly database: Database;
  readonly databaseUrl: string;
  readonly mirror: WatchingMirror;
  readonly policies: PolicyWatch;
}

async function openSource(
  config: Config,
  observe: Observer,
  report: Report,
  started: Started,
  signal?: AbortSignal,
): Promise<Pick<Sources, 'database' | 'databaseUrl'>> {
  let databaseUrl = config.DATABASE_URL;
  if (databaseUrl === null) {
    const embedded = await startEmbedded({
      directory: config.DATA_DIR,
      report,
      restarted: (message) => observe({ kind: 'embedded-restarted', message }),
      signal,
    });
    started.add((left) => embedded.stop(Math.max(left, LEAST_EMBEDDED_MS)), Infinity);
    databaseUrl = embedded.url;
  }
  const checksSessions = config.DATABASE_URL !== null;
  const database = await openDatabase(config, databaseUrl, { checksSessions, signal }, observe);
  started.add(() => database.close(), Infinity);
  return { database, databaseUrl };
}

async function startSources(
  config: Config,
  observe: Observer,
  report: Report,
  started: Started,
  broadcast: (message: MainBroadcast) => void,
  signal?: AbortSignal,
): Promise<Sources> {
  const { database, databaseUrl } = await openSource(config, observe, report, started, signal);
  const options = { demo: config.DATABASE_URL === null && config.DEMO_DATA, system: config.SYSTEM_SCHEMA };
  await migrateDirectly(config, database, options, observe, signal).catch((error: unknown) => {
    const denied = error instanceof Error && 'code' in error && error.code === '42501';
    throw denied
      ? new StartError(
          `cannot create the service_* tables in schema "${config.SYSTEM_SCHEMA ?? config.DATABASE_SCHEMA}": ${error.message}`,
        )
      : error;
  });
  await loadGrammar();
  const mirror = await WatchingMirror.start(
    catalogSourceOf(database),
    observe,
    config.SCHEMA_POLL_INTERVAL,
    ({ text }, version) => broadcast({ kind: 'schema', text, version }),
  );
  started.add(() => mirror.close());
  const policies = await PolicyWatch.start(policiesOf(database), observe, (text) =>
    broadcast({ kind: 'policies', text }),
  );
  started.add(() => policies.close());
  return { database, databaseUrl, mirror, policies };
}

/** Past a pooler, where there is a way: it may cut off what takes long. */
async function migrateDirectly(
  config: Config,
  database: Database,
  options: MigrateOptions,
  observe: Observer,
  signal?: AbortSignal,
): Promise<void> {
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

async function describeServed({ schemas, collections, refused }: Model, database: Database): Promise<Event> {
  const served = [...collections.values()].filter(({ system }) => !system);
  const others = await findOtherSchemas(database);
  return { kind: 'collections-served', schemas, collections: served, refused, others };
}

/** The first start makes an account; only it can show the password and the token. */
async function makeAdministrator(config: Config, database: Database): Promise<Credentials | null> {
  const credentials: Credentials = {
    email: config.ADMIN_EMAIL,
    password: config.ADMIN_PASSWORD ?? randomBytes(12).toString('base64url'),
    token: config.ADMIN_TOKEN ?? randomBytes(24).toString('base64url'),
  };
  const created = await createAdministrator(database, credentials);
  return created ? credentials : null;
}

/** What others have changed, also other instances. */
async function broadcastChanges(
  database: Database,
  broadcast: (message: MainBroadcast) => void,
  started: Started,
): Promise<void> {
  // Cached identities expire by themselves, so that health can be read while the database is away.
  const access = (): void => broadcast({ kind: 'access' });
  started.add(await listen(database, 'service_access', access, () => {}));
  started.add(
    await listenForSessions(database, (session) => broadcast({ kind: 'sessions-ended', sessions: [session] })),
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
