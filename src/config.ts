/**
 * Every option of the service, as one table. `--help`, the table in docs/configuration.md and the parsing of environment
 * and flags are all derived from it, so an option cannot exist undocumented.
 */
import { availableParallelism } from 'node:os';
import { StartError } from './errors.js';
import {
  AUTOMATIC,
  boolean,
  choice,
  connection,
  cookieName,
  domain,
  duration,
  encodings,
  headerName,
  integer,
  type Option,
  optional,
  size,
  text,
  token,
  url,
  workers,
  workersFor,
} from './options.js';

const SECURE = 'Send the cookie over TLS alone; auto: where PUBLIC_URL or a trusted proxy says https';

const OPTIONS = {
  HOST: text('127.0.0.1', 'Address to listen on'),
  PORT: integer('8055', 0, 65_535, 'Port to listen on; 0 takes a free one'),
  ADMIN_HOST: text('127.0.0.1', 'Address of the admin listener; who can reach it needs no token'),
  ADMIN_PORT: optional(
    integer(null, 0, 65_535),
    'Port of the admin listener: ping, ready, health and metrics for balancers and scrapers, also over HTTP/1.0; 0 takes a free one, off when absent',
  ),
  WORKERS: workers(
    '1',
    'Threads that serve the port and share its connections to PostgreSQL (on Linux); auto: by processors and connections',
  ),
  DATABASE_URL: optional(
    connection(),
    'PostgreSQL to mirror (postgres://user:password@host:port/database); without it an embedded server is started',
  ),
  DATABASE_SCHEMA: text('public', 'Schema that is mirrored'),
  SYSTEM_SCHEMA: optional(
    text(),
    "Schema of the service's own tables, made where it is missing; when absent DATABASE_SCHEMA, or lateral where one of their names is taken",
  ),
  DATABASE_POOL_SIZE: integer('8', 1, 1_000, 'Connections to PostgreSQL for reads'),
  DATABASE_WRITE_POOL_SIZE: integer('8', 1, 1_000, 'Connections to PostgreSQL for writes; each write holds one'),
  DATABASE_STREAM_POOL_SIZE: integer(
    '4',
    1,
    1_000,
    'Connections for streamed lists and exports; each stream holds one',
  ),
  READ_BATCHING: boolean('true', 'Send reads of one shape that wait for a connection as one statement'),
  DATABASE_WAIT_TIMEOUT: duration('30s', 'Time a request waits for a connection to PostgreSQL'),
  DATABASE_STATEMENT_TIMEOUT: duration(
    '30s',
    'Time after which PostgreSQL gives up on a statement; 0 turns the limit off',
  ),
  DATABASE_CONNECT_TIMEOUT: duration('10s', 'Time to wait for a connection to PostgreSQL'),
  DATABASE_START_TIMEOUT: duration('60s', 'Time for which a start waits for a database that cannot be reached'),
  DATA_DIR: text('./data', 'Folder of the embedded server'),
  DEMO_DATA: boolean('true', 'Load the demo model into a new embedded database'),
  ADMIN_EMAIL: text('admin@example.com', 'Address of the first administrator'),
  ADMIN_PASSWORD: optional(text(), 'Password of the first administrator; made up and printed once when absent'),
  ADMIN_TOKEN: optional(token(), 'Static token of the first administrator; made up and printed once when absent'),
  SECRET: optional(
    text(),
    'Key that tokens are signed with, the same for all instances; kept in DATA_DIR, or made up anew at each start, when absent',
  ),
  PUBLIC_URL: optional(url(), 'Address under which clients reach the service; for links in mails and for cookies'),
  ACCESS_TOKEN_TTL: duration('15m', 'How long an access token is good'),
  REFRESH_TOKEN_TTL: duration('7d', 'How long a refresh token is good'),
  REFRESH_TOKEN_COOKIE_NAME: cookieName('service_refresh_token', 'Cookie of the refresh token'),
  REFRESH_TOKEN_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  REFRESH_TOKEN_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the refresh cookie'),
  REFRESH_TOKEN_COOKIE_DOMAIN: optional(domain(), 'Domain of the refresh cookie; the host of the request when absent'),
  SESSION_COOKIE_TTL: duration('1d', 'How long a session is good'),
  SESSION_COOKIE_NAME: cookieName('service_session_token', 'Cookie of the session'),
  SESSION_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  SESSION_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the session cookie'),
  SESSION_COOKIE_DOMAIN: optional(domain(), 'Domain of the session cookie; the host of the request when absent'),
  SESSION_REFRESH_GRACE_PERIOD: duration('10s', 'How long a session is good after it was renewed'),
  LOGIN_STALL_TIME: duration('500ms', 'Least time that a refused login, or a request for a new password, takes'),
  REGISTER_STALL_TIME: duration('750ms', 'Least time that a registration takes'),
  EMAIL_TRANSPORT: optional(
    text(),
    'Module whose function send({to, subject, text}) sends a mail; without one the links are logged',
  ),
  PASSWORD_RESET_URL_ALLOW_LIST: text('', 'Pages that reset_url may name, comma separated'),
  USER_INVITE_URL_ALLOW_LIST: text('', 'Pages that invite_url may name, comma separated'),
  USER_REGISTER_URL_ALLOW_LIST: text('', 'Pages that verification_url may name, comma separated'),
  IP_TRUST_PROXY: text(
    'false',
    'Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: false, true (all), how many, or a list of addresses, networks, loopback, linklocal, uniquelocal',
  ),
  IP_CUSTOM_HEADER: optional(
    headerName(),
    'Header in which a trusted proxy names the client; X-Forwarded-For when absent',
  ),
  RATE_LIMITER_ENABLED: boolean('false', 'Limit the requests of each address'),
  RATE_LIMITER_POINTS: integer('50', 1, 1_000_000_000, 'Requests one address may make in the duration'),
  RATE_LIMITER_DURATION: integer('1', 1, 86_400, 'Seconds after which the count begins anew'),
  RATE_LIMITER_GLOBAL_ENABLED: boolean('false', 'Limit the requests of all addresses together'),
  RATE_LIMITER_GLOBAL_POINTS: integer('1000', 1, 1_000_000_000, 'Requests all addresses may make in the duration'),
  RATE_LIMITER_GLOBAL_DURATION: integer('1', 1, 86_400, 'Seconds after which the count begins anew'),
  RATE_LIMITER_LOGIN_ENABLED: boolean('true', 'Limit how often one address may fail to log in'),
  RATE_LIMITER_LOGIN_POINTS: integer('25', 1, 1_000_000_000, 'Failures one address may have in the duration'),
  RATE_LIMITER_LOGIN_DURATION: integer('60', 1, 86_400, 'Seconds after which the count begins anew'),
  RATE_LIMITER_REGISTRATION_ENABLED: boolean('true', 'Limit how often one address may register'),
  RATE_LIMITER_REGISTRATION_POINTS: integer(
    '5',
    1,
    1_000_000_000,
    'Registrations one address may send in the duration',
  ),
  RATE_LIMITER_REGISTRATION_DURATION: integer('60', 1, 86_400, 'Seconds after which the count begins anew'),
  LOGIN_BACKOFF_AFTER: integer(
    '10',
    1,
    1_000_000,
    'Failed logins of one address, or for one account, after which the next ones must wait',
  ),
  LOGIN_BACKOFF_MAX: duration(
    '30s',
    'Longest wait of an address after a failed login, which begins with half a second and doubles; for one account 5s at most; 0 turns it off',
  ),
  LOG_LEVEL: choice('info', ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], 'How much is logged'),
  METRICS: choice('administrators', ['administrators', 'public', 'off'], 'Who may read GET /server/metrics'),
  METRICS_BY_ROUTE: boolean(
    'false',
    'Tell the durations of requests by route and status, not by method alone: about 2 kB in a scrape for each',
  ),
  QUERY_LIMIT_DEFAULT: integer('100', 1, 2_147_483_647, 'Items per list when a request names no limit'),
  QUERY_LIMIT_MAX: optional(integer(null, 1, 2_147_483_647), 'Highest limit a request may name; unlimited when absent'),
  MAX_RELATIONAL_DEPTH: integer('10', 2, 100, 'Relations a path may follow'),
  MAX_QUERY_NODES: integer('1000', 10, 100_000, 'Fields and relations one request may select, wildcards included'),
  MAX_JSON_QUERY_DEPTH: integer('10', 1, 100, 'Steps a path into a JSON value may have'),
  MAX_QUERY_COST: optional(
    integer(null, 1, 2_147_483_647),
    "Highest cost, as PostgreSQL's planner estimates it, that a query may have; unlimited when absent",
  ),
  GRAPHQL_INTROSPECTION: boolean('true', 'Answer introspection, serve the schema as text and the GraphQL IDE'),
  GRAPHQL_QUERY_TOKEN_LIMIT: integer('5000', 1, 1_000_000, 'Tokens a GraphQL document may have'),
  GRAPHQL_QUERY_DEPTH_LIMIT: integer('15', 1, 100, 'Levels a GraphQL document may nest'),
  GRAPHQL_QUERY_NODE_LIMIT: integer('1000', 1, 100_000, 'Fields a GraphQL document may select, fragments spread'),
  GRAPHQL_QUERY_ALIAS_LIMIT: integer('200', 0, 100_000, 'Aliases a GraphQL document may have, fragments spread'),
  GRAPHQL_SCHEMA_CACHE_CAPACITY: integer('100', 1, 10_000, 'GraphQL schemas to keep, one per set of rights'),
  GRAPHQL_ALLOW_LIST: optional(text(), 'File with a JSON list of GraphQL documents; when set, no others run'),
  STREAM_ABOVE: integer('10000', 0, 2_147_483_647, 'Lists with a higher limit are streamed row by row'),
  MAX_RESPONSE_SIZE: size('64mb', 'Largest answer that is not streamed, and largest batch of one that is'),
  RESPONSE_MEMORY: size(
    '128mb',
    'Memory for large answers that are on their way together, per thread; what finds no room is 503',
  ),
  MAX_BATCH_MUTATION: optional(
    integer(null, 1, 2_147_483_647),
    'Items one request may write, nested ones included; unlimited when absent',
  ),
  IDEMPOTENCY_TTL: duration('1d', 'How long a request with an Idempotency-Key is remembered'),
  MAX_PAYLOAD_SIZE: size('1mb', 'Largest request body'),
  BODY_TIMEOUT: duration('30s', 'Time in which a request body, or the next piece of a file to import, must arrive'),
  IMPORT_MAX_CONCURRENCY: integer('2', 1, 1_000, 'Imports that run at the same time'),
  IMPORT_MAX_FILE_SIZE: size('50mb', 'Largest file to import over HTTP'),
  MAX_IMPORT_ERRORS: integer('1000', 1, 1_000_000, 'Wrong rows after which an import gives up'),
  MAX_URL_SIZE: size('64kb', 'Largest request head, URL included'),
  QUERYSTRING_MAX_PARSE_DEPTH: integer('10', 1, 100, 'Brackets a query parameter may nest'),
  QUERYSTRING_ARRAY_LIMIT: integer('500', 1, 100_000, 'Entries a bracketed list may have'),
  SHAPE_CACHE_SIZE: integer('1000', 1, 1_000_000, 'Compiled statements to keep'),
  SHAPE_CACHE_MEMORY: size(
    '64mb',
    'Memory for compiled statements; those of writes and GraphQL documents have half as much each',
  ),
  CALLER_LOOP_SHARE: integer(
    '10',
    0,
    100,
    'Percent of the event loop that one caller may use for shapes and documents that are new; administrators have no limit, 0 turns it off',
  ),
  CALLER_LOOP_BURST: duration('1s', 'Time of the event loop that a caller may save up for them'),
  SCHEMA_POLL_INTERVAL: duration(
    '2s',
    'How often the catalog is checked where PostgreSQL allows no event trigger; 0 turns the check off',
  ),
  MAX_STALENESS: duration(
    '30s',
    'Longest time that changes of users, policies and structure by others stay unnoticed where word of them does not arrive',
  ),
  STRUCTURE_LOCK_TIMEOUT: duration(
    '300ms',
    'Time a change of the structure waits for a table before it lets others pass and tries again',
  ),
  STRUCTURE_TIMEOUT: duration('30s', 'Time after which a change of the structure gives up on a table in use'),
  COMPRESSION: encodings(
    'off',
    'Compress bodies for clients that ask for it: off, gzip, brotli, or both, the preferred one first (brotli,gzip)',
  ),
  COMPRESSION_MIN_SIZE: size('1kb', 'Bodies that are smaller are not compressed'),
  SERVER_TIMING: boolean('true', 'Send a Server-Timing header'),
  CORS_ENABLED: boolean('false', 'Answer cross-origin requests'),
  CORS_ORIGIN: text('false', 'Allowed origins: true (any), false (none), or a comma separated list'),
  CORS_METHODS: text('GET,POST,PATCH,DELETE,SEARCH', 'Methods allowed across origins'),
  CORS_ALLOWED_HEADERS: text(
    'Content-Type,Authorization,Idempotency-Key,If-None-Match,Prefer,X-Request-Id',
    'Request headers allowed across origins',
  ),
  CORS_EXPOSED_HEADERS: text(
    'Content-Range,Content-Disposition,ETag,Retry-After,X-Request-Id',
    'Response headers shown across origins',
  ),
  CORS_CREDENTIALS: boolean('true', 'Allow credentials across origins'),
  CORS_MAX_AGE: integer('18000', 0, 2_147_483_647, 'Seconds a preflight answer may be kept'),
  SHUTDOWN_TIMEOUT: duration('10s', 'Time that running requests get to finish when the service stops'),
};

