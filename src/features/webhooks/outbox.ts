/**
 * Turns the changes that triggers have written into deliveries, one for each webhook that wants the change. Filters and fields are
 * evaluated here, by PostgreSQL, over the image of the row. One instance at a time does this, in short transactions: the
 * deliveries of an item are created in the order of its changes.
 */
import { ranTooLong, ServiceError } from '../../base/errors.js';
import { codeOf, isOneOf, parseOwnJson } from '../../base/narrow.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import type { ParseLimits } from '../../compiler/request/parse-context.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { type Group, promote } from './deliveries.js';
import { type Change, deliveryWithoutItem, Evaluation, type NewDelivery } from './evaluation.js';
import { addResyncs, Covered, type Resync } from './resync.js';
import { EVENTS, parseWebhooks, READ_WEBHOOKS, type Webhook, type WebhookRow } from './webhook-hook.js';

/** The lock, the number of the newest change, and the state that the trigger sees. */
const LOCK = withCatalog(`
select pg_try_advisory_xact_lock(hashtextextended('lateral webhook changes ' || $1::text, 0)) as is_mine,
  (select case when s.is_called then s.last_value else 0 end from service_webhook_changes_id_seq s)::text as newest,
  (select case when s.is_called then s.last_value else 0 end from service_webhook_drained s)::text as drained,
  (select s.is_called from service_webhook_looking s) as is_looking,
  (select s.is_called from service_webhook_overfull s) as is_overfull`);

interface LockRow {
  readonly is_mine: boolean;
  readonly newest: string;
  readonly drained: string;
  readonly is_looking: boolean;
  /** Whether writers dropped changes because too many waited. */
  readonly is_overfull: boolean;
}

/** Stores the number of the newest change that was read, and whether the service polls. The trigger notifies only if it does not. */
const NOTIFY = withCatalog(`
select setval((quote_ident($1::text) || '.service_webhook_drained')::regclass, $2::bigint),
  setval((quote_ident($1::text) || '.service_webhook_looking')::regclass, 1, $3::boolean)`);

/** Writers record changes again. */
const REOPEN = withCatalog(`
select setval((quote_ident($1::text) || '.service_webhook_overfull')::regclass, 1, false)`);

/** Changes that one transaction turns into deliveries, and bytes of their rows, which stay in the database. */
const MAX_CHANGES = 500;
const MAX_BYTES = 33_554_432;

/** The oldest changes. A change with a lower number may be committed later, but it is of another item. */
const TAKE = withCatalog(`
select t.id::text, n.nspname as schema, r.relname as "table", t.event, t.item, t.image is not null as has_image,
  t.previous is not null as has_previous, to_json(t.omitted)::text as omitted, to_json(t.too_large)::text as too_large,
  case when t.event::text in ('gap', 'resync') then t.image::text end as reason,
  to_char(pg_catalog.timezone('UTC', t.changed_at), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as changed_at
from (
  select c.*, sum(coalesce(pg_catalog.pg_column_size(c.image), 0) + coalesce(pg_catalog.pg_column_size(c.previous), 0)
      + (16 * coalesce(octet_length(c.item), 0))) over (order by c.id) as bytes,
    row_number() over (order by c.id) as number
  from (select * from service_webhook_changes order by id limit $1::int) c
) t
left join pg_class r on r.oid = t.relation left join pg_namespace n on n.oid = r.relnamespace
where t.bytes <= ${MAX_BYTES} or t.number = 1
order by t.id`);

interface ChangeRow extends Omit<Change, 'collection' | 'event'> {
  /** The table, or null if it was dropped. */
  readonly schema: string | null;
  readonly table: string | null;
  readonly event: Change['event'] | 'gap' | 'resync';
  /** Why there is a gap or a resync, as JSON; otherwise null. */
  readonly reason: string | null;
}

const DELETE = withCatalog('delete from service_webhook_changes where id = any ($1::text[]::bigint[])');

