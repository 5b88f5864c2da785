/** The composition root: options → database → mirror → http, and the way back when the service stops. */
import { randomBytes } from 'node:crypto';
import { Identities, type Lookup } from './access/identity.js';
import { openPost } from './access/mail.js';
import { Policies } from './access/policies.js';
import { openSecret } from './access/secret.js';
import { Tokens } from './access/tokens.js';
import type { Config } from './config.js';
import { startEmbedded } from './embedded/cluster.js';
import { StartError } from './errors.js';
import { type Credentials, createAdministrator, findAccount, listenForSessions } from './execute/accounts.js';
import { Database } from './execute/database.js';
import { Logins } from './execute/logins.js';
import { migrate } from './execute/migrate.js';
import { Reads } from './execute/reads.js';
import { forgetReceipts } from './execute/receipts.js';
import { listen as listenForChanges, policiesOf, sourceOf } from './execute/source.js';
import { Structure } from './execute/structure.js';
import { Writes } from './execute/writes.js';
import { Operations } from './graphql/operations.js';
import { PersistedQueries, readAllowList } from './graphql/persisted.js';
import { Schemas } from './graphql/schema.js';
import { availableServices } from './graphql/services.js';
import { listen } from './http/app.js';
import { createCookies } from './http/cookies.js';
import { createLoginLimit } from './http/limiter.js';
import { type Route, Router } from './http/router.js';
import type { Collection, Model } from './mirror/model.js';
import { Mirror } from './mirror/watch.js';
import { countEvents, type Event, type Observer } from './observe.js';
import type { ParseLimits } from './request/query.js';
import { accountRoutes } from './resources/account.js';
import { authRoutes } from './resources/auth.js';
import { collectionsRoutes } from './resources/collections.js';
import { fieldsRoutes } from './resources/fields.js';
import { type GraphqlServices, graphqlRoutes } from './resources/graphql.js';
import { itemsRoutes } from './resources/items.js';
import { meRoutes } from './resources/me.js';
import { metricsRoutes } from './resources/metrics.js';
import { relationsRoutes } from './resources/relations.js';
import { schemaRoutes } from './resources/schema.js';
import { serverRoutes } from './resources/server.js';
import { specsRoutes } from './resources/specs.js';
import { systemRoutes } from './resources/system.js';
import { utilsRoutes } from './resources/utils.js';
import { loadGrammar } from './sql/verify.js';

export interface Service {
  readonly url: string;
  /** The database that is mirrored, with its credentials. */
  readonly databaseUrl: string;
  /** The account that was made by this start; null when there were users already. */
  readonly administrator: Credentials | null;
  /** A path worth trying first. */
  readonly example: string;
  stop(): Promise<void>;
}

/** Everything behind HTTP. */
export interface Core {
  readonly database: Database;
  readonly databaseUrl: string;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly structure: Structure;
}

type Report = (message: string) => void;

const PURGED = 600_000;

/** What has been started, to be stopped in the reverse order, also when a later step fails. */
class Started {
  readonly #closers: (() => Promise<void>)[] = [];

  add(close: () => Promise<void>): void {
    this.#closers.push(close);
  }

  async stop(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close();
  }
}

