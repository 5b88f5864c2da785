/** The connections to the database: pools of them by their use. */
import type { Socket } from 'node:net';
import { StartError } from '../../base/errors.js';
import { hostPortsOf } from '../../config/database-url.js';
import { withCatalog } from '../../sql/catalog-names.js';
import { qualifyOwn } from '../../sql/qualify.js';
import {
  explicitSettings,
  failOnHangUp,
  followTarget,
  openClient,
  type ServerOptions,
  schemasOf,
  settingsOf,
  targetOf,
} from '../wire/client.js';
import { Connection } from '../wire/connection.js';
import { isLostOnTheWay } from '../wire/connection-errors.js';
import type { ConnectionOptions, DriverClient, Pooler, ServerChoice, Settings } from '../wire/connection-options.js';
import { ResponseMemory } from '../wire/response-memory.js';
import type { Target } from '../wire/socket.js';
import { timeLimits, Watchdog } from '../wire/watchdog.js';
import { connectWithRetries, type FirstConnectionOptions } from './first-connection.js';
import { Listener } from './listener.js';
import { Pool, type PoolState } from './pool.js';
import { findPooler, refusesSettings } from './pooler-check.js';
import type { PrimaryWatch } from './primary-watch.js';
import { directConnection, type WatchedServer, watchPrimary } from './server-choice.js';
import { type LogPosition, laterOf, NO_POSITION, POSITION, parsePosition, Session } from './sessions.js';
import { breakOffStalled } from './stalled-streams.js';
import { StreamSession } from './stream-session.js';

export interface DatabaseOptions extends FirstConnectionOptions, WatchedServer {
  /** `auto` where it is to be found out. */
  readonly pooler?: Pooler | 'auto';
  /** Of PostgreSQL itself, for LISTEN, where there is a pooler. */
  readonly directUrl?: string | null;
  /** Milliseconds between two looks for changes where LISTEN does not work. */
  readonly poll?: number;
  readonly connections: number;
  /** Connections that transactions may hold. */
  readonly sessions: number;
  /** Connections that streams may hold. */
  readonly streams: number;
  /** Connections that imports may hold. */
  readonly imports: number;
  /** Milliseconds to wait for one of these connections. */
  readonly waitTimeout: number;
  /** Milliseconds; 0 for none. */
  readonly statementTimeout: number;
  /** Milliseconds that an import may wait for the next piece of its file. */
  readonly uploadTimeout?: number;
  /** Whether to check first that each connection is a session of the server. */
  readonly checksSessions?: boolean;
  /** Milliseconds that a change by others may go unnoticed. */
  readonly staleness?: number;
  /** Bytes of one answer that is not streamed, and of all of them together; unlimited when absent. */
  readonly largestAnswer?: number;
  readonly answerMemory?: number;
  /** Whether each commit is followed by the question how far the log reaches then: replicas are measured by it. */
  readonly asksPositions?: boolean;
  /** Of a replica: which server its connections must lead to. */
  readonly choice?: ServerChoice;
}

type KnownOptions = Omit<DatabaseOptions, 'pooler'> & { readonly pooler: Pooler };

/** For internal statements, whose size no request controls. */
const UNBOUNDED = new ResponseMemory(Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY);

type PoolName = 'read' | 'write' | 'stream' | 'import' | 'catalog' | 'own';

/** Reads that wait for a connection, and the connections that they have. */
type ReadQueue = Pick<PoolState, 'busy' | 'waiting' | 'isStarved'>;

/** All connections but those for reads, which take turns statement by statement. */
interface Pools {
  /** For internal statements, which are few: lookups of tokens, logins, explanations. */
  readonly own: Pool<Session>;
  /** For transactions. */
  readonly sessions: Pool<Session>;
  /** For streams: each holds a connection for as long as its reader takes, so they must not stand in the way of writes. */
  readonly streams: Pool<StreamSession>;
  /** For imports, which last as long as their upload. */
  readonly imports: Pool<Session>;
  /** One connection to read the catalog with: news of the schema must not wait behind slow reads. */
  readonly catalog: Pool<Session>;
}

