/**
 * Every option of the service, as one table. `--help`, the table in docs/configuration.md and the parsing of environment
 * and flags are all derived from it, so an option cannot exist undocumented.
 */

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { StartError } from './errors.js';
import {
  AUTOMATIC,
  boolean,
  choice,
  connection,
  connections,
  cookieName,
  domain,
  duration,
  encodings,
  headerName,
  integer,
  names,
  type Option,
  optional,
  redis,
  size,
  text,
  token,
  url,
  workers,
  workersFor,
} from './options.js';

const SECURE = 'Send the cookie over TLS only; auto: if PUBLIC_URL or a trusted proxy says https';

const OPTIONS = {
  HOST: text('127.0.0.1', 'Address to listen on'),
  PORT: integer('8055', 0, 65_535, 'Port to listen on; 0 picks a free one'),
  REUSE_PORT: boolean('false', 'Share the port with other processes, so that a new one can take over (Linux)'),
  ADMIN_HOST: text('127.0.0.1', 'Address of the admin listener; it requires no token'),
  ADMIN_PORT: optional(
    integer(null, 0, 65_535),
    'Port of the admin listener: ping, ready, health and metrics for load balancers and scrapers, also over HTTP/1.0; 0 picks a free one; off if not set',
  ),
  WORKERS: workers(
    '1',
    'Threads that serve the port and share the connections to PostgreSQL (more than one on Linux only); auto: by processors and connections',
  ),
  DATABASE_URL: optional(
    connection(),
    'Database to serve (postgres://user:password@host:port/database); several hosts (host:port,host:port) for failover; if not set, an embedded PostgreSQL is started',
  ),
  DATABASE_REPLICA_URLS: connections(
    'Standbys of the database that serve reads (postgres://...), comma separated; each gets as many connections for reads and streams as the database itself',
  ),
  REPLICA_MAX_LAG: duration(
    '1s',
    'How far a replica may be behind the database; one that is further behind gets no reads',
  ),
  REPLICA_WAIT: duration(
    '50ms',
    'How long a read waits for a replica that has not replayed what its caller has written; then the database itself serves it',
  ),
  DATABASE_POOLER: choice(
    'auto',
    ['auto', 'none', 'session', 'transaction'],
    'Pooler between the service and PostgreSQL, by its mode (PgBouncer: pool_mode); auto finds it out at the start',
  ),
  DATABASE_DIRECT_URL: optional(
    connection(),
    'PostgreSQL itself, past the pooler, for LISTEN and migrations; if not set and DATABASE_POOLER is transaction, changes are polled',
  ),
  DATABASE_SCHEMA: text('public', 'Schema to serve'),
  DATABASE_SCHEMAS: names(
    'Schemas to serve, comma separated: collections of the first have the names of their tables, of the others schema_table; if not set, DATABASE_SCHEMA',
  ),
  SYSTEM_SCHEMA: optional(
    text(),
    "Schema of the service's own tables, created if missing; if not set, the first schema that is served, or lateral if one of their names is taken there",
  ),
  DATABASE_POOL_SIZE: integer('8', 1, 1_000, 'Connections to PostgreSQL for reads'),
  DATABASE_WRITE_POOL_SIZE: integer('8', 1, 1_000, 'Connections to PostgreSQL for writes; each write uses one'),
  DATABASE_STREAM_POOL_SIZE: integer(
    '4',
    1,
    1_000,
    'Connections to PostgreSQL for streamed lists and exports; each stream uses one',
  ),
  READ_BATCHING: boolean('true', 'Combine waiting reads of the same shape into one statement'),
  DATABASE_WAIT_TIMEOUT: duration('30s', 'How long a request waits for a free connection to PostgreSQL'),
  DATABASE_STATEMENT_TIMEOUT: duration(
    '30s',
    'How long a statement may run before PostgreSQL cancels it; 0 for no limit',
  ),
  DATABASE_CONNECT_TIMEOUT: duration('10s', 'How long opening a connection to PostgreSQL may take'),
  DATABASE_START_TIMEOUT: duration('60s', 'How long the start waits for a database that cannot be reached'),
  DATA_DIR: text('./data', 'Directory of the embedded PostgreSQL'),
  DEMO_DATA: boolean('true', 'Load the demo model into a new embedded database'),
  ADMIN_EMAIL: text('admin@example.com', 'Email address of the first administrator'),
  ADMIN_PASSWORD: optional(text(), 'Password of the first administrator; if not set, generated and printed once'),
  ADMIN_TOKEN: optional(token(), 'Static token of the first administrator; if not set, generated and printed once'),
  SECRET: optional(
    text(),
    'Key that signs tokens, the same for all instances; if not set, generated and kept in DATA_DIR, or, with DATABASE_URL, generated at each start',
  ),
  PUBLIC_URL: optional(url(), 'URL at which clients reach the service; for links in emails and for cookies'),
  ACCESS_TOKEN_TTL: duration('15m', 'How long an access token is valid'),
  REFRESH_TOKEN_TTL: duration('7d', 'How long a refresh token is valid'),
  REFRESH_TOKEN_COOKIE_NAME: cookieName('service_refresh_token', 'Name of the refresh cookie'),
  REFRESH_TOKEN_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  REFRESH_TOKEN_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the refresh cookie'),
  REFRESH_TOKEN_COOKIE_DOMAIN: optional(domain(), 'Domain of the refresh cookie; if not set, the host of the request'),
  SESSION_COOKIE_TTL: duration('1d', 'How long a session is valid'),
  SESSION_COOKIE_NAME: cookieName('service_session_token', 'Name of the session cookie'),
  SESSION_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  SESSION_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the session cookie'),
  SESSION_COOKIE_DOMAIN: optional(domain(), 'Domain of the session cookie; if not set, the host of the request'),
  SESSION_REFRESH_GRACE_PERIOD: duration('10s', 'How long the former session stays valid after a refresh'),
  LOGIN_STALL_TIME: duration('500ms', 'Minimum duration of a failed login or a password reset request'),
  REGISTER_STALL_TIME: duration('750ms', 'Minimum duration of a registration'),
  EMAIL_TRANSPORT: optional(
    text(),
    'Module that exports send({to, subject, text}) to send an email; if not set, links are logged',
  ),
  PASSWORD_RESET_URL_ALLOW_LIST: text('', 'Pages allowed as reset_url (origin and path), comma separated'),
  USER_INVITE_URL_ALLOW_LIST: text('', 'Pages allowed as invite_url (origin and path), comma separated'),
  USER_REGISTER_URL_ALLOW_LIST: text('', 'Pages allowed as verification_url (origin and path), comma separated'),
  IP_TRUST_PROXY: text(
    'false',
    'Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: false, true (all), how many, or a list of addresses, networks, loopback, linklocal, uniquelocal',
  ),
  IP_CUSTOM_HEADER: optional(
    headerName(),
    "Header in which a trusted proxy sends the client's address; if not set, X-Forwarded-For",
  ),
  RATE_LIMITER_STORE: choice(
    'memory',
    ['memory', 'postgres', 'redis'],
    'Where requests, logins and registrations are counted: by each instance for itself, or by all together',
  ),
  RATE_LIMITER_REDIS_URL: optional(
    redis(),
    'Redis or Valkey of RATE_LIMITER_STORE=redis (redis://user:password@host:port)',
  ),
  RATE_LIMITER_ENABLED: boolean('false', 'Limit the requests per IP address'),
  RATE_LIMITER_POINTS: integer('50', 1, 1_000_000_000, 'Requests per IP address and RATE_LIMITER_DURATION'),
  RATE_LIMITER_DURATION: integer('1', 1, 86_400, 'Seconds after which the count starts again'),
  RATE_LIMITER_GLOBAL_ENABLED: boolean('false', 'Limit the requests of all clients together'),
  RATE_LIMITER_GLOBAL_POINTS: integer(
    '1000',
    1,
    1_000_000_000,
    'Requests of all clients per RATE_LIMITER_GLOBAL_DURATION',
  ),
  RATE_LIMITER_GLOBAL_DURATION: integer('1', 1, 86_400, 'Seconds after which the count starts again'),
  RATE_LIMITER_LOGIN_ENABLED: boolean('true', 'Limit the failed logins per IP address'),
  RATE_LIMITER_LOGIN_POINTS: integer(
    '25',
    1,
    1_000_000_000,
    'Failed logins per IP address and RATE_LIMITER_LOGIN_DURATION',
  ),
  RATE_LIMITER_LOGIN_DURATION: integer('60', 1, 86_400, 'Seconds after which the count starts again'),
  RATE_LIMITER_REGISTRATION_ENABLED: boolean('true', 'Limit the registrations per IP address'),
  RATE_LIMITER_REGISTRATION_POINTS: integer(
    '5',
    1,
    1_000_000_000,
    'Registrations per IP address and RATE_LIMITER_REGISTRATION_DURATION',
  ),
  RATE_LIMITER_REGISTRATION_DURATION: integer('60', 1, 86_400, 'Seconds after which the count starts again'),
  LOGIN_BACKOFF_AFTER: integer(
    '10',
    1,
    1_000_000,
    'Failed logins of one IP address, or for one account, after which further ones must wait',
  ),
  LOGIN_BACKOFF_MAX: duration(
    '30s',
    'Longest wait of an IP address after a failed login (it starts at 500ms and doubles; for one account it is at most 5s); 0 turns waiting off',
  ),
  LOG_LEVEL: choice('info', ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], 'Log level'),
  REQUEST_LOG: boolean('false', 'Log one line per completed request; always on with LOG_LEVEL debug or trace'),
  METRICS: choice('administrators', ['administrators', 'public', 'off'], 'Who may read GET /server/metrics'),
  METRICS_BY_ROUTE: boolean(
    'false',
    'Record durations of requests by route and status instead of by method only; adds about 2 kB to a scrape for each',
  ),
  QUERY_LIMIT_DEFAULT: integer('100', 1, 2_147_483_647, 'Items per list if a request sets no limit'),
  QUERY_LIMIT_MAX: optional(
    integer(null, 1, 2_147_483_647),
    'Highest limit that a request may set; if not set, unlimited',
  ),
  MAX_RELATIONAL_DEPTH: integer('10', 2, 100, 'Relations that a path may follow'),
  MAX_QUERY_NODES: integer('1000', 10, 100_000, 'Fields and relations that a request may select, wildcards included'),
  MAX_JSON_QUERY_DEPTH: integer('10', 1, 100, 'Steps that a path into a JSON value may have'),
  MAX_QUERY_COST: optional(
    integer(null, 1, 2_147_483_647),
    "Highest cost of a query as PostgreSQL's planner estimates it; if not set, unlimited",
  ),
  EXPLORER: boolean('true', 'Serve the Explorer, a page for browsers, at /explorer, and lead there from /'),
  GRAPHQL_INTROSPECTION: boolean('true', 'Answer introspection, and serve the schema as text and the GraphQL IDE'),
  GRAPHQL_QUERY_TOKEN_LIMIT: integer('5000', 1, 1_000_000, 'Tokens that a GraphQL document may have'),
  GRAPHQL_QUERY_DEPTH_LIMIT: integer('15', 1, 100, 'Nesting levels that a GraphQL document may have'),
  GRAPHQL_QUERY_NODE_LIMIT: integer(
    '1000',
    1,
    100_000,
    'Fields that a GraphQL document may select, with its fragments expanded',
  ),
  GRAPHQL_QUERY_ALIAS_LIMIT: integer(
    '200',
    0,
    100_000,
    'Aliases that a GraphQL document may have, with its fragments expanded',
  ),
  GRAPHQL_SCHEMA_CACHE_CAPACITY: integer('100', 1, 10_000, 'GraphQL schemas to cache, one per set of permissions'),
  GRAPHQL_ALLOW_LIST: optional(text(), 'File with a JSON list of GraphQL documents; if set, no others are run'),
  STREAM_ABOVE: integer('10000', 0, 2_147_483_647, 'Lists with a higher limit are streamed row by row'),
  MAX_RESPONSE_SIZE: size('64mb', 'Largest response that is not streamed, and largest batch of a streamed one'),
  RESPONSE_MEMORY: size(
    '128mb',
    'Memory for large responses that are sent at the same time, per thread; a response that does not fit is a 503',
  ),
  MAX_BATCH_MUTATION: optional(
    integer(null, 1, 2_147_483_647),
    'Items that a request may write, nested ones included; if not set, unlimited',
  ),
  IDEMPOTENCY_TTL: duration('1d', 'How long a request with an Idempotency-Key is remembered'),
  MAX_PAYLOAD_SIZE: size('1mb', 'Largest request body'),
  BODY_TIMEOUT: duration('30s', 'How long a request body, or the next part of a file to import, may take to arrive'),
  IMPORT_MAX_CONCURRENCY: integer('2', 1, 1_000, 'Imports that run at the same time'),
  IMPORT_MAX_FILE_SIZE: size('50mb', 'Largest file to import over HTTP'),
  MAX_IMPORT_ERRORS: integer('1000', 1, 1_000_000, 'Invalid rows after which an import stops'),
  MAX_URL_SIZE: size('64kb', 'Largest request head, URL included'),
  QUERYSTRING_MAX_PARSE_DEPTH: integer('10', 1, 100, 'Nested brackets that a query parameter may have'),
  QUERYSTRING_ARRAY_LIMIT: integer('500', 1, 100_000, 'Entries that a list in brackets may have'),
  SHAPE_CACHE_SIZE: integer('1000', 1, 1_000_000, 'Compiled statements to cache'),
  SHAPE_CACHE_MEMORY: size(
    '64mb',
    'Memory for compiled statements; those of writes and parsed GraphQL documents get half as much each',
  ),
  CALLER_LOOP_SHARE: integer(
    '10',
    0,
    100,
    "Percent of the event loop's time that one caller may use to compile new shapes and documents; administrators have no limit; 0 turns the limit off",
  ),
  CALLER_LOOP_BURST: duration('1s', 'Unused time of CALLER_LOOP_SHARE that a caller may save up'),
  SCHEMA_POLL_INTERVAL: duration(
    '2s',
    'How often the catalog is checked for changes if PostgreSQL allows no event trigger, or LISTEN does not work behind a pooler; 0 turns the check off',
  ),
  STATISTICS_POLL_INTERVAL: duration(
    '60s',
    'How often tables whose values are uneven are checked for new statistics of PostgreSQL; 0 turns the check off',
  ),
  MAX_STALENESS: duration(
    '30s',
    'Longest time until changes to users, policies and the schema by others are noticed if notifications do not arrive',
  ),
  SCHEMA_LOCK_TIMEOUT: duration(
    '300ms',
    "How long a schema change waits for a table's lock before it lets others pass and tries again",
  ),
  SCHEMA_CHANGE_TIMEOUT: duration('30s', 'How long a schema change keeps trying to lock a table'),
  COMPRESSION: encodings(
    'off',
    'Compress responses for clients that accept it: off, gzip, brotli, or both, the preferred one first (brotli,gzip)',
  ),
  COMPRESSION_MIN_SIZE: size('1kb', 'Smallest response that is compressed'),
  SERVER_TIMING: boolean('true', 'Send a Server-Timing header'),
  CORS_ENABLED: boolean('false', 'Answer cross-origin requests'),
  CORS_ORIGIN: text('false', 'Allowed origins: true (any), false (none), or a comma separated list'),
  CORS_METHODS: text('GET,POST,PATCH,DELETE,SEARCH', 'Methods allowed across origins'),
  CORS_ALLOWED_HEADERS: text(
    'Content-Type,Authorization,Idempotency-Key,If-None-Match,Lateral-Position,Prefer,X-Request-Id',
    'Request headers allowed across origins',
  ),
  CORS_EXPOSED_HEADERS: text(
    'Content-Range,Content-Disposition,ETag,Lateral-Position,Preference-Applied,Retry-After,X-Request-Id',
    'Response headers exposed across origins',
  ),
  CORS_CREDENTIALS: boolean('true', 'Allow credentials across origins'),
  CORS_MAX_AGE: integer('18000', 0, 2_147_483_647, 'Seconds for which a preflight response may be cached'),
  DRAIN_DELAY: duration('0', 'How long requests are still taken, while ready is 503, before the service stops'),
  SHUTDOWN_TIMEOUT: duration('10s', 'How long running requests may take to finish when the service stops'),
};

