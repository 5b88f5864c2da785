/**
 * Every option of the service, as one table. Features have their own. `--help`, the table in docs/configuration.md and the parsing of environment
 * and flags are all derived from it, so an option cannot exist undocumented.
 */
import { databaseSettings } from './database-settings.js';
import { jwtIssuers } from './issuer-options.js';

import {
  anyText,
  boolean,
  choice,
  connection,
  connections,
  cookieName,
  divided,
  domain,
  duration,
  encodings,
  headerName,
  headers,
  integer,
  names,
  optional,
  ratio,
  redis,
  size,
  text,
  token,
  url,
  wholeNumber,
  workers,
} from './option-kinds.js';

const SECURE = 'Send the cookie over TLS only; auto: if PUBLIC_URL or a trusted proxy says https';

export const OPTIONS = {
  HOST: text('127.0.0.1', 'Address to listen on'),
  PORT: integer('8055', 0, 65_535, 'Port to listen on; 0 picks a free one'),
  REUSE_PORT: boolean('false', 'Share the port with other processes, so that a new one can take over (Linux)'),
  SERVER: choice(
    'auto',
    ['auto', 'uws', 'node'],
    'Server of requests: uws is uWebSockets, node is node:http, which is slower; auto: uWebSockets where it loads',
  ),
  ADMIN_HOST: text('127.0.0.1', 'Address of the admin listener; it requires no token'),
  ADMIN_PORT: optional(
    wholeNumber(0, 65_535),
    'Port of the admin listener: ping, ready, health and metrics for load balancers and scrapers, also over HTTP/1.0; 0 picks a free one; off if not set',
  ),
  WORKERS: workers(
    '1',
    'Threads that serve the port and share the connections to PostgreSQL (more than one on Linux only); auto: by processors and connections',
  ),
  DATABASE_URL: optional(
    connection,
    'Database to serve (postgres://user:password@host:port/database); several hosts (host:port,host:port) for failover; if not set, an embedded PostgreSQL is started',
  ),
  DATABASE_REPLICA_URLS: connections(
    'Standbys of the database that serve reads (postgres://...), comma separated; each URL must lead to exactly one server, not to a balancer; each gets as many connections for reads and streams as the database itself',
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
    'Pooler between the service and PostgreSQL, by its mode (PgBouncer: pool_mode); auto detects it at startup',
  ),
  DATABASE_DIRECT_URL: optional(
    connection,
    'PostgreSQL itself, without the pooler, for LISTEN and migrations, with one host or several; if not set and DATABASE_POOLER is transaction, changes are polled',
  ),
  DATABASE_SCHEMA: text('public', 'Schema to serve'),
  DATABASE_SCHEMAS: names(
    'Schemas to serve, comma separated: collections of the first have the names of their tables, of the others schema_table; if not set, DATABASE_SCHEMA',
  ),
  SYSTEM_SCHEMA: optional(
    anyText,
    "Schema of the service's own tables, created if missing; if not set, the first schema that is served, or lateral if one of their names is taken there",
  ),
  DATABASE_CALLER: choice(
    'service',
    ['service', 'claims', 'role'],
    "The caller as PostgreSQL sees it: the service (service), the service with the caller's claims (claims), or the caller's database role with these claims (role) (see docs/row-level-security.md)",
  ),
  DATABASE_CLAIMS: names(
    'Claims of tokens of JWT_ISSUERS that request.jwt.claims contains, comma separated; sub and email replace those of the user',
  ),
  DATABASE_SETTINGS: databaseSettings(
    'Settings with facts about the caller, under names of your own: app.tenant=claim:tenant,app.user=user; needs DATABASE_CALLER=claims or role (see docs/row-level-security.md)',
  ),
  DATABASE_ROLES: names('Database roles that the role claim of a token of JWT_ISSUERS may name, comma separated'),
  DATABASE_ANON_ROLE: optional(anyText, 'Database role of callers who are not logged in'),
  POSTGREST_ERRORS: boolean(
    'false',
    "Send the status that a function or trigger asks for as in PostgREST: 402 for raise sqlstate 'PT402'",
  ),
  DATABASE_POOL_SIZE: divided(integer('8', 1, 1_000, 'Connections to PostgreSQL for reads')),
  DATABASE_WRITE_POOL_SIZE: divided(
    integer('8', 1, 1_000, 'Connections to PostgreSQL for writes; each write uses one'),
  ),
  DATABASE_STREAM_POOL_SIZE: divided(
    integer('4', 1, 1_000, 'Connections to PostgreSQL for streamed lists and exports; each stream uses one'),
  ),
  READ_BATCHING: {
    ...boolean('true', 'Combine waiting reads of the same shape into one statement'),
    formerly: 'COHORTS',
  },
  WRITE_BATCHING: boolean('true', 'Combine waiting writes of single rows into one statement'),
  DATABASE_WAIT_TIMEOUT: duration('30s', 'How long a request waits for a free connection to PostgreSQL'),
  DATABASE_STATEMENT_TIMEOUT: duration(
    '30s',
    'How long a statement may run before PostgreSQL cancels it; 0 for no limit',
  ),
  DATABASE_CONNECT_TIMEOUT: duration('10s', 'How long opening a connection to PostgreSQL may take'),
  DATABASE_START_TIMEOUT: duration('60s', 'How long the start waits for a database that cannot be reached'),
  ADMIN_EMAIL: text('admin@example.com', 'Email address of the first administrator'),
  ADMIN_PASSWORD: optional(anyText, 'Password of the first administrator; if not set, generated and printed once'),
  ADMIN_TOKEN: optional(token, 'Static token of the first administrator; if not set, generated and printed once'),
  SECRET: optional(
    anyText,
    'Key that signs tokens, the same for all instances; if not set, generated and kept in DATA_DIR, or, with DATABASE_URL, generated at each start',
  ),
  PUBLIC_URL: optional(url, 'URL at which clients reach the service; for links in emails and for cookies'),
  JWT_ISSUERS: jwtIssuers(
    'Issuers whose access tokens are accepted, as a JSON list: issuer, jwks_url, audience, and how a token names its user (see docs/sign-in.md)',
  ),
  ACCESS_TOKEN_TTL: duration('15m', 'How long an access token is valid'),
  REFRESH_TOKEN_TTL: duration('7d', 'How long a refresh token is valid'),
  REFRESH_TOKEN_COOKIE_NAME: cookieName(
    'service_refresh_token',
    'Name of the refresh cookie; with DIRECTUS_COMPATIBILITY, directus_refresh_token if not set',
  ),
  REFRESH_TOKEN_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  REFRESH_TOKEN_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the refresh cookie'),
  REFRESH_TOKEN_COOKIE_DOMAIN: optional(domain, 'Domain of the refresh cookie; if not set, the host of the request'),
  SESSION_COOKIE_TTL: duration('1d', 'How long a session is valid'),
  SESSION_COOKIE_NAME: cookieName(
    'service_session_token',
    'Name of the session cookie; with DIRECTUS_COMPATIBILITY, directus_session_token if not set',
  ),
  SESSION_COOKIE_SECURE: choice('auto', ['auto', 'true', 'false'], SECURE),
  SESSION_COOKIE_SAME_SITE: choice('lax', ['lax', 'strict', 'none'], 'SameSite of the session cookie'),
  SESSION_COOKIE_DOMAIN: optional(domain, 'Domain of the session cookie; if not set, the host of the request'),
  SESSION_REFRESH_GRACE_PERIOD: duration('10s', 'How long the former session stays valid after a refresh'),
  LOGIN_STALL_TIME: duration('500ms', 'Minimum duration of a failed login or a password reset request'),
  EMAIL_TRANSPORT: optional(
    anyText,
    'Module that exports send({to, subject, text}) to send an email; if not set, links are logged',
  ),
  PASSWORD_RESET_URL_ALLOW_LIST: text('', 'Pages allowed as reset_url (origin and path), comma separated'),
  IP_TRUST_PROXY: text(
    'false',
    'Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: false, true (all), how many, or a list of addresses, networks, loopback, linklocal, uniquelocal',
  ),
  IP_CUSTOM_HEADER: optional(
    headerName,
    "Header in which a trusted proxy sends the client's address; if not set, X-Forwarded-For",
  ),
  RATE_LIMITER_STORE: choice(
    'memory',
    ['memory', 'postgres', 'redis'],
    'Where requests, logins and registrations are counted: memory (each instance separately), or postgres or redis (all instances together)',
  ),
  RATE_LIMITER_REDIS_URL: optional(
    redis,
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
  METRICS: choice('administrators', ['administrators', 'public', 'off'], 'Access to GET /server/metrics'),
  METRICS_BY_ROUTE: boolean(
    'false',
    'Record durations of requests by route and status instead of by method only; adds about 2 kB to a scrape for each',
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: optional(
    url,
    'OpenTelemetry collector that gets traces by OTLP over HTTP (http://host:4318); if not set, no traces',
  ),
  OTEL_EXPORTER_OTLP_HEADERS: headers('Headers for the collector (name=value), comma separated, percent-encoded'),
  OTEL_SERVICE_NAME: text('lateral', 'Name of the service in traces'),
  OTEL_TRACES_SAMPLER_ARG: ratio(
    '1',
    'Share of requests (0 to 1) that are traced; for a request with a traceparent header, the header decides',
  ),
  QUERY_LIMIT_DEFAULT: integer('100', 1, 2_147_483_647, 'Items per list if a request sets no limit'),
  QUERY_LIMIT_MAX: optional(
    wholeNumber(1, 2_147_483_647),
    'Highest limit that a request may set; if not set, unlimited',
  ),
  STRICT_PARAMETERS: boolean(
    'false',
    'Refuse URLs with unknown query parameters; a request asks for it with "Prefer: handling=strict"',
  ),
  MAX_RELATIONAL_DEPTH: integer('10', 2, 100, 'Relations that a path may follow'),
  MAX_QUERY_NODES: integer(
    '1000',
    10,
    100_000,
    'Cost of the fields of a request, wildcards included: 1 for four fields or for a related item, 5 for a list of related items, 20 for a relation in a filter',
  ),
  MAX_JSON_QUERY_DEPTH: integer('10', 1, 100, 'Steps that a path into a JSON value may have'),
  MAX_QUERY_COST: optional(
    wholeNumber(1, 2_147_483_647),
    "Highest cost of a read, and of the query that selects the items of a change, as PostgreSQL's planner estimates it; if not set, unlimited",
  ),
  GRAPHQL_INTROSPECTION: boolean('true', 'Allow introspection, and serve the schema as SDL and the GraphQL IDE'),
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
  GRAPHQL_ALLOW_LIST: optional(anyText, 'File with a JSON list of GraphQL documents; if set, no others are run'),
  STREAM_ABOVE: integer('10000', 0, 2_147_483_647, 'Lists with a higher limit are streamed row by row'),
  MAX_RESPONSE_SIZE: size('64mb', 'Largest response that is not streamed, and largest row of a streamed response'),
  RESPONSE_MEMORY: size(
    '128mb',
    'Memory for large responses that are sent at the same time, per thread; a response that does not fit is a 503',
  ),
  MAX_BATCH_MUTATION: optional(
    wholeNumber(1, 2_147_483_647),
    'Items that a request may write, nested ones included; if not set, one per 4 kB of the largest heap of Node',
  ),
  IDEMPOTENCY_TTL: duration('1d', 'How long a request with an Idempotency-Key is remembered'),
  MAX_PAYLOAD_SIZE: size('1mb', 'Largest request body'),
  BODY_TIMEOUT: duration('30s', 'How long a request body, or the next part of a file to import, may take to arrive'),
  IMPORT_MAX_CONCURRENCY: divided(integer('2', 1, 1_000, 'Imports that run at the same time')),
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
    'How often PostgreSQL is checked for new statistics of tables with skewed values; 0 turns the check off',
  ),
  MAX_STALENESS: duration(
    '30s',
    'How long an instance may use old users, policies and schema if it gets no notification of a change',
  ),
  SCHEMA_LOCK_TIMEOUT: {
    ...duration(
      '300ms',
      "How long a schema change waits for a table's lock before it releases its locks and tries again",
    ),
    formerly: 'STRUCTURE_LOCK_TIMEOUT',
  },
  SCHEMA_CHANGE_TIMEOUT: {
    ...duration('30s', 'How long a schema change keeps trying to lock a table'),
    formerly: 'STRUCTURE_TIMEOUT',
  },
  READ_CACHE_SIZE: size(
    '0',
    'Memory per thread for answers of reads, which are kept until a commit changes them; 0 keeps none; needs LIVE',
    1_048_576,
  ),
  READ_CACHE_MAX_LAG: duration(
    '1s',
    'How far answers from memory may be behind the commits of others; if changes arrive later, reads go to PostgreSQL',
    20,
  ),
  COMPRESSION: encodings(
    'off',
    'Compress responses for clients that accept it: off, gzip, brotli, or both, the preferred one first (brotli,gzip)',
  ),
  COMPRESSION_MIN_SIZE: size('1kb', 'Smallest response that is compressed'),
  SERVER_TIMING: choice(
    'administrators',
    ['administrators', 'true', 'false'],
    'Callers who get a Server-Timing header: administrators, true (everybody) or false (nobody). true also sends Cache-Status to everybody',
  ),
  CORS_ENABLED: boolean('false', 'Answer cross-origin requests'),
  CORS_ORIGIN: text('false', 'Allowed origins: true (any), false (none), or a comma separated list'),
  CORS_METHODS: text('GET,POST,PATCH,DELETE,SEARCH,QUERY', 'Methods allowed across origins'),
  CORS_ALLOWED_HEADERS: text(
    'Content-Type,Authorization,Cache-Control,Idempotency-Key,If-Match,If-None-Match,Lateral-Position,Mcp-Protocol-Version,Mcp-Session-Id,Prefer,X-Request-Id',
    'Request headers allowed across origins',
  ),
  CORS_EXPOSED_HEADERS: text(
    'Cache-Status,Content-Range,Content-Disposition,ETag,Lateral-Position,Mcp-Session-Id,Preference-Applied,Retry-After,X-Request-Id',
    'Response headers exposed across origins',
  ),
  CORS_CREDENTIALS: boolean('true', 'Allow credentials across origins'),
  CORS_MAX_AGE: integer('18000', 0, 2_147_483_647, 'Seconds for which a preflight response may be cached'),
  DRAIN_DELAY: duration('0', 'How long requests are still accepted, while ready is 503, before the service stops'),
  SHUTDOWN_TIMEOUT: duration('10s', 'How long running requests may take to finish when the service stops'),
};