export class Database implements Pools {
  /** The first of the schemas that are served: it is what the service's own tables are about. */
  readonly schema: string;
  readonly schemas: readonly string[];
  /** The schema of the service's own tables: found or decided when the service starts, before anything asks them. */
  system: string;
  readonly synonyms: ServerOptions['synonyms'];
  /** The queue of reads that uses these connections; it reports how many are in use and how many reads wait. */
  readQueue: ReadQueue | null = null;
  readonly own: Pool<Session>;
  readonly sessions: Pool<Session>;
  readonly streams: Pool<StreamSession>;
  readonly imports: Pool<Session>;
  readonly catalog: Pool<Session>;
  /** Milliseconds to wait for a connection. */
  readonly waitTimeout: number;
  /** Host and port, which are no secret. */
  readonly address: string;
  /** Where commits are followed: how far the log reached behind the last of them; null where it could not be asked. */
  committed: LogPosition | null = NO_POSITION;
  /** What is between us and PostgreSQL. */
  pooler: Pooler = 'none';
  /** How a connection is opened that reads the log; null where there is a pooler and no way past it. */
  replication: ConnectionOptions | null = null;
  readonly #qualified = new Map<string, string>();
  /** Null where any server will do; the other one is that of the connection past a pooler. */
  primary: PrimaryWatch | null = null;
  #direct: PrimaryWatch | null = null;

  private constructor(
    options: DatabaseOptions,

    /** For reads of requests. */
    readonly readConnections: readonly Connection[],
    pools: Pools,
    readonly watchdog: Watchdog,
    readonly listener: Listener,
    readonly responseMemory: ResponseMemory,
  ) {
    this.address = hostPortsOf(options.url);
    this.schema = options.schema;
    this.schemas = schemasOf(options);
    this.synonyms = options.synonyms;
    this.waitTimeout = options.waitTimeout;
    this.own = pools.own;
    this.sessions = pools.sessions;
    this.streams = pools.streams;
    this.imports = pools.imports;
    this.catalog = pools.catalog;
    this.system = this.schema;
  }

  /** An internal statement, which names the service's tables and functions alone, qualified with their schema. */
  qualified(text: string): string {
    const cached = this.#qualified.get(text);
    if (cached !== undefined) return cached;
    const qualified = qualifyOwn(text, this.system);
    this.#qualified.set(text, qualified);
    return qualified;
  }

  /** After a read's connection was lost on its way: whether there is a server again, where there are several. */
  async recovers(error: unknown): Promise<boolean> {
    return this.primary !== null && isLostOnTheWay(error) && this.primary.recovers();
  }

  /** Connects once, so that a wrong address, password or schema ends the start with one line. */
  static async open(given: DatabaseOptions): Promise<Database> {
    const watchdog = new Watchdog();
    const leave = (): void => watchdog.destroyAll();
    const primary = watchPrimary(given, leave, given.observe ?? (() => {}));
    // What it finds is said of the connections that listen, too.
    const direct = given.directUrl ? watchPrimary({ ...given, url: given.directUrl }, leave, () => {}) : null;
    const found = await connectWithRetries(async () => {
      await primary?.find();
      await direct?.find(primary?.identity);
      return check(primary ? { ...given, url: primary.url } : given);
    }, given);
    const options = { ...given, pooler: found.pooler };
    primary?.start();
    direct?.start();
    const target = primary ? followTarget(options, primary) : found.target;
    return Database.#make(options, target, watchdog, primary, direct);
  }

  /** Connects when it is used: for a server that may be away. */
  static openLater(given: DatabaseOptions): Database {
    const options = { ...given, pooler: given.pooler === 'auto' ? 'none' : (given.pooler ?? 'none') } as const;
    const client = openClient(options, { max: 1, max_pipeline: 0 }, options.statementTimeout);
    return Database.#make(options, targetOf(client), new Watchdog());
  }

