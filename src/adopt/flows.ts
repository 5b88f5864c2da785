/**
 * Flows and webhooks of Directus. A flow that posts changes of items to a URL becomes a webhook. The others are listed with the reason.
 */
import { isRecord } from '../base/narrow.js';
import { headerProblem } from '../base/sent-headers.js';
import type { Session } from '../postgres/pools/sessions.js';
import { sql } from '../sql/fragment.js';
import type { Copied } from './copy.js';
import { constant, hasColumn, type Installations, ours, run, theirs } from './source.js';

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

export interface AdoptedFlows {
  readonly copied: Copied;
  /** Lines for the operator. */
  readonly notes: readonly string[];
}

/** `isRunning`: Directus goes on running, and its flows with it, so the webhooks are inactive. */
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

/** Version 12 has no webhooks apart from flows. */
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
