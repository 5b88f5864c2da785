/**
 * Which changes of which tables the log reports. A publication names the tables whose changes are sent. PostgreSQL refuses to update
 * rows of a published table without replica identity, so such tables are in a second publication, which only has inserts.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { Source, TableName } from '../../server/changes/change-source.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { TIMELINE } from '../../server/postgres/pools/primary-watch.js';
import type { Session } from '../../server/postgres/pools/sessions.js';

const PUBLICATION = 'lateral_live';
const KEYLESS_PUBLICATION = `${PUBLICATION}_keyless`;

/** With which the log is read. */
export const PUBLICATIONS: readonly string[] = [PUBLICATION, KEYLESS_PUBLICATION];

/** Slots of all instances begin with this. */
export const SLOT_PREFIX = 'lateral_live_';

/** Milliseconds that the end of a slot is waited for, and between two looks. */
const MAX_SLOT_MS = 5_000;
const SLOT_PAUSE_MS = 20;

/** Held while publications are changed: those of all installations have the same names. */
const LOCK = withCatalog("pg_advisory_xact_lock(hashtext('lateral_live'), hashtext(current_database()))");
const HAS_GENERATED = withCatalog("current_setting('server_version_num')::int >= 180000");

interface LogRights {
  readonly wal_level: string;
  readonly standby: boolean;
  readonly may_replicate: boolean;
  readonly may_create: boolean;
  readonly published: boolean;
  readonly role: string;
}

const RIGHTS =
  withCatalog(`select current_setting('wal_level') as wal_level, pg_is_in_recovery() as standby, current_user::text as role,
  exists (select from pg_roles where rolname = current_user and (rolsuper or rolreplication))
    or exists (select from pg_roles where rolname = 'rds_replication' and pg_has_role(oid, 'member')) as may_replicate,
  has_database_privilege(current_database(), 'create') as may_create,
  exists (select from pg_publication where pubname = '${PUBLICATION}') as published`);

/** Why changes cannot be read from the log; null if they can. */
export async function logObstacle(database: Database): Promise<string | null> {
  if (database.replication === null) return 'the log cannot be read through a pooler: set DATABASE_DIRECT_URL';
  const [rights] = await database.rows<LogRights>(RIGHTS);
  return rights ? obstacleIn(rights) : 'the database does not say what it allows';
}

function obstacleIn({ wal_level, standby, may_replicate, may_create, published }: LogRights): string | null {
  if (standby) return 'the server is a standby';
  if (wal_level !== 'logical')
    return `wal_level is ${wal_level}: alter system set wal_level = logical, then restart PostgreSQL`;
  if (!may_replicate) return 'the role of the service may not read the log: alter role ... replication';
  if (!may_create && !published)
    return `the role of the service may not create the publication ${PUBLICATION}: grant create on the database to it`;
  return null;
}

/**
 * For each table or view in $1: the relations below it, as `below`. Rows of a partition are those of the partitioned table; rows of
 * a table that inherits are shown by its ancestors.
 */
export const BELOW = withCatalog(`
with recursive served as (
  select c.oid, n.nspname || '.' || c.relname as served
  from json_array_elements($1::json) wanted
  join pg_namespace n on n.nspname = (wanted ->> 0)
  join pg_class c on c.relnamespace = n.oid and c.relname = (wanted ->> 1)
), below as (
  select oid, served from served
  union
  select found.oid, below.served from below cross join lateral (
    select d.refobjid as oid from pg_rewrite r
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
      and d.refclassid = 'pg_class'::regclass and d.refobjid <> below.oid
    where r.ev_class = below.oid
    union all
    select i.inhrelid from pg_inherits i join pg_class p on p.oid = i.inhparent
    where i.inhparent = below.oid and p.relkind = 'r'
    union all
    select pg_partition_root(below.oid) from pg_class p where p.oid = below.oid and p.relispartition
  ) found
)`);

/**
 * Whether PostgreSQL updates rows of the table `t` while its updates are published: it needs a replica identity that is published as well.
 * Virtual columns never are. A primary key that is deferrable is no replica identity.
 */
