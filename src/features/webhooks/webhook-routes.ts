/** /webhooks beyond its items: the secret of a new one, tests, pauses, rotation of the secret, and deliveries that are sent again. */

import { invalidPayload } from '../../base/errors.js';
import { isObject, parseJson, writeJson } from '../../base/exact-json.js';
import { elementAt } from '../../base/narrow.js';
import type { Identities } from '../../server/access/identities.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { readBody } from '../../server/api/body-fields.js';
import { BOOLEAN, INTEGER, list, object, orNull, STRING, UUID } from '../../server/api/openapi/json-schema.js';
import { DEFERRED, type Reply } from '../../server/http/reply.js';
import type { Handler, Route } from '../../server/http/router.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { newSecrets, pauseWebhook, redeliver, resumeWebhook, rotateSecret, testWebhook } from './actions.js';
import type { Webhooks } from './webhooks.js';

interface WebhookRouteServices {
  readonly identities: Identities;
  readonly database: Database;
  readonly webhooks: Webhooks;
}

const ATTEMPT = object({
  id: UUID,
  delivered: BOOLEAN,
  status: orNull(INTEGER),
  ms: INTEGER,
  body: STRING,
  error: orNull(STRING),
});

export function webhookRoutes(services: WebhookRouteServices): ApiRoute[] {
  const action = actionRoutes(services);
  const allow = 'administrators';
  return [
    action('POST /webhooks/:key/test', test, {
      summary: 'Send a test delivery, and answer how the receiver responded',
      allow,
      data: ATTEMPT,
      graphql: { name: 'webhooks_test' },
    }),
    action('POST /webhooks/:key/pause', pause, {
      summary: 'Pause deliveries: changes are still recorded',
      allow,
      data: BOOLEAN,
      graphql: { name: 'webhooks_pause' },
    }),
    action('POST /webhooks/:key/resume', resume, {
      summary: 'Resume deliveries, and mark the webhook as complete',
      allow,
      data: BOOLEAN,
      graphql: { name: 'webhooks_resume' },
    }),
    action('POST /webhooks/:key/rotate', rotate, {
      summary: 'Replace the secret; the former one signs for one more day',
      allow,
      data: object({ secret: STRING }),
      graphql: { name: 'webhooks_rotate' },
    }),
    action('POST /webhooks/:key/redeliver', sendAgain, {
      summary: 'Send finished deliveries again: those listed, or all dead ones',
      allow,
      optional: true,
      body: object({ deliveries: list(UUID) }),
      data: object({ count: INTEGER }),
      graphql: { name: 'webhooks_redeliver' },
    }),
  ];
}

type Request = Pick<ActionRequest, 'parameters' | 'json'>;

function keyOf({ parameters }: Request): string {
  return elementAt(parameters, 0);
}

async function test(request: Request, { database, webhooks }: WebhookRouteServices): Promise<ActionResult> {
  const { id, isDelivered, status, ms, body, error } = await testWebhook(database, webhooks.sender, keyOf(request));
  return { data: { id, delivered: isDelivered, status, ms, body, error } };
}

async function pause(request: Request, { database }: WebhookRouteServices): Promise<ActionResult> {
  await pauseWebhook(database, keyOf(request));
  return { data: true };
}

async function resume(request: Request, { database }: WebhookRouteServices): Promise<ActionResult> {
  await resumeWebhook(database, keyOf(request));
  return { data: true };
}

async function rotate(request: Request, { database }: WebhookRouteServices): Promise<ActionResult> {
  return { data: { secret: await rotateSecret(database, keyOf(request)) }, secret: true };
}

async function sendAgain(request: Request, { database }: WebhookRouteServices): Promise<ActionResult> {
  const { deliveries } = readBody((await request.json()) ?? {});
  const isIds = Array.isArray(deliveries) && deliveries.every((each) => typeof each === 'string');
  if (deliveries !== undefined && !isIds) throw invalidPayload('"deliveries" must be a list of ids');
  return { data: { count: await redeliver(database, keyOf(request), isIds ? deliveries : null) } };
}

/** The answer that creates webhooks is the only one that shows their secrets. */
export function withNewSecrets(routes: readonly Route[], database: Database): Route[] {
  const showing = ({ handle }: Route): Handler => {
    return async (exchange) => {
      const reply = await handle(exchange);
      return reply === DEFERRED ? reply : showSecrets(reply, database);
    };
  };
  return routes.map((route) => (route.method === 'POST' ? { ...route, handle: showing(route) } : route));
}

async function showSecrets(reply: Reply, database: Database): Promise<Reply> {
  if (reply.status !== 200 || typeof reply.body === 'function') return reply;
  const answer = parseJson(String(reply.body));
  // Without an envelope the answer is the data itself.
  const isBare = !isObject(answer) || !('data' in answer);
  const data = isBare ? answer : answer['data'];
  const items = Array.isArray(data) ? data : [data];
  const ids = items.flatMap((item) => (isObject(item) && typeof item['id'] === 'string' ? [item['id']] : []));
  const secrets = await newSecrets(database, ids);
  const shown = items.map((item: unknown) =>
    isObject(item) && 'secret' in item ? { ...item, secret: secrets.get(String(item['id'])) ?? item['secret'] } : item,
  );
  const written = Array.isArray(data) ? shown : shown[0];
  const body = writeJson(isBare ? written : { ...answer, data: written });
  const { tag: _, ...rest } = reply;
  return { ...rest, body, secret: true };
}
