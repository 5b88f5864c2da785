/** The options of the database, from those of the service. */
import type { Observer } from '../../../base/observe.js';
import type { Config } from '../../config/config.js';
import { Database, type DatabaseOptions } from './database.js';

/** An external server may be behind a pooler: one thread checks that for all (`checksSessions`). */
export function openDatabase(
  config: Config,
  url: string,
  given: Pick<DatabaseOptions, 'checksSessions' | 'identity' | 'signal' | 'synonyms'>,
  observe: Observer,
): Promise<Database> {
  return Database.open({ ...databaseOptions(config, url), ...given, observe });
}

export function databaseOptions(config: Config, url: string): DatabaseOptions {
  return {
    url,
    schema: config.DATABASE_SCHEMA,
    otherSchemas: config.DATABASE_SCHEMAS.slice(1),
    connections: config.DATABASE_POOL_SIZE,
    sessions: config.DATABASE_WRITE_POOL_SIZE,
    streams: config.DATABASE_STREAM_POOL_SIZE,
    imports: config.IMPORT_MAX_CONCURRENCY,
    waitTimeout: config.DATABASE_WAIT_TIMEOUT,
    statementTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    connectTimeout: config.DATABASE_CONNECT_TIMEOUT,
    largestAnswer: config.MAX_RESPONSE_SIZE,
    answerMemory: config.RESPONSE_MEMORY,
    uploadTimeout: config.BODY_TIMEOUT,
    pooler: config.DATABASE_POOLER,
    directUrl: config.DATABASE_DIRECT_URL,
    replicaUrls: config.DATABASE_REPLICA_URLS,
    poll: config.SCHEMA_POLL_INTERVAL,
    staleness: config.MAX_STALENESS,
    startTimeout: config.DATABASE_START_TIMEOUT,
    asksPositions: config.DATABASE_REPLICA_URLS.length > 0 || config.READ_CACHE_SIZE > 0,
    callers: config.DATABASE_CALLER === 'service' ? null : config.DATABASE_CALLER,
  };
}
