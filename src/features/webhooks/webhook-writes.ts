/** Checks writes of webhooks, and installs the triggers that they need. */

import { forbidden, unprocessable } from '../../base/errors.js';
import type { TableName } from '../../server/changes/change-source.js';
import type { HookedWrite, WriteHook } from '../../server/execute/hooks/write-hook.js';
import { querySystem } from '../../server/execute/reads/session-reads.js';
import {
  checkWebhook,
  MARK_INCOMPLETE,
  parseWebhook,
  parseWebhooks,
  READ_WEBHOOKS,
  WEBHOOKS,
  type WebhookLimits,
  type WebhookRow,
  wantedTables,
} from './webhook-hook.js';
import { planTriggers, TRIGGER_LOCK } from './webhook-triggers.js';

/** Milliseconds that a table which is in use is waited for. */
const LOCK_TIMEOUT_MS = 2_000;

/**
 * A webhook that is written must be usable, and its tables get their triggers in the same transaction, so that no change after the
 * answer is missed. Unused triggers are dropped later, because readers of the table block that. Webhooks send items whatever the
 * permissions of their creator, so only administrators write them.
 */
export const webhookWrites = (limits: WebhookLimits): WriteHook => ({
  concerns: ({ collection }) => collection.name === WEBHOOKS,
  open: (write) => {
    let before: ReadonlyMap<string, string> = new Map();
    return {
      beforeWrite: async () => {
        if (!write.writer.caller.administrator) throw forbidden();
        await querySystem(write, TRIGGER_LOCK, [write.database.system]);
        before = new Map((await readRows(write)).map((row) => [row.id, JSON.stringify(row)]));
      },
      afterWrite: async () => {
        const rows = await readRows(write);
        for (const row of rows.filter((each) => before.get(each.id) !== JSON.stringify(each)))
          checkWebhook(parseWebhook(row), write.model, limits, write);
        const lost = await installTriggers(write, rows, limits);
        await markLost(
          write,
          rows.filter(({ id }) => before.has(id)),
          lost,
        );
      },
    };
  },
});

async function readRows(write: HookedWrite): Promise<WebhookRow[]> {
  const { session, database } = write;
  return session.asService(() => session.query<WebhookRow>(database.qualified(READ_WEBHOOKS)));
}

/** Returns the tables whose triggers somebody had disabled. */
async function installTriggers(
  write: HookedWrite,
  rows: readonly WebhookRow[],
  limits: WebhookLimits,
): Promise<readonly TableName[]> {
  const { session, database, model } = write;
  const wanted = wantedTables(parseWebhooks(rows).webhooks, model, write);
  return session.asService(async () => {
    const query = <Row>(text: string, parameters: (string | null)[]): Promise<Row[]> => session.query(text, parameters);
    const { maxBacklog: maxChanges, maxPayload: maxBytes } = limits;
    const { missing } = await planTriggers(query, database.system, wanted, { maxChanges, maxBytes, isRenewed: false });
    const refused = missing.find(({ mayInstall }) => !mayInstall);
    if (refused)
      throw unprocessable(
        `The role of the service may not create triggers on "${refused.schema}.${refused.name}": grant it the privilege TRIGGER`,
      );
    await session.query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
    for (const { statements } of missing) for (const statement of statements) await session.query(statement);
    return missing.filter(({ disabled }) => disabled);
  });
}

/** Changes of these tables were not recorded for the webhooks that followed them before. */
async function markLost(
  { session, database, model }: HookedWrite,
  rows: readonly WebhookRow[],
  lost: readonly TableName[],
): Promise<void> {
  for (const { schema, name: table } of lost)
    for (const { id, status, collections } of parseWebhooks(rows).webhooks) {
      const name = collections.find((each) => {
        const collection = model.collections.get(each);
        return collection?.schema === schema && collection.table === table;
      });
      if (name === undefined || status === 'inactive') continue;
      const reason = `the table of "${name}" had no triggers for a while`;
      await session.asService(() => session.query(database.qualified(MARK_INCOMPLETE), [id, reason]));
    }
}
