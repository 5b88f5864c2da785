/** The connections to the database: pools of them by their use. */

import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../../base/errors.js';
import { OWN_TURN, type Turn } from '../../../base/limiter.js';
import { codeOf, messageOf, propertiesOf } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { within } from '../../../base/time-limit.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import { qualifyOwn } from '../../../compiler/sql/qualify.js';
import type { CallerSettings } from '../../access/database-caller.js';
import {
  addressOf,
  type ConnectionSettings,
  refuseReadOnly,
  resolveConnection,
} from '../../config/connection-settings.js';
import { explicitSettings, parametersOf, type ServerOptions, schemasOf, settingsOf } from '../wire/client.js';
import { Connection } from '../wire/connection.js';
import { isLostOnTheWay } from '../wire/connection-errors.js';
import type { ConnectionOptions, Pooler, ServerChoice, Settings } from '../wire/connection-options.js';
import { ResponseMemory } from '../wire/response-memory.js';
import { type TimeLimits, timeLimits, Watchdog } from '../wire/watchdog.js';
import { connectWithRetries, type FirstConnectionOptions, findPooler } from './first-connection.js';
import { Pool, type PoolState } from './pool.js';
import { type PrimaryWatch, type WatchedServer, watchPrimary } from './primary-watch.js';
import { breakOffStalled, StreamSession } from './row-stream.js';
import { type LogPosition, laterOf, NO_POSITION, POSITION, parsePosition, Session } from './sessions.js';

type OpenListening = (onnotify: (channel: string, payload: string) => void, onLost: () => void) => Session;

interface Subscriber {
  heard(payload: string): void;
  /** Notifications arrive again: some may have been missed. */
  missed(): void;
  /** No notifications have arrived for a while. */
  stale(): void;
}

interface ListenerOptions {
  /** Milliseconds that a change may go unnoticed. */
  readonly staleness: number;
  /** Milliseconds between two rounds of reading everything again, if LISTEN does not work; null if it does. */
  readonly poll?: number | null;
  readonly observe: Observer;
}

interface Loss {
  /** By the clock of `performance`. */
  readonly since: number;
  readonly error: unknown;
}

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 400;

/** Milliseconds. */
const MIN_STALENESS_MS = 1_000;
const MAX_BEAT_MS = 10_000;

/**
 * Notifications of changes by others, on a separate connection. A connection that is lost or does not answer is opened again
 * until that works. Subscribers then read everything again, because notifications may have been missed, and also from time to
 * time until then.
 */
export class Listener {
  readonly #observe: Observer;
  /** Milliseconds between two checks of the connection, that an answer may take, and between two rounds of reading everything. */
  readonly #beat: number;
  readonly #channels = new Map<string, Set<Subscriber>>();
  /** The channels that the connection listens to. */
  #heard = new Set<string>();
  readonly #poll: number | null;
  readonly #closing = new AbortController();
  #session: Session | null = null;
  #timer: NodeJS.Timeout | null = null;
  #loss: Loss | null = null;

  constructor(
    /** Opens another connection that listens. */
    readonly open: OpenListening,
    { staleness, poll = null, observe }: ListenerOptions,
  ) {
    this.#poll = poll;
    this.#observe = observe;
    this.#beat = Math.min(Math.max(staleness, MIN_STALENESS_MS) / 3, MAX_BEAT_MS);
  }

  /** Null while notifications arrive. */
  get loss(): Loss | null {
    return this.#loss;
  }

  /** Whether notifications arrive, if not now then later. */
  get canHear(): boolean {
    return this.#poll === null;
  }

  get channels(): number {
    return this.#channels.size;
  }

