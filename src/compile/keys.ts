/** Keys of new rows, and the receipt of a request that makes some: what a chain does before it writes. */
import { soleKey } from '../mirror/item-key.js';
import type { Collection, Field } from '../mirror/model.js';
import type { WriteNode } from '../plan/write.js';
import { alias, expression, type Fragment, integerLiteral, literal, parameter, sql } from '../sql/fragment.js';
import { tableName, typeName } from './identifiers.js';

/** Whether rows come without keys and get them here: new ones, and those that turn out to be. */
export function makesKeys({ verb, conflict }: WriteNode): boolean {
  return verb === 'insert' || conflict !== null;
}

/** Whether the keys of new rows come from a sequence. */
export function takesKeys(node: WriteNode): boolean {
  return makesKeys(node) && Boolean(soleKey(node.collection)?.column?.sequence);
}

/** Steps that a sequence is moved one by one. */
const STEPS = 10_000;

/**
 * Takes values from a sequence until it is ahead of a key that is not far: so the keys of one payload do not meet. To set it
 * could move it back behind a value that others took meanwhile, and would not be undone when the write is refused.
 */
export function advance(sequence: string, maxKey: Fragment): Fragment {
  const name = sql`${literal(sequence)}::regclass`;
  const gap = sql`${alias('h')}.k - ${alias('l')}.v`;
  const last = sql`select coalesce(pg_sequence_last_value(${name}), 0) as v`;
  return sql`select (select max(nextval(${name})) from generate_series(1, ${gap})) from (${maxKey}) ${alias('h')}, (${last}) ${alias('l')} where ${gap} between 1 and ${integerLiteral(STEPS)}`;
}

/** What the database itself would give a new row. */
export function initialValue(field: Field): Fragment | null {
  const { column } = field;
  if (column?.identity && column.sequence) return sql`nextval(${literal(column.sequence)}::regclass)`;
  return column?.default_expression ? expression(column.default_expression) : null;
}

/** The same for the key of a row that turns out to be new; others that the service is to fill came with the payload. */
export function initialKey(field: Field, { conflict }: WriteNode): Fragment | null {
  const made = initialValue(field);
  return made === null && conflict && field.special.includes('uuid')
    ? sql`gen_random_uuid()::text::${typeName(field)}`
    : made;
}

/**
 * A request that comes again finds its receipt, unless that has expired; one that runs beside the first waits for it. Every
 * list of rows waits for the second part, so that a repeated request fails for no other reason.
 */
export function receipt(receipts: Collection): Fragment[] {
  const text = (slot: number): Fragment => sql`${parameter({ kind: 'text', slot })}::text`;
  const expired = sql`${alias('t')}.expires < now()`;
  const values = sql`${text(1)}, ${text(2)}, now() + ${text(3)}::interval`;
  const stored = sql`insert into ${tableName(receipts)} as ${alias('t')} (id, fingerprint, expires) values (${values}) on conflict (id) do update set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = null where ${expired} returning 1`;
  const checked = sql`select case when (select count(*) from ${alias('q')}) = 0 then service_raise('repeated') end`;
  return [sql`${alias('q')} as (${stored})`, sql`${alias('v')} as materialized (${checked})`];
}
