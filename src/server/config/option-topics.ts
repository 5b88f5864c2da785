/** The options by topic, the most used options first: the order of `lateral --help` and of docs/configuration.md. */
import type { Config, OptionRow } from './config.js';

/** The options that most installations set. */
const MOST_USED: readonly (keyof Config)[] = [
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

/** The first topic whose pattern fits the name has the option, unless its feature names another. */
const TOPICS: readonly (readonly [topic: string, pattern: RegExp])[] = [
  ['Start', /^ADMIN_TOKEN/],
  [
    'Listen, stop and reply',
    /^(SERVER$|REUSE_PORT|ADMIN_(HOST|PORT)|COMPRESSION|SERVER_TIMING|DRAIN_|SHUTDOWN_|BODY_TIMEOUT)/,
  ],
  ['Database', /^(DATABASE_|SYSTEM_SCHEMA|REPLICA_|POSTGREST_|SCHEMA_|STATISTICS_)/],
  [
    'Reads and writes',
    /^(QUERY|STRICT_|MAX_(RELATIONAL|QUERY|JSON|RESPONSE|BATCH|URL|PAYLOAD|STALENESS)|RESPONSE_|STREAM_|IDEMPOTENCY_)/,
  ],
  ['Batching and caches', /^(READ_|WRITE_|SHAPE_|CALLER_)/],
  ['GraphQL', /^GRAPHQL_/],
  ['Accounts and tokens', /^(JWT_|AUTH_|ACCESS_|REFRESH_|SESSION_|LOGIN_STALL|EMAIL_|PASSWORD_)/],
  ['Cross-origin requests (CORS)', /^CORS_/],
  ['Addresses and rate limits', /^(IP_|RATE_|LOGIN_BACKOFF)/],
  ['Files and imports', /^IMPORT_/],
  ['Live queries and WebSockets', /^LIVE/],
];
const LOGS: (typeof TOPICS)[number] = ['Logs, metrics and traces', /^(REQUEST_LOG|METRICS|OTEL_)/];

interface OptionTopic {
  readonly title: string;
  readonly rows: readonly OptionRow[];
}

/** Each option has one topic. Topics that only features name stand before that of the log. */
export function topicsOf(all: readonly OptionRow[]): OptionTopic[] {
  const first = MOST_USED.flatMap((name) => all.filter((row) => row.name === name));
  const rest = all.filter((row) => !first.includes(row));
  const topicOf = ({ name, topic }: OptionRow): string =>
    topic ?? [...TOPICS, LOGS].find(([, pattern]) => pattern.test(name))?.[0] ?? 'Other';
  const ofFeatures = rest.flatMap(({ topic }) => topic ?? []);
  const titles = new Set([...TOPICS.map(([title]) => title), ...ofFeatures, LOGS[0], 'Other']);
  return [
    { title: 'Most used', rows: first },
    ...[...titles].map((title) => ({ title, rows: rest.filter((row) => topicOf(row) === title) })),
  ].filter(({ rows }) => rows.length > 0);
}
