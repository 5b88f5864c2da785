/**
 * The application of one serving thread: identities, live queries and GraphQL over the core, and the routes over all of them. The parts
 * that exist once per process (`start.ts`) reach a thread as `Shared` and by broadcasts.
 */
import { assertNever } from '../base/assert-never.js';
import type { Observer } from '../base/observe.js';
import type { Operations } from '../compiler/graphql/operations.js';
import { databaseClaims } from '../server/access/database-caller.js';
import { Identities } from '../server/access/identities.js';
import { ForeignTokens, Tokens } from '../server/access/tokens.js';
import { lookUpAccount } from '../server/accounts/accounts.js';
import { type ResolveUser, resolveExternalUser } from '../server/accounts/external-users.js';
import { Logins } from '../server/accounts/logins.js';
import { openMailer } from '../server/accounts/mailer.js';
import { authRoutes } from '../server/api/accounts/auth.js';
import { meRoutes } from '../server/api/accounts/me.js';
import type { ApiRoute } from '../server/api/action.js';
import { actionsOf } from '../server/api/graphql/actions.js';
import { createOperations } from '../server/api/graphql/create-operations.js';
import { graphqlRoutes } from '../server/api/graphql/endpoint.js';
import { PersistedQueries, readAllowList } from '../server/api/graphql/persisted.js';
import { functionRoutes, itemsRoutes } from '../server/api/items/items.js';
import type { LiveReads } from '../server/api/items/live-reads.js';
import type { ExportItems } from '../server/api/items/stream-items.js';
import { changesRoutes, collectionsRoutes, fieldsRoutes, relationsRoutes } from '../server/api/schema/definitions.js';
import { collect, type MetricsServices, metricsRoutes } from '../server/api/server/metrics.js';
import { serverRoutes, specsRoutes } from '../server/api/server/server.js';
import { systemRoutes } from '../server/api/system-collections.js';
import { noChanges } from '../server/changes/changes.js';
import type { Config } from '../server/config/config.js';
import { parseLimits } from '../server/config/parse-limits.js';
import { userStore } from '../server/execute/system-collections/user-writes.js';
import { openTables } from '../server/feature/tables.js';
import { createCookies } from '../server/http/cookies.js';
import { chooseTransport } from '../server/http/listen.js';
import { Router } from '../server/http/router.js';
import { addSystemTables } from '../server/postgres/catalog/system-tables.js';
import { checkHealth, Readiness } from '../server/postgres/health.js';
import type { App, Broadcast, Core, Shared, ThreadMakers } from '../server/threads/thread-parts.js';
import { featuresOf, loadChosen } from './chosen-features.js';
import { createCore, synonymsOf } from './core.js';
import { type CommonContext, dialectOf, OpenFeatures, prepareProcess } from './open-features.js';

export async function createApp(config: Config, core: Core, shared: Shared, observe: Observer): Promise<App> {
  const parts = await createParts(config, core, shared, observe);
  const { readiness, identities, items, persisted } = parts;
  const later = { routes: () => routes, graphql: () => ({ operations, persisted }) };
  const opened = await start(parts, later).catch(async (error: unknown) => {
    await stopCore(core);
    throw error;
  });
  parts.later.live = opened.live;
  parts.later.exportItems = opened.exportItems;
  parts.later.pages = opened.accountPages;
  const metrics = { ...metricsServices(parts, opened), router: () => router };
  const rest = restRoutes(parts, { opened, metrics, operations: () => operations });
  const operations = createOperations(config, rest);
  core.mirror.onChange(() => operations.forget());
  const graphql = { ...items, operations, persisted, page: opened.graphqlPage, actions: actionsOf(rest) };
  const routes: readonly ApiRoute[] = [...rest, ...graphqlRoutes(graphql)];
  const router = new Router(routes);
  return {
    router,
    items,
    watchChanges: (listener) => core.changes?.watch(listener) ?? noChanges(),
    serving: () => opened.all('start'),
    names: parts.dialect?.names ?? null,
    sockets: opened.sockets(),
    generation: () => identities.generation,
    apply: (message) => apply(message, parts, opened),
    ask: (feature, question) => opened.answer(feature, question),
    recorder: opened.recorder,
    collect: () => collect(metrics),
    check: async () => ({
      ...(await checkHealth(core)),
      ...core.executors.checks(),
      ...(await opened.check()),
    }),
    stopping: async () => {
      readiness.stop();
      await Promise.all([opened.stop(), stopCore(core)]);
    },
    endProcesses: () => opened.all('close'),
    ended: () => opened.all('end'),
  };
}

/** Ends the stream of changes, and what it keeps up to date. */
async function stopCore({ executors, changes }: Core): Promise<void> {
  executors.stop();
  await changes?.stop();
}

/** Starts the executors, then opens the features. */
async function start(
  { config, core, shared, observe, identities, items, access, dialect }: Parts,
  later: Pick<CommonContext, 'routes' | 'graphql'>,
): Promise<OpenFeatures> {
  const { limits, gather, fetch } = shared;
  const { hooks } = core;
  await core.executors.start();
  const reload = async (): Promise<void> => {
    await core.mirror.refresh(true);
    await shared.accessChanged();
  };
  const services = { identities, items, access, limits, dialect, hooks };
  const context = { config, core, observe, ...services, gather, fetch, reload, ...later };
  return OpenFeatures.open(featuresOf(config), context, {
    broadcast: (name, payload) => shared.broadcast({ kind: 'feature', name, payload }),
    ask: shared.ask,
  });
}

