/** Clients of the driver, which opens connections: it knows hosts, passwords and settings. Values travel as the text we wrote. */
import { Socket } from 'node:net';
import postgres from 'postgres';
import { elementAt } from '../../../base/narrow.js';
import { packageVersion } from '../../../base/package-files.js';
import type { SchemaNames } from '../../../compiler/model/collection-names.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import { parseDatabaseUrl } from '../../config/database-url.js';
import type { DriverClient, Pooler, Settings } from './connection-options.js';
import { reportHangUp, type Target } from './socket.js';

/** Where and how to connect. */
export interface ServerOptions {
  readonly url: string;
  /** The first of those that are served. */
  readonly schema: string;
  readonly otherSchemas?: readonly string[];
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** The pooler in between; none if absent. */
  readonly pooler?: Pooler;
  /** Other names of the service's own collections; absent or null for none. */
  readonly synonyms?: SchemaNames['synonyms'];
}

/** The driver would turn texts for these types into its own idea of them; ours are written by the binder already. */
const AS_WRITTEN = Object.fromEntries(
  [16, 17, 114, 3802, 1082, 1114, 1184].map((oid) => [
    `type${oid}`,
    { to: oid, from: [], serialize: (value: string) => value, parse: (value: string) => value },
  ]),
);

interface ClientOptions {
  readonly max: number;
  /** Statements written behind a running one. In the pool of reads a slow one would hold up fast ones; a session has no neighbours. */
  readonly max_pipeline: number;
  /** Set to null if a connection must not be renewed during a transaction. */
  readonly max_lifetime?: null;
  readonly onclose?: () => void;
  readonly socket?: () => Promise<Socket>;
  readonly ssl?: false;
}

/** Parameters that every pooler passes on. */
export const START_PARAMETERS: Settings = {
  application_name: `lateral ${packageVersion}`,
  TimeZone: 'UTC',
  DateStyle: 'ISO, MDY',
};

/** The part of its time that a statement may wait for a lock. */
const LOCK_SHARE = 0.9;

export function openClient(
  options: ServerOptions,
  clientOptions: ClientOptions,
  statementTimeout: number,
  settings: Settings = {},
): DriverClient {
  return postgres(options.url, {
    ...clientOptions,
    prepare: true,
    // One statement less per new connection.
    fetch_types: false,
    connect_timeout: Math.ceil(options.connectTimeout / 1_000),
    // Seconds without traffic after which the system asks the other side whether it is there.
    keep_alive: 15,
    // The driver's own pauses between attempts grow to twenty seconds: too long once the database is back.
    backoff: (attempt: number) => Math.min(0.05 * 2 ** attempt, 1),
    onnotice: () => {},
    types: AS_WRITTEN,
    connection: {
      ...START_PARAMETERS,
      // Poolers refuse all others, or ignore them.
      ...((options.pooler ?? 'none') === 'none' ? settingsOf(options, statementTimeout, settings) : {}),
    },
  } as unknown as postgres.Options<Record<string, postgres.PostgresType>>) as unknown as DriverClient;
}

/** Settings that every statement relies on and that poolers do not pass on. The driver leaves out empty ones. */
export function settingsOf(options: ServerOptions, statementTimeout: number, settings: Settings): Settings {
  return {
    search_path: [...new Set([...schemasOf(options), 'public'])].map(quoteIdentifier).join(', '),
    IntervalStyle: 'postgres',
    bytea_output: 'hex',
    extra_float_digits: '1',
    // Defaults are read as the catalog prints them.
    quote_all_identifiers: 'off',
    // Never pays for these statements, and costs seconds when a large estimate triggers it.
    jit: 'off',
    statement_timeout: statementTimeout === 0 ? '' : String(statementTimeout),
    // A lock that is not granted in this time is reported as such, not as a slow statement.
    lock_timeout: statementTimeout === 0 ? '' : String(Math.floor(statementTimeout * LOCK_SHARE)),
    ...settings,
  };
}

/** The same with the limit of an idle transaction, for connections that set them by statement. */
export function explicitSettings(settings: Settings, transactionLimit: number): Settings {
  const all = { ...settings, idle_in_transaction_session_timeout: String(Math.ceil(transactionLimit)) };
  return Object.fromEntries(Object.entries(all).map(([name, value]) => [name, value === '' ? '0' : value]));
}

export function schemasOf({
  schema,
  otherSchemas = [],
}: Pick<ServerOptions, 'schema' | 'otherSchemas'>): readonly string[] {
  return [schema, ...otherSchemas];
}

/** The options as the driver has completed them, of which its types leave out some. */
export function targetOf(client: DriverClient): Target & { socket: unknown } {
  return client.options as unknown as Target & { socket: unknown };
}

/** With TLS, or several hosts of which it knows the next, the driver is left to itself. */
export function failOnHangUp(client: DriverClient): void {
  const options = targetOf(client);
  if (options.ssl || options.host.length > 1) return;
  options.socket = () => {
    const socket = new Socket();
    reportHangUp(socket);
    return options.path
      ? socket.connect(options.path)
      : socket.connect(elementAt(options.port, 0), elementAt(options.host, 0));
  };
}

/** The server that is the primary at the time. */
export function followTarget(options: ServerOptions, primary: { readonly url: string }): Target {
  const { urls } = parseDatabaseUrl(options.url);
  // A client opens nothing before it is used.
  const targets = new Map(
    urls.map((url) => [url, targetOf(openClient({ ...options, url }, { max: 1, max_pipeline: 0 }, 0))]),
  );
  const current = (): Target => targets.get(primary.url) as Target;
  return {
    get host() {
      return current().host;
    },
    get port() {
      return current().port;
    },
    get path() {
      return current().path;
    },
    get ssl() {
      return current().ssl;
    },
    get sslnegotiation() {
      return current().sslnegotiation ?? null;
    },
    get connect_timeout() {
      return current().connect_timeout ?? 0;
    },
  };
}
