/** What applications keep beside the collections: views, comments, notifications, texts of screens, folders and dashboards. */
import { type Fragment, literal, sql } from '../sql/fragment.js';
import { type Copy, valuesOf } from './copy.js';
import { renamed } from './names.js';
import { hasColumn, type Installations, ours, theirs } from './source.js';

/** Rows of the table there become rows of the table of the same name here, if there is one. */
function rowsOf(places: Installations, name: string, special: Readonly<Record<string, Fragment | null>> = {}): Copy[] {
  if (!places.tables.has(`directus_${name}`)) return [];
  const values = valuesOf(places, name, name, special);
  return [{ to: name, key: ['id'], values, from: sql`from ${theirs(places, name)} old` }];
}

export interface DataCopies {
  readonly name: string;
  readonly copies: readonly Copy[];
}

/** Panels refer to dashboards. Folders may be in a folder; in itself, none can be. */
export function dataCopies(places: Installations): readonly DataCopies[] {
  // Two texts of one key and one language are one here.
  const translations = rowsOf(places, 'translations').map((copy) => ({
    ...copy,
    key: ['key', 'language'],
    first: sql`old.id`,
    once: new Set(['id']),
  }));
  const comments = rowsOf(places, 'comments', { collection: renamed(places, sql`old.collection`) });
  return [
    { name: 'folders', copies: rowsOf(places, 'folders', { parent: sql`nullif(old.parent, old.id)` }) },
    { name: 'files', copies: fileRows(places) },
    { name: 'translations', copies: translations },
    { name: 'dashboards', copies: rowsOf(places, 'dashboards') },
    { name: 'panels', copies: rowsOf(places, 'panels') },
    { name: 'comments', copies: [...comments, ...commentsInActivity(places)] },
    { name: 'versions', copies: versionRows(places) },
    { name: 'shares', copies: shareRows(places) },
  ].filter(({ copies }) => copies.length > 0);
}

/** What the name of the bytes has to look like here: see sql/system/020_files.sql. */
export const HAS_FITTING_NAME: Fragment = sql`starts_with(old.filename_disk, old.id::text)
  and substr(old.filename_disk, 37) ~ ${literal('^(-[0-9a-f]{1,32})?(\\.[A-Za-z0-9]{1,20})?$')}`;

/** The rows alone: the bytes stay where they are. What was replaced here keeps its new content. */
function fileRows(places: Installations): Copy[] {
  const ending = sql`coalesce(substring(old.filename_disk from ${literal('\\.[A-Za-z0-9]{1,20}$')}), '')`;
  const copies = rowsOf(places, 'files', {
    filename_disk: sql`case when ${HAS_FITTING_NAME} then old.filename_disk
      when old.filename_disk is not null then old.id::text || ${ending} end`,
    tags: sql`case when old.tags::text ~ ${literal('^\\s*\\[')} then old.tags::json end`,
    ...(hasColumn(places, 'directus_files', 'created_on') ? {} : { created_on: sql`old.uploaded_on` }),
  });
  const once = new Set(['storage', 'filename_disk', 'type', 'filesize', 'width', 'height', 'uploaded_on']);
  return copies.map((copy) => ({ ...copy, once }));
}

/** Of tables whose keys are numbers. */
export function numberedData(places: Installations): readonly Copy[] {
  const collection = renamed(places, sql`old.collection`);
  return [...rowsOf(places, 'presets', { collection }), ...rowsOf(places, 'notifications', { collection })];
}

/** Until version 11.2 comments were rows of the activity, whose keys are numbers: the same number makes the same key again. */
function commentsInActivity(places: Installations): Copy[] {
  if (!hasColumn(places, 'directus_activity', 'comment')) return [];
  const author = sql`(select author.id from ${ours(places, 'users')} author where author.id = old."user")`;
  const values = new Map([
    ['id', sql`md5(${literal('directus_activity ')} || old.id)::uuid`],
    ['collection', renamed(places, sql`old.collection`)],
    ['item', sql`old.item`],
    ['comment', sql`old.comment`],
    ['date_created', sql`old.timestamp`],
    ['user_created', author],
  ]);
  const from = sql`from ${theirs(places, 'activity')} old where old.action = 'comment' and old.comment is not null`;
  return [{ to: 'comments', key: ['id'], values, from }];
}

/**
 * Those that are here already are found by their id: they may have got an item since, there or here. Others are found by what they are called. What
 * was stored with a change, who made it and when, is in the history. Digests are made in another way: such a version counts as outdated.
 */
function versionRows(places: Installations): Copy[] {
  const delta = hasColumn(places, 'directus_versions', 'delta') ? sql`old.delta::jsonb` : savedChanges(places);
  const collection = renamed(places, sql`old.collection`);
  const mine = sql`from ${ours(places, 'versions')} mine where mine.id = old.id`;
  const item = sql`coalesce(old.item, (select mine.item ${mine}))`;
  const known = sql`exists (select from ${ours(places, 'collections')} parent where parent.collection = ${collection})`;
  const once = ['delta', 'date_updated', 'user_updated'];
  return rowsOf(places, 'versions', { collection, item, delta: withoutStamps(delta), hash: null }).flatMap(
    (copy): Copy[] => [
      {
        ...copy,
        once: new Set(once),
        from: sql`${copy.from} where (old.item is null or exists (select ${mine})) and ${known}`,
      },
      {
        ...copy,
        key: ['collection', 'item', 'key'],
        first: sql`old.id`,
        once: new Set(['id', ...once]),
        from: sql`${copy.from} where old.item is not null and not exists (select ${mine}) and ${known}`,
      },
    ],
  );
}

/** How often they were used goes on from there. */
function shareRows(places: Installations): Copy[] {
  const collection = renamed(places, sql`old.collection`);
  return rowsOf(places, 'shares', { collection }).map((copy) => ({
    ...copy,
    once: new Set(['times_used']),
    from: sql`${copy.from} where exists (select from ${ours(places, 'collections')} parent where parent.collection = ${collection})`,
  }));
}

/** Until version 11.2 changes were in the history alone; what was saved later counts. */
function savedChanges(places: Installations): Fragment {
  if (!hasColumn(places, 'directus_revisions', 'version')) return sql`null::jsonb`;
  return sql`(select jsonb_object_agg(entry.key, entry.value order by saved.id) from ${theirs(places, 'revisions')} saved cross join jsonb_each(saved.delta::jsonb) entry where saved.version = old.id)`;
}

/** At every level. Inside of a text such a name would have its quotes escaped. */
function withoutStamps(delta: Fragment): Fragment {
  const stamp = '"_(user|date)": (null|"[^"]*")';
  const removed = [`${stamp}, `, `, ${stamp}`, stamp].reduce(
    (text, pattern) => sql`regexp_replace(${text}, ${literal(pattern)}, '', 'g')`,
    sql`${delta}::text`,
  );
  return sql`${removed}::jsonb`;
}