export type OptionName = keyof typeof OPTIONS;
export type Config = { readonly [Name in OptionName]: ReturnType<(typeof OPTIONS)[Name]['parse']> };

/** Reads the options from an environment; the first bad value stops the start with its name and what is wrong with it. */
type Environment = Readonly<Record<string, string | undefined>>;

/** Former names of options, which still work. */
const RENAMED: Readonly<Record<string, OptionName>> = { COHORTS: 'READ_BATCHING' };

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
      process.platform === 'linux' ? workersFor(availableParallelism(), config['DATABASE_POOL_SIZE'] as number) : 1;
  return Object.freeze(config) as Config;
}

/** `--port 9000` and `--port=9000` are PORT=9000. */
export function readFlags(flags: readonly string[]): Record<string, string> {
  const environment: Record<string, string> = {};
  for (let position = 0; position < flags.length; position++) {
    const [flag = '', inline] = (flags[position] ?? '').split(/=(.*)/s, 2);
    const name = flag.startsWith('--') ? flag.slice(2).replaceAll('-', '_').toUpperCase() : '';
    if (!(name in OPTIONS || name in RENAMED)) throw new StartError(`unknown option "${flag}": see lateral --help`);
    const value = inline ?? flags[++position];
    if (value === undefined) throw new StartError(`${flag} needs a value`);
    environment[name] = value;
  }
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
