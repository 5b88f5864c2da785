/** The only file that opens connections: a pool of the driver, set up so that values travel as the text we wrote. */
import postgres from 'postgres';
import { StartError } from '../errors.js';
import { packageVersion } from '../files.js';
import { quoteIdentifier } from '../sql/fragment.js';

export interface DatabaseOptions {
  readonly url: string;
  readonly schema: string;
  readonly connections: number;
  /** Connections that transactions may hold. */
  readonly sessions: number;
  /** Connections that streams may hold. */
  readonly streams: number;
  /** Milliseconds; 0 for none. */
  readonly statementTimeout: number;
  /** Milliseconds. */
  readonly connectTimeout: number;
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
  readonly pool: Pool;
  /** For transactions. */
  readonly sessions: Pool;
  /** For streams: each holds a connection for as long as its reader takes, so they must not stand in the way of writes. */
  readonly streams: Pool;

  private constructor(pool: Pool, sessions: Pool, streams: Pool, schema: string) {
    this.pool = pool;
    this.sessions = sessions;
    this.streams = streams;
    this.schema = schema;
  }

  /** Connects once, so that a wrong address, password or schema ends the start with one line. */
  static async open(options: DatabaseOptions): Promise<Database> {
    const pool = openPool(options, {
      max: options.connections,
      statementTimeout: options.statementTimeout,
      reserved: false,
    });
    try {
      const [row] =
        await pool`select current_setting('server_version_num')::int as version, to_regnamespace(${quoteIdentifier(options.schema)}) is not null as found`;
      if (Number(row?.version) < 150_000) throw new StartError('PostgreSQL 15 or newer is needed');
      if (!row?.found) throw new StartError(`DATABASE_SCHEMA: the database has no schema "${options.schema}"`);
    } catch (error) {
      await pool.end({ timeout: 1 });
      throw error instanceof StartError
        ? error
        : new StartError(`cannot use the database: ${describe(error, options.url)}`);
    }
    const { statementTimeout } = options;
    const sessions = openPool(options, { max: options.sessions, statementTimeout, reserved: true });
    // PostgreSQL counts the time a client takes to read towards its timeout: streams are timed batch by batch instead.
    const streams = openPool(options, { max: options.streams, statementTimeout: 0, reserved: true });
    return new Database(pool, sessions, streams, options.schema);
  }

  /** Runs a compiled statement: one row with one cell, as the bytes PostgreSQL wrote; null when there is no row. */
  async cell(text: string, parameters: (string | null)[], prepare = true): Promise<Buffer | null> {
    const rows = (await this.pool.unsafe(text, parameters as string[], { prepare }).raw()) as unknown as Buffer[][];
    // The last row, since a failed statement before this one can leave holes in front of it (porsager/postgres#1181).
    return rows.at(-1)?.[0] ?? null;
  }

  /** For statements of our own that run rarely. */
  async rows<Row>(text: string, parameters: (string | null)[] = []): Promise<Row[]> {
    return (await this.pool.unsafe(text, parameters as string[], { prepare: true })) as unknown as Row[];
  }

  /** The driver's own `begin` needs pipelining, which the pool does not use. */
  async transaction<Result>(work: (connection: Pool) => Promise<Result>): Promise<Result> {
    const connection = await this.sessions.reserve();
    try {
      return await transactionOn(connection, work);
    } finally {
      connection.release();
    }
  }

  async close(): Promise<void> {
    await Promise.all([
      this.pool.end({ timeout: 5 }),
      this.sessions.end({ timeout: 5 }),
      this.streams.end({ timeout: 1 }),
    ]);
  }
}

interface PoolOptions {
  readonly max: number;
  readonly statementTimeout: number;
  /** Whether connections are reserved. */
  readonly reserved: boolean;
}

function openPool(options: DatabaseOptions, { max, statementTimeout, reserved }: PoolOptions): Pool {
  return postgres(options.url, {
    max,
    // A statement written behind a running one would wait for it: a slow read would hold up fast ones. Whoever reserves a
    // connection has no neighbours.
    max_pipeline: reserved ? 10 : 0,
    prepare: true,
    // One statement less per new connection. But without it the driver never hands out a new connection that is reserved.
    fetch_types: reserved,
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
      // Never pays for these statements, and costs seconds when a large estimate triggers it.
      jit: 'off',
      statement_timeout: statementTimeout,
    },
  } as postgres.Options<Record<string, postgres.PostgresType>>) as unknown as Pool;
}

export async function transactionOn<Result>(
  connection: Pool,
  work: (connection: Pool) => Promise<Result>,
): Promise<Result> {
  // Sent together with the first statement of the work: one round trip less.
  const begun = connection.unsafe('begin').execute();
  begun.catch(() => {});
  try {
    const result = await work(connection);
    await begun;
    await connection.unsafe('commit');
    return result;
  } catch (error) {
    await connection.unsafe('rollback').catch(() => {});
    throw error;
  }
}

function describe(error: unknown, url: string): string {
  const { hostname, port } = new URL(url);
  const place = `${hostname}:${port || '5432'}`;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const message = error instanceof Error ? error.message : String(error);
  if (code === '28P01' || code === '28000') return `${message} (at ${place})`;
  if (code === '3D000') return message;
  if (/^(ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ETIMEDOUT|CONNECT_TIMEOUT|EAI_AGAIN)/.test(code)) {
    return `nothing answers at ${place} (${code})`;
  }
  return message || code;
}
