/**
 * Webhooks of one thread. Each thread of each instance does the same: it turns changes into deliveries if no other does, and sends what
 * it can claim. NOTIFY wakes it. If a notification is lost, it finds the changes by looking for them from time to time.
 */

import { randomUUID } from 'node:crypto';
import { messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import type { ParseLimits } from '../../compiler/request/parse-context.js';
import type { TableName } from '../../server/changes/change-source.js';
import type { TriggerChange } from '../../server/changes/statement-triggers.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Check, Checks } from '../../server/postgres/health.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { pauseWebhook } from './actions.js';
import {
  type Backlog,
  dueWebhooks,
  expireDeliveries,
  promoteAll,
  readBacklog,
  releaseDeliveries,
} from './deliveries.js';
import type { WebhookLogEvent } from './log-events.js';
import { Outbox } from './outbox.js';
import { type DeliveryLimits, type DeliveryStats, DeliveryWorker, Sender } from './sender.js';
import {
  MARK_INCOMPLETE,
  parseWebhooks,
  READ_WEBHOOKS,
  type Webhook,
  type WebhookRow,
  wantedTables,
} from './webhook-hook.js';
import { planTriggers, TRIGGER_LOCK, type TriggerPlan, type WantedTable } from './webhook-triggers.js';

interface WebhookOptions extends DeliveryLimits {
  readonly parse: ParseLimits;
  readonly maxBacklog: number;
  /** Bytes. */
  readonly maxPayload: number;
  readonly allowLocal: boolean;
  /** Milliseconds that finished deliveries are kept. */
  readonly retention: number;
}

interface WebhookServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly reads: Reads;
}

/**
 * Milliseconds between two looks for changes: after changes were found, because writers do not notify while changes wait; with
 * webhooks; and without any.
 */
const BUSY_POLL_MS = 30;
const POLL_MS = 1_000;
const IDLE_POLL_MS = 30_000;

/** Milliseconds between two checks of triggers and of old deliveries, and of the figures. */
const UPKEEP_MS = 30_000;
const FIGURES_MS = 5_000;

/** With many deliveries the figures take long to read: the time between two reads is this many times as long. */
const FIGURES_PAUSE = 20;

/** Requests to receivers at the same time. */
const MAX_REQUESTS = 256;

/** Bytes of payloads that are claimed at the same time. A webhook may claim one delivery beyond it. */
const MAX_BYTES = 33_554_432;

/** Milliseconds that deliveries under way get when the service stops. */
const STOP_MS = 1_000;

const NO_BACKLOG: Backlog = { changes: 0, pending: 0, dead: 0, incomplete: 0, oldest: 0 };

export class Webhooks {
  readonly stats: DeliveryStats = { delivered: 0, failed: 0, dead: 0 };
  /** As it was when it was last read. */
  backlog: Backlog = NO_BACKLOG;
  readonly sender: Sender;
  readonly #claimant = randomUUID();
  readonly #slots = { free: MAX_REQUESTS, bytes: MAX_BYTES };
  readonly #workers = new Map<string, DeliveryWorker>();
  readonly #outbox: Outbox;
  #timer: NodeJS.Timeout | null = null;
  #running: Promise<void> | null = null;
  #again = false;
  #isStopped = false;
  #hasWebhooks = false;
  /** Whether there are neither webhooks nor changes. */
  #isEmpty = false;
  /** Whether the last look found changes. */
  #isBusy = false;
  /** The tables that webhooks follow, as text. */
  #definitions = '[]';
  #keptUpAt = Number.NEGATIVE_INFINITY;
  /** When the figures are read next. */
  #figuresAt = Number.NEGATIVE_INFINITY;
  #expiredAt = Number.NEGATIVE_INFINITY;
  #tidying: Promise<void> | null = null;
  readonly #triggers: TableTriggers;

