/** Clients of the driver, for the first statements of a connection. Values travel as the text we wrote. */
import type { Socket } from 'node:net';
import postgres from 'postgres';
import { packageVersion } from '../../../base/package-files.js';
import type { SchemaNames } from '../../../compiler/model/collection-names.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import type { ConnectionSettings } from '../../config/connection-settings.js';
import { closed } from './connection-errors.js';
import type { DriverClient, Pooler, Settings } from './connection-options.js';
import { MessageReader } from './message-reader.js';
import { openSession } from './open-session.js';
import { failingSocket } from './socket.js';

/** Where and how to connect. */
export interface ServerOptions {
  /** The first of those that are served. */
  readonly schema: string;
  readonly otherSchemas?: readonly string[];
  /** Milliseconds. */
  readonly connectTimeout: number;
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

/** The part of its time that a statement may wait for a lock. */
const LOCK_SHARE = 0.9;

/** Parameters that every pooler passes on. */
export function startParameters({ applicationName, options }: ConnectionSettings): Settings {
  return {
    application_name: applicationName || `lateral ${packageVersion}`,
    TimeZone: 'UTC',
    DateStyle: 'ISO, MDY',
    options,
  };
}

/** The parameters of a new session. Poolers refuse most settings, or ignore them. */
export function parametersOf(target: ConnectionSettings, pooler: Pooler, settings: Settings): Settings {
  return { ...startParameters(target), ...(pooler === 'none' ? settings : {}) };
}

/** A connection for a few statements, which is opened for the first of them. */
export function openClient(target: ConnectionSettings, parameters: Settings): DriverClient {
  let socket: Socket | null = null;
  let isEnded = false;
  const reader = new MessageReader(
    (message, start, end) => socket?.emit('data', Buffer.from(message.subarray(start, end))),
    { admit: () => true, release: () => {} },
  );
  const attach = (tried: Socket): boolean => {
    reader.reset();
    socket = tried;
    return !isEnded;
  };
  const receive = (chunk: Buffer, size: number): void => reader.take(chunk, size);
  const sql = driverOn(() => openSession(target, parameters, { attach, receive }));
  return {
    unsafe: sql.unsafe,
    end: async () => {
      isEnded = true;
      await sql.end().catch(() => {});
      if (socket?.connecting) socket.destroy();
      else socket?.destroySoon();
    },
  };
}

/** A client of the driver on a socket that has logged in. */
export function clientOn(socket: Socket): DriverClient {
  let isTaken = false;
  return driverOn(async () => {
    const given = isTaken ? failingSocket(closed()) : socket;
    isTaken = true;
    return given;
  });
}

/** The driver always begins with a login: this is the answer of a server that trusts it, and is a primary. */
const WELCOME = Buffer.concat([
  Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0]),
  ...['in_hot_standby', 'default_transaction_read_only'].map((name) => {
    const text = Buffer.from(`${name}\0off\0`);
    return Buffer.concat([Buffer.from([0x53, 0, 0, 0, 4 + text.length]), text]);
  }),
  Buffer.from([0x5a, 0, 0, 0, 5, 0x49]),
]);

/** All options of a connection are named, because the driver would look for them in the environment. */
function driverOn(open: () => Promise<Socket>): DriverClient {
  const sql = postgres({
    host: 'localhost',
    port: 0,
    user: 'lateral',
    password: '',
    database: 'lateral',
    ssl: false,
    sslnegotiation: null,
    target_session_attrs: 'primary',
    socket: async () => welcomed(await open()),
    max: 1,
    max_pipeline: 0,
    max_lifetime: null,
    idle_timeout: 0,
    connect_timeout: 0,
    keep_alive: 0,
    backoff: () => 0,
    debug: false,
    prepare: true,
    // One statement less per new connection.
    fetch_types: false,
    onnotice: () => {},
    types: AS_WRITTEN,
  } as unknown as postgres.Options<Record<string, postgres.PostgresType>>);
  return { unsafe: sql.unsafe, end: () => sql.end({ timeout: 0 }) };
}

function welcomed(socket: Socket): Socket {
  const { write } = socket;
  socket.write = (_message: unknown, ...others: unknown[]): boolean => {
    socket.write = write;
    queueMicrotask(() => socket.emit('data', WELCOME));
    const done = others.at(-1);
    if (typeof done === 'function') done();
    return true;
  };
  return socket;
}

/** Settings that every statement relies on and that poolers do not pass on. The driver leaves out empty ones. */
export function settingsOf(options: ServerOptions, statementTimeout: number, settings: Settings = {}): Settings {
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
