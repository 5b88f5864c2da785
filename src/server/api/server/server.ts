/**
 * /server: whether the service runs, is ready and healthy, what it is, and its API for tools as a GraphQL schema, as far as the caller may see it
 * (/server/specs). The admin listener answers questions about its state without a token.
 */
import { build } from 'fast-json-stringify';
import { forbidden, routeNotFound, ServiceError } from '../../../base/errors.js';
import { packageVersion } from '../../../base/package-files.js';
import { within } from '../../../base/time-limit.js';
import type { Operations } from '../../../compiler/graphql/operations.js';
import { describeSchema } from '../../../compiler/graphql/schema.js';
import type { RootScope } from '../../../compiler/graphql/schema-access.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { Config } from '../../config/config.js';
import type { AdminAnswers } from '../../http/admin-server.js';
import type { Reply } from '../../http/reply.js';
import type { Transport } from '../../http/transport.js';
import { HEALTH_TIMEOUT_MS, type Health, type Readiness } from '../../postgres/health.js';
import type { Database } from '../../postgres/pools/database.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, route } from '../action.js';
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
import { type SightServices, SpecTexts, sightOf } from './spec-texts.js';

interface ServerServices {
  readonly config: Config;
  /** The server of requests, or null if the service has no port. */
  readonly server: () => Promise<Transport['name'] | null>;
  /** Facts of features. */
  readonly info: Readonly<Record<string, unknown>>;
  readonly identities: Identities;
  readonly database: Database;
  /** The health of all threads. */
  readonly health: () => Promise<Health>;
  readonly readiness: Readiness;
  /** The API that clients were written for, or null if it is that of the service. */
  readonly dialect: { readonly version: string; readonly pongType: string } | null;
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
  server: orNull(oneOf('uws', 'node')),
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
      reply: () => (services.dialect === null ? pong : { ...pong, type: services.dialect.pongType }),
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

const pong: Reply = { status: 200, type: 'text/plain; charset=utf-8', body: 'pong', isConstant: true };

/** The headers of every 503. */
const RETRY_SOON = { 'Retry-After': '1' };

/** For load balancers: without a token, and with no more than whether to send requests. */
function readyReply(ready: boolean): Reply {
  const { type } = pong;
  return ready ? { status: 200, type, body: 'ready' } : { status: 503, type, body: 'not ready', headers: RETRY_SOON };
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

async function info({ caller }: ActionRequest<Identity>, services: ServerServices): Promise<ActionResult> {
  const { config, database, dialect } = services;
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
          ...(dialect !== null ? { version: dialect.version, lateral: packageVersion } : { version: packageVersion }),
          server: await services.server(),
          rateLimit: config.RATE_LIMITER_ENABLED && {
            points: config.RATE_LIMITER_POINTS,
            duration: config.RATE_LIMITER_DURATION,
          },
          rateLimitGlobal: config.RATE_LIMITER_GLOBAL_ENABLED && {
            points: config.RATE_LIMITER_GLOBAL_POINTS,
            duration: config.RATE_LIMITER_GLOBAL_DURATION,
          },
          websocket: false,
          queryLimit: { default: config.QUERY_LIMIT_DEFAULT, max: config.QUERY_LIMIT_MAX ?? -1 },
          ...services.info,
        };
  return { data };
}

interface AdminServices {
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
    health: async () => healthResponse(healthBodyOf(await health(), true)),
    ...(metrics ? { metrics: () => metricsReply(gather) } : {}),
  };
  const paths = Object.entries(answers).flatMap(([name, answer]) => [
    [`/${name}`, answer] as const,
    [`/server/${name}`, answer] as const,
  ]);
  // For checks that name no path.
  return { '/': ready, ...Object.fromEntries(paths) };
}

interface SpecsServices extends SightServices {
  readonly operations: () => Operations;
  /** Whether callers may read the GraphQL schema. */
  readonly introspection: boolean;
  /** The media type of a GraphQL schema. */
  readonly sdlType: string;
}

export function specsRoutes(services: SpecsServices): ApiRoute[] {
  const action = actionRoutes(services);
  const texts = new SpecTexts();
  const reply = (result: ActionResult): Reply => textReply(result, services.sdlType);
  const schema = (request: ActionRequest): Promise<ActionResult> => schemaText(request, services, texts);
  return [
    action('GET /server/specs/graphql', schema, { summary: 'The GraphQL schema of the items', answers: [TEXT], reply }),
    action('GET /server/specs/graphql/:scope', schema, {
      summary: 'A GraphQL schema: items or system',
      answers: [TEXT],
      graphql: { name: 'server_specs_graphql', type: 'String' },
      reply,
    }),
  ];
}

async function schemaText(
  { client, parameters }: ActionRequest,
  services: SpecsServices,
  texts: SpecTexts,
): Promise<ActionResult> {
  const [scope = 'items'] = parameters;
  if (!isScope(scope)) throw routeNotFound(`/server/specs/graphql/${scope}`);
  if (!services.introspection) throw forbidden();
  const seen = await sightOf(client, services);
  const data = await texts.get(seen.model.version, `${scope} ${seen.key}`, () =>
    describeSchema(services.operations().schemas.get(seen, scope)),
  );
  const headers = { 'Content-Disposition': `attachment; filename="${scope}.graphql"` };
  return { data, headers };
}

function textReply({ data, headers = {} }: ActionResult, type: string): Reply {
  return { status: 200, type: `${type}; charset=utf-8`, body: String(data), headers };
}

function isScope(name: string): name is RootScope {
  return name === 'items' || name === 'system';
}