const HAS_IDENTITY = `case when t.relreplident = 'f'
  then not exists (select from pg_attribute a where a.attrelid = t.oid and a.attgenerated = 'v' and not a.attisdropped)
  else exists (select from pg_index i where i.indrelid = t.oid and i.indimmediate
    and (t.relreplident = 'd' and i.indisprimary or t.relreplident = 'i' and i.indisreplident)) end`;

/**
 * The tables that the served tables and views read, and how each may be published. A change of a partition is sent as a change of its root,
 * but the partition has the replica identity.
 */
const SOURCES = withCatalog(`${BELOW}
select below.served, n.nspname as schema, c.relname as name, c.relkind::text as kind, c.relpersistence::text as persistence,
  pg_has_role(c.relowner, 'usage') as owned, identity.keyed,
  published.name as publication, coalesce(published.narrowed, false) as narrowed
from below join pg_class c on c.oid = below.oid join pg_namespace n on n.oid = c.relnamespace
  cross join lateral (
    select coalesce(bool_and(${HAS_IDENTITY}), false) as keyed
    from (select c.oid union all select relid from pg_partition_tree(c.oid) where c.relkind = 'p') part
    join pg_class t on t.oid = part.oid and t.relkind in ('r', 'p')
  ) identity
  left join lateral (
    select p.pubname::text as name, r.prqual is not null or r.prattrs is not null as narrowed
    from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
    where r.prrelid = c.oid and p.pubname in ('${PUBLICATION}', '${KEYLESS_PUBLICATION}')
    order by p.pubname limit 1
  ) published on true
where c.relkind in ('r', 'p', 'f', 'm') and not c.relispartition and n.nspname <> 'pg_catalog'`);

interface SourceRow extends TableName {
  readonly served: string;
  readonly kind: 'r' | 'p' | 'f' | 'm';
  readonly persistence: string;
  readonly owned: boolean;
  readonly keyed: boolean;
  readonly publication: string | null;
  /** Whether the publication leaves out some of its rows or columns. */
  readonly narrowed: boolean;
}

interface Published {
  /** The tables below each served table and view, by schema.name. */
  readonly sources: ReadonlyMap<string, readonly Source[]>;
  /** Whether a publication had to be changed. */
  readonly isChanged: boolean;
  readonly membership: ServedMembership;
}

/**
 * The tables of the publications with their replica identities, as PostgreSQL numbers their entries: one that left and came back has another
 * number.
 */
interface Membership {
  /** Changes whenever something in it does. */
  readonly digest: string;
  readonly members: ReadonlySet<string>;
}

export interface ServedMembership extends Membership {
  /** Whether a table that is served is missing, because only another role may publish it. */
  readonly isPartial: boolean;
}

const MEMBERS = withCatalog(`select pg_catalog.concat_ws(' ', p.oid, p.xmin) as member from pg_catalog.pg_publication p
  where p.pubname in ('${PUBLICATION}', '${KEYLESS_PUBLICATION}')
  union all
  select pg_catalog.concat_ws(' ', r.oid, c.relreplident, (
    select i.indexrelid from pg_catalog.pg_index i where c.relreplident = 'i' and i.indrelid = c.oid and i.indisreplident))
  from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
    join pg_catalog.pg_class c on c.oid = r.prrelid
  where p.pubname in ('${PUBLICATION}', '${KEYLESS_PUBLICATION}')`);

const ALL_MEMBERS = withCatalog(
  `select pg_catalog.string_agg(member, ',' order by member) as members from (${MEMBERS}) each`,
);

export interface LogState {
  /** How far the log has been flushed. */
  readonly end: string;
  /** How far the log has been written, and on which timeline. */
  readonly written: string;
  readonly timeline: number;
  /** Differs between servers, and between starts of one. */
  readonly server: string;
  /** A digest of the tables in the publications. */
  readonly digest: string;
  /** The transactions that have written something and are open. */
  readonly running: ReadonlySet<string>;
}

/** When the server was started, whatever time zone a session has: a standby that is promoted has another time than the primary. */
export const SERVER =
  "pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.pg_postmaster_start_time()), 'YYYYMMDDHH24MISSUS')";

/**
 * A snapshot lists only open transactions that are older than one that has ended. A transaction of its own ends here, so a snapshot that
 * is taken afterwards lists all that are open now.
 */
