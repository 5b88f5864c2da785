/** The connections to the database: pools of them by their use. */
import type { CallerSettings } from '../../access/database-caller.js';
import { hostPortsOf } from '../../config/database-url.js';
import { qualifyOwn } from '../../sql/qualify.js';
import {
  explicitSettings,
  followTarget,
  openClient,
  type ServerOptions,
  schemasOf,
  settingsOf,
  targetOf,
} from '../wire/client.js';
import { Connection } from '../wire/connection.js';
import { isLostOnTheWay } from '../wire/connection-errors.js';
import type { ConnectionOptions, Pooler, ServerChoice, Settings } from '../wire/connection-options.js';
import { ResponseMemory } from '../wire/response-memory.js';
import type { Target } from '../wire/socket.js';
import { type TimeLimits, timeLimits, Watchdog } from '../wire/watchdog.js';
import { connectWithRetries, type FirstConnectionOptions, findServer } from './first-connection.js';
import { Listener } from './listener.js';
import { Pool, type PoolState } from './pool.js';
import { type PrimaryWatch, type WatchedServer, watchPrimary } from './primary-watch.js';
import { breakOffStalled, StreamSession } from './row-stream.js';
import { type LogPosition, laterOf, NO_POSITION, POSITION, parsePosition, Session } from './sessions.js';

export interface DatabaseOptions extends FirstConnectionOptions, WatchedServer {
  /** The URL of PostgreSQL itself, for LISTEN, if there is a pooler. */
  readonly directUrl?: string | null;
  /** Milliseconds between two checks for changes if LISTEN does not work. */
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
  /** Milliseconds that an import may wait for the next piece of its file. */
  readonly uploadTimeout?: number;
  /** Milliseconds that a change by others may go unnoticed. */
  readonly staleness?: number;
  /** Bytes of one answer that is not streamed, and of all of them together; unlimited when absent. */
  readonly largestAnswer?: number;
  readonly answerMemory?: number;
  /** Whether each commit is followed by the question how far the log reaches then: replicas are measured by it. */
  readonly asksPositions?: boolean;
  /** For a replica: the server that its connections must reach. */
  readonly choice?: ServerChoice;
  /** The mode of DATABASE_CALLER, or null for `service`. With a mode, the schema has the facts about row-level security and roles. */
  readonly callers?: 'claims' | 'role' | null;
}

type KnownOptions = Omit<DatabaseOptions, 'pooler'> & { readonly pooler: Pooler };

/** The servers that connections are opened to. */
interface Server {
  readonly options: KnownOptions;
  readonly target: Target;
  readonly limits: TimeLimits;
  readonly watchdog: Watchdog;
  /** Finds the primary, or null if any server will do. */
  readonly primary: PrimaryWatch | null;
  /** Finds the primary for connections that bypass a pooler. */
  readonly direct: PrimaryWatch | null;
}

/** For internal statements, whose size no request controls. */
const UNBOUNDED = new ResponseMemory();

type PoolName = 'read' | 'write' | 'stream' | 'import' | 'catalog' | 'own';

/** Reads that wait for a connection, and the connections that they have. */
type ReadQueue = Pick<PoolState, 'busy' | 'waiting' | 'isStarved'>;

export class Database {
  /** The first of the schemas that are served: it is what the service's own tables are about. */
  readonly schema: string;
  readonly schemas: readonly string[];
  /** The schema of the service's own tables: found or decided when the service starts, before anything asks them. */
  system: string;
  readonly synonyms: ServerOptions['synonyms'];
  readonly callers: 'claims' | 'role' | null;
  /** For reads of requests, which take turns statement by statement. */
  readonly readConnections: readonly Connection[];
  /** The queue of reads that uses these connections; it reports how many are in use and how many reads wait. */
  readQueue: ReadQueue | null = null;
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
  readonly watchdog: Watchdog;
  readonly listener: Listener;
  readonly responseMemory: ResponseMemory;
  /** Milliseconds to wait for a connection. */
  readonly waitTimeout: number;
  /** Milliseconds that all statements of a transaction may take together; 0 for no limit. */
  readonly transactionTimeout: number;
  /** Host and port, which are no secret. */
  readonly address: string;
  /** How far the log reached after the last commit, if commits are followed; null if it could not be asked. */
  committed: LogPosition | null = NO_POSITION;
  /** The pooler between the service and PostgreSQL. */
  readonly pooler: Pooler;
  /** How a connection is opened that reads the log; null if there is a pooler and no way past it. */
  readonly replication: ConnectionOptions | null;
  /** Finds the primary, or null if any server will do. */
  readonly primary: PrimaryWatch | null;
  readonly #qualified = new Map<string, string>();

