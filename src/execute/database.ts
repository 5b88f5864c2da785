/** The only file that opens connections: a pool of the driver, set up so that values travel as the text we wrote. */
import type { Socket } from 'node:net';
import postgres from 'postgres';
import { StartError } from '../errors.js';
import { packageVersion } from '../files.js';
import { quoteIdentifier } from '../sql/fragment.js';
import { Joiner, openDriverSocket, type Place } from './driver-socket.js';
import { checkSessions } from './pooler.js';
import { cellOptions, type Session, SessionPool } from './sessions.js';
import type { Target } from './socket.js';
import { Wire } from './wire.js';

export interface DatabaseOptions {
  readonly url: string;
  readonly schema: string;
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
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Whether to find out first that a connection is a session of its own. */
  readonly checksSessions?: boolean;
}

export type Pool = postgres.Sql;

/** The driver would turn texts for these types into its own idea of them; ours are written by the binder already. */
const AS_WRITTEN = Object.fromEntries(
  [16, 17, 114, 3802, 1082, 1114, 1184].map((oid) => [
    `type${oid}`,
    { to: oid, from: [], serialize: (value: string) => value, parse: (value: string) => value },
  ]),
);

export class Database {
  readonly schema: string;
  /** For statements of our own, which are few. */
  readonly pool: Pool;
  /** Statements of our own so far. */
  sent = 0;
  /** For reads of requests. */
  readonly wires: readonly Wire[];
  /** For transactions. */
  readonly sessions: SessionPool;
  /** For streams: each holds a connection for as long as its reader takes, so they must not stand in the way of writes. */
  readonly streams: SessionPool;
  /** For imports, which last as long as their upload. */
  readonly imports: SessionPool;
  /** One connection to read the catalog with: news of the structure must not wait behind slow reads. */
  readonly catalog: SessionPool;

  private constructor(
    pool: Pool,
    pools: Pick<Database, 'wires' | 'sessions' | 'streams' | 'imports' | 'catalog'>,
    schema: string,
  ) {
    this.pool = pool;
    this.wires = pools.wires;
    this.sessions = pools.sessions;
    this.streams = pools.streams;
    this.imports = pools.imports;
    this.catalog = pools.catalog;
    this.schema = schema;
  }

  /** Connects once, so that a wrong address, password or schema ends the start with one line. */
  static async open(options: DatabaseOptions): Promise<Database> {
    const pool = openClient(options, { max: OWN_CONNECTIONS, max_pipeline: 0 }, options.statementTimeout);
    try {
      const [row] =
        await pool`select current_setting('server_version_num')::int as version, to_regnamespace(${quoteIdentifier(options.schema)}) is not null as found`;
      if (Number(row?.version) < 150_000) throw new StartError('PostgreSQL 15 or newer is needed');
      if (!row?.found) throw new StartError(`DATABASE_SCHEMA: the database has no schema "${options.schema}"`);
      const openOne = (): Pool => openClient(options, { max: 1, max_pipeline: 0 }, options.statementTimeout);
      if (options.checksSessions) await checkSessions(openOne, options.schema, options.connectTimeout);
    } catch (error) {
      await pool.end({ timeout: 1 });
      throw error instanceof StartError
        ? error
        : new StartError(`cannot use the database: ${describe(error, options.url)}`);
    }
    const session = { max: 1, max_pipeline: 10, max_lifetime: null };
    const target = pool.options as unknown as Target;
    // The socket is secured before the driver gets it.
    const openWire = (timeout: number, settings: Settings, onclose?: () => void): Wire =>
      new Wire(
        target,
        (socket, lost) => openClient(options, { ...session, ssl: false, socket, onclose: lost }, timeout, settings),
        options.schema,
        onclose,
      );
    const sessions = (max: number, timeout: number, settings: Settings = {}): SessionPool =>
      new SessionPool(max, options.waitTimeout, (onclose) => {
        const wire = openWire(timeout, settings, onclose);
        return { client: wire.client, wire };
      });
    const pools = {
      wires: Array.from({ length: options.connections }, (_, position) =>
        openWire(options.statementTimeout, position === 0 ? {} : ON_ONE_PROCESSOR),
      ),
      sessions: sessions(options.sessions, options.statementTimeout, PLANNED_ONCE),
      // PostgreSQL counts the time a client takes to read towards its timeout: streams are timed batch by batch instead.
      streams: new SessionPool(options.streams, options.waitTimeout, (onclose) => ({
        client: openClient(options, { ...session, onclose }, 0),
        wire: null,
      })),
      imports: sessions(options.imports, options.statementTimeout, PLANNED_ONCE),
      catalog: sessions(1, options.statementTimeout),
    };
    return new Database(pool, pools, options.schema);
  }