  static #make(
    options: KnownOptions,
    target: Target,
    watchdog: Watchdog,
    primary: PrimaryWatch | null = null,
    directPrimary: PrimaryWatch | null = null,
  ): Database {
    const { pooler } = options;
    const limits = timeLimits(options.statementTimeout, options.connectTimeout, target.host.length);
    // While an import waits for its file, so does its transaction.
    const uploads = (options.uploadTimeout ?? 0) + limits.transaction;
    const responseMemory = new ResponseMemory(
      options.largestAnswer ?? Number.POSITIVE_INFINITY,
      options.answerMemory ?? Number.POSITIVE_INFINITY,
    );
    // The socket is secured before the driver gets it.
    const single = { max: 1, max_pipeline: 10, max_lifetime: null, ssl: false } as const;
    const connectionOptions = (settings: Settings, told: Partial<ConnectionOptions> = {}): ConnectionOptions => {
      const open = (socket: () => Promise<Socket>): DriverClient =>
        openClient(
          primary ? { ...options, url: primary.url } : options,
          { ...single, socket },
          options.statementTimeout,
          settings,
        );
      const { transaction } = told.limits ?? limits;
      return {
        target,
        choice: primary ?? options.choice ?? null,
        scope: schemasOf(options).join(),
        open,
        pooler,
        settings: explicitSettings(settingsOf(options, options.statementTimeout, settings), transaction),
        limits,
        watchdog,
        memory: UNBOUNDED,
        ...told,
      };
    };
    const openConnection = (...given: Parameters<typeof connectionOptions>): Connection =>
      new Connection(connectionOptions(...given));
    const sessions = (max: number, settings: Settings = {}, given: Partial<ConnectionOptions> = {}): Pool<Session> =>
      new Pool(
        max,
        options.waitTimeout,
        (onLost, count) =>
          new Session(
            (onclose) => openConnection(settings, { ...given, onclose }),
            onLost,
            count,
            options.asksPositions ? (position) => database.follow(position) : null,
          ),
      );
    const readConnections = Array.from({ length: options.connections }, (_, position) =>
      openConnection(position === 0 ? {} : ON_ONE_PROCESSOR, { memory: responseMemory }),
    );
    const openStream = (onclose: () => void): Connection =>
      openConnection(TIMED_BY_BATCH, {
        onclose,
        memory: responseMemory,
        limits: { ...limits, statement: Number.POSITIVE_INFINITY },
      });
    const pools = {
      // Which server of a replica is measured is decided by these.
      own: sessions(OWN_CONNECTIONS, {}, { choice: primary }),
      sessions: sessions(options.sessions, PLANNED_ONCE, { memory: responseMemory }),
      streams: new Pool(
        options.streams,
        options.waitTimeout,
        (onLost, count) => new StreamSession(openStream, onLost, count),
        breakOffStalled(options.streams, options.waitTimeout),
      ),
      imports: sessions(options.imports, PLANNED_ONCE, { limits: { ...limits, transaction: uploads } }),
      catalog: sessions(1),
    };
    const { observe = () => {}, staleness = DEFAULT_STALENESS_MS, directUrl = null } = options;
    const past = (settings?: Settings): Partial<ConnectionOptions> =>
      directUrl === null ? {} : directConnection({ ...options, url: directUrl }, directPrimary, settings);
    const listener = new Listener(
      (onnotify, onLost) => new Session((onclose) => openConnection({}, { ...past(), onclose, onnotify }), onLost),
      { staleness, poll: pooler === 'transaction' && directUrl === null ? (options.poll ?? 0) : null, observe },
    );
    if (options.checksSessions && pooler !== 'none')
      observe({ kind: 'pooler-found', pooler, hears: listener.canHear, poll: options.poll ?? 0 });
    const database = new Database(options, readConnections, pools, watchdog, listener, responseMemory);
    database.primary = primary;
    database.#direct = directPrimary;
    database.pooler = pooler;
    if (directUrl !== null || pooler === 'none') database.replication = connectionOptions(READS_LOG, past(READS_LOG));
    return database;
  }

  /** Takes the position behind a commit; null where it is not known, until a later one is. */
  follow(position: LogPosition | null): void {
    this.committed = position && this.committed ? laterOf(position, this.committed) : position;
  }

  /** How far the log of the primary reaches now. */
  async position(): Promise<LogPosition> {
    return parsePosition(await this.own.use((session) => session.cell(POSITION, [])));
  }

  /** What the connections of each kind do. */
  get pools(): Readonly<Record<PoolName, PoolState>> {
    const states = this.readConnections.map(({ state }) => state);
    const count = (state: string): number => states.filter((each) => each === state).length;
    return {
      read: {
        most: this.readConnections.length,
        busy: this.readQueue?.busy ?? count('busy'),
        idle: count('idle'),
        opening: count('opening'),
        waiting: this.readQueue?.waiting ?? 0,
        isStarved: this.readQueue?.isStarved ?? false,
      },
      write: this.sessions.connections,
      stream: this.streams.connections,
      import: this.imports.connections,
      catalog: this.catalog.connections,
      own: this.own.connections,
    };
  }

  /** The first cell of an internal statement, as the bytes PostgreSQL wrote; null when there is no row. */
  cell(text: string, parameters: (string | null)[], prepare = true): Promise<Buffer | null> {
    return this.own.use((session) => session.cell(prepare ? this.qualified(text) : text, parameters, prepare));
  }

  /** An internal statement; one that is not to be prepared was compiled, and has its names already. */
  rows<Row>(text: string, parameters: (string | null)[] = [], prepare = true): Promise<Row[]> {
    const statement = prepare ? this.qualified(text) : text;
    return this.own.use((session) => session.query<Row>(statement, parameters, { prepare }));
  }

  transaction<Result>(work: (session: Session) => Promise<Result>, begin?: string): Promise<Result> {
    return this.sessions.use((session) => session.transaction(() => work(session), begin));
  }

  /** Ends within about a second, whatever the server does. */
  async close(): Promise<void> {
    const { own, sessions, streams, imports, catalog } = this;
    this.primary?.close();
    this.#direct?.close();
    await Promise.all([
      this.listener.close(),
      ...this.readConnections.map((connection) => connection.close(CLOSE_GRACE_MS)),
      ...[own, sessions, streams, imports, catalog].map((each) => each.close(CLOSE_GRACE_MS)),
    ]);
  }
}

