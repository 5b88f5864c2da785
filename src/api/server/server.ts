/** /server: whether the service runs, is ready and healthy, and what it is. The admin listener answers the same without a token. */
import { build } from 'fast-json-stringify';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import { forbidden, ServiceError } from '../../base/errors.js';
import { packageVersion } from '../../base/package-files.js';
import { within } from '../../base/time-limit.js';
import type { Config } from '../../config/config.js';
import type { AdminAnswers } from '../../http/admin-server.js';
import type { Reply } from '../../http/reply.js';
import { HEALTH_TIMEOUT_MS, type Health, type Readiness } from '../../postgres/health.js';
import type { Database } from '../../postgres/pools/database.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, route } from '../action.js';
import { DIRECTUS_VERSION } from '../directus/names.js';
import {
  BOOLEAN,
  either,
  file,
  INTEGER,
  list,
  object,
  oneOf,
  orNull,
  RECORD,
  STRING,
  TEXT,
} from '../openapi/json-schema.js';
import { type Gather, metricsReply } from './metrics.js';

export interface ServerServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly database: Database;
  /** The health of all threads. */
  readonly health: () => Promise<Health>;
  readonly readiness: Readiness;
}

const LIMIT = either({ const: false }, object({ points: INTEGER, duration: INTEGER }));

const INFO = object({
  project: object({
    project_name: STRING,
    project_descriptor: orNull(STRING),
    project_color: STRING,
    default_language: STRING,
    public_note: orNull(STRING),
    public_registration: BOOLEAN,
    public_registration_verify_email: BOOLEAN,
  }),
  version: STRING,
  rateLimit: LIMIT,
  rateLimitGlobal: LIMIT,
  queryLimit: object({ default: INTEGER, max: INTEGER }),
});

const HEALTH = object(
  {
    status: oneOf('ok', 'degraded', 'warn', 'error'),
    releaseId: STRING,
    serviceId: STRING,
    checks: { type: 'object', additionalProperties: list(RECORD) },
  },
  ['status'],
);

export function serverRoutes(services: ServerServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('GET /server/ping', () => ({ data: pong.body }), {
      summary: 'Whether the service is running',
      answers: [TEXT],
      graphql: { name: 'server_ping', type: 'String' },
      reply: () => pong,
    }),
    route('GET /server/ready', async () => readyReply(await services.readiness.isReady()), {
      summary: 'Whether the service is ready for requests',
      answers: [TEXT],
    }),
    action('GET /server/health', health, {
      summary: 'Health of the service',
      answers: [file(['application/health+json'], HEALTH)],
      graphql: { name: 'server_health' },
      reply: ({ data }) => healthResponse(data as HealthBody),
    }),
    action('GET /server/info', info, {
      summary: 'Information about the service',
      allow: 'identified',
      data: INFO,
      graphql: { name: 'server_info', type: 'server_info' },
    }),
  ];
}

export const pong: Reply = { status: 200, type: 'text/plain; charset=utf-8', body: 'pong' };

/** The headers of every 503. */
const RETRY_SOON = { 'Retry-After': '1' };

/** For load balancers: without a token, and with no more than whether to send requests. */
export function readyReply(ready: boolean): Reply {
  return ready ? { ...pong, body: 'ready' } : { ...pong, status: 503, body: 'not ready', headers: RETRY_SOON };
}

const check = {
  type: 'object',
  properties: {
    status: { type: 'string' },
    componentType: { type: 'string' },
    componentId: { type: 'string' },
    observedValue: { type: 'number' },
    observedUnit: { type: 'string' },
    output: { type: 'string' },
  },
} as const;

const healthBody = build({
  type: 'object',
  properties: {
    status: { type: 'string' },
    releaseId: { type: 'string' },
    serviceId: { type: 'string' },
    checks: { type: 'object', additionalProperties: { type: 'array', items: check } },
  },
});

