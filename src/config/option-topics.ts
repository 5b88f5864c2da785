/** The options by topic, for `lateral --help` and docs/configuration.md. */
import { type OptionName, type OptionRow, optionRows } from './config.js';

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

export interface OptionTopic {
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
