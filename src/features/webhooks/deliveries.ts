/**
 * Deliveries in the database: which ones an instance may send, and what became of them. A delivery is claimed for a while in a short
 * transaction. If the instance ends before it reports the result, another one claims the delivery when that time has passed.
 */
import { parseOwnJson } from '../../base/narrow.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { Database } from '../../server/postgres/pools/database.js';

export interface Delivery {
  readonly id: string;
  readonly payload: string;
  /** Bytes of the payload. */
  readonly bytes: number;
  /** Attempts that failed before. */
  readonly attempts: number;
}

/**
 * A delivery waits while an older one of the same webhook and item is pending. One that concerns the whole collection, such as a
 * truncate, waits for all older ones of the collection, and all later ones wait for it: it is the barrier of the collection.
 *
 * The column `waits` keeps deliveries that wait out of the index of due ones, so that a claim reads few others. It may be wrong for a
 * short time after others were added or finished, so the statement checks each delivery. Sub-selects with a limit and `offset 0` keep
 * the order of work and the index on the item, even if PostgreSQL has no statistics of the table.
 */
const CLAIM = withCatalog(`
with recursive collections as (
  (select o.collection from service_webhook_deliveries o
  where o.webhook = $1::uuid and o.status::text = 'pending' order by o.collection limit 1)
  union all
  select (select o.collection from service_webhook_deliveries o
    where o.webhook = $1::uuid and o.status::text = 'pending' and o.collection::text > c.collection::text order by o.collection limit 1)
  from collections c where c.collection is not null
), lowest as (
  select c.collection::text, (
    select o.sequence from service_webhook_deliveries o where o.webhook = $1::uuid and o.status::text = 'pending'
      and o.collection::text = c.collection::text and o.item is null order by o.sequence limit 1) as sequence
  from collections c where c.collection is not null
), barriers as materialized (
  select l.collection, l.sequence, (
    select true from service_webhook_deliveries o where o.webhook = $1::uuid and o.status::text = 'pending'
      and o.collection::text = l.collection and o.item is not null and o.sequence < l.sequence limit 1) is null as is_first
  from lowest l where l.sequence is not null
), heads as materialized (
  select due.id, due.bytes, due.next_attempt_at, due.sequence from (
    select d.id, d.collection, d.item, d.sequence, d.next_attempt_at, coalesce(d.bytes, octet_length(d.payload::text)) as bytes
    from service_webhook_deliveries d
    where d.webhook = $1::uuid and d.status::text = 'pending' and not d.waits and d.next_attempt_at <= now()
      and (d.claimed_until is null or d.claimed_until < now())
      and exists (select from service_webhooks w where w.id = $1::uuid and w.status::text = 'active')
    order by d.next_attempt_at, d.sequence offset 0
  ) due
  where case
    when due.item is null then (select b.sequence = due.sequence and b.is_first from barriers b where b.collection = due.collection::text)
    when (select b.sequence < due.sequence from barriers b where b.collection = due.collection::text) then false
    else due.sequence = (
      select o.sequence from service_webhook_deliveries o where o.webhook = $1::uuid and o.status::text = 'pending'
        and o.collection::text = due.collection::text and o.item = due.item order by o.sequence limit 1)
    end
  order by due.next_attempt_at, due.sequence limit $2::int
), few as (
  select h.id from (
    select h.id, sum(h.bytes) over (order by h.next_attempt_at, h.sequence rows unbounded preceding) as bytes,
      row_number() over (order by h.next_attempt_at, h.sequence) as number
    from heads h) h
  where h.bytes <= $5::bigint or h.number = 1
), locked as (
  select d.id from service_webhook_deliveries d
  where d.id = any (array(select id from few)) and coalesce(d.status::text, '') = 'pending' and (d.claimed_until is null or d.claimed_until < now())
  for update skip locked
)
update service_webhook_deliveries d
set claimed_until = now() + make_interval(secs => $3::float8), claimed_by = $4::uuid
where d.id = any (array(select id from locked))
returning d.id::text, d.payload::text, coalesce(d.bytes, octet_length(d.payload::text)) as bytes, d.attempts`);

/**
 * The table may be empty now and have many rows a second later. A plan that PostgreSQL keeps for a prepared statement reads the whole table
 * then, so these statements are planned each time, for the size that the table has.
 */
function planned<Row>(database: Database, text: string, parameters: (string | null)[]): Promise<Row[]> {
  return database.rows<Row>(database.qualified(text), parameters, false);
}