  /** Resolves when it listens, with a function that stops it. */
  async listen(channel: string, subscriber: Subscriber): Promise<() => Promise<void>> {
    const subscribers = this.#channels.get(channel) ?? new Set();
    this.#channels.set(channel, subscribers.add(subscriber));
    if (this.#poll !== null) this.#timer ??= setInterval(() => this.#tellAll(), Math.max(this.#poll, 1)).unref();
    else if (this.#session) {
      await this.#begin(this.#session, [channel]);
      this.#heard.add(channel);
    } else if (!this.#loss) await this.#connect();
    return async () => {
      subscribers.delete(subscriber);
    };
  }

  close(): void {
    this.#closing.abort();
    const session = this.#session;
    this.#session = null;
    if (this.#timer) clearInterval(this.#timer);
    session?.destroy();
  }

  async #connect(): Promise<void> {
    const session: Session = this.open(
      (channel, payload) => {
        for (const subscriber of this.#channels.get(channel) ?? []) subscriber.heard(payload);
      },
      () => this.#lose(session, new Error('the connection was closed')),
    );
    try {
      const heard = new Set<string>();
      // Another channel may be added meanwhile.
      while (heard.size < this.#channels.size) {
        const channels = [...this.#channels.keys()].filter((each) => !heard.has(each));
        await this.#begin(session, channels);
        for (const channel of channels) heard.add(channel);
      }
      this.#heard = heard;
    } catch (error) {
      session.destroy();
      throw error;
    }
    if (this.#closing.signal.aborted) return session.destroy();
    this.#session = session;
    this.#timer ??= setInterval(() => void this.#look(), this.#beat).unref();
  }

  async #begin(session: Session, channels: readonly string[]): Promise<void> {
    await within(session.query(channels.map((each) => `listen ${quoteIdentifier(each)}`).join('; ')), this.#beat);
    await this.#check(session, channels);
  }

  /** After the transaction of LISTEN, which takes effect at its end. */
  async #check(session: Session, channels: Iterable<string>): Promise<void> {
    const answer = session.query<{ channel: string }>('select pg_listening_channels() as channel');
    const heard = new Set((await within(answer, this.#beat)).map(({ channel }) => channel));
    for (const channel of channels) if (!heard.has(channel)) throw new Error(`nothing is heard on "${channel}"`);
  }

  /** A half-open connection reports nothing by itself. */
  async #look(): Promise<void> {
    const session = this.#session;
    if (!session) return;
    try {
      await this.#check(session, this.#heard);
    } catch (error) {
      this.#lose(session, error);
    }
  }

  #lose(session: Session, error: unknown): void {
    if (session !== this.#session || this.#closing.signal.aborted) return;
    this.#session = null;
    session.destroy();
    const since = performance.now();
    this.#loss = { since, error };
    this.#observe({ kind: 'listening-lost', error });
    void this.#return(since);
  }

  async #return(since: number): Promise<void> {
    let read = Number.NEGATIVE_INFINITY;
    for (let attempt = 0; !this.#closing.signal.aborted; attempt++) {
      try {
        await this.#connect();
        break;
      } catch (error) {
        this.#loss = { since, error };
      }
      if (performance.now() - read > this.#beat) {
        read = performance.now();
        for (const subscriber of this.#subscribers()) subscriber.stale();
      }
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS, this.#beat) * (0.5 + Math.random() / 2);
      await sleep(pause, null, { signal: this.#closing.signal, ref: false }).catch(() => {});
    }
    if (this.#closing.signal.aborted) return;
    this.#loss = null;
    this.#observe({ kind: 'listening-again', milliseconds: performance.now() - since });
    for (const subscriber of this.#subscribers()) subscriber.missed();
  }

  #tellAll(): void {
    for (const subscriber of this.#subscribers()) subscriber.missed();
  }

  #subscribers(): Subscriber[] {
    return [...this.#channels.values()].flatMap((subscribers) => [...subscribers]);
  }
}

export interface DatabaseOptions extends FirstConnectionOptions, WatchedServer {
  readonly url: string;
  /** The URL of PostgreSQL itself, for LISTEN, if there is a pooler. */
  readonly directUrl?: string | null;
  /** Checked here, opened elsewhere. */
  readonly replicaUrls?: readonly string[];
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
  readonly settings: ConnectionSettings;
  /** The way past a pooler, or null if there is none. */
  readonly directSettings: ConnectionSettings | null;
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
export interface ReadQueue extends Pick<PoolState, 'busy' | 'waiting' | 'isStarved'> {
  /** How many statements carried 0, 1, 2 … reads, for metrics. */
  readonly sizes: Float64Array;
  /** Statements whose reads were sent again, one by one. */
  readonly splits: number;
}

export class Database {
  /** The first of the schemas that are served: it is what the service's own tables are about. */
  readonly schema: string;
  readonly schemas: readonly string[];
  /** Why the database cannot be served although it answers, or null. */
  obstacle: string | null = null;
  #system: string;
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
    const { pooler, waitTimeout, observe = () => {}, staleness = DEFAULT_STALENESS_MS } = options;
    const isBypassed = server.directSettings !== null;
    this.address = addressOf(server.settings);
    this.schema = this.#system = options.schema;
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
    type Given = Partial<ConnectionOptions> & { readonly share?: number };
    const sessions = (max: number, settings: Settings = {}, { share, ...given }: Given = {}): Pool<Session> =>
      new Pool(
        max,
        (onLost, count) => {
          const open = (onclose: () => void): Connection => openConnection(server, settings, { ...given, onclose });
          return new Session(open, onLost, count, onCommitted);
        },
        { waitTimeout, ...(share !== undefined && { share }) },
      );
    // These decide which server of a replica is measured.
    this.own = sessions(OWN_CONNECTIONS, {}, { choice: primary });
    this.sessions = sessions(options.sessions, PLANNED_ONCE, { memory });
    // While an import waits for its file, so does its transaction.
    const transaction = (options.uploadTimeout ?? 0) + limits.transaction;
    // An import takes longer than others can wait, so a caller may have all of these connections.
    const whole = { share: options.imports };
    this.imports = sessions(options.imports, PLANNED_PER_BATCH, { limits: { ...limits, transaction }, ...whole });
    this.catalog = sessions(1);
    const unlimited = { ...limits, statement: Number.POSITIVE_INFINITY };
    const openStream = (onclose: () => void): Connection =>
      openConnection(server, TIMED_BY_BATCH, { onclose, memory, limits: unlimited });
    this.streams = new Pool(options.streams, (onLost, count) => new StreamSession(openStream, onLost, count), {
      waitTimeout,
      share: options.streams,
      relieve: breakOffStalled(options.streams, waitTimeout),
    });
    this.listener = new Listener(
      (onnotify, onLost) =>
        new Session((onclose) => openConnection(server, {}, { ...pastPooler(server), onclose, onnotify }), onLost),
      { staleness, poll: pooler === 'transaction' && !isBypassed ? (options.poll ?? 0) : null, observe },
    );
    if (options.checksSessions && pooler !== 'none')
      observe({ kind: 'pooler-found', pooler, hears: this.listener.canHear, poll: options.poll ?? 0 });
    this.replication =
      isBypassed || pooler === 'none' ? connectionOptions(server, READS_LOG, pastPooler(server)) : null;
  }

  /** The schema of the service's own tables: found or decided when the service starts, before anything asks them. */
  get system(): string {
    return this.#system;
  }

  set system(schema: string) {
    this.#system = schema;
    this.#qualified.clear();
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
    const observe = given.observe ?? ((): void => {});
    const settings = resolveServer(given.url, given);
    const directSettings = given.directUrl ? resolveServer(given.directUrl, given) : null;
    const replicas = (given.replicaUrls ?? []).map((url) => resolveServer(url, given, true));
    const unused = new Set([settings, directSettings, ...replicas].flatMap((each) => each?.unused ?? []));
    if (given.checksSessions && unused.size > 0) observe({ kind: 'parameters-unused', unused: [...unused] });
    const primary = watchPrimary(settings, given, leave, observe);
    // The watch of the other connections reports the same hosts.
    const direct = directSettings && watchPrimary(directSettings, given, leave, () => {});
    const attempt = async (): Promise<Pooler> => {
      await primary?.find();
      await direct?.find(primary?.identity);
      return findPooler(primary?.server ?? settings, given);
    };
    const options = { ...given, pooler: await connectWithRetries(attempt, settings, given) };
    primary?.start();
    direct?.start();
    const limits = limitsOf(options, settings);
    return new Database({ options, settings, directSettings, limits, watchdog, primary, direct });
  }

  /** Connects when it is used: for a server that may be away. */
  static openLater(given: DatabaseOptions): Database {
    const options = { ...given, pooler: given.pooler === 'auto' ? 'none' : (given.pooler ?? 'none') } as const;
    const settings = resolveServer(options.url, options, true);
    const limits = limitsOf(options, settings);
    const watchdog = new Watchdog();
    return new Database({ options, settings, directSettings: null, limits, watchdog, primary: null, direct: null });
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

  async transaction<Result>(
    work: (session: Session) => Promise<Result>,
    begin?: string,
    turn: Turn = OWN_TURN,
  ): Promise<Result> {
    try {
      return await this.sessions.use((session) => session.transaction(() => work(session), begin), turn);
    } catch (error) {
      if (codeOf(error) === DEADLOCK) this.sessions.turns.calm([turn.caller, ...this.#namedIn(error)]);
      throw error;
    }
  }

  /** The users of the connections whose processes the error names: those that took part in the deadlock. */
  #namedIn(error: unknown): string[] {
    const numbers = new Set(String(propertiesOf(error)['detail']).match(/\d+/g));
    const named = [...this.sessions.inUse].filter(([{ processId }]) => numbers.has(String(processId)));
    return named.map(([, user]) => user);
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

const DEADLOCK = '40P01';

const OWN_CONNECTIONS = 4;

const READS_LOG: Settings = { replication: 'database' };

/** Milliseconds, where it is not said. */
const DEFAULT_STALENESS_MS = 30_000;

/** Milliseconds that connections get to end in peace. */
const CLOSE_GRACE_MS = 1_000;

/** Rows of a payload come as one document, about which the planner knows nothing: planning a chain for each would cost more than running it. */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

/** The table of an import may be empty at its first batch. A plan for few rows would read the whole table for each later one. */
const PLANNED_PER_BATCH: Settings = { plan_cache_mode: 'force_custom_plan' };

/**
 * PostgreSQL counts the time a client takes to read towards its timeouts: streams are timed batch by batch instead. The driver
 * leaves out what is empty. A longer statement is worth a plan for its values.
 */
const TIMED_BY_BATCH: Settings = { statement_timeout: '', lock_timeout: '', plan_cache_mode: 'force_custom_plan' };

/** For all connections for reads except the first: parallel workers speed up one statement and slow down many. */
const ON_ONE_PROCESSOR: Settings = { max_parallel_workers_per_gather: '0' };

/** A replica may be slow to connect only for as long as the primary can wait for it. */
function resolveServer(url: string, { connectTimeout }: DatabaseOptions, isReplica = false): ConnectionSettings {
  try {
    const settings = resolveConnection(url);
    if (!isReplica) refuseReadOnly(settings.target);
    const own = isReplica ? null : settings.connectTimeout;
    return { ...settings, connectTimeout: own ?? (connectTimeout || null) };
  } catch (error) {
    throw new StartError(`cannot use the database: ${messageOf(error)}`);
  }
}

function limitsOf({ statementTimeout }: KnownOptions, { connectTimeout, hosts }: ConnectionSettings): TimeLimits {
  return timeLimits(statementTimeout, connectTimeout ?? 0, hosts.length);
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
  const { options, primary, limits, watchdog } = server;
  const { transaction } = given.limits ?? limits;
  const pooler = given.pooler ?? options.pooler;
  const target = given.target ?? (() => primary?.server ?? server.settings);
  const all = settingsOf(options, options.statementTimeout, settings);
  return {
    target,
    choice: primary ?? options.choice ?? null,
    scope: schemasOf(options).join(),
    parameters: parametersOf(target(), pooler, all),
    pooler,
    settings: explicitSettings(all, transaction),
    limits,
    watchdog,
    memory: UNBOUNDED,
    ...given,
  };
}

/** Past the pooler, if there is a way. A standby gets no notifications: of several servers it is the primary too. */
function pastPooler({ directSettings, direct }: Server): Partial<ConnectionOptions> {
  if (directSettings === null) return {};
  return { target: () => direct?.server ?? directSettings, pooler: 'none', choice: direct };
}
