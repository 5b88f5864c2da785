/** Activity and revisions, on request: they may be large. A later run adds what came since. */
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, literal, sql } from '../sql/fragment.js';
import { renamed } from './names.js';
import { count, hasColumn, type Installations, ours, run, theirs } from './source.js';

/** Which rows are new, and their numbers here: the same as there where nothing is here yet. */
async function numberRows(session: Session, places: Installations, name: string): Promise<number> {
  const adopted = ours(places, 'adopted');
  const isEmpty = (await count(session, sql`from (select from ${ours(places, name)} limit 1) any_row`)) === 0;
  const sequence = sql`pg_get_serial_sequence(${literal(`"${places.system.replaceAll('"', '""')}".service_${name}`)}, 'id')`;
  const last = sql`coalesce((select max(target_key::bigint) from ${adopted} where source = ${literal(`${name} last`)}), 0)`;
  const found = await run(
    session,
    sql`create temporary table ${mapOf(name)} on commit drop as
      select numbered.id as old_id, ${isEmpty ? sql`numbered.id::bigint` : sql`nextval(${sequence})`} as new_id
      from (select id from ${theirs(places, name)} where id > ${last} order by id) numbered`,
  );
  const total = await count(session, sql`from ${mapOf(name)}`);
  if (total === 0) return found.length;
  if (isEmpty) await run(session, sql`select setval(${sequence}, (select max(new_id) from ${mapOf(name)}))`);
  await run(
    session,
    sql`insert into ${adopted} (source, source_key, target_key)
      select ${literal(`${name} last`)}, 'last', max(old_id)::text from ${mapOf(name)}
      on conflict (source, source_key) do update set target_key = excluded.target_key`,
  );
  return total;
}

function mapOf(name: string): Fragment {
  return name === 'activity' ? sql`pg_temp.adopted_activity` : sql`pg_temp.adopted_revisions`;
}

export interface History {
  readonly activity: number;
  readonly revisions: number;
}

export async function copyHistory(session: Session, places: Installations): Promise<History> {
  const activity = await numberRows(session, places, 'activity');
  const revisions = await numberRows(session, places, 'revisions');
  const origin = hasColumn(places, 'directus_activity', 'origin') ? sql`old.origin` : sql`null`;
  const version = hasColumn(places, 'directus_revisions', 'version') ? sql`old.version` : sql`null::uuid`;
  const collection = renamed(places, sql`old.collection`);
  if (activity > 0)
    await run(
      session,
      sql`insert into ${ours(places, 'activity')} (id, action, "user", timestamp, ip, user_agent, origin, collection, item)
        select map.new_id, old.action, old."user", old.timestamp, old.ip, old.user_agent, ${origin}, ${collection}, old.item
        from ${theirs(places, 'activity')} old join ${mapOf('activity')} map on map.old_id = old.id`,
    );
  if (revisions > 0)
    await run(
      session,
      sql`insert into ${ours(places, 'revisions')} (id, activity, collection, item, data, delta, parent, version)
        select map.new_id, coalesce(activity.new_id, old.activity), ${collection}, old.item, old.data, old.delta,
          coalesce(parent.new_id, old.parent), ${version}
        from ${theirs(places, 'revisions')} old join ${mapOf('revisions')} map on map.old_id = old.id
        left join ${mapOf('activity')} activity on activity.old_id = old.activity
        left join ${mapOf('revisions')} parent on parent.old_id = old.parent`,
    );
  return { activity, revisions };
}