export type OptionName = keyof typeof OPTIONS;
export type Config = { readonly [Name in OptionName]: ReturnType<(typeof OPTIONS)[Name]['parse']> };

/** Reads the options from an environment; the first bad value stops the start with its name and what is wrong with it. */
type Environment = Readonly<Record<string, string | undefined>>;

/** Former names of options, which still work. */
const RENAMED: Readonly<Record<string, OptionName>> = {
  COHORTS: 'READ_BATCHING',
  STRUCTURE_LOCK_TIMEOUT: 'SCHEMA_LOCK_TIMEOUT',
  STRUCTURE_TIMEOUT: 'SCHEMA_CHANGE_TIMEOUT',
};

/** The former names that are used, with the present ones. */
export function renamedOptions(environment: Environment): (readonly [former: string, name: OptionName])[] {
  return Object.entries(RENAMED).filter(([former]) => (environment[former] ?? '') !== '');
}

function withPresentNames(environment: Environment): Environment {
  const former = renamedOptions(environment).map(([name, present]) => [present, environment[name]] as const);
  return former.length === 0 ? environment : { ...Object.fromEntries(former), ...environment };
}

export function readConfig(given: Environment): Config {
  const environment = withPresentNames(given);
  const config: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(OPTIONS) as [OptionName, Option<unknown>][]) {
    const value = (environment[name] || undefined) ?? option.initial;
    try {
      config[name] = value === null ? null : option.parse(value);
    } catch (error) {
      throw new StartError(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  // Elsewhere the system does not share connections out among those who listen.
  if (config['WORKERS'] === AUTOMATIC)
    config['WORKERS'] =
      process.platform === 'linux' ? workersFor(availableParallelism(), Number(config['DATABASE_POOL_SIZE'])) : 1;
  // The two say the same from here on: the first of the schemas is the one.
  const schemas = config['DATABASE_SCHEMAS'] as readonly string[];
  if (schemas.length === 0) config['DATABASE_SCHEMAS'] = [config['DATABASE_SCHEMA']];
  else config['DATABASE_SCHEMA'] = schemas[0];
  return Object.freeze(config) as Config;
}

export interface CommandLine {
  readonly operands: readonly string[];
  /** Those of the allowed switches that were given. */
  readonly switches: ReadonlySet<string>;
  /** `--port 9000` and `--port=9000` are PORT=9000. */
  readonly environment: Readonly<Record<string, string>>;
  /** What was given for options of the command itself, by their names. */
  readonly values: Readonly<Record<string, string>>;
}

const FLAGS = Object.fromEntries(
  [...Object.keys(OPTIONS), ...Object.keys(RENAMED)]
    .flatMap((name) => [name, name.toLowerCase().replaceAll('_', '-')])
    .map((flag) => [flag, { type: 'string' as const }]),
);

/** What is written behind a command, in any order. `own` are options of the command itself that take a value. */
export function readArguments(
  words: readonly string[],
  allowed: readonly string[] = [],
  own: readonly string[] = [],
): CommandLine {
  const options = {
    ...FLAGS,
    ...Object.fromEntries(allowed.map((name) => [name, { type: 'boolean' as const }])),
    ...Object.fromEntries(own.map((name) => [name, { type: 'string' as const }])),
  };
  const { tokens } = parseArgs({ args: [...words], options, strict: false, allowPositionals: true, tokens: true });
  const operands: string[] = [];
  const switches = new Set<string>();
  const environment: Record<string, string> = {};
  const values: Record<string, string> = {};
  for (const token of tokens) {
    if (token.kind === 'positional') operands.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    if (!Object.hasOwn(options, name)) throw new StartError(`unknown option "${rawName}": see lateral --help`);
    if (allowed.includes(name)) switches.add(name);
    else if (value === undefined) throw new StartError(`${rawName} needs a value`);
    else if (own.includes(name)) values[name] = value;
    else environment[name.replaceAll('-', '_').toUpperCase()] = value;
  }
  return { operands, switches, environment, values };
}

/** Of a command that takes nothing but options. */
export function readFlags(words: readonly string[]): CommandLine['environment'] {
  const { operands, environment } = readArguments(words);
  if (operands.length > 0) throw new StartError(`unknown option "${operands[0]}": see lateral --help`);
  return environment;
}

export interface OptionRow {
  readonly name: string;
  readonly initial: string;
  readonly about: string;
}

export function optionRows(): OptionRow[] {
  return Object.entries(OPTIONS).map(([name, option]) => ({
    name,
    initial: option.initial ?? '',
    about: option.about,
  }));
}
