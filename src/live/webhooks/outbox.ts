/**
 * Turns the changes that triggers have written into deliveries, one for each webhook that wants the change. Filters and fields are
 * evaluated here, by PostgreSQL, over the image of the row. One instance at a time does this, in short transactions: the
 * deliveries of an item are created in the order of its changes.
 */
import { CLI_IDENTITY } from '../../access/identity.js';
import { ranTooLong, ServiceError } from '../../base/errors.js';
import { codeOf, elementAt, isOneOf, messageOf, parseOwnJson } from '../../base/narrow.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { Reads } from '../../engine/reads/reads.js';
import {
  EVENTS,
  imageQuery,
  parseWebhooks,
  READ_WEBHOOKS,
  type Webhook,
  type WebhookEvent,
  type WebhookRow,
} from '../../engine/system-collections/webhooks.js';
import type { Collection, Model } from '../../mirror/model.js';
import type { Mirror } from '../../mirror/watch.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { ParseLimits } from '../../request/parse-context.js';
import { withImage } from '../../request/rest.js';
import { withCatalog } from '../../sql/catalog-names.js';
import { joinKey } from '../../sql/key-text.js';
import { arrayLiteral } from '../../sql/literal.js';
import { bind } from '../../sql/parameter.js';
import { type Group, promote } from './deliveries.js';
import { payloadOf } from './payload.js';

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
const TELL = withCatalog(`
select setval((quote_ident($1::text) || '.service_webhook_drained')::regclass, $2::bigint),
  setval((quote_ident($1::text) || '.service_webhook_looking')::regclass, 1, $3::boolean)`);

/** Writers record changes again. */
const REOPEN = withCatalog(`
select setval((quote_ident($1::text) || '.service_webhook_overfull')::regclass, 1, false)`);

/** Changes, and bytes of them as they are stored, that one transaction turns into deliveries. */
const MAX_CHANGES = 500;
const MAX_BYTES = 8_388_608;

/** The oldest changes. A change with a lower number may be committed later, but it is of another item. */
const TAKE = withCatalog(`
select t.id::text, n.nspname as schema, r.relname as "table", t.event, t.item, t.image::text, t.previous::text,
  to_char(pg_catalog.timezone('UTC', t.changed_at), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as changed_at
from (
  select c.*, sum(coalesce(pg_catalog.pg_column_size(c.image), 0) + coalesce(pg_catalog.pg_column_size(c.previous), 0)) over (order by c.id) as bytes,
    row_number() over (order by c.id) as number
  from (select * from service_webhook_changes order by id limit $1::int) c
) t
left join pg_class r on r.oid = t.relation left join pg_namespace n on n.oid = r.relnamespace
where t.bytes <= ${MAX_BYTES} or t.number = 1
order by t.id`);

interface ChangeRow {
  readonly id: string;
  /** The table, or null if it was dropped. */
  readonly schema: string | null;
  readonly table: string | null;
  readonly event: WebhookEvent | 'gap';
  readonly item: string | null;
  readonly image: string | null;
  readonly previous: string | null;
  readonly changed_at: string;
}

const DELETE = withCatalog('delete from service_webhook_changes where id = any ($1::text[]::bigint[])');

/** Answers the items with deliveries that wait for older ones, which may have been finished in the meantime. */
const INSERT = withCatalog(`
with new as (
  select d.*, row_number() over (partition by d.webhook, d.collection, d.item order by d.sequence) > 1
    or (d.item is null and row_number() over (partition by d.webhook, d.collection order by d.sequence) > 1)
    or count(*) filter (where d.item is null) over (
      partition by d.webhook, d.collection order by d.sequence rows between unbounded preceding and 1 preceding) > 0 as follows
  from json_to_recordset($1::json) as d (webhook uuid, sequence bigint, collection text, item text, event text, payload text)
), added as (
  insert into service_webhook_deliveries (webhook, sequence, collection, item, event, payload, waits)
  select n.webhook, n.sequence, n.collection, n.item, n.event, n.payload::json, n.follows
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
select w.id::text, (select count(*) from (select from service_webhook_deliveries d where d.webhook = w.id and d.status::text = 'pending'
  limit $1::bigint + 1) pending)::int as pending
from service_webhooks w where w.status::text <> 'inactive' and w.incomplete_since is null`);

/** Milliseconds between two counts of what is pending, and the longest time without one. */
const COUNT_INTERVAL_MS = 1_000;
const MAX_UNCOUNTED_MS = 30_000;

interface NewDelivery {
  readonly webhook: string;
  readonly sequence: string;
  readonly collection: string;
  readonly item: string | null;
  readonly event: WebhookEvent;
  readonly payload: string;
}

/** Why the trigger did not record a change, and whether too many changes waited. */
interface Gap {
  readonly reason: string;
  readonly overfull: boolean;
}