  private constructor(private readonly server: Server) {
    const { options, primary, limits, watchdog } = server;
    const { pooler, waitTimeout, directUrl = null, observe = () => {}, staleness = DEFAULT_STALENESS_MS } = options;
    this.address = hostPortsOf(options.url);
    this.schema = this.system = options.schema;
    this.schemas = schemasOf(options);
    this.synonyms = options.synonyms;
    this.callers = options.callers ?? null;
    this.waitTimeout = waitTimeout;
    this.transactionTimeout = options.statementTimeout;
    this.watchdog = watchdog;
    this.primary = primary;
    this.pooler = pooler;
    const memory = new ResponseMemory(options.largestAnswer, options.answerMemory);
    this.responseMemory = memory;
    this.readConnections = Array.from({ length: options.connections }, (_, index) =>
      openConnection(server, index === 0 ? {} : ON_ONE_PROCESSOR, { memory }),
    );
    const onCommitted = options.asksPositions ? (position: LogPosition | null) => this.follow(position) : null;
    const sessions = (max: number, settings: Settings = {}, given: Partial<ConnectionOptions> = {}): Pool<Session> =>
      new Pool(max, waitTimeout, (onLost, count) => {
        const open = (onclose: () => void): Connection => openConnection(server, settings, { ...given, onclose });
        return new Session(open, onLost, count, onCommitted);
      });
    // These decide which server of a replica is measured.
    this.own = sessions(OWN_CONNECTIONS, {}, { choice: primary });
    this.sessions = sessions(options.sessions, PLANNED_ONCE, { memory });
    // While an import waits for its file, so does its transaction.
    const transaction = (options.uploadTimeout ?? 0) + limits.transaction;
    this.imports = sessions(options.imports, PLANNED_ONCE, { limits: { ...limits, transaction } });
    this.catalog = sessions(1);
    const unlimited = { ...limits, statement: Number.POSITIVE_INFINITY };
    const openStream = (onclose: () => void): Connection =>
      openConnection(server, TIMED_BY_BATCH, { onclose, memory, limits: unlimited });
    this.streams = new Pool(
      options.streams,
      waitTimeout,
      (onLost, count) => new StreamSession(openStream, onLost, count),
      breakOffStalled(options.streams, waitTimeout),
    );
    this.listener = new Listener(
      (onnotify, onLost) =>
        new Session((onclose) => openConnection(server, {}, { ...pastPooler(server), onclose, onnotify }), onLost),
      { staleness, poll: pooler === 'transaction' && directUrl === null ? (options.poll ?? 0) : null, observe },
    );
    if (options.checksSessions && pooler !== 'none')
      observe({ kind: 'pooler-found', pooler, hears: this.listener.canHear, poll: options.poll ?? 0 });
    this.replication =
      directUrl !== null || pooler === 'none'
        ? connectionOptions(server, READS_LOG, pastPooler(server, READS_LOG))
        : null;
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
    // The watch of the other connections reports the same hosts.
    const direct = given.directUrl ? watchPrimary({ ...given, url: given.directUrl }, leave, () => {}) : null;
    const found = await connectWithRetries(async () => {
      await primary?.find();
      await direct?.find(primary?.identity);
      return findServer(primary ? { ...given, url: primary.url } : given);
    }, given);
    const options = { ...given, pooler: found.pooler };
    primary?.start();
    direct?.start();
    const target = primary ? followTarget(options, primary) : found.target;
    return new Database({ options, target, limits: limitsOf(options, target), watchdog, primary, direct });
  }