/** Services of features, which are opened after the others. */
interface Later {
  live: LiveReads | null;
  exportItems: ExportItems | null;
  pages: readonly string[];
}

/** The parts that routes are made from. */
type Parts = Awaited<ReturnType<typeof createParts>>;

async function createParts(config: Config, core: Core, shared: Shared, observe: Observer) {
  const { database, mirror, policies, reads, writes } = core;
  const later: Later = { live: null, exportItems: null, pages: [] };
  writes.onAccessChange(() => shared.accessChanged());
  const users = userStore(writes);
  const resolveUser: ResolveUser = (mapping, user) => resolveExternalUser(mapping, user, database, users);
  const tokens = new Tokens(shared.secret);
  const identities = new Identities((key) => lookUpAccount(database, key), {
    verifiers: [tokens, new ForeignTokens(config.JWT_ISSUERS, resolveUser, databaseClaims(config))],
    cookieName: config.SESSION_COOKIE_NAME,
    stalenessMs: config.MAX_STALENESS,
    served: database,
    onView: (administrator, as) => observe({ kind: 'viewed-as', administrator, as }),
  });
  const access = {
    config,
    identities,
    tokens,
    logins: new Logins(database, config.SESSION_COOKIE_TTL, {
      usersChanged: () => shared.broadcast({ kind: 'access' }),
      sessionsEnded: (sessions) => shared.broadcast({ kind: 'sessions-ended', sessions }),
    }),
    cookies: createCookies(config),
    loginLimit: shared.limits.logins,
    mailer: await openMailer(config.EMAIL_TRANSPORT, observe),
    publicUrl: () => config.PUBLIC_URL ?? shared.url(),
    pages: () => later.pages,
    resolveUser,
  };
  const ofFeatures = { live: () => later.live, exportItems: () => later.exportItems };
  const items = { identities, mirror, policies, reads, writes, limits: parseLimits(config), ...ofFeatures };
  const persisted = openPersistedQueries(config, shared);
  const readiness = new Readiness(shared.health);
  const dialect = await dialectOf(featuresOf(config), config);
  const services = { identities, access, items, later, dialect, persisted, readiness };
  return { config, core, shared, observe, ...services };
}

/** Parts that the routes need in addition. Those in functions are made after the routes. */
interface RouteParts {
  readonly opened: OpenFeatures;
  readonly metrics: MetricsServices;
  readonly operations: () => Operations;
}

/** All routes but those of GraphQL. */
function restRoutes(parts: Parts, { opened, metrics, operations }: RouteParts): ApiRoute[] {
  const { config, core, shared, identities, access, items, readiness, dialect } = parts;
  const { database } = core;
  return [
    ...specsRoutes({
      ...items,
      operations,
      introspection: config.GRAPHQL_INTROSPECTION,
      sdlType: dialect?.sdlType ?? 'text/plain',
    }),
    ...serverRoutes({
      config,
      identities,
      database,
      health: shared.health,
      readiness,
      dialect,
      server: async () => (shared.url() === '' ? null : (await chooseTransport(config)).transport.name),
      info: opened.info,
    }),
    ...metricsRoutes(metrics, shared.gather),
    ...authRoutes(access, opened.logins),
    ...modelRoutes(parts),
    ...meRoutes(items),
    ...systemRoutes(openTables(featuresOf(config)).resources, { ...items, resources: opened.resources }),
    ...itemsRoutes(items),
    ...functionRoutes(items),
    ...opened.routes,
  ];
}

function modelRoutes({ dialect, identities, core: { policies, schemaChanges } }: Parts): readonly ApiRoute[] {
  const services = { identities, policies, schemaChanges };
  const routes = [
    ...fieldsRoutes(services),
    ...collectionsRoutes(services),
    ...relationsRoutes(services),
    ...changesRoutes(services),
  ];
  return dialect === null ? routes : dialect.schemaRoutes(routes);
}

function metricsServices({ config, core, shared, identities }: Parts, opened: OpenFeatures) {
  return {
    ...core,
    config,
    events: shared.events,
    identities,
    more: () => [...opened.metrics(), ...core.executors.metrics()],
  };
}

function apply(message: Broadcast, { core, identities, persisted }: Parts, opened: OpenFeatures): void {
  switch (message.kind) {
    case 'policies':
      core.policies.apply(message.text);
      break;
    case 'access':
      identities.forget();
      opened.notify('onAccessChange');
      break;
    case 'sessions-ended':
      for (const session of message.sessions) identities.forgetSession(session);
      opened.notify('onSessionsEnded');
      break;
    case 'executors':
      core.executors.apply(message.message);
      break;
    case 'persisted-query':
      persisted.take(message.digest, message.text);
      break;
    case 'installation':
      core.database.system = message.system;
      addSystemTables(message.tables);
      core.database.obstacle = message.obstacle;
      core.executors.forget();
      break;
    case 'reload':
      opened.notify('onReload');
      break;
    case 'feature':
      opened.apply(message.name, message.payload);
      break;
    default:
      assertNever(message);
  }
}

function openPersistedQueries(config: Config, shared: Shared): PersistedQueries {
  const file = config.GRAPHQL_ALLOW_LIST;
  return new PersistedQueries(file === null ? null : readAllowList(file), (digest, text) =>
    shared.broadcast({ kind: 'persisted-query', digest, text }),
  );
}

export const MAKERS: ThreadMakers = {
  createCore,
  createApp,
  synonymsOf,
  prepareProcess: async (config, observe) => {
    await loadChosen(config);
    await prepareProcess(featuresOf(config), config, observe);
  },
};