interface Claim {
  readonly count: number;
  /** Bytes of payloads, which are kept in memory until they are sent. The first delivery may have more. */
  readonly bytes: number;
  readonly leaseMs: number;
  readonly by: string;
}

export function claimDeliveries(
  database: Database,
  webhook: string,
  { count, bytes, leaseMs, by }: Claim,
): Promise<Delivery[]> {
  return planned(database, CLAIM, [webhook, String(count), String(leaseMs / 1_000), by, String(bytes)]);
}

const DUE = withCatalog(`
select w.id::text from service_webhooks w
where w.status::text = 'active' and (
  select true from service_webhook_deliveries d where d.webhook = w.id and d.status::text = 'pending'
    and not d.waits and d.next_attempt_at <= now() and (d.claimed_until is null or d.claimed_until < now()) order by d.next_attempt_at limit 1)`);

/** The active webhooks with deliveries that are due. */
export async function dueWebhooks(database: Database): Promise<ReadonlySet<string>> {
  return new Set((await planned<{ id: string }>(database, DUE, [])).map(({ id }) => id));
}

/** The result of an attempt. */
export interface Result {
  readonly id: string;
  readonly outcome: 'delivered' | 'pending' | 'dead';
  readonly status: number | null;
  readonly ms: number;
  readonly body: string;
  readonly error: string | null;
  /** Milliseconds until the next attempt, if the delivery is still pending. */
  readonly delay: number;
}

/**
 * A statement that waits for locks of several deliveries begins with this, unless it skips those that are locked. A webhook that is deleted
 * takes its deliveries with it, in an order of its own: without the lock the two statements could wait for each other.
 */
export const LOCK_WEBHOOK = (parameter: string): string =>
  `webhook as materialized (select w.id from service_webhooks w where w.id = ${parameter}::uuid for key share)`;

const FINISH = withCatalog(`
with results as materialized (
  select * from json_to_recordset($1::json) as r (id uuid, outcome text, status int, ms int, body text, error text, delay float8)
), ${LOCK_WEBHOOK('$3')}
update service_webhook_deliveries d
set status = r.outcome, attempts = d.attempts + 1, response_status = r.status, response_ms = r.ms, response_body = r.body,
  error = r.error, finished_at = case when r.outcome <> 'pending' then now() end,
  next_attempt_at = case when r.outcome = 'pending' then now() + make_interval(secs => r.delay / 1000) else d.next_attempt_at end,
  claimed_until = null, claimed_by = null
from results r
where d.id = any (array(select id from results)) and d.id = r.id and d.webhook = (select id from webhook)
  and d.claimed_by = $2::uuid and coalesce(d.status::text, '') = 'pending'
returning d.webhook::text, d.collection, d.item, d.status`);

/** Deliveries of the items may go on, even if the process ends before it says so (see promoteAll). */
export async function finishDeliveries(
  database: Database,
  webhook: string,
  results: readonly Result[],
  by: string,
): Promise<void> {
  const rows = await planned<Group & { status: string }>(database, FINISH, [JSON.stringify(results), by, webhook]);
  await promote(
    database,
    rows.filter(({ status }) => status !== 'pending'),
  );
}

/** The deliveries of one webhook and item. If the item is null, those of the whole collection. */
export interface Group {
  readonly webhook: string;
  readonly collection: string;
  readonly item: string | null;
}

/**
 * The oldest deliveries of the groups in $1 stop waiting. Transactions that add or finish deliveries are followed by this statement. If two
 * of them run at the same time, one of the two statements sees the work of both.
 */