export async function startService(config: Config, log: Observer, report: Report): Promise<Service> {
  const { observe, counts: events } = countEvents(log);
  const started = new Started();
  try {
    const core = await startCore(config, observe, report, started);
    const { database, mirror, policies, reads, writes, structure } = core;
    const administrator = await makeAdministrator(config, database);
    // A start that fails says why and nothing else.
    const advice: Event[] = [];
    const tokens = await openTokens(config, (event) => advice.push(event));
    const lookup: Lookup = (holder) => findAccount(database, holder);
    const identities = new Identities(lookup, tokens, config.SESSION_COOKIE_NAME);
    started.add(await listenForChanges(database, 'service_access', () => identities.forget()));
    writes.onAccessChange(async () => {
      identities.forget();
      await policies.reload();
    });
    started.add(await listenForSessions(database, (session) => identities.forgetSession(session)));
    let url = '';
    const access = {
      config,
      identities,
      tokens,
      logins: new Logins(database, config.SESSION_COOKIE_TTL),
      cookies: createCookies(config),
      loginLimit: createLoginLimit(config),
      post: await openPost(config.EMAIL_TRANSPORT, observe),
      publicUrl: () => config.PUBLIC_URL ?? url,
    };
    const items = { identities, mirror, policies, reads, writes, limits: parseLimits(config) };
    const routes: Route[] = [
      ...specsRoutes({
        ...items,
        operations: () => graphql.operations,
        introspection: config.GRAPHQL_INTROSPECTION,
        routes: () => allRoutes,
        publicUrl: access.publicUrl,
      }),
      ...serverRoutes({ config, identities, database, mirror }),
      ...metricsRoutes({ config, events, ...core, identities, router: () => router }),
      ...authRoutes(access),
      ...accountRoutes(access),
      ...utilsRoutes({ config, identities, writes }),
      ...fieldsRoutes({ identities, policies, structure }),
      ...collectionsRoutes({ identities, policies, structure }),
      ...relationsRoutes({ identities, policies, structure }),
      ...schemaRoutes({ config, identities, structure }),
      ...meRoutes(items),
      ...systemRoutes(items),
      ...itemsRoutes(items),
    ];
    const graphql = { identities, mirror, policies, reads, writes, ...graphqlServices(config, routes) };
    const allRoutes: readonly Route[] = [...routes, ...graphqlRoutes({ ...graphql, router: () => router })];
    const router = new Router(allRoutes);
    const forget = (): unknown => Promise.allSettled([forgetReceipts(database), access.logins.purge()]);
    const purge = setInterval(forget, PURGED).unref();
    started.add(async () => clearInterval(purge));
    const http = await listen(router, config, observe);
    started.add(() => http.close(config.SHUTDOWN_TIMEOUT));
    const host = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST;
    url = `http://${host}:${http.port}`;
    observe({ kind: 'listening', url });
    advice.forEach(observe);
    const { databaseUrl } = core;
    return { url, databaseUrl, administrator, example: examplePath(mirror.model), stop: () => started.stop() };
  } catch (error) {
    await started.stop();
    throw error;
  }
}

async function openTokens(config: Config, observe: Observer): Promise<Tokens> {
  const directory = config.DATABASE_URL === null ? config.DATA_DIR : null;
  return new Tokens(await openSecret(config.SECRET, directory, observe));
}

/** The first start makes an account; only it can show the password and the token. */
async function makeAdministrator(config: Config, database: Database): Promise<Credentials | null> {
  const credentials: Credentials = {
    email: config.ADMIN_EMAIL,
    password: config.ADMIN_PASSWORD ?? randomBytes(12).toString('base64url'),
    token: config.ADMIN_TOKEN ?? randomBytes(24).toString('base64url'),
  };
  const made = await createAdministrator(database, credentials);
  return made ? credentials : null;
}

/** For commands that need the database but serve nothing: all is stopped when the work is done. */
export async function withCore<Result>(
  config: Config,
  observe: Observer,
  report: Report,
  work: (core: Core) => Promise<Result>,
): Promise<Result> {
  const started = new Started();
  try {
    return await work(await startCore(config, observe, report, started));
  } finally {
    await started.stop();
  }
}