const OWN_CONNECTIONS = 4;

const READS_LOG: Settings = { replication: 'database' };

/** Milliseconds, where it is not said. */
const DEFAULT_STALENESS_MS = 30_000;

/** Milliseconds that connections get to end in peace. */
const CLOSE_GRACE_MS = 1_000;

/** Rows of a payload come as one document, about which the planner knows nothing: planning a chain for each would cost more than running it. */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

/**
 * PostgreSQL counts the time a client takes to read towards its timeouts: streams are timed batch by batch instead. The driver
 * leaves out what is empty. What is so long is worth a plan for its values.
 */
const TIMED_BY_BATCH: Settings = { statement_timeout: '', lock_timeout: '', plan_cache_mode: 'force_custom_plan' };

/** Of all connections for reads but the first: what one statement gains by using several processors, many of them lose. */
const ON_ONE_PROCESSOR: Settings = { max_parallel_workers_per_gather: '0' };

/** Answers where the database is, and what is in between. */
async function check(options: DatabaseOptions): Promise<{ readonly target: Target; readonly pooler: Pooler }> {
  const wanted = options.pooler ?? 'auto';
  const assumed = wanted === 'auto' ? 'none' : wanted;
  const target = await checkServer({ ...options, pooler: assumed }).catch((error: unknown) => {
    if (wanted === 'auto' && refusesSettings(error)) return null;
    throw error;
  });
  const known = target ? assumed : 'session';
  const reached = target ?? (await checkServer({ ...options, pooler: known }));
  if (!options.checksSessions) return { target: reached, pooler: known };
  const open = (pooler: Pooler): DriverClient =>
    openClient({ ...options, pooler }, { max: 1, max_pipeline: 0 }, options.statementTimeout);
  const { schema, connectTimeout: timeout } = options;
  return { target: reached, pooler: await findPooler(known, { open, schema, wanted, timeout }) };
}

/** Of the schemas in $1, one that does not exist. */
const VERSION_AND_MISSING = withCatalog(`
  select current_setting('server_version_num')::int as version, (
    select name from json_array_elements_text($1::json) wanted (name)
    where not exists (select from pg_namespace where nspname = name) limit 1
  ) as missing`);

async function checkServer(options: ServerOptions & DatabaseOptions & { readonly pooler: Pooler }): Promise<Target> {
  const client = openClient(options, { max: 1, max_pipeline: 0 }, options.statementTimeout);
  failOnHangUp(client);
  try {
    const [row] = await client.unsafe(VERSION_AND_MISSING, [JSON.stringify(schemasOf(options))]);
    if (Number(row?.['version']) < 150_000) throw new StartError('PostgreSQL 15 or newer is needed');
    const missing: unknown = row?.['missing'] ?? null;
    if (missing !== null) {
      const option = schemasOf(options).length > 1 ? 'DATABASE_SCHEMAS' : 'DATABASE_SCHEMA';
      throw new StartError(`${option}: the database has no schema "${missing}"`);
    }
    return targetOf(client);
  } finally {
    void client.end({ timeout: 0 }).catch(() => {});
  }
}
