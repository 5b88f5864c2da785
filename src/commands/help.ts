/** `lateral --help`: the commands and the options by topic, the most used options first. */
import { packageVersion } from '../base/package-files.js';
import { type OptionName, type OptionRow, optionRows } from '../config/config.js';

const COMMANDS = `Lateral ${packageVersion}: a REST and GraphQL API over PostgreSQL. One request, one statement.

Usage: lateral [COMMAND] [--option value ...]
       lateral COMMAND --help
       lateral --help | --version

Serve
  start       serves the API; this is the default command
  doctor      checks the database and says how to fix problems
  webhooks    lists, tests and pauses webhooks, and sends deliveries again
  live        makes or drops the triggers for live queries without the log of PostgreSQL
  files       finds stored files without a row, and rows without a stored file

Data and schema
  import      writes the rows of a JSON, NDJSON or CSV file to a collection
  schema      exports the schema to a file, compares it with a file, or applies a file
  relations   finds the relations that foreign keys imply
  types       prints the collections as a TypeScript schema for @directus/sdk
  adopt       takes over an installation of Directus in the same database

Plans and indexes
  explain     prints the SQL of a read, its parameters and PostgreSQL's plan
  statistics  writes what the planner knows about a database to a file, without rows
  plans       plans recorded requests on an empty twin of a database, and fails if a plan got worse
  advise      proposes indexes for recorded requests, each tried on the twin

Traffic
  record      records the traffic of a running service
  replay      sends recorded traffic to a service, and checks limits of latency and errors
  capacity    finds the highest rate of recorded traffic within limits, and what limits it

Examples
  lateral --database-url postgres://user:password@localhost/shop
  lateral explain "GET /items/articles?fields=title,author.name&limit=5"
  lateral import articles.csv

Exit codes: 0 done, 1 failed or a check found a problem, 2 wrong command line or option value.
`;

/** Options as environment variables or flags. */
export function help(): string {
  const topics = optionTopics();
  const width = Math.max(...topics.flatMap(({ rows }) => rows.map(({ name }) => name.length)));
  const sections = topics.map(({ title, rows }) => {
    const lines = rows.map(({ name, about, initial }) => {
      const shown = initial === '' ? '' : ` [${initial}]`;
      return `  ${name.padEnd(width)}  ${about}${shown}`;
    });
    return `${title}\n${lines.join('\n')}`;
  });
  return `${COMMANDS}\nOptions, as environment variables or flags (PORT=9000 or --port 9000)\n\n${sections.join('\n\n')}`;
}

/** The options that most installations set. */
const MOST_USED: readonly OptionName[] = [
  'DATABASE_URL',
  'DATABASE_SCHEMA',
  'HOST',
  'PORT',
  'WORKERS',
  'PUBLIC_URL',
  'SECRET',
  'ADMIN_EMAIL',
  'ADMIN_PASSWORD',
  'LOG_LEVEL',
];

/** The first topic whose pattern fits the name has the option. */
const TOPICS: readonly (readonly [topic: string, pattern: RegExp])[] = [
  ['Start', /^(DATA_DIR|DEMO_DATA|ADMIN_TOKEN|EXPLORER|DIRECTUS_|EXTENSION)/],
  ['Listen, stop and reply', /^(REUSE_PORT|ADMIN_(HOST|PORT)|COMPRESSION|SERVER_TIMING|DRAIN_|SHUTDOWN_|BODY_TIMEOUT)/],
  ['Database', /^(DATABASE_|SYSTEM_SCHEMA|REPLICA_|POSTGREST_|SCHEMA_|STATISTICS_)/],
  [
    'Reads and writes',
    /^(QUERY|STRICT_|MAX_(RELATIONAL|QUERY|JSON|RESPONSE|BATCH|URL|PAYLOAD|STALENESS)|RESPONSE_|STREAM_|IDEMPOTENCY_)/,
  ],
  ['Batching and caches', /^(READ_|WRITE_|SHAPE_|CALLER_)/],
  ['GraphQL', /^GRAPHQL_/],
  ['Accounts and tokens', /^(JWT_|AUTH_|ACCESS_|REFRESH_|SESSION_|LOGIN_STALL|REGISTER_|EMAIL_|PASSWORD_|USER_)/],
  ['Cross-origin requests (CORS)', /^CORS_/],
  ['Addresses and rate limits', /^(IP_|RATE_|LOGIN_BACKOFF)/],
  ['Files and imports', /^(STORAGE_|FILES_|ASSETS_|IMPORT_|MAX_IMPORT)/],
  ['Live queries and WebSockets', /^(LIVE|WEBSOCKETS_)/],
  ['Webhooks', /^WEBHOOK/],
  ['Agents', /^MCP/],
  ['Logs, metrics and traces', /^(REQUEST_LOG|METRICS|OTEL_)/],
];

interface OptionTopic {
  readonly title: string;
  readonly rows: readonly OptionRow[];
}

/** The most used options come first. Each option has one topic. */
export function optionTopics(): OptionTopic[] {
  const rows = optionRows();
  const first = MOST_USED.flatMap((name) => rows.filter((row) => row.name === name));
  const rest = rows.filter((row) => !first.includes(row));
  const topicOf = ({ name }: OptionRow): string => TOPICS.find(([, pattern]) => pattern.test(name))?.[0] ?? 'Other';
  return [
    { title: 'Most used', rows: first },
    ...[...TOPICS.map(([topic]) => topic), 'Other'].map((title) => ({
      title,
      rows: rest.filter((row) => topicOf(row) === title),
    })),
  ].filter((topic) => topic.rows.length > 0);
}