/** Administrators see all checks and other users the status. The public is refused. */
async function health({ client }: ActionRequest, services: ServerServices): Promise<ActionResult> {
  const identify = async (): Promise<Identity> => services.identities.identify(client);
  const identity = await within(identify(), HEALTH_TIMEOUT_MS).catch((error: unknown) => {
    if (error instanceof ServiceError && error.status < 500) throw error;
    return services.identities.remembered(client);
  });
  // Only the database can identify a new caller: if it does not answer, the status is all there is to say.
  if (identity === null) return { data: healthBodyOf({ status: 'error', checks: {} }, false) };
  if (identity.user === null) throw forbidden();
  return { data: healthBodyOf(await services.health(), identity.administrator) };
}

type HealthBody = Pick<Health, 'status'> & Partial<Health>;

function healthBodyOf({ status, checks }: Health, detailed: boolean): HealthBody {
  return detailed ? { status, ...{ releaseId: packageVersion, serviceId: 'lateral' }, checks } : { status };
}

function healthResponse(body: HealthBody): Reply {
  return {
    status: body.status === 'error' ? 503 : 200,
    type: 'application/health+json; charset=utf-8',
    body: healthBody(body),
    ...(body.status === 'error' ? { headers: RETRY_SOON } : {}),
  };
}

export function healthReply(health: Health, detailed: boolean): Reply {
  return healthResponse(healthBodyOf(health, detailed));
}

async function info({ caller }: ActionRequest<Identity>, services: ServerServices): Promise<ActionResult> {
  const { config, database } = services;
  const [project] = await database.rows<Record<string, unknown>>(
    `select project_name, project_descriptor, project_color, default_language, public_note,
       public_registration, public_registration_verify_email
     from service_settings`,
  );
  const shared = { project: project ?? {} };
  const data =
    caller.user === null
      ? shared
      : {
          ...shared,
          ...(config.DIRECTUS_COMPATIBILITY
            ? { version: DIRECTUS_VERSION, lateral: packageVersion }
            : { version: packageVersion }),
          rateLimit: config.RATE_LIMITER_ENABLED && {
            points: config.RATE_LIMITER_POINTS,
            duration: config.RATE_LIMITER_DURATION,
          },
          rateLimitGlobal: config.RATE_LIMITER_GLOBAL_ENABLED && {
            points: config.RATE_LIMITER_GLOBAL_POINTS,
            duration: config.RATE_LIMITER_GLOBAL_DURATION,
          },
          websocket: config.WEBSOCKETS_ENABLED && websocketInfo(config),
          queryLimit: { default: config.QUERY_LIMIT_DEFAULT, max: config.QUERY_LIMIT_MAX ?? -1 },
        };
  return { data };
}

/** As clients of Directus expect it, in seconds. */
function websocketInfo(config: Config): unknown {
  const { WEBSOCKETS_REST_AUTH, WEBSOCKETS_GRAPHQL_AUTH, WEBSOCKETS_HEARTBEAT_PERIOD: period } = config;
  return {
    rest: { authentication: WEBSOCKETS_REST_AUTH, path: '/websocket' },
    graphql: { authentication: WEBSOCKETS_GRAPHQL_AUTH, path: '/graphql' },
    heartbeat: period > 0 && period / 1_000,
  };
}

export interface AdminServices {
  /** Whether metrics are counted. */
  readonly metrics: boolean;
  readonly health: () => Promise<Health>;
  readonly gather: Gather;
  readonly readiness: Readiness;
  /** Whether all that a start has to do is done. */
  readonly hasStarted: () => boolean;
}

export function adminAnswers({ metrics, health, gather, readiness, hasStarted }: AdminServices): AdminAnswers {
  const ready = async (): Promise<Reply> => readyReply(await readiness.isReady());
  const answers: AdminAnswers = {
    ping: async () => (hasStarted() ? pong : readyReply(false)),
    ready,
    health: async () => healthReply(await health(), true),
    ...(metrics ? { metrics: () => metricsReply(gather) } : {}),
  };
  const paths = Object.entries(answers).flatMap(([name, answer]) => [
    [`/${name}`, answer] as const,
    [`/server/${name}`, answer] as const,
  ]);
  // For checks that name no path.
  return { '/': ready, ...Object.fromEntries(paths) };
}
