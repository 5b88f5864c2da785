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
  ].filter(({ copies }) => copies.length > 0);
}

/** What the name of the bytes has to look like here: see sql/system/018_files.sql. */
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
