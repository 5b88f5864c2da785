/** Rows that applications keep: settings, views, comments, notifications, texts, files, dashboards, the history, and flows. */

import { isRecord } from '../../base/narrow.js';
import { headerProblem } from '../../base/sent-headers.js';
import { type Fragment, identifier, join, literal, sql } from '../../compiler/sql/fragment.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { type Copied, type Copy, UNCHANGED, valuesOf } from './copy.js';
import { constant, count, hasColumn, type Installations, oneOf, ours, renamed, run, theirs } from './source.js';

/** Rows of the table there become rows of the table of the same name here, if there is one. */
function rowsOf(places: Installations, name: string, special: Readonly<Record<string, Fragment | null>> = {}): Copy[] {
  if (!places.tables.has(`directus_${name}`)) return [];
  const values = valuesOf(places, name, name, special);
  return [{ to: name, key: ['id'], values, from: sql`from ${theirs(places, name)} old` }];
}

interface DataCopies {
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

/** The names that stored files have here: see sql/features/files/020_files.sql. */
export const HAS_FITTING_NAME: Fragment = sql`starts_with(old.filename_disk, old.id::text)
  and substr(old.filename_disk, 37) ~ ${literal('^(-[0-9a-f]{1,32})?(\\.[A-Za-z0-9]{1,20})?$')}`;

/** Copies the rows only: the bytes stay where they are. Files that were replaced here keep their new content. */
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

/** Copies tables whose keys are numbers. */
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
 * Versions that were copied before are found by their id, because they may have got an item since. Others are found by their names.
 * The history has the values of each change, its author and its time. Digests are computed differently: such a version counts as outdated.
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

/** The default of Directus, which no operator chose. */
const DEFAULT_ATTEMPTS = sql`25`;

export async function copySettings(session: Session, places: Installations): Promise<Copied> {
  const values = valuesOf(places, 'settings', 'settings', {
    id: null,
    auth_login_attempts: sql`case when old.auth_login_attempts > 0 then nullif(old.auth_login_attempts, ${DEFAULT_ATTEMPTS}) end`,
    default_appearance: hasColumn(places, 'directus_settings', 'default_appearance')
      ? oneOf(sql`old.default_appearance`, ['auto', 'light', 'dark'], sql`'auto'`)
      : null,
    public_registration_role: hasColumn(places, 'directus_settings', 'public_registration_role')
      ? sql`(select role.id from ${ours(places, 'roles')} role where role.id = old.public_registration_role)`
      : null,
  });
  const columns = places.tables.get('service_settings');
  const text = (name: string): Fragment => (columns?.get(name)?.type === 'json' ? sql`::text` : sql``);
  // A column that takes no null keeps its value.
  const value = (name: string, given: Fragment): Fragment =>
    columns?.get(name)?.required ? sql`coalesce(${given}, mine.${identifier(name)})` : given;
  const differs = join(
    [...values].map(
      ([name, given]) =>
        sql`mine.${identifier(name)}${text(name)} is distinct from (${value(name, given)})${text(name)}`,
    ),
    sql` or `,
  );
  const changes = join([...values].map(([name, given]) => sql`${identifier(name)} := ${value(name, given)}`));
  const from = sql`(select * from ${theirs(places, 'settings')} order by id limit 1) old`;
  const [row] = await run<{ differs: boolean }>(
    session,
    sql`select ${differs} as differs from ${ours(places, 'settings')} mine, ${from}`,
  );
  if (!row?.differs) return UNCHANGED;
  await run(session, sql`update ${ours(places, 'settings')} mine set ${changes} from ${from}`);
  return { created: 0, changed: 1 };
}

/** Activity and revisions, on request: they may be large. A later run adds what came since. Returns how many were copied. */
export async function copyHistory(
  session: Session,
  places: Installations,
): Promise<{ readonly activity: number; readonly revisions: number }> {
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

/** Finds new rows, and numbers them: with the same numbers as there if nothing is here yet. */
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

interface Flow {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly trigger: string | null;
  readonly options: unknown;
  /** The first operation, and how many there are. */
  readonly type: string | null;
  readonly operation: unknown;
  readonly operations: number;
}

interface NewWebhook {
  readonly id: string;
  readonly name: string;
  readonly status: 'active' | 'inactive';
  readonly url: string;
  readonly collections: readonly string[];
  readonly events: readonly string[];
  readonly headers: Readonly<Record<string, string>> | null;
}

interface AdoptedFlows {
  readonly copied: Copied;
  /** Lines for the operator. */
  readonly notes: readonly string[];
}

/**
 * A flow of Directus that posts changes of items to a URL becomes a webhook. The others are listed with the reason. `isRunning`: Directus
 * goes on running, and its flows with it, so the webhooks are inactive.
 */
export async function adoptFlows(session: Session, places: Installations, isRunning: boolean): Promise<AdoptedFlows> {
  const webhooks: NewWebhook[] = [];
  const notes: string[] = [];
  const take = (name: string, found: Omit<NewWebhook, 'status'> | string, isActive: boolean): void => {
    if (typeof found === 'string') notes.push(`${name}: ${found}`);
    else webhooks.push({ ...found, status: isActive && !isRunning ? 'active' : 'inactive' });
  };
  for (const flow of await readFlows(session, places))
    take(`flow "${flow.name}" (${flow.status})`, webhookOfFlow(flow), flow.status === 'active');
  for (const old of await readOldWebhooks(session, places))
    take(`webhook "${old.name}" (${old.status})`, webhookOfOld(old), old.status === 'active');
  const created = await insert(session, places, webhooks);
  if (webhooks.length > 0)
    notes.push(
      `${webhooks.length} flows or webhooks are webhooks here: their bodies and signatures differ (docs/webhooks.md)`,
    );
  return { copied: { created, changed: 0 }, notes };
}

/** Other versions of the table may lack columns. */
function readFlows(session: Session, places: Installations): Promise<Flow[]> {
  if (!places.tables.has('directus_flows')) return Promise.resolve([]);
  const flows = theirs(places, 'flows');
  const isWhole = hasColumn(places, 'directus_flows', 'operation') && places.tables.has('directus_operations');
  if (!isWhole)
    return run(
      session,
      sql`select id::text, name, status, trigger, null as options, null as type, null as operation, 0 as operations
        from ${flows} order by name, id`,
    );
  const operations = theirs(places, 'operations');
  return run(
    session,
    sql`select flow.id::text, flow.name, flow.status, flow.trigger, flow.options, first.type, first.options as operation,
        (select count(*) from ${operations} each where each.flow = flow.id)::int as operations
      from ${flows} flow left join ${operations} first on first.id = flow.operation order by flow.name, flow.id`,
  );
}

const EVENTS: ReadonlyMap<unknown, string> = new Map([
  ['items.create', 'create'],
  ['items.update', 'update'],
  ['items.delete', 'delete'],
]);

/** Returns the webhook, or the reason why there is none. */
function webhookOfFlow(flow: Flow): Omit<NewWebhook, 'status'> | string {
  const { id, name, trigger, options, type, operation, operations } = flow;
  if (trigger !== 'event') return `its trigger is "${trigger ?? 'none'}", not an event`;
  if (!isRecord(options) || options['type'] !== 'action')
    return 'it runs before the change, which only a trigger can do';
  const { scope, collections } = options;
  const events = Array.isArray(scope) ? scope.map((each) => EVENTS.get(each)) : [];
  const known = events.filter((each) => each !== undefined);
  if (known.length === 0 || known.length < events.length)
    return 'it runs after other events than the creation, update or deletion of items';
  if (operations !== 1 || type !== 'request' || !isRecord(operation)) return 'it does more than to send one request';
  const { method, url, headers = null, body = null } = operation;
  if (method !== 'POST') return `it sends ${String(method ?? 'GET')}, not POST`;
  if (body !== null && !/^\s*(\{\{\s*\$trigger(\.payload)?\s*\}\})?\s*$/.test(String(body)))
    return 'the body of its request is a template';
  return webhookOf({ id, name, url, collections, events: known, headers });
}

interface OldWebhook {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly method: string;
  readonly url: string;
  readonly actions: string;
  readonly collections: string;
  readonly headers: unknown;
}

/** In Directus 12, webhooks are flows, and the table of webhooks does not exist. */
function readOldWebhooks(session: Session, places: Installations): Promise<OldWebhook[]> {
  if (!hasColumn(places, 'directus_webhooks', 'headers')) return Promise.resolve([]);
  return run(
    session,
    sql`select md5('directus_webhooks ' || id::text)::uuid::text as id, name, status, method, url, actions::text as actions,
      collections::text as collections, headers from ${theirs(places, 'webhooks')} order by id`,
  );
}

function webhookOfOld(old: OldWebhook): Omit<NewWebhook, 'status'> | string {
  const { id, name, method, url, actions, collections, headers } = old;
  if (method !== 'POST') return `it sends ${method}, not POST`;
  const events = actions.split(',').filter((action) => ['create', 'update', 'delete'].includes(action));
  if (events.length === 0) return 'it has no actions on items';
  return webhookOf({ id, name, url, collections: collections.split(',').filter(Boolean), events, headers });
}

interface Candidate {
  readonly id: string;
  readonly name: string;
  readonly url: unknown;
  readonly collections: unknown;
  readonly events: readonly string[];
  readonly headers: unknown;
}

function webhookOf(candidate: Candidate): Omit<NewWebhook, 'status'> | string {
  const { id, name, url, collections, events } = candidate;
  if (typeof url !== 'string' || url.includes('{{') || !URL.canParse(url)) return 'its URL is a template';
  const { protocol, username, password } = new URL(url);
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '') return 'its URL has credentials';
  if (!Array.isArray(collections) || collections.length === 0) return 'it names no collections';
  const system = collections.find((each) => typeof each !== 'string' || each.startsWith('directus_'));
  if (system !== undefined) return `it follows "${String(system)}", which webhooks cannot`;
  const headers = headersOf(candidate.headers);
  return typeof headers === 'string' ? headers : { id, name, url, collections, events, headers };
}

/** Directus keeps a list of names and values. Returns the reason if one cannot be sent. */
function headersOf(list: unknown): Readonly<Record<string, string>> | string | null {
  const entries = Array.isArray(list) ? list : [];
  if (entries.length === 0) return null;
  const headers: Record<string, string> = {};
  for (const entry of entries) {
    const { header, value } = isRecord(entry) ? entry : {};
    if (typeof header !== 'string' || typeof value !== 'string' || value.includes('{{'))
      return 'its headers are templates';
    // The service sets it by itself.
    if (/^content-type$/i.test(header)) continue;
    const problem = headerProblem(header, value);
    if (problem !== null) return problem;
    headers[header] = value;
  }
  return headers;
}

/** Webhooks that are here already stay as they are. Returns how many are new. */
async function insert(session: Session, places: Installations, webhooks: readonly NewWebhook[]): Promise<number> {
  const rows = await run(
    session,
    sql`insert into ${ours(places, 'webhooks')} (id, name, status, url, collections, events, headers)
      select row.id, row.name, row.status, row.url, row.collections, row.events, row.headers
      from json_to_recordset(${constant(JSON.stringify(webhooks))}::json)
        as row (id uuid, name text, status text, url text, collections json, events json, headers json)
      on conflict (id) do nothing returning 1`,
  );
  return rows.length;
}
