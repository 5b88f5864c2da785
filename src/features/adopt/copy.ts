/**
 * Copies rows of Directus to the system tables: inserts missing rows and updates rows that differ. It writes nothing else, so a
 * second run changes nothing, not even the schema version.
 */

import { expression, type Fragment, identifier, join, literal, nothing, sql } from '../../compiler/sql/fragment.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { count, type Installations, ours, run, type SourceColumn } from './source.js';

export interface Copy {
  /** Names of the tables, without prefix. */
  readonly to: string;
  /** The columns that identify a row. */
  readonly key: readonly string[];
  /** The condition of the unique index over the key, where it has one. */
  readonly keyWhere?: Fragment;
  /** Expressions by column of the system table. They name the row of Directus `old`. */
  readonly values: ReadonlyMap<string, Fragment>;
  /** `from ... old where ...` */
  readonly from: Fragment;
  /** The order of rows with the same key. Only the first of them is copied. */
  readonly first?: Fragment;
  /** Columns that the service itself changes: written with a new row only. */
  readonly once?: ReadonlySet<string>;
}

export interface Copied {
  readonly created: number;
  readonly changed: number;
}

export const UNCHANGED: Copied = { created: 0, changed: 0 };

/** The columns that both tables have. `special` has columns with other values, and null for columns that are not copied. */
export function valuesOf(
  { tables }: Installations,
  from: string,
  to: string,
  special: Readonly<Record<string, Fragment | null>> = {},
): ReadonlyMap<string, Fragment> {
  const values = new Map<string, Fragment>();
  for (const name of tables.get(`service_${to}`)?.keys() ?? []) {
    const given = special[name];
    if (given) values.set(name, given);
    else if (given === undefined && tables.get(`directus_${from}`)?.has(name))
      values.set(name, sql`old.${identifier(name)}`);
  }
  return values;
}

export async function copyRows(session: Session, places: Installations, copy: Copy): Promise<Copied> {
  const target = ours(places, copy.to);
  const columns = places.tables.get(`service_${copy.to}`);
  const given = sql`(${selectOf(copy, columns)}) given`;
  const names = [...copy.values.keys()];
  const compared = names.filter((name) => !copy.key.includes(name) && !copy.once?.has(name));
  const [first = ''] = copy.key;
  const differs = (left: Fragment, right: Fragment): Fragment =>
    compared.length === 0
      ? sql`false`
      : join(
          compared.map((name) => {
            const text = columns?.get(name)?.type === 'json' ? sql`::text` : nothing;
            return sql`${left}.${identifier(name)}${text} is distinct from ${right}.${identifier(name)}${text}`;
          }),
          sql` or `,
        );
  const matches = join(
    copy.key.map((name) => sql`mine.${identifier(name)} = given.${identifier(name)}`),
    sql` and `,
  );
  const [counts = UNCHANGED] = await run<Copied>(
    session,
    sql`select count(*) filter (where mine.${identifier(first)} is null)::int as created,
      count(*) filter (where mine.${identifier(first)} is not null and (${differs(sql`mine`, sql`given`)}))::int as changed
      from ${given} left join ${target} mine on ${matches}`,
  );
  if (counts.created + counts.changed === 0) return UNCHANGED;
  const list = (prefix: Fragment, of: readonly string[]): Fragment =>
    join(of.map((name) => sql`${prefix}${identifier(name)}`));
  const update =
    compared.length === 0
      ? sql`do nothing`
      : sql`do update set ${join(
          compared.map((name) => sql`${identifier(name)} := excluded.${identifier(name)}`),
        )} where ${differs(sql`mine`, sql`excluded`)}`;
  await run(
    session,
    sql`insert into ${target} as mine (${list(nothing, names)}) select ${list(sql`given.`, names)} from ${given}
      on conflict (${list(nothing, copy.key)}) ${copy.keyWhere ? sql`where ${copy.keyWhere}` : nothing} ${update}`,
  );
  return counts;
}

