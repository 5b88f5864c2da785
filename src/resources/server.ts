/** /server: whether the service is there, whether it is well, and what it is. */
import { build } from 'fast-json-stringify';
import type { Identities, Identity } from '../access/identity.js';
import type { Config } from '../config.js';
import { forbidden } from '../errors.js';
import type { Database } from '../execute/database.js';
import { packageVersion } from '../files.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Mirror } from '../mirror/watch.js';

export interface ServerServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly database: Database;
  readonly mirror: Mirror;
}

export function serverRoutes(services: ServerServices): Route[] {
  return [
    {
      method: 'GET',
      path: '/server/ping',
      handle: () => ({ status: 200, type: 'text/plain; charset=utf-8', body: 'pong' }),
    },
    { method: 'GET', path: '/server/health', handle: (exchange) => health(exchange, services) },
    { method: 'GET', path: '/server/info', handle: (exchange) => info(exchange, services) },
  ];
}

interface Check {
  readonly status: 'ok' | 'error';
  readonly componentType: string;
  readonly observedValue: number;
  readonly observedUnit: string;
  readonly output?: string;
}

const check = {
  type: 'object',
  properties: {
    status: { type: 'string' },
    componentType: { type: 'string' },
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

/** Administrators see what was checked, other users whether all is well, the public nothing. */
async function health(exchange: Exchange, services: ServerServices): Promise<Reply> {
  const identity = await identify(exchange, services);
  if (identity.user === null) throw forbidden();
  const checks = {
    'database:responseTime': [await checkDatabase(services)],
    'mirror:collections': [checkMirror(services)],
  };
  const status = Object.values(checks).every(([each]) => each?.status === 'ok') ? 'ok' : 'error';
  const body = identity.administrator
    ? { status, releaseId: packageVersion, serviceId: 'lateral', checks }
    : { status };
  return {
    status: status === 'ok' ? 200 : 503,
    type: 'application/health+json; charset=utf-8',
    body: healthBody(body),
  };
}

async function checkDatabase({ database }: ServerServices): Promise<Check> {
  const start = performance.now();
  const outcome = await database.rows('select 1').then(
    () => ({ status: 'ok' as const }),
    (error: unknown) => ({ status: 'error' as const, output: error instanceof Error ? error.message : String(error) }),
  );
  return { ...outcome, componentType: 'datastore', observedValue: performance.now() - start, observedUnit: 'ms' };
}

function checkMirror({ mirror }: ServerServices): Check {
  return {
    status: 'ok',
    componentType: 'component',
    observedValue: mirror.model.collections.size,
    observedUnit: 'collections',
  };
}

const infoBody = build({
  type: 'object',
  properties: {
    data: {
      type: 'object',
      properties: {
        project: { type: 'object', additionalProperties: true },
        rateLimit: {},
        rateLimitGlobal: {},
        queryLimit: { type: 'object', properties: { default: { type: 'integer' }, max: { type: 'integer' } } },
        version: { type: 'string' },
      },
    },
  },
});

async function info(exchange: Exchange, services: ServerServices): Promise<Reply> {
  const identity = await identify(exchange, services);
  const { config, database } = services;
  const [project] = await database.rows<Record<string, unknown>>(
    'select project_name, project_descriptor, project_color, default_language, public_note from service_settings',
  );
  const shared = { project: project ?? {} };
  const data =
    identity.user === null
      ? shared
      : {
          ...shared,
          version: packageVersion,
          rateLimit: config.RATE_LIMITER_ENABLED && {
            points: config.RATE_LIMITER_POINTS,
            duration: config.RATE_LIMITER_DURATION,
          },
          rateLimitGlobal: config.RATE_LIMITER_GLOBAL_ENABLED && {
            points: config.RATE_LIMITER_GLOBAL_POINTS,
            duration: config.RATE_LIMITER_GLOBAL_DURATION,
          },
          queryLimit: { default: config.QUERY_LIMIT_DEFAULT, max: config.QUERY_LIMIT_MAX ?? -1 },
        };
  return jsonText(infoBody({ data }));
}

async function identify(exchange: Exchange, { identities }: ServerServices): Promise<Identity> {
  return identities.identify(exchange);
}
