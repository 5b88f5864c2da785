/** The composition root: options → database → mirror → http, and the way back when the service stops. */
import { randomBytes } from 'node:crypto';
import { Identities } from './access/identity.js';
import type { Config } from './config.js';
import { startEmbedded } from './embedded/cluster.js';
import { type Credentials, createAdministrator, findIdentity } from './execute/accounts.js';
import { Database } from './execute/database.js';
import { migrate } from './execute/migrate.js';
import { Reads } from './execute/reads.js';
import { listen as listenForChanges, sourceOf } from './execute/source.js';
import { listen } from './http/app.js';
import { Router } from './http/router.js';
import { Mirror } from './mirror/watch.js';
import type { Observer } from './observe.js';
import { itemsRoutes } from './resources/items.js';
import { serverRoutes } from './resources/server.js';
import { loadGrammar } from './sql/verify.js';

export interface Service {
  readonly url: string;
  /** The database that is mirrored, with its credentials. */
  readonly databaseUrl: string;
  /** The account that was made by this start; null when there were users already. */
  readonly administrator: Credentials | null;
  stop(): Promise<void>;
}

export async function startService(
  config: Config,
  observe: Observer,
  report: (message: string) => void,
): Promise<Service> {
  /** What has been started, to be stopped in the reverse order, also when a later step fails. */
  const started: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of started.splice(0).reverse()) await close();
  };
  try {
    return await start(config, observe, report, started, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function start(
  config: Config,
  observe: Observer,
  report: (message: string) => void,
  started: (() => Promise<void>)[],
  stop: () => Promise<void>,
): Promise<Service> {
  let databaseUrl = config.DATABASE_URL;
  if (databaseUrl === null) {
    const embedded = await startEmbedded({ directory: config.DATA_DIR, report });
    started.push(() => embedded.stop());
    databaseUrl = embedded.url;
  }
  const database = await Database.open({
    url: databaseUrl,
    schema: config.DATABASE_SCHEMA,
    connections: config.DATABASE_POOL_SIZE,
    sessions: config.DATABASE_STREAM_POOL_SIZE,
    statementTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    connectTimeout: config.DATABASE_CONNECT_TIMEOUT,
  });
  started.push(() => database.close());
  await migrate(database, config.DATABASE_URL === null && config.DEMO_DATA, observe);
  const credentials: Credentials = {
    email: config.ADMIN_EMAIL,
    password: config.ADMIN_PASSWORD ?? randomBytes(12).toString('base64url'),
    token: config.ADMIN_TOKEN ?? randomBytes(24).toString('base64url'),
  };
  const made = await createAdministrator(database, credentials);

  await loadGrammar();
  const mirror = await Mirror.start(sourceOf(database), observe, config.SCHEMA_POLL_INTERVAL);
  started.push(() => mirror.close());
  const identities = new Identities((digest) => findIdentity(database, digest));
  started.push(await listenForChanges(database, 'service_access', () => identities.forget()));
  const readLimits = {
    defaultLimit: config.QUERY_LIMIT_DEFAULT,
    maxNodes: config.MAX_QUERY_NODES,
    shapes: config.SHAPE_CACHE_SIZE,
    cost: config.MAX_QUERY_COST,
    batchTimeout: config.DATABASE_STATEMENT_TIMEOUT,
  };
  const reads = new Reads(database, mirror, readLimits, observe);
  const limits = {
    relationalDepth: config.MAX_RELATIONAL_DEPTH,
    bracketDepth: config.QUERYSTRING_MAX_PARSE_DEPTH,
    arrayLength: config.QUERYSTRING_ARRAY_LIMIT,
    jsonDepth: config.MAX_JSON_QUERY_DEPTH,
    pageSize: config.QUERY_LIMIT_MAX,
    wholeRows: config.STREAM_ABOVE,
  };
  const router = new Router([
    ...serverRoutes({ config, identities, database, mirror }),
    ...itemsRoutes({ identities, reads, limits }),
  ]);
  const http = await listen(router, config, observe);
  started.push(() => http.close(config.SHUTDOWN_TIMEOUT));
  const host = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST;
  const url = `http://${host}:${http.port}`;
  observe({ kind: 'listening', url });
  return { url, databaseUrl, administrator: made ? credentials : null, stop };
}