  /** Connects when it is used: for a server that may be away. */
  static openLater(given: DatabaseOptions): Database {
    const options = { ...given, pooler: given.pooler === 'auto' ? 'none' : (given.pooler ?? 'none') } as const;
    const target = targetOf(openClient(options, { max: 1, max_pipeline: 0 }, options.statementTimeout));
    const limits = limitsOf(options, target);
    return new Database({ options, target, limits, watchdog: new Watchdog(), primary: null, direct: null });
  }

  /** Takes the position after a commit; null if it is unknown, until a later one is known. */
  follow(position: LogPosition | null): void {
    this.committed = position && this.committed ? laterOf(position, this.committed) : position;
  }

  /** How far the log of the primary reaches now. */
  async position(): Promise<LogPosition> {
    return parsePosition(await this.own.use((session) => session.cell(POSITION, [])));
  }

  /** The state of the connections of each kind. */
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

  /** A statement that was compiled, with the settings of its caller. */
  rowsAs<Row>(
    settings: CallerSettings | null,
    { text, parameters }: { readonly text: string; readonly parameters: readonly (string | null)[] },
  ): Promise<Row[]> {
    return this.own.use((session) => {
      if (settings === null) return session.query<Row>(text, parameters);
      return session.transaction(async () => {
        await session.become(settings);
        return session.query<Row>(text, parameters);
      });
    });
  }

  transaction<Result>(work: (session: Session) => Promise<Result>, begin?: string): Promise<Result> {
    return this.sessions.use((session) => session.transaction(() => work(session), begin));
  }

  /** Ends within about a second, whatever the server does. */
  async close(): Promise<void> {
    const { own, sessions, streams, imports, catalog } = this;
    this.primary?.close();
    this.server.direct?.close();
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
 * leaves out what is empty. A longer statement is worth a plan for its values.
 */
const TIMED_BY_BATCH: Settings = { statement_timeout: '', lock_timeout: '', plan_cache_mode: 'force_custom_plan' };

/** For all connections for reads except the first: parallel workers speed up one statement and slow down many. */
const ON_ONE_PROCESSOR: Settings = { max_parallel_workers_per_gather: '0' };

function limitsOf(options: KnownOptions, target: Target): TimeLimits {
  return timeLimits(options.statementTimeout, options.connectTimeout, target.host.length);
}

function openConnection(...given: Parameters<typeof connectionOptions>): Connection {
  return new Connection(connectionOptions(...given));
}

/** `settings` are those of PostgreSQL; `given` replaces what the connections have in common. */
function connectionOptions(
  server: Server,
  settings: Settings,
  given: Partial<ConnectionOptions> = {},
): ConnectionOptions {
  const { options, target, primary, limits, watchdog } = server;
  const { transaction } = given.limits ?? limits;
  return {
    target,
    choice: primary ?? options.choice ?? null,
    scope: schemasOf(options).join(),
    open: openAt(options, primary, settings),
    pooler: options.pooler,
    settings: explicitSettings(settingsOf(options, options.statementTimeout, settings), transaction),
    limits,
    watchdog,
    memory: UNBOUNDED,
    ...given,
  };
}

/** Past the pooler, if there is a way. A standby gets no notifications: of several servers it is the primary too. */
function pastPooler({ options, direct }: Server, settings: Settings = {}): Partial<ConnectionOptions> {
  const { directUrl = null } = options;
  if (directUrl === null) return {};
  const past = { ...options, url: directUrl, pooler: 'none' } as const;
  return {
    target: direct ? followTarget(past, direct) : targetOf(openClient(past, { max: 1, max_pipeline: 0 }, 0)),
    open: openAt(past, direct, settings),
    pooler: 'none',
    choice: direct,
  };
}

/** The socket is secured before the driver gets it. */
function openAt(options: KnownOptions, primary: PrimaryWatch | null, settings: Settings): ConnectionOptions['open'] {
  const single = { max: 1, max_pipeline: 10, max_lifetime: null, ssl: false } as const;
  return (socket) => {
    const current = primary ? { ...options, url: primary.url } : options;
    return openClient(current, { ...single, socket }, options.statementTimeout, settings);
  };
}