  constructor(
    private readonly services: WebhookServices,
    private readonly options: WebhookOptions,
    private readonly observe: Observer<WebhookLogEvent>,
  ) {
    this.sender = new Sender(options);
    this.#triggers = new TableTriggers(services, options);
    this.#outbox = new Outbox(services, options, (webhook, reason) =>
      this.observe({ kind: 'webhook-incomplete', webhook, reason }),
    );
    services.mirror.onChange(() => {
      this.#keptUpAt = Number.NEGATIVE_INFINITY;
      this.wake();
    });
  }

  start(): void {
    this.wake();
  }

  /** Looks for changes and sends what is due. Returns at once. */
  wake(): void {
    this.#again = true;
    if (this.#isStopped) return;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      this.#schedule();
    });
  }

  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
    await Promise.all([...this.#workers.values()].map((worker) => worker.stop(STOP_MS)));
    this.sender.close();
    if (this.#workers.size > 0) await releaseDeliveries(this.services.database, this.#claimant).catch(() => {});
  }

  check(): Checks {
    if (!this.#hasWebhooks) return {};
    const { incomplete, pending, changes } = this.backlog;
    const [failure] = this.#triggers.failures;
    const output =
      failure !== undefined
        ? `"${failure[0]}" has no triggers: ${failure[1]}`
        : incomplete > 0
          ? `${incomplete} webhooks have missed changes`
          : null;
    const check: Check = {
      status: output === null ? 'ok' : 'degraded',
      componentType: 'component',
      observedValue: pending + changes,
      observedUnit: 'deliveries',
      ...(output !== null && { output }),
    };
    return { 'webhooks:pending': [check] };
  }

  #schedule(): void {
    if (this.#isStopped) return;
    if (this.#again) {
      this.wake();
      return;
    }
    if (this.#timer) clearTimeout(this.#timer);
    const pause = this.#isBusy ? BUSY_POLL_MS : this.#hasWebhooks ? POLL_MS : IDLE_POLL_MS;
    this.#timer = setTimeout(() => this.wake(), pause).unref();
  }

  async #run(): Promise<void> {
    this.#again = false;
    try {
      const webhooks = await this.#readWebhooks();
      this.#hasWebhooks = webhooks.some(({ status }) => status !== 'inactive');
      if (performance.now() - this.#keptUpAt >= UPKEEP_MS) await this.#keepUp(webhooks);
      // The last webhook may have left changes behind.
      if (webhooks.length === 0 && this.#isEmpty) return;
      if (this.#tidying === null && performance.now() >= this.#figuresAt)
        this.#tidying = this.#tidy().finally(() => {
          this.#tidying = null;
        });
      // Deliveries are sent, even if a change cannot be drained now.
      await this.#drain(webhooks);
    } catch (error) {
      this.#failed(error);
      this.#again = this.#isBusy = false;
    }
  }

  /** A large backlog takes a while, and webhooks may change in the meantime. */
  async #drain(found: readonly Webhook[]): Promise<void> {
    let webhooks = found;
    let drained: Awaited<ReturnType<Outbox['drain']>> = 'some';
    try {
      for (let isFirst = true; drained === 'some' && !this.#isStopped; isFirst = false) {
        if (!isFirst) {
          webhooks = await this.#readWebhooks();
          await this.#wakeLanes(webhooks);
        }
        drained = await this.#outbox.drain();
        this.#isBusy = !isFirst || drained !== 'none';
      }
      this.#isEmpty = webhooks.length === 0 && drained === 'none' && this.#triggers.failures.size === 0;
    } finally {
      await this.#wakeLanes(webhooks);
    }
  }

  /** Draining does not wait for it. */
  async #tidy(): Promise<void> {
    const start = performance.now();
    const { database } = this.services;
    try {
      this.backlog = await readBacklog(database);
      if (performance.now() - this.#expiredAt < UPKEEP_MS) return;
      this.#expiredAt = performance.now();
      await promoteAll(database);
      while (!this.#isStopped && (await expireDeliveries(database, this.options.retention)) > 0);
    } catch (error) {
      this.#failed(error);
    } finally {
      const end = performance.now();
      this.#figuresAt = end + Math.max(FIGURES_MS, FIGURES_PAUSE * (end - start));
    }
  }

  #failed(error: unknown): void {
    if (!this.#isStopped) this.observe({ kind: 'webhooks-failed', error });
  }

  async #readWebhooks(): Promise<readonly Webhook[]> {
    const rows = await this.services.database.rows<WebhookRow>(READ_WEBHOOKS);
    const { webhooks } = parseWebhooks(rows);
    const definitions = JSON.stringify(rows.map(({ id, status, collections }) => [id, status, collections]));
    if (definitions !== this.#definitions) this.#keptUpAt = Number.NEGATIVE_INFINITY;
    this.#definitions = definitions;
    const existing = new Set(webhooks.map(({ id }) => id));
    for (const [id, worker] of this.#workers) {
      if (existing.has(id)) continue;
      worker.drop();
      if (worker.isIdle) this.#workers.delete(id);
    }
    return webhooks;
  }

  async #wakeLanes(webhooks: readonly Webhook[]): Promise<void> {
    const due = await dueWebhooks(this.services.database);
    for (const webhook of webhooks) {
      const existing = this.#workers.get(webhook.id);
      if (existing) existing.webhook = webhook;
      if (webhook.status !== 'active') existing?.drop();
      if (this.#isStopped) continue;
      if (existing?.hasResults) existing.wake();
      else if (due.has(webhook.id)) (existing ?? this.#open(webhook)).wake();
    }
  }

  #open(webhook: Webhook): DeliveryWorker {
    const { database } = this.services;
    const services = { database, sender: this.sender, claimant: this.#claimant, slots: this.#slots, stats: this.stats };
    const worker = new DeliveryWorker(webhook, services, this.options, {
      failed: (error) => this.observe({ kind: 'webhooks-failed', error }),
      isGone: async () => {
        this.observe({ kind: 'webhook-gone', webhook: webhook.id });
        await pauseWebhook(database, webhook.id).catch((error: unknown) => this.#failed(error));
      },
    });
    this.#workers.set(webhook.id, worker);
    return worker;
  }

  /** Tables may have been created, dropped or renamed, and triggers disabled. */
  async #keepUp(webhooks: readonly Webhook[]): Promise<void> {
    this.#keptUpAt = performance.now();
    await this.#triggers.sync(webhooks);
    for (const [table, reason] of this.#triggers.failures)
      this.observe({ kind: 'webhook-triggers-missing', table, reason });
    await this.#markMissing(webhooks);
    if (this.#triggers.lost.length > 0) await this.#markLost();
  }

  /** A table under a name that a webhook follows was replaced by another, or somebody disabled its triggers. */
  async #markLost(): Promise<void> {
    // A webhook that was created while the triggers were compared may have lost changes too.
    const webhooks = await this.#readWebhooks();
    const { collections } = this.services.mirror.model;
    for (const lost of this.#triggers.lost)
      for (const { id, status, collections: followed, incompleteSince } of webhooks) {
        const name = followed.find((each) => {
          const collection = collections.get(each);
          return collection?.schema === lost.schema && collection.table === lost.name;
        });
        if (name === undefined || status === 'inactive' || incompleteSince !== null) continue;
        await this.#markIncomplete(id, `the table of "${name}" had no triggers for a while`);
      }
  }

  async #markIncomplete(webhook: string, reason: string): Promise<void> {
    await this.services.database.rows(MARK_INCOMPLETE, [webhook, reason]);
    this.observe({ kind: 'webhook-incomplete', webhook, reason });
  }

  /** A collection that a webhook follows does not exist. */
  async #markMissing(webhooks: readonly Webhook[]): Promise<void> {
    const { mirror } = this.services;
    for (const { id, status, collections, incompleteSince } of webhooks) {
      const missing = collections.find((name) => !mirror.model.collections.has(name));
      if (missing === undefined || status === 'inactive' || incompleteSince !== null) continue;
      await this.#markIncomplete(id, `the collection "${missing}" does not exist`);
    }
  }
}

/** Milliseconds that a table which is in use is waited for. */
const LOCK_TIMEOUT_MS = 500;

type Query = Parameters<typeof planTriggers>[0];

/**
 * Keeps the triggers right: tables may have been created, dropped or renamed, and triggers disabled or dropped. Requests that change
 * webhooks install their triggers by themselves (webhook-writes.ts).
 */
class TableTriggers {
  /** Why tables lack their triggers, by name. */
  failures: ReadonlyMap<string, string> = new Map();
  /**
   * Tables whose triggers the last call found disabled, or that had triggers at an earlier call and had lost them at the last one: changes
   * may be missing.
   */
  lost: readonly TableName[] = [];
  #installed = new Set<string>();
  /** Other instances may have another limit. Each sets its own once, when it starts. */
  #isRenewed = true;
  /** Tables with triggers that the model did not have at the last call. */
  #unknown: ReadonlySet<string> = new Set();

  constructor(
    private readonly services: WebhookServices,
    private readonly options: WebhookOptions,
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
          const found = missing.find((table) => table === next);
          if (found && (found.disabled || (!found.records && this.#installed.has(current)))) lost.push(next);
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
    const wanted = this.#wanted(webhooks).map(nameOf);
    this.#installed = new Set(wanted.filter((name) => !failures.has(name)));
  }

  #plan(query: Query, webhooks: readonly Webhook[]): Promise<TriggerPlan> {
    const { maxBacklog: maxChanges, maxPayload: maxBytes } = this.options;
    const limits = { maxChanges, maxBytes, isRenewed: this.#isRenewed };
    return planTriggers(query, this.services.database.system, this.#wanted(webhooks), limits);
  }

  #wanted(webhooks: readonly Webhook[]): readonly WantedTable[] {
    const { mirror, reads } = this.services;
    return wantedTables(webhooks, mirror.model, { reads, parseLimits: this.options.parse });
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
