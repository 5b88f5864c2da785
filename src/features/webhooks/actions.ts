/** Actions of administrators, by the API or the command line: test a webhook, pause it, rotate its secret, send deliveries again. */
import { randomUUID } from 'node:crypto';
import { forbidden, invalidPayload } from '../../base/errors.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { type Group, LOCK_WEBHOOK, promote } from './deliveries.js';
import { payloadOf } from './payload.js';
import type { Attempt, Sender } from './sender.js';
import { parseWebhook, READ_WEBHOOKS, type Webhook, type WebhookRow } from './webhook-hook.js';

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The row with this id or name. */
async function findRow(database: Database, idOrName: string): Promise<WebhookRow> {
  const rows = await database.rows<WebhookRow>(READ_WEBHOOKS);
  const found = rows.filter(({ id, name }) => id === idOrName.toLowerCase() || name === idOrName);
  const [row, other] = found;
  if (!row) throw forbidden(`There is no webhook "${idOrName}".`);
  if (other) throw invalidPayload(`Several webhooks are called "${idOrName}": use the id`);
  return row;
}

export async function findWebhook(database: Database, idOrName: string): Promise<Webhook> {
  return parseWebhook(await findRow(database, idOrName));
}

const PAUSE = withCatalog(
  "update service_webhooks set status = 'paused' where id = $1::uuid and status::text = 'active' returning id",
);

/** Changes are still recorded, and sent when it is resumed. */
export async function pauseWebhook(database: Database, idOrName: string): Promise<void> {
  const { id, status } = await findRow(database, idOrName);
  const changed = await database.rows(PAUSE, [id]);
  if (changed.length === 0 && status !== 'paused') throw invalidPayload('Only an active webhook can be paused');
}

const RESUME =
  withCatalog(`update service_webhooks set status = 'active', incomplete_since = null, incomplete_reason = null
  where id = $1::uuid and status::text <> 'inactive' returning id`);

/** It counts as complete from now on. */
export async function resumeWebhook(database: Database, idOrName: string): Promise<void> {
  const { id } = await findRow(database, idOrName);
  const changed = await database.rows(RESUME, [id]);
  if (changed.length === 0) throw invalidPayload('The webhook is inactive: set "status" to "active"');
}

/** The former secret signs as well, for a day. */
const ROTATE = withCatalog(`update service_webhooks set previous_secret = secret,
  previous_secret_until = now() + make_interval(days => 1), secret = default where id = $1::uuid returning secret`);

/** Returns the new secret. */
export async function rotateSecret(database: Database, idOrName: string): Promise<string> {
  const { id } = await findRow(database, idOrName);
  const [row] = await database.rows<{ secret: string }>(ROTATE, [id]);
  if (!row) throw forbidden(`There is no webhook "${idOrName}".`);
  return row.secret;
}

const SECRETS = withCatalog('select id::text, secret from service_webhooks where id = any ($1::text[]::uuid[])');

/** The secrets of webhooks that were just created, by id. */
export async function newSecrets(database: Database, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const rows = await database.rows<{ id: string; secret: string }>(SECRETS, [arrayLiteral(ids)]);
  return new Map(rows.map(({ id, secret }) => [id, secret]));
}

const REDELIVER = withCatalog(`
with ${LOCK_WEBHOOK('$1')}
update service_webhook_deliveries
set status = 'pending', waits = true, attempts = 0, next_attempt_at = now(), finished_at = null, claimed_until = null, claimed_by = null
where webhook = (select id from webhook) and event::text <> 'test' and case when $2::text is null then status::text = 'dead'
  else status::text <> 'pending' and id = any ($2::text[]::uuid[]) end
returning webhook::text, collection, item`);

const NOTIFY = withCatalog("select pg_notify('service_webhooks', $1)");

/** Sends finished deliveries again, except tests: those with the ids, or all dead ones. Returns how many. */
export async function redeliver(database: Database, idOrName: string, ids: readonly string[] | null): Promise<number> {
  const bad = ids?.find((id) => !ID.test(id));
  if (bad !== undefined) throw invalidPayload(`"${bad}" is not the id of a delivery`);
  const { id } = await findRow(database, idOrName);
  const again = await database.rows<Group>(REDELIVER, [id, ids && arrayLiteral(ids)]);
  await promote(database, again);
  await database.rows(NOTIFY, [database.system]);
  return again.length;
}

const RECORD = withCatalog(`
insert into service_webhook_deliveries (id, webhook, sequence, collection, event, status, payload, attempts, finished_at,
  response_status, response_ms, response_body, error)
values ($1::uuid, $2::uuid, 0, $3, 'test', $4, $5::json, 1, now(), $6::int, $7::int, $8, $9)`);

/** Sends a delivery without an item at once, and answers what became of it. It is not repeated. */
export async function testWebhook(
  database: Database,
  sender: Sender,
  idOrName: string,
): Promise<Attempt & { readonly id: string }> {
  const webhook = await findWebhook(database, idOrName);
  const [collection = ''] = webhook.collections;
  const id = randomUUID();
  const timestamp = new Date().toISOString();
  const payload = payloadOf({ collection, event: 'test', timestamp, key: null }, null, null);
  const attempt = await sender.send(webhook, id, payload);
  const status = attempt.status === null ? null : String(attempt.status);
  const outcome = attempt.isDelivered ? 'delivered' : 'dead';
  const given = [id, webhook.id, collection, outcome, payload, status, String(attempt.ms), attempt.body, attempt.error];
  await database.rows(RECORD, given);
  return { id, ...attempt };
}