export async function endTransaction(database: Database): Promise<void> {
  await database.rows('select pg_catalog.pg_current_xact_id()::pg_catalog.text');
}

export async function readLogState(database: Database): Promise<LogState> {
  const [row] = await database.rows<Omit<LogState, 'running'> & { readonly snapshot: string }>(
    `select pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text as end,
       pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text as written, ${TIMELINE} as timeline, ${SERVER} as server, pg_catalog.md5(coalesce((${ALL_MEMBERS}), '')) as digest,
       pg_catalog.pg_current_snapshot()::pg_catalog.text as snapshot`,
  );
  if (!row) throw new Error('the database does not say how far its log is');
  const running = row.snapshot.split(':')[2] ?? '';
  const { end, written, timeline, server, digest } = row;
  return { end, written, timeline, server, digest, running: new Set(running === '' ? [] : running.split(',')) };
}

export async function readMembership(database: Database): Promise<Membership> {
  return membershipIn(await database.rows<MembershipRow>(ALL_MEMBERS));
}

interface MembershipRow {
  /** The members, or null if there are none. */
  readonly members: string | null;
}

function membershipIn([row]: readonly MembershipRow[]): Membership {
  const text = row?.members ?? '';
  return { digest: createHash('md5').update(text).digest('hex'), members: new Set(text.split(',')) };
}

/** Brings the publications in step with the tables that are served. Tables of others in them stay. */
export function publish(database: Database, tables: readonly TableName[]): Promise<Published> {
  const wanted = JSON.stringify(tables.map(({ schema, name }) => [schema, name]));
  return database.transaction(async (session) => {
    await session.query("set local lock_timeout = '2s'");
    const [server] = await session.query<{ generated: boolean }>(`select ${LOCK}, ${HAS_GENERATED} as generated`);
    // The replica identity of a table may have a stored generated column, which PostgreSQL publishes from version 18 on.
    const generated = server?.generated ? ', publish_generated_columns = stored' : '';
    const rows = await session.query<SourceRow>(SOURCES, [wanted]);
    let isChanged = false;
    const foreign = new Set<string>();
    for (const name of PUBLICATIONS) {
      const outcome = await publishIn(name, distinct(rows), generated, session);
      if (outcome === 'changed') isChanged = true;
      else if (outcome === 'foreign') foreign.add(name);
    }
    const membership = membershipIn(await session.query<MembershipRow>(ALL_MEMBERS));
    const isPartial = rows.some((row) => unseenOf(row) === null && !isPublished(row, foreign));
    return { sources: sourcesOf(rows, foreign), isChanged, membership: { ...membership, isPartial } };
  });
}

function distinct(rows: readonly SourceRow[]): SourceRow[] {
  return [...new Map(rows.map((row) => [`${row.schema}.${row.name}`, row])).values()];
}

/** `generated`: the setting for generated columns, if the server has one. A publication of another role is foreign, and stays as it is. */
async function publishIn(
  name: string,
  rows: readonly SourceRow[],
  generated: string,
  session: Session,
): Promise<'changed' | 'same' | 'foreign'> {
  const belongs = (row: SourceRow): boolean => unseenOf(row) === null && publicationFor(row) === name;
  const isWhole = (row: SourceRow): boolean => row.publication === name && !row.narrowed;
  const added = rows.filter((row) => row.owned && belongs(row) && !isWhole(row));
  // An update of a row without a replica identity would fail from now on.
  const removed = rows.filter((row) => row.owned && row.publication === name && (row.narrowed || !belongs(row)));
  const list = (of: readonly SourceRow[]): string =>
    `table ${of.map(({ schema, name: table }) => `only ${quoteIdentifier(schema)}.${quoteIdentifier(table)}`).join(', ')}`;
  const actions = name === PUBLICATION ? 'insert, update, delete, truncate' : 'insert, truncate';
  const settings = `(publish = '${actions}', publish_via_partition_root = true${generated})`;
  const [existing] = await session.query<{ owned: boolean; sufficient: boolean; complete: boolean }>(COMPLETE, [name]);
  if (!existing) {
    const tables = added.length > 0 ? ` for ${list(added)}` : '';
    await session.query(`create publication ${quoteIdentifier(name)}${tables} with ${settings}`);
    return 'changed';
  }
  if (!existing.owned && !existing.sufficient)
    throw new Error(
      `the publication ${name} leaves out changes: alter publication ${name} set (publish = '${actions}')`,
    );
  if (!existing.owned) return 'foreign';
  const isRestored = !existing.complete;
  if (isRestored) await session.query(`alter publication ${quoteIdentifier(name)} set ${settings}`);
  if (removed.length > 0) await session.query(`alter publication ${quoteIdentifier(name)} drop ${list(removed)}`);
  if (added.length > 0) await session.query(`alter publication ${quoteIdentifier(name)} add ${list(added)}`);
  return isRestored || removed.length + added.length > 0 ? 'changed' : 'same';
}

