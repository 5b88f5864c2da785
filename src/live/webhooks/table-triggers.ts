/**
 * Keeps the triggers right: tables may have been created, dropped or renamed, and triggers disabled or dropped. Requests that change
 * webhooks install their triggers by themselves (engine/hooks/write-hooks.ts).
 */
import { messageOf } from '../../base/narrow.js';
import {
  parseWebhooks,
  READ_WEBHOOKS,
  type Webhook,
  type WebhookRow,
  wantedTables,
} from '../../engine/system-collections/webhooks.js';
import type { Mirror } from '../../mirror/watch.js';
import type { TableName } from '../../postgres/changes/publication.js';
import type { TriggerChange } from '../../postgres/changes/statement-triggers.js';
import { planTriggers, TRIGGER_LOCK, type TriggerPlan } from '../../postgres/changes/webhook-triggers.js';
import type { Database } from '../../postgres/pools/database.js';

/** Milliseconds that a table which is in use is waited for. */
const LOCK_TIMEOUT_MS = 500;

type Query = Parameters<typeof planTriggers>[0];

export class TableTriggers {
  /** Why tables lack their triggers, by name. */
  failures: ReadonlyMap<string, string> = new Map();
  /** Tables that had their triggers at an earlier call and had lost them at the last one: changes may be missing. */
  lost: readonly TableName[] = [];
  #installed = new Set<string>();
  /** Other instances may have another limit. Each sets its own once, when it starts. */
  #isRenewed = true;
  /** Tables with triggers that the model did not have at the last call. */
  #unknown: ReadonlySet<string> = new Set();

  constructor(
    private readonly services: { readonly database: Database; readonly mirror: Mirror },
    private readonly maxBacklog: number,
  ) {}

  /** Each table is changed in a transaction of its own, so that no writer waits for more than one. */
  async sync(webhooks: readonly Webhook[]): Promise<void> {
    const { database, mirror } = this.services;
    const first = await this.#plan((text, parameters) => database.rows(text, parameters), webhooks);
    const lost: TableName[] = [];
    const failures = new Map<string, string>();
    const tried = new Set<string>();
    const before = this.#unknown;
    this.#unknown = new Set(first.unwanted.map(nameOf).filter((name) => !this.#knows(name)));
    if (first.missing.length + first.unwanted.length > 0) await mirror.refresh(true);
    for (let isDone = first.missing.length + first.unwanted.length === 0; !isDone; ) {
      let current = '';
      try {
        isDone = await database.transaction(async (session) => {
          await session.query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
          await session.query(TRIGGER_LOCK, [database.system]);
          const rows = await session.query<WebhookRow>(database.qualified(READ_WEBHOOKS));
          const query: Query = (text, parameters) => session.query(text, parameters);
          const { missing, unwanted } = await this.#plan(query, parseWebhooks(rows).webhooks);
          const obsolete = unwanted.filter((table) => this.#knows(nameOf(table)) || before.has(nameOf(table)));
          const next = [...missing, ...obsolete].find((table) => !tried.has(nameOf(table)));
          if (!next) return true;
          current = nameOf(next);
          for (const statement of next.statements) await session.query(statement);
          const isLost = missing.some((table) => table === next && !table.records) && this.#installed.has(current);
          if (isLost) lost.push(next);
          return false;
        });
      } catch (error) {
        if (current === '') throw error;
        failures.set(current, messageOf(error));
      }
      tried.add(current);
    }
    this.failures = failures;
    this.lost = lost;
    this.#isRenewed = false;
    const wanted = wantedTables(webhooks, mirror.model).map(nameOf);
    this.#installed = new Set(wanted.filter((name) => !failures.has(name)));
  }

  #plan(query: Query, webhooks: readonly Webhook[]): Promise<TriggerPlan> {
    const { database, mirror } = this.services;
    const limit = { maxChanges: this.maxBacklog, isRenewed: this.#isRenewed };
    return planTriggers(query, database.system, wantedTables(webhooks, mirror.model), limit);
  }

  /** Another instance may know a table that this one does not know yet: its triggers are not dropped. */
  #knows(name: string): boolean {
    for (const { schema, table } of this.services.mirror.model.collections.values())
      if (nameOf({ schema, name: table }) === name) return true;
    return false;
  }
}

function nameOf({ schema, name }: TableName | TriggerChange): string {
  return `${schema}.${name}`;
}