/** Answers the items with deliveries that wait for older ones, which may have been finished in the meantime. */
const INSERT = withCatalog(`
with new as (
  select d.*, row_number() over (partition by d.webhook, d.collection, d.item order by d.sequence) > 1
    or (d.item is null and row_number() over (partition by d.webhook, d.collection order by d.sequence) > 1)
    or count(*) filter (where d.item is null) over (
      partition by d.webhook, d.collection order by d.sequence rows between unbounded preceding and 1 preceding) > 0 as follows
  from json_to_recordset($1::json) as d (webhook uuid, sequence bigint, collection text, item text, event text, payload text, bytes int)
), added as (
  insert into service_webhook_deliveries (webhook, sequence, collection, item, event, payload, bytes, waits)
  select n.webhook, n.sequence, n.collection, n.item, n.event, n.payload::json, n.bytes, n.follows
    or (select true from service_webhook_deliveries o where o.webhook = n.webhook and o.status::text = 'pending'
      and o.collection::text = n.collection and o.item = n.item limit 1) is not null
    or (select true from service_webhook_deliveries o where o.webhook = n.webhook and o.status::text = 'pending'
      and o.collection::text = n.collection and o.item is null limit 1) is not null
    or (n.item is null and (select true from service_webhook_deliveries o where o.webhook = n.webhook and o.status::text = 'pending'
      and o.collection::text = n.collection limit 1) is not null)
  from new n order by n.sequence
  returning webhook, collection, item, waits
)
select distinct a.webhook::text, a.collection, a.item from added a where a.waits`);

const MARK = withCatalog(`
update service_webhooks set status = case when $3::boolean then 'paused' else status::text end,
  incomplete_since = coalesce(incomplete_since, now()), incomplete_reason = coalesce(incomplete_reason, $2)
where id = $1::uuid`);

const PENDING = withCatalog(`
select w.id::text as webhook, c.name as collection, (select count(*) from (select from service_webhook_deliveries d
  where d.webhook = w.id and d.status::text = 'pending' and d.collection::text = c.name limit $1::bigint + 1) pending)::int as pending
from service_webhooks w
cross join lateral json_array_elements_text(case json_typeof(w.collections) when 'array' then w.collections else '[]' end) c (name)
where w.status::text <> 'inactive'`);

/** Milliseconds between two counts of what is pending, and the longest time without one. */
const COUNT_INTERVAL_MS = 1_000;
const MAX_UNCOUNTED_MS = 30_000;

/** Why the trigger did not record a change. */
interface Gap {
  readonly reason: string;
  /** In gaps of an earlier version of the service: whether too many changes waited. */
  readonly overfull?: boolean;
}

interface Draining {
  readonly lock: LockRow;
  /** Whether the model was just read. */
  readonly isFresh: boolean;
}

/** The work of one transaction. */
interface Drained {
  /** How many changes. */
  readonly taken: number;
  /** Items with new deliveries that wait for older ones. */
  readonly waiting: readonly Group[];
  /** Whether webhooks were marked because writers dropped changes. */
  readonly isReopened: boolean;
}

interface OutboxServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly reads: Reads;
}

interface OutboxLimits {
  readonly parse: ParseLimits;
  readonly maxBacklog: number;
  readonly maxPayload: number;
}

export class Outbox {
  #size = MAX_CHANGES;
  /** When deliveries were counted, the newest change at that time, and how many a webhook had at most. */
  #countedAt = Number.NEGATIVE_INFINITY;
  #countedUpTo = 0;
  #pending = 0;
  readonly #evaluation: Evaluation;

  constructor(
    private readonly services: OutboxServices,
    private readonly limits: OutboxLimits,
    private readonly onIncomplete: (webhook: string, reason: string) => void,
  ) {
    this.#evaluation = new Evaluation(services.reads, limits);
  }

