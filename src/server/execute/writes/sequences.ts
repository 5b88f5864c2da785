/** Keys that a payload supplies although a sequence makes them too: the sequence must not return them later. */
import { compileMaxKey } from '../../../compiler/compile/write/delete.js';
import { countedKey } from '../../../compiler/model/item-key.js';
import type { Collection } from '../../../compiler/model/model.js';
import { suppliedLists } from '../../../compiler/plan/write/supplied-keys.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import type { Session } from '../../postgres/pools/sessions.js';

/**
 * A sequence that the service may not use stays where it is, as for other clients of the database. It is found in the catalog: a cast of its
 * name to `regclass` would need `usage` on the schema, which only the role of the caller may have. The condition reads what the lock is
 * part of, so the lock comes first.
 */
const ADVANCE_SEQUENCE = withCatalog(`
  select setval(locked.oid::regclass, $2::int8)
  from (
    select class.oid, pg_advisory_xact_lock(class.oid::int8) is not null as taken
    from pg_catalog.pg_class class
    join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
    where namespace.nspname = (pg_catalog.parse_ident($1::text))[1]::name and class.relname = (pg_catalog.parse_ident($1::text))[2]::name
    offset 0
  ) locked
  join pg_catalog.pg_sequence on seqrelid = locked.oid
  where case when locked.taken and has_sequence_privilege(locked.oid, 'update') and has_sequence_privilege(locked.oid, 'usage')
    then seqincrement > 0 and $2::int8 < seqmax and $2::int8 > coalesce(pg_sequence_last_value(locked.oid::regclass), 0) else false end`);

/** A sequence that keys were supplied past is put ahead of them, once it is certain that they were written. */
export async function advancePast(
  planned: PlannedWrite,
  maxKeys: readonly (string | null)[],
  session: Session,
): Promise<void> {
  for (const position of suppliedLists(planned)) {
    const collection = planned.plan.nodes[position]?.collection;
    const sequence = collection && countedKey(collection)?.column?.sequence;
    const highest = maxKeys[position];
    if (sequence && highest) await session.query(ADVANCE_SEQUENCE, [sequence, highest], { prepare: true });
  }
}

/** A sequence that was left behind the keys of its table, as by a load without it, is put ahead of them. */
export async function advancePastTable(collection: Collection, session: Session): Promise<void> {
  const counted = countedKey(collection);
  const sequence = counted?.column?.sequence;
  if (!counted || !sequence) return;
  const { text } = compileMaxKey(collection, counted);
  const highest = await session.cell(text, [], false);
  if (highest) await session.query(ADVANCE_SEQUENCE, [sequence, highest.toString()], { prepare: true });
}