/** A change of a collection that webhooks follow. */
interface Change extends Omit<ChangeRow, 'event'> {
  readonly event: WebhookEvent;
  readonly collection: Collection;
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
}

export class Outbox {
  #size = MAX_CHANGES;
  /** When deliveries were counted, the newest change at that time, and how many a webhook had at most. */
  #countedAt = Number.NEGATIVE_INFINITY;
  #countedUpTo = 0;
  #pending = 0;

  constructor(
    private readonly services: OutboxServices,
    private readonly limits: OutboxLimits,
    private readonly onIncomplete: (webhook: string, reason: string) => void,
  ) {}

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
      else if (isOfChange(error)) await this.#transaction((session) => this.#skip(session, messageOf(error)));
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
      if (lock.is_overfull) await this.#markOverfull(session, await this.#webhooks(session), true);
      await this.#tell(session, lock, lock.newest, false);
      return { taken: 0, waiting: [], isReopened: lock.is_overfull };
    }
    const unknown = rows.find((row) => row.table !== null && collectionOf(row, mirror.model) === null);
    if (unknown && !isFresh) return 'unknown';
    const webhooks = await this.#webhooks(session);
    if (lock.is_overfull) await this.#markOverfull(session, webhooks, false);
    if (unknown) await this.#markLacking(session, webhooks, `the table "${unknown.table}" is no collection`);
    if (rows.some(({ table }) => table === null)) await this.#markDropped(session, webhooks);
    const deliveries: NewDelivery[] = [];
    for (const webhook of webhooks.filter(isRecording))
      deliveries.push(...(await this.#deliveriesOf(session, webhook, rows, mirror.model)));
    const waiting = await session.query<Group>(database.qualified(INSERT), [JSON.stringify(deliveries)]);
    await session.query(database.qualified(DELETE), [arrayLiteral(rows.map(({ id }) => id))]);
    await this.#pauseOverfull(session, last.id);
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

  /** Changes that were recorded before others were dropped are still sent. The webhooks are paused when none is left. */
  async #markOverfull(session: Session, webhooks: readonly Webhook[], isPaused: boolean): Promise<void> {
    const reason = `more than ${this.limits.maxBacklog} changes waited to be delivered (WEBHOOK_MAX_BACKLOG)`;
    for (const webhook of webhooks.filter(isRecording))
      if (isPaused || webhook.incompleteSince === null) await this.#mark(session, webhook.id, reason, isPaused);
  }

  /** Numbers without a row belong to changes that were rolled back or are not committed yet. */
  async #tell(session: Session, lock: LockRow, drained: string, isLooking: boolean): Promise<void> {
    if (drained === lock.drained && isLooking === lock.is_looking) return;
    const { database } = this.services;
    await session.query(database.qualified(TELL), [database.system, drained, String(isLooking)]);
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

  /** Removes the oldest change, which cannot be read. */
  async #skip(session: Session, reason: string): Promise<void> {
    const { database, mirror } = this.services;
    const rows = await session.query<ChangeRow>(database.qualified(TAKE), ['1']);
    const { webhooks } = parseWebhooks(await session.query<WebhookRow>(database.qualified(READ_WEBHOOKS)));
    for (const webhook of webhooks.filter(isRecording))
      if (changesFor(webhook, rows, mirror.model).length > 0) await this.#mark(session, webhook.id, reason, false);
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
  async #pauseOverfull(session: Session, newest: string): Promise<void> {
    const { maxBacklog } = this.limits;
    const since = performance.now() - this.#countedAt;
    const most = this.#pending + Number(newest) - this.#countedUpTo;
    if (since < COUNT_INTERVAL_MS || (most <= maxBacklog && since < MAX_UNCOUNTED_MS)) return;
    this.#countedAt = performance.now();
    this.#countedUpTo = Number(newest);
    const text = this.services.database.qualified(PENDING);
    const counts = await session.query<{ id: string; pending: number }>(text, [String(maxBacklog)]);
    this.#pending = Math.max(0, ...counts.map(({ pending }) => pending));
    const reason = `more than ${maxBacklog} deliveries are pending (WEBHOOK_MAX_BACKLOG)`;
    for (const { id, pending } of counts) if (pending > maxBacklog) await this.#mark(session, id, reason, true);
  }

  async #deliveriesOf(
    session: Session,
    webhook: Webhook,
    rows: readonly ChangeRow[],
    model: Model,
  ): Promise<NewDelivery[]> {
    const gap = rows.find((row) => row.event === 'gap' && follows(webhook, collectionOf(row, model)));
    if (gap) {
      const { reason, overfull } = parseOwnJson<Gap>(gap.image ?? '{}');
      await this.#mark(session, webhook.id, reason, overfull);
      if (overfull) return [];
    }
    const changes = changesFor(webhook, rows, model);
    const deliveries: NewDelivery[] = [];
    try {
      for (const collection of new Set(changes.map((change) => change.collection))) {
        const own = changes.filter((change) => change.collection === collection);
        deliveries.push(...(await this.#evaluate(session, webhook, collection, own)));
      }
      return deliveries;
    } catch (error) {
      if (!(error instanceof ServiceError) || isUnavailable(error) || !isOfChange(error)) throw error;
      // The filter or the fields do not fit the schema: nobody knows which changes match.
      await this.#mark(session, webhook.id, error.message, true);
      return [];
    }
  }

  async #evaluate(
    session: Session,
    webhook: Webhook,
    collection: Collection,
    changes: readonly Change[],
  ): Promise<NewDelivery[]> {
    const items = await this.#show(
      session,
      webhook,
      collection,
      changes.map(({ image }) => image),
    );
    const matching = changes.flatMap((change, position) => {
      const data = items[position] ?? null;
      return change.image === null || data !== null ? [{ change, data }] : [];
    });
    const former = matching.map(({ change }) => change.previous);
    const previous = await this.#show(session, { ...webhook, filter: null }, collection, former);
    return matching.map(({ change, data }, position) => {
      const key = keyOf(change);
      const { id, event, changed_at: timestamp } = change;
      const payload = payloadOf(
        { collection: collection.name, event, timestamp, key },
        data,
        previous[position] ?? null,
      );
      return { webhook: webhook.id, sequence: id, collection: collection.name, item: key, event, payload };
    });
  }

  /** Each image as the webhook shows the item, or null if there is no image or the item does not match the filter. */
  async #show(
    session: Session,
    webhook: Webhook,
    { name }: Collection,
    images: readonly (string | null)[],
  ): Promise<(string | null)[]> {
    const shown: (string | null)[] = images.map(() => null);
    const positions = images.flatMap((image, position) => (image === null ? [] : [position]));
    if (positions.length === 0) return shown;
    const query = imageQuery(webhook, name, this.limits.parse);
    const compiled = this.services.reads.compile(query, CLI_IDENTITY);
    const { parameters, text } = compiled.statement;
    const bound = positions.map((position) =>
      bind(parameters, withImage(query, images[position] ?? '').values, CLI_IDENTITY),
    );
    const batch = compiled.batchText();
    if (batch === '') {
      for (const [index, values] of bound.entries())
        shown[elementAt(positions, index)] = itemIn(String(await session.cell(text, values, false)));
      return shown;
    }
    const lists = parameters.map((_, slot) => arrayLiteral(bound.map((values) => values[slot] ?? null)));
    for (const row of await session.query(batch, lists)) {
      const [number, cell] = Object.values(row);
      shown[elementAt(positions, Number(number) - 1)] = itemIn(String(cell));
    }
    return shown;
  }
}

