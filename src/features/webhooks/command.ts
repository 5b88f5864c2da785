/** `lateral webhooks` lists webhooks and their deliveries, and does what the routes of /webhooks do. */
import { ServiceError, StartError, UsageError } from '../../base/errors.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { ConfigWith } from '../../server/config/config.js';
import type { Program } from '../../server/feature/command.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { findWebhook, pauseWebhook, redeliver, resumeWebhook, rotateSecret, testWebhook } from './actions.js';
import type { OPTIONS } from './options.js';
import { Sender } from './sender.js';

const WEBHOOKS_HELP = `Usage: lateral webhooks {list | test | pause | resume | rotate | deliveries | redeliver} [WEBHOOK] [DELIVERY ...] [--option value ...]

WEBHOOK is the id or the name of a webhook. Webhooks are created with POST /webhooks.

  list         the webhooks, with the number of pending and dead deliveries, and the reason if changes were missed
  test         sends a delivery without an item, and prints the response
  pause        stops deliveries; changes are recorded and sent later
  resume       starts them again, and marks the webhook as complete
  rotate       replaces the secret and prints the new one; the former one signs for one more day
  deliveries   the last 50 deliveries with the responses
  redeliver    sends dead deliveries again, or those with the given ids

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

const LIST = withCatalog(`
select w.id::text, w.name, w.status, w.url, w.collections::text as collections, w.incomplete_reason,
  (select count(*) from service_webhook_deliveries d where d.webhook = w.id and d.status::text = 'pending')::int as pending,
  (select count(*) from service_webhook_deliveries d where d.webhook = w.id and d.status::text = 'dead' and d.event::text <> 'test')::int as dead
from service_webhooks w order by w.name, w.id`);

const DELIVERIES = withCatalog(`
select id::text, status, event, collection, item, attempts, response_status, response_ms, error,
  to_char(pg_catalog.timezone('UTC', created_at), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as created
from service_webhook_deliveries where webhook = $1::uuid order by created_at desc, sequence desc limit 50`);

interface Given {
  readonly database: Database;
  readonly config: ConfigWith<typeof OPTIONS>;
  readonly webhook: string;
  readonly deliveries: readonly string[];
}

type WebhookCommand = (given: Given) => Promise<readonly string[]>;

const WEBHOOK_COMMANDS: ReadonlyMap<string, WebhookCommand> = new Map<string, WebhookCommand>([
  ['list', ({ database }) => list(database)],
  [
    'test',
    async ({ database, config, webhook }) => {
      const sender = new Sender({ timeout: config.WEBHOOK_TIMEOUT, allowLocal: config.WEBHOOKS_ALLOW_LOCAL });
      const { isDelivered, status, ms, body, error } = await testWebhook(database, sender, webhook);
      sender.close();
      if (!isDelivered) process.exitCode = 1;
      return [`${isDelivered ? 'delivered' : 'failed'}: ${error ?? `status ${status}`} after ${ms} ms`, body].filter(
        Boolean,
      );
    },
  ],
  ['pause', ({ database, webhook }) => pauseWebhook(database, webhook).then(() => ['paused'])],
  ['resume', ({ database, webhook }) => resumeWebhook(database, webhook).then(() => ['resumed'])],
  ['rotate', async ({ database, webhook }) => [await rotateSecret(database, webhook)]],
  ['deliveries', ({ database, webhook }) => listDeliveries(database, webhook)],
  [
    'redeliver',
    async ({ database, webhook, deliveries }) => {
      const count = await redeliver(database, webhook, deliveries.length === 0 ? null : deliveries);
      return [`${count} deliveries are sent again`];
    },
  ],
]);

async function list(database: Database): Promise<readonly string[]> {
  const rows = await database.rows<Record<string, string | number | null>>(LIST);
  if (rows.length === 0) return ['There are no webhooks.'];
  return rows.map((row) => {
    const { id, name, status, url, collections, pending, dead, incomplete_reason: reason } = row;
    const line = `${id}  ${name}  ${status}  ${collections} -> ${url}  ${pending} pending, ${dead} dead`;
    return reason === null ? line : `${line}  incomplete: ${reason}`;
  });
}

async function listDeliveries(database: Database, webhook: string): Promise<readonly string[]> {
  const { id } = await findWebhook(database, webhook);
  const rows = await database.rows<Record<string, string | number | null>>(DELIVERIES, [id]);
  return rows.map((row) => {
    const { attempts, error, response_status: status, response_ms: ms } = row;
    const result = error ?? (status === null ? 'not sent yet' : `status ${status} after ${ms} ms`);
    const subject = `${row['collection']}.${row['event']} ${row['item'] ?? ''}`.trim();
    return `${row['id']}  ${row['created']}  ${subject}  ${row['status']} (${attempts})  ${result}`;
  });
}

async function webhooks(
  words: readonly string[],
  { createObserver, readConfig, readWords, withDatabase }: Program,
): Promise<void> {
  const [name = '', ...rest] = words;
  const command = WEBHOOK_COMMANDS.get(name);
  if (!command)
    throw new UsageError(
      `webhooks expects one of ${[...WEBHOOK_COMMANDS.keys()].join(', ')}: see lateral webhooks --help`,
    );
  const { operands, environment } = readWords(rest, []);
  const [webhook = '', ...deliveries] = operands;
  if (name !== 'list' && webhook === '') throw new StartError(`webhooks ${name} needs the id or name of a webhook`);
  const config = readConfig<typeof OPTIONS>({ ...process.env, ...environment });
  await withDatabase(config, createObserver('warn'), console.error, async (database) => {
    if (!(await locateSystemTables(database, config.SYSTEM_SCHEMA)))
      throw new StartError("the service's own tables are not there yet: start it once");
    try {
      for (const line of await command({ database, config, webhook, deliveries })) console.log(line);
    } catch (error) {
      throw error instanceof ServiceError ? new StartError(error.message) : error;
    }
  });
}

export const COMMANDS = {
  webhooks: { help: WEBHOOKS_HELP, run: webhooks },
};