  /** Returns `all` if changes were turned into deliveries and no others were there, `some` if there may be more, and `none` if there were none. */
  async drain(): Promise<'all' | 'some' | 'none'> {
    const size = this.#size;
    try {
      const drained = await this.#drainKnown(size);
      this.#size = Math.min(MAX_CHANGES, size * 2);
      if (drained === null) return 'none';
      const { database } = this.services;
      await promote(database, drained.waiting);
      if (drained.isReopened) await database.rows(REOPEN, [database.system]);
      if (drained.taken === 0) return 'none';
      return drained.taken >= size ? 'some' : 'all';
    } catch (error) {
      if (isUnavailable(error)) throw error;
      // One change cannot be read, or many take too long: the others must not wait for it.
      if (size > 1) this.#size = 1;
      else if (isOfChange(error)) await this.#transaction((session) => this.#skip(session));
      else throw error;
      return 'some';
    }
  }

  /** The model may be older than the table of a change. */
  async #drainKnown(size: number): Promise<Drained | null> {
    const drained = await this.#transaction((session, lock) =>
      this.#drainSome(session, size, { lock, isFresh: false }),
    );
    if (drained !== 'unknown') return drained;
    await this.services.mirror.refresh(true);
    const again = await this.#transaction((session, lock) => this.#drainSome(session, size, { lock, isFresh: true }));
    return again === 'unknown' ? null : again;
  }

  /** Returns null if another instance is at it. */
  #transaction<Result>(work: (session: Session, lock: LockRow) => Promise<Result>): Promise<Result | null> {
    const { database } = this.services;
    return database.transaction(async (session) => {
      const [lock] = await session.query<LockRow>(database.qualified(LOCK), [database.system]);
      return lock?.is_mine ? work(session, lock) : null;
    });
  }

  /** Returns `unknown`, and changes nothing, if the model lacks the table of a change and may be old. */
  async #drainSome(session: Session, size: number, { lock, isFresh }: Draining): Promise<Drained | 'unknown'> {
    const { database, mirror } = this.services;
    const rows = await session.query<ChangeRow>(database.qualified(TAKE), [String(size)]);
    const last = rows.at(-1);
    if (last === undefined) {
      const waiting = lock.is_overfull ? await this.#resyncAll(session, lock.newest) : [];
      await this.#tell(session, lock, lock.newest, false);
      return { taken: 0, waiting, isReopened: lock.is_overfull };
    }
    const unknown = rows.find((row) => row.table !== null && collectionOf(row, mirror.model) === null);
    if (unknown && !isFresh) return 'unknown';
    const webhooks = await this.#webhooks(session);
    if (lock.is_overfull) await this.#markOverfull(session, webhooks);
    if (unknown) await this.#markLacking(session, webhooks, `the table "${unknown.table}" is no collection`);
    if (rows.some(({ table }) => table === null)) await this.#markDropped(session, webhooks);
    const covered = await Covered.read(session, database);
    const waiting: Group[] = [];
    for (const webhook of webhooks.filter(isRecording))
      waiting.push(...(await this.#deliver(session, { webhook, rows, covered, isCareful: false })));
    await session.query(database.qualified(DELETE), [arrayLiteral(rows.map(({ id }) => id))]);
    waiting.push(...(await this.#limitPending(session, last.id)));
    // Last, because a sequence that was set stays so if the transaction fails.
    await this.#tell(session, lock, last.id, true);
    return { taken: rows.length, waiting, isReopened: false };
  }

  async #webhooks(session: Session): Promise<readonly Webhook[]> {
    const rows = await session.query<WebhookRow>(this.services.database.qualified(READ_WEBHOOKS));
    const { webhooks, broken } = parseWebhooks(rows);
    for (const { id, status, reason } of broken) if (status === 'active') await this.#mark(session, id, reason, true);
    return webhooks;
  }

  async #markOverfull(session: Session, webhooks: readonly Webhook[]): Promise<void> {
    const reason = `more than ${2 * this.limits.maxBacklog} changes waited, and others were not recorded (WEBHOOK_MAX_BACKLOG)`;
    for (const { id, incompleteSince } of webhooks.filter(isRecording))
      if (incompleteSince === null) await this.#mark(session, id, reason, false);
  }

  /** Changes that were recorded before others were dropped have been sent. Nobody knows which tables the others are of. */
  async #resyncAll(session: Session, newest: string): Promise<Group[]> {
    const webhooks = await this.#webhooks(session);
    await this.#markOverfull(session, webhooks);
    const { collections: known } = this.services.mirror.model;
    const wanted = webhooks
      .filter(isRecording)
      .flatMap(({ id: webhook, collections }) =>
        collections
          .filter((name) => known.has(name))
          .map((collection) => ({ webhook, collection, sequence: after(newest) })),
      );
    return addResyncs(session, this.services.database, wanted);
  }

  /** Numbers without a row belong to changes that were rolled back or are not committed yet. */
  async #tell(session: Session, lock: LockRow, drained: string, isLooking: boolean): Promise<void> {
    if (drained === lock.drained && isLooking === lock.is_looking) return;
    const { database } = this.services;
    await session.query(database.qualified(NOTIFY), [database.system, drained, String(isLooking)]);
  }

  /** Webhooks that follow a collection which the model lacks may have followed the table. */
  async #markLacking(session: Session, webhooks: readonly Webhook[], reason: string): Promise<void> {
    const { collections: known } = this.services.mirror.model;
    for (const webhook of webhooks.filter(isRecording))
      if (webhook.collections.some((name) => !known.has(name))) await this.#mark(session, webhook.id, reason, false);
  }

  /** Another table may have its name by now, so any webhook may have followed it. */
  async #markDropped(session: Session, webhooks: readonly Webhook[]): Promise<void> {
    const reason = 'a table was dropped before its changes were delivered';
    for (const { id, incompleteSince } of webhooks.filter(isRecording))
      if (incompleteSince === null) await this.#mark(session, id, reason, false);
  }

  /** The oldest change cannot be read, by one webhook at least. It is sent without the item. */
  async #skip(session: Session): Promise<void> {
    const { database } = this.services;
    const rows = await session.query<ChangeRow>(database.qualified(TAKE), ['1']);
    const covered = await Covered.read(session, database);
    for (const webhook of (await this.#webhooks(session)).filter(isRecording))
      await this.#deliver(session, { webhook, rows, covered, isCareful: true });
    await session.query(database.qualified(DELETE), [arrayLiteral(rows.map(({ id }) => id))]);
  }

  async #mark(session: Session, webhook: string, reason: string, isPaused: boolean): Promise<void> {
    await session.query(this.services.database.qualified(MARK), [webhook, reason, String(isPaused)]);
    this.onIncomplete(webhook, reason);
  }

  /**
   * A change adds one delivery to a webhook at most: as long as fewer were drained than may be added, nothing has to be counted. Deliveries
   * that are sent again are counted later.
   */
  async #limitPending(session: Session, newest: string): Promise<Group[]> {
    const { maxBacklog } = this.limits;
    const since = performance.now() - this.#countedAt;
    const most = this.#pending + Number(newest) - this.#countedUpTo;
    if (since < COUNT_INTERVAL_MS || (most <= maxBacklog && since < MAX_UNCOUNTED_MS)) return [];
    this.#countedAt = performance.now();
    this.#countedUpTo = Number(newest);
    const text = this.services.database.qualified(PENDING);
    const counts = await session.query<Omit<Resync, 'sequence'> & { pending: number }>(text, [String(maxBacklog)]);
    this.#pending = Math.max(0, ...counts.map(({ pending }) => pending));
    const tooMany = counts.filter(({ pending }) => pending > maxBacklog);
    const reason = `more than ${maxBacklog} deliveries were pending (WEBHOOK_MAX_BACKLOG)`;
    return this.#resync(
      session,
      tooMany.map((each) => ({ ...each, sequence: after(newest) })),
      reason,
    );
  }

  /** Marks the webhooks too: a receiver may not know the event. */
  async #resync(session: Session, wanted: readonly Resync[], reason: string): Promise<Group[]> {
    const added = await addResyncs(session, this.services.database, wanted);
    for (const { webhook, collection } of added)
      await this.#mark(session, webhook, `one event "resync" replaces changes of "${collection}": ${reason}`, false);
    return added;
  }

  /** Returns the items with new deliveries that wait for older ones. */
  async #deliver(session: Session, { webhook, rows, covered, isCareful }: Delivering): Promise<Group[]> {
    const { model } = this.services.mirror;
    const waiting: Group[] = [];
    const followed = rows.flatMap((row) => {
      const collection = collectionOf(row, model);
      return follows(webhook, collection) && !covered.has(webhook, collection.name) ? [{ row, collection }] : [];
    });
    for (const { row, collection } of followed) {
      if (row.event !== 'gap' && row.event !== 'resync') continue;
      const { reason, overfull } = parseOwnJson<Gap>(row.reason ?? '{}');
      const resync = { webhook: webhook.id, collection: collection.name, sequence: row.id };
      if (row.event === 'resync' || overfull) waiting.push(...(await this.#resync(session, [resync], reason)));
      else if (webhook.incompleteSince === null) await this.#mark(session, webhook.id, reason, false);
    }
    const changes = followed.flatMap(({ row, collection }): Change[] => {
      const { event } = row;
      return isOneOf(EVENTS, event) && webhook.events.includes(event) ? [{ ...row, event, collection }] : [];
    });
    try {
      for (const collection of new Set(changes.map((change) => change.collection))) {
        const own = changes.filter((change) => change.collection === collection);
        waiting.push(...(await (isCareful ? this.#tryEach(session, webhook, own) : this.#send(session, webhook, own))));
      }
    } catch (error) {
      if (!(error instanceof ServiceError) || isUnavailable(error) || !isOfChange(error)) throw error;
      // The filter or the fields do not fit the schema: nobody knows which changes match.
      if (webhook.status === 'active' || webhook.incompleteSince === null)
        await this.#mark(session, webhook.id, error.message, true);
    }
    return waiting;
  }

  async #send(session: Session, webhook: Webhook, changes: readonly Change[]): Promise<Group[]> {
    const waiting: Group[] = [];
    for await (const deliveries of this.#evaluation.deliveries(session, webhook, changes))
      waiting.push(...(await this.#add(session, deliveries)));
    return waiting;
  }

  #add(session: Session, deliveries: readonly NewDelivery[]): Promise<Group[]> {
    if (deliveries.length === 0) return Promise.resolve([]);
    return session.query<Group>(this.services.database.qualified(INSERT), [JSON.stringify(deliveries)]);
  }

  /** Another webhook may be able to read the change. */
  async #tryEach(session: Session, webhook: Webhook, changes: readonly Change[]): Promise<Group[]> {
    await session.query('savepoint change');
    try {
      return await this.#send(session, webhook, changes);
    } catch (error) {
      if (error instanceof ServiceError || isUnavailable(error) || !isOfChange(error)) throw error;
      await session.query('rollback to savepoint change');
      return this.#add(
        session,
        changes.map((change) => deliveryWithoutItem(webhook, change, 'unreadable')),
      );
    }
  }
}

/** The work for one webhook. */
interface Delivering {
  readonly webhook: Webhook;
  readonly rows: readonly ChangeRow[];
  readonly covered: Covered;
  /** Whether a change that cannot be read is sent without the item. */
  readonly isCareful: boolean;
}

/** A delivery for the whole collection that waits for the change with this number. */
function after(sequence: string): string {
  return String(BigInt(sequence) + 1n);
}

/** Codes of PostgreSQL for values, names, types and limits: a statement with the same change fails again. */
const LASTING = /^(0A|21|22|23514|42|44|54|P0)/;

/** Whether the change or the query of a webhook is the cause. A timeout or a lock is not. */
function isOfChange(error: unknown): boolean {
  if (error instanceof ServiceError) return error.extensions['option'] !== ranTooLong().extensions['option'];
  const code = codeOf(error);
  return !/^[0-9A-Z]{5}$/.test(code) || LASTING.test(code);
}

function isRecording({ status }: Webhook): boolean {
  return status !== 'inactive';
}

function collectionOf({ schema, table }: ChangeRow, { collections }: Model): Collection | null {
  for (const collection of collections.values())
    if (collection.schema === schema && collection.table === table) return collection;
  return null;
}

function follows({ collections }: Webhook, collection: Collection | null): collection is Collection {
  return collection !== null && collections.includes(collection.name);
}