function publicationFor({ keyed }: SourceRow): string {
  return keyed ? PUBLICATION : KEYLESS_PUBLICATION;
}

/**
 * Whether the role may change the publication, and whether it sends what the service needs. Partitions may be sent as themselves if
 * another program has made it, and the one of tables without keys may be empty.
 */
const COMPLETE =
  withCatalog(`select owned, actions or keyless as sufficient, actions and pubviaroot and generated as complete from (
  select pg_has_role(pubowner, 'usage') as owned, (pubname = '${KEYLESS_PUBLICATION}') as keyless, pubviaroot,
    coalesce(to_jsonb(p) ->> 'pubgencols', 's') = 's' as generated,
    pubinsert and pubtruncate and (pubname = '${KEYLESS_PUBLICATION}' or pubupdate and pubdelete) as actions
  from pg_publication p where pubname = $1) settings`);

function unseenOf({ kind, persistence }: SourceRow): string | null {
  if (kind === 'f') return 'a foreign table: its server does not say what changes';
  if (kind === 'm') return 'a materialized view: PostgreSQL does not say when it is refreshed';
  if (persistence !== 'p') return 'an unlogged table: its changes are not in the log';
  return null;
}

const UNPUBLISHED = 'it is not published, or only in part, and the role of the service may not publish it';

/** Whether it is in a publication now. `foreign`: those that the role may not change. */
function isPublished(row: SourceRow, foreign: ReadonlySet<string>): boolean {
  return (row.owned && !foreign.has(publicationFor(row))) || (row.publication !== null && !row.narrowed);
}

function sourcesOf(rows: readonly SourceRow[], foreign: ReadonlySet<string>): Map<string, Source[]> {
  const sources = new Map<string, Source[]>();
  for (const row of rows) {
    const { schema, name, served } = row;
    const unpublished = isPublished(row, foreign) ? null : UNPUBLISHED;
    sources.set(served, [
      ...(sources.get(served) ?? []),
      { schema, name, unseen: unseenOf(row) ?? unpublished, insertsOnly: !row.keyed },
    ]);
  }
  return sources;
}

/** Resolves when the slot is dropped, at the latest after some seconds: the server may notice late that its reader has left. */
export async function slotGone(database: Database, slot: string): Promise<void> {
  const until = performance.now() + MAX_SLOT_MS;
  while (performance.now() < until) {
    const [found] = await database.rows('select from pg_replication_slots where slot_name = $1', [slot]);
    if (!found) return;
    await sleep(SLOT_PAUSE_MS);
  }
}

/** Called when no instance reads the log: a forgotten publication may make updates fail after a key is dropped. */
export async function unpublish(database: Database): Promise<void> {
  await database.transaction(async (session) => {
    await session.query("set local lock_timeout = '500ms'");
    await session.query(`select ${LOCK}`);
    const [reader] = await session.query(
      database.qualified(
        'select from pg_replication_slots where database = current_database() and starts_with(slot_name::text, $1)',
      ),
      [SLOT_PREFIX],
    );
    if (reader) return;
    const owned = await session.query<{ pubname: string }>(
      database.qualified(
        `select pubname::text from pg_publication
         where pubname in ('${PUBLICATION}', '${KEYLESS_PUBLICATION}') and pg_has_role(pubowner, 'usage')`,
      ),
    );
    for (const { pubname } of owned) await session.query(`drop publication ${quoteIdentifier(pubname)}`);
  });
}
