/** Rows whose keys are numbers, which may be taken here: `service_adopted` knows which row is which. */
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, identifier, join, literal, sql } from '../sql/fragment.js';
import { type Copied, type Copy, selectOf } from './copy.js';
import { type Installations, ours, run } from './source.js';

/** What was taken away there is taken away here. */
export interface CopiedAndRemoved extends Copied {
  readonly removed: number;
}

/** The value of `id` is the key there. */
export async function copyNumbered(session: Session, places: Installations, copy: Copy): Promise<CopiedAndRemoved> {
  const { to } = copy;
  const given = selectOf(copy, places.tables.get(`service_${to}`));
  const [target, adopted, source] = [ours(places, to), ours(places, 'adopted'), literal(to)];
  const gone = sql`from ${adopted} adopted where adopted.source = ${source}
    and not exists (select from (${given}) given where given.id::text = adopted.source_key)`;
  const removed = await removeAdopted(session, places, to, gone);
  const columns = [...copy.values.keys()].filter((name) => name !== 'id').map((name) => identifier(name));
  const list = join(columns, sql`, `);
  const differs = join(
    columns.map((name) => sql`mine.${name}::text is distinct from given.${name}::text`),
    sql` or `,
  );
  const changes = join(
    columns.map((name) => sql`${name} := given.${name}`),
    sql`, `,
  );
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
  const [found] = await run<{ count: number }>(session, sql`select count(*)::int as count from ${missing}`);
  const created = found?.count ?? 0;
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

/** Rows that this command has made and whose source is gone. */
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