/** Codes of PostgreSQL for values, names, types and limits: a statement with the same change fails again. */
const LASTING = /^(0A|21|22|23514|42|44|54|P0)/;

/** Whether the change or the query of a webhook is the cause. A timeout or a lock is not. */
function isOfChange(error: unknown): boolean {
  if (error instanceof ServiceError) return error.extensions['option'] !== ranTooLong().extensions['option'];
  const code = codeOf(error);
  return !/^[0-9A-Z]{5}$/.test(code) || LASTING.test(code);
}

/** Whether changes are kept for it. If changes were missed while it was paused, it starts again when it is resumed. */
function isRecording({ status, incompleteSince }: Webhook): boolean {
  return status === 'active' || (status === 'paused' && incompleteSince === null);
}

function collectionOf({ schema, table }: ChangeRow, { collections }: Model): Collection | null {
  for (const collection of collections.values())
    if (collection.schema === schema && collection.table === table) return collection;
  return null;
}

function follows({ collections }: Webhook, collection: Collection | null): collection is Collection {
  return collection !== null && collections.includes(collection.name);
}

function changesFor(webhook: Webhook, rows: readonly ChangeRow[], model: Model): Change[] {
  const found = new Map<string, Collection | null>();
  return rows.flatMap((row) => {
    const name = JSON.stringify([row.schema, row.table]);
    const collection = found.has(name) ? (found.get(name) ?? null) : collectionOf(row, model);
    found.set(name, collection);
    const { event } = row;
    if (!isOneOf(EVENTS, event) || !webhook.events.includes(event) || !follows(webhook, collection)) return [];
    return [{ ...row, event, collection }];
  });
}

/** The key as in the path of the item, or null if there is none. */
function keyOf({ item, collection }: Change): string | null {
  if (item === null || collection.key.length < 2) return item;
  return joinKey(parseOwnJson<string[]>(item));
}

const OPENING = '{"data":[';

/** The only item of an answer, or null if there is none. */
function itemIn(body: string): string | null {
  const item = body.slice(OPENING.length, -2);
  return item === '' ? null : item;
}