const PROMOTE = withCatalog(`
with groups as materialized (
  select distinct g.webhook, g.collection, g.item from json_to_recordset($1::json) as g (webhook uuid, collection text, item text)
), barriers as materialized (
  select c.webhook, c.collection, b.id, b.sequence, b.waits
  from (select distinct g.webhook, g.collection from groups g) c
  left join lateral (
    select o.id, o.sequence, o.waits from service_webhook_deliveries o
    where o.webhook = c.webhook and o.status::text = 'pending' and o.collection::text = c.collection and o.item is null
    order by o.sequence limit 1) b on true
), oldest as (
  select n.id from groups g join barriers b on b.webhook = g.webhook and b.collection = g.collection
  cross join lateral (
    select o.id, o.sequence, o.waits from service_webhook_deliveries o
    where o.webhook = g.webhook and o.status::text = 'pending' and o.collection::text = g.collection and o.item = g.item
    order by o.sequence limit 1) n
  where g.item is not null and n.waits and (b.sequence is null or n.sequence < b.sequence)
  union all
  select n.id from groups g join barriers b on b.webhook = g.webhook and b.collection = g.collection
  cross join lateral (
    select distinct o.item from service_webhook_deliveries o
    where o.webhook = g.webhook and o.status::text = 'pending' and o.waits and o.collection::text = g.collection and o.item is not null) i
  cross join lateral (
    select o.id, o.sequence, o.waits from service_webhook_deliveries o
    where o.webhook = g.webhook and o.status::text = 'pending' and o.collection::text = g.collection and o.item = i.item
    order by o.sequence limit 1) n
  where g.item is null and n.waits and (b.sequence is null or n.sequence < b.sequence)
  union all
  select b.id from barriers b
  where b.waits and (
    select true from service_webhook_deliveries o where o.webhook = b.webhook and o.status::text = 'pending'
      and o.collection::text = b.collection and o.item is not null and o.sequence < b.sequence limit 1) is null
), locked as (
  select d.id from service_webhook_deliveries d where d.id = any (array(select id from oldest)) and d.waits for update skip locked
)
update service_webhook_deliveries d set waits = false where d.id = any (array(select id from locked))`);

export async function promote(database: Database, groups: readonly Group[]): Promise<void> {
  if (groups.length === 0) return;
  const named = groups.map(({ webhook, collection, item }) => ({ webhook, collection, item }));
  await planned(database, PROMOTE, [JSON.stringify(named)]);
}

/** Items whose oldest delivery waits, found by one pass over the index: to look up each item takes much longer if there are many. */
const STUCK = withCatalog(`
select i.webhook::text, i.collection, i.item from (
  select distinct on (o.webhook, o.collection, o.item) o.webhook, o.collection, o.item, o.waits
  from service_webhook_deliveries o where o.status::text = 'pending'
  order by o.webhook, o.collection, o.item, o.sequence
) i where i.waits`);

/** Processes may have ended before they promoted deliveries. */
export async function promoteAll(database: Database): Promise<void> {
  await promote(database, await planned<Group>(database, STUCK, []));
}

const UNCLAIM = withCatalog(`with ${LOCK_WEBHOOK('$3')}
update service_webhook_deliveries set claimed_until = null, claimed_by = null
  where id = any ($1::text[]::uuid[]) and webhook = (select id from webhook) and claimed_by = $2::uuid and status::text = 'pending'`);

/** Deliveries of a webhook that were claimed and not sent. */
export async function unclaimDeliveries(
  database: Database,
  webhook: string,
  ids: readonly string[],
  by: string,
): Promise<void> {
  await database.rows(UNCLAIM, [arrayLiteral(ids), by, webhook]);
}

const RELEASE = withCatalog(`update service_webhook_deliveries set claimed_until = null, claimed_by = null where id in (
  select id from service_webhook_deliveries where claimed_by = $1::uuid for update skip locked)`);

/** Other instances need not wait until the claims end. */
export async function releaseDeliveries(database: Database, by: string): Promise<void> {
  await database.rows(RELEASE, [by]);
}

const EXPIRE = withCatalog(`
delete from service_webhook_deliveries where id in (
  select id from service_webhook_deliveries
  where status::text <> 'pending' and finished_at < (now() - make_interval(secs => $1::float8))
  limit 5000 for update skip locked)
returning 1`);

/** Deletes some finished deliveries that were kept long enough. Returns how many. */
export async function expireDeliveries(database: Database, retentionMs: number): Promise<number> {
  return (await database.rows(EXPIRE, [String(retentionMs / 1_000)])).length;
}

/** Figures of all webhooks together. */
export interface Backlog {
  readonly changes: number;
  readonly pending: number;
  readonly dead: number;
  readonly incomplete: number;
  /** Seconds. */
  readonly oldest: number;
}

const BACKLOG = withCatalog(`
with pending as (
  select count(*) as number, min(created_at) as oldest from service_webhook_deliveries where status::text = 'pending'
), changes as (
  select count(*) as number, min(changed_at) as oldest from service_webhook_changes
)
select json_build_object(
  'changes', c.number,
  'pending', p.number,
  'dead', (select count(*) from service_webhook_deliveries where status::text = 'dead' and event::text <> 'test'),
  'incomplete', (select count(*) from service_webhooks where incomplete_since is not null and status::text <> 'inactive'),
  'oldest', coalesce(extract(epoch from now() - least(c.oldest, p.oldest)), 0))::text
from pending p, changes c`);

export async function readBacklog(database: Database): Promise<Backlog> {
  return parseOwnJson(String(await database.cell(BACKLOG, [])));
}