/** The rows of Directus with the columns of the system table. */
function selectOf(
  { key, values, from, first }: Copy,
  columns: ReadonlyMap<string, SourceColumn> | undefined,
): Fragment {
  const outputs = [...values].map(([name, value]) => sql`${typed(value, columns?.get(name))} as ${identifier(name)}`);
  if (!first) return sql`select ${join(outputs)} ${from}`;
  const keys = join(key.map((name) => values.get(name) ?? identifier(name)));
  return sql`select distinct on (${keys}) ${join(outputs)} ${from} order by ${keys}, ${first}`;
}

/** As our column wants it: a column that takes no null gets its default instead. */
function typed(value: Fragment, column: SourceColumn | undefined): Fragment {
  if (!column) return value;
  const cast = sql`(${value})::${identifier(column.type_schema, column.type)}`;
  return column.required && column.initial !== null && !column.initial.startsWith('nextval')
    ? sql`coalesce(${cast}, ${expression(column.initial)})`
    : cast;
}

/** Rows whose keys are numbers, which may be taken here: `service_adopted` maps them. The value of `id` is the key there. */
export async function copyNumbered(
  session: Session,
  places: Installations,
  copy: Copy,
): Promise<Copied & { readonly removed: number }> {
  const { to } = copy;
  const given = selectOf(copy, places.tables.get(`service_${to}`));
  const [target, adopted, source] = [ours(places, to), ours(places, 'adopted'), literal(to)];
  const gone = sql`from ${adopted} adopted where adopted.source = ${source}
    and not exists (select from (${given}) given where given.id::text = adopted.source_key)`;
  const removed = await removeAdopted(session, places, to, gone);
  const columns = [...copy.values.keys()].filter((name) => name !== 'id').map((name) => identifier(name));
  const list = join(columns);
  const differs = join(
    columns.map((name) => sql`mine.${name}::text is distinct from given.${name}::text`),
    sql` or `,
  );
  const changes = join(columns.map((name) => sql`${name} := given.${name}`));
  const pairs = sql`(${given}) given
    join ${adopted} adopted on adopted.source = ${source} and adopted.source_key = given.id::text`;
  const different = await run<{ id: number }>(
    session,
    sql`select mine.id from ${pairs} join ${target} mine on mine.id::text = adopted.target_key where ${differs}`,
  );
  if (different.length > 0)
    await run(
      session,
      sql`update ${target} mine set ${changes} from ${pairs} where mine.id::text = adopted.target_key and (${differs})`,
    );
  const missing = sql`(${given}) given where not exists (
    select from ${adopted} adopted join ${target} mine on mine.id::text = adopted.target_key
    where adopted.source = ${source} and adopted.source_key = given.id::text)`;
  const created = await count(session, sql`from ${missing}`);
  if (created > 0)
    await run(
      session,
      sql`with fresh as materialized (
          select nextval(pg_get_serial_sequence(${literal(`"${places.system.replaceAll('"', '""')}".service_${to}`)}, 'id')) as adopted_target, ordered.*
          from (select given.* from ${missing} order by given.id) ordered
        ), made as (
          insert into ${target} (id, ${list}) select adopted_target, ${list} from fresh
        )
        insert into ${adopted} (source, source_key, target_key) select ${source}, id::text, adopted_target::text from fresh
        on conflict (source, source_key) do update set target_key = excluded.target_key`,
    );
  return { created, changed: different.length, removed };
}

/** Rows that this command has made and whose source was deleted. */
export async function removeAdopted(
  session: Session,
  places: Installations,
  table: string,
  gone: Fragment,
): Promise<number> {
  const keys = await run<{ source_key: string; target_key: string }>(
    session,
    sql`select source_key, target_key ${gone}`,
  );
  if (keys.length === 0) return 0;
  const removed = await run(
    session,
    sql`delete from ${ours(places, table)} mine using (select target_key ${gone}) gone where mine.id::text = gone.target_key returning 1`,
  );
  await run(
    session,
    sql`delete from ${ours(places, 'adopted')} mine using (select source, source_key ${gone}) gone
    where mine.source = gone.source and mine.source_key = gone.source_key`,
  );
  return removed.length;
}