  /** The first cell of a statement of our own, as the bytes PostgreSQL wrote; null when there is no row. */
  async cell(text: string, parameters: (string | null)[], prepare = true): Promise<Buffer | null> {
    this.sent++;
    const rows = (await this.pool
      .unsafe(text, parameters as string[], cellOptions(prepare))
      .raw()) as unknown as Buffer[][];
    // The last row, since a failed statement before this one can leave holes in front of it (porsager/postgres#1181).
    return rows.at(-1)?.[0] ?? null;
  }

  async rows<Row>(text: string, parameters: (string | null)[] = [], prepare = true): Promise<Row[]> {
    this.sent++;
    return (await this.pool.unsafe(text, parameters as string[], { prepare })) as unknown as Row[];
  }

  transaction<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    return this.sessions.use((session) => session.transaction(() => work(session)));
  }

  async close(): Promise<void> {
    await Promise.all([
      this.pool.end({ timeout: 5 }),
      ...this.wires.map((wire) => wire.close(5)),
      this.sessions.close(5),
      this.streams.close(1),
      this.imports.close(1),
      this.catalog.close(1),
    ]);
  }
}

/** For statements that are not the read of a request: who a token belongs to, logins, explanations. */
const OWN_CONNECTIONS = 4;

interface ClientOptions {
  readonly max: number;
  /** Statements written behind a running one. In the pool of reads a slow one would hold up fast ones; a session has no neighbours. */
  readonly max_pipeline: number;
  /** Null for connections that must not be renewed in the middle of a transaction. */
  readonly max_lifetime?: null;
  readonly onclose?: () => void;
  readonly socket?: () => Promise<Socket>;
  readonly ssl?: false;
}

type Settings = Readonly<Record<string, string>>;

/** Rows of a payload come as one document, which tells the planner nothing: to plan a chain for each would cost more than to run it. */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

/** Of all connections for reads but the first: what one statement gains by using several processors, many of them lose. */
const ON_ONE_PROCESSOR: Settings = { max_parallel_workers_per_gather: '0' };

function openClient(
  options: DatabaseOptions,
  clientOptions: ClientOptions,
  statementTimeout: number,
  settings: Settings = {},
): Pool {
  const client = postgres(options.url, {
    ...clientOptions,
    prepare: true,
    // One statement less per new connection.
    fetch_types: false,
    connect_timeout: Math.ceil(options.connectTimeout / 1_000),
    // The driver's own pauses between attempts grow to twenty seconds: too long once the database is back.
    backoff: (attempt: number) => Math.min(0.05 * 2 ** attempt, 1),
    onnotice: () => {},
    types: AS_WRITTEN,
    connection: {
      application_name: `lateral ${packageVersion}`,
      search_path: `${quoteIdentifier(options.schema)}, public`,
      TimeZone: 'UTC',
      DateStyle: 'ISO, MDY',
      IntervalStyle: 'postgres',
      bytea_output: 'hex',
      extra_float_digits: 1,
      // Defaults are read as the catalog prints them.
      quote_all_identifiers: 'off',
      // Never pays for these statements, and costs seconds when a large estimate triggers it.
      jit: 'off',
      statement_timeout: statementTimeout,
      ...settings,
    },
  } as unknown as postgres.Options<Record<string, postgres.PostgresType>>) as unknown as Pool;
  if (!clientOptions.socket) readThroughOurSocket(client);
  return client;
}

/** What TLS decrypts does not pass our socket; and which of several hosts is next is known to the driver alone. */
function readThroughOurSocket(client: Pool): void {
  const options = client.options as unknown as Place & { ssl: unknown; socket: unknown };
  if (options.ssl || options.host.length > 1) return;
  const joiner = new Joiner();
  joiners.set(client, joiner);
  options.socket = () => openDriverSocket(options, joiner);
}

const joiners = new WeakMap<Pool, Joiner>();

/** Of a client with one connection; undefined where the driver reads by itself. */
export function joinerOf(client: Pool): Joiner | undefined {
  return joiners.get(client);
}

function describe(error: unknown, url: string): string {
  const place = placeOf(url);
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const message = error instanceof Error ? error.message : String(error);
  if (code === '28P01' || code === '28000') return `${message} (at ${place})`;
  if (code === '3D000') return message;
  if (/^unsupported startup parameter/.test(message))
    return `${message} (a pooler at ${place} refuses settings of a session: connect to PostgreSQL itself)`;
  if (/^(ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ETIMEDOUT|CONNECT_TIMEOUT|EAI_AGAIN)/.test(code)) {
    return `nothing answers at ${place} (${code})`;
  }
  return message || code;
}

/** Several hosts are more than a URL can have. */
function placeOf(url: string): string {
  const [, hosts = ''] = /^[a-z]+:\/\/(?:[^@/]*@)?([^/?]*)/i.exec(url) ?? [];
  const places = hosts.split(',').map((host) => (/:\d+$/.test(host) ? host : `${host}:5432`));
  return places.join(' or ');
}
