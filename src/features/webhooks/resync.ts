/**
 * One delivery for many changes: if a table changes faster than a receiver takes deliveries, `resync` asks it to read the collection
 * again. While that delivery waits, further changes of the collection need none: the receiver will read their results.
 */

import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import type { Group } from './deliveries.js';
import { payloadOf } from './payload.js';
import type { Webhook } from './webhook-hook.js';

/** Deliveries that an instance sends at present may arrive before a change: they cover no further ones. */
const OPEN = withCatalog(`
select d.webhook::text, d.collection from service_webhook_deliveries d
where d.status::text = 'pending' and d.event::text = 'resync' and (d.claimed_until is null or d.claimed_until < now())
for update skip locked`);

/** The collections of webhooks whose changes need no deliveries. The transaction keeps others from sending the deliveries that cover them. */
export class Covered {
  readonly #names: ReadonlySet<string>;

  private constructor(groups: readonly Pick<Group, 'webhook' | 'collection'>[]) {
    this.#names = new Set(groups.map(({ webhook, collection }) => nameOf(webhook, collection)));
  }

  static async read(session: Session, database: Database): Promise<Covered> {
    return new Covered(await session.query<Group>(database.qualified(OPEN), []));
  }

  has({ id }: Webhook, collection: string): boolean {
    return this.#names.has(nameOf(id, collection));
  }
}

function nameOf(webhook: string, collection: string): string {
  return `${webhook} ${collection}`;
}

/** It is in order after all changes up to the sequence. */
const ADD = withCatalog(`
with wanted as (
  select * from json_to_recordset($1::json) as d (webhook uuid, sequence bigint, collection text, payload text)
), open as materialized (
  select o.webhook, o.collection::text from wanted w
  join service_webhook_deliveries o on o.webhook = w.webhook and o.collection::text = w.collection
  where o.status::text = 'pending' and o.event::text = 'resync' and (o.claimed_until is null or o.claimed_until < now())
  for update of o skip locked
), added as (
  insert into service_webhook_deliveries (webhook, sequence, collection, event, payload, bytes, waits)
  select w.webhook, max(w.sequence), w.collection, 'resync', min(w.payload)::json, octet_length(min(w.payload)),
    (select true from service_webhook_deliveries o where o.webhook = w.webhook and o.status::text = 'pending'
      and o.collection::text = w.collection limit 1) is not null
  from wanted w
  where (select true from open o where o.webhook = w.webhook and o.collection = w.collection limit 1) is null
  group by w.webhook, w.collection
  returning webhook, collection, item
)
select a.webhook::text, a.collection, a.item from added a`);

export interface Resync {
  readonly webhook: string;
  readonly collection: string;
  readonly sequence: string;
}

/** Returns those that were added: not those of collections with a `resync` that still waits. */
export async function addResyncs(session: Session, database: Database, wanted: readonly Resync[]): Promise<Group[]> {
  if (wanted.length === 0) return [];
  const timestamp = new Date().toISOString();
  const given = wanted.map((each) => {
    const envelope = { collection: each.collection, event: 'resync', timestamp, key: null } as const;
    return { ...each, payload: payloadOf(envelope, null, null) };
  });
  return session.query<Group>(database.qualified(ADD), [JSON.stringify(given)]);
}