async function startCore(config: Config, observe: Observer, report: Report, started: Started): Promise<Core> {
  let databaseUrl = config.DATABASE_URL;
  if (databaseUrl === null) {
    const embedded = await startEmbedded({ directory: config.DATA_DIR, report });
    started.add(() => embedded.stop());
    databaseUrl = embedded.url;
  }
  const database = await Database.open({
    url: databaseUrl,
    schema: config.DATABASE_SCHEMA,
    connections: config.DATABASE_POOL_SIZE,
    sessions: config.DATABASE_WRITE_POOL_SIZE,
    streams: config.DATABASE_STREAM_POOL_SIZE,
    imports: config.IMPORT_MAX_CONCURRENCY,
    waitTimeout: config.DATABASE_WAIT_TIMEOUT,
    statementTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    connectTimeout: config.DATABASE_CONNECT_TIMEOUT,
  });
  started.add(() => database.close());
  await migrate(database, config.DATABASE_URL === null && config.DEMO_DATA, observe).catch((error: unknown) => {
    const denied = error instanceof Error && 'code' in error && error.code === '42501';
    throw denied
      ? new StartError(`cannot make the service_* tables in schema "${config.DATABASE_SCHEMA}": ${error.message}`)
      : error;
  });
  await loadGrammar();
  const mirror = await Mirror.start(sourceOf(database), observe, config.SCHEMA_POLL_INTERVAL);
  started.add(() => mirror.close());
  const readLimits = {
    defaultLimit: config.QUERY_LIMIT_DEFAULT,
    maxNodes: config.MAX_QUERY_NODES,
    shapes: config.SHAPE_CACHE_SIZE,
    cost: config.MAX_QUERY_COST,
    batchTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    cohorts: config.COHORTS,
  };
  const policies = await Policies.start(policiesOf(database), observe);
  started.add(() => policies.close());
  const reads = new Reads(database, mirror, policies, readLimits, observe);
  const writeLimits = {
    maxRows: config.MAX_BATCH_MUTATION,
    parse: parseLimits(config),
    shapes: config.SHAPE_CACHE_SIZE,
    receiptLifetime: `${config.IDEMPOTENCY_TTL} milliseconds`,
  };
  const writes = new Writes({ database, mirror, policies, reads }, writeLimits, observe);
  const structure = new Structure(database, mirror, {
    lockTimeout: config.STRUCTURE_LOCK_TIMEOUT,
    patience: config.STRUCTURE_TIMEOUT,
  });
  return { database, databaseUrl, mirror, policies, reads, writes, structure };
}

function graphqlServices(
  config: Config,
  routes: readonly Route[],
): Pick<GraphqlServices, 'operations' | 'persisted' | 'ide'> {
  const limits = {
    tokens: config.GRAPHQL_QUERY_TOKEN_LIMIT,
    depth: config.GRAPHQL_QUERY_DEPTH_LIMIT,
    nodes: config.GRAPHQL_QUERY_NODE_LIMIT,
    aliases: config.GRAPHQL_QUERY_ALIAS_LIMIT,
    introspection: config.GRAPHQL_INTROSPECTION,
  };
  const schemas = new Schemas(config.GRAPHQL_SCHEMA_CACHE_CAPACITY, availableServices(routes));
  const file = config.GRAPHQL_ALLOW_LIST;
  return {
    operations: new Operations(schemas, limits, parseLimits(config)),
    persisted: new PersistedQueries(file === null ? null : readAllowList(file)),
    ide: config.GRAPHQL_INTROSPECTION,
  };
}

export function parseLimits(config: Config): ParseLimits {
  return {
    nodes: config.MAX_QUERY_NODES,
    relationalDepth: config.MAX_RELATIONAL_DEPTH,
    bracketDepth: config.QUERYSTRING_MAX_PARSE_DEPTH,
    arrayLength: config.QUERYSTRING_ARRAY_LIMIT,
    jsonDepth: config.MAX_JSON_QUERY_DEPTH,
    pageSize: config.QUERY_LIMIT_MAX,
    wholeRows: config.STREAM_ABOVE,
  };
}

/** The collection with the most relations shows best what one statement can read. */
function examplePath(model: Model): string {
  const relations = (collection: Collection): number =>
    [...collection.fields.values()].filter((field) => field.relation !== null).length;
  const [first] = [...model.collections.values()]
    .filter((collection) => !collection.system)
    .sort((one, other) => relations(other) - relations(one));
  return first ? `/items/${encodeURIComponent(first.name)}?limit=1&fields=*.*` : '/server/info';
}
