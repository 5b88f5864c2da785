/** Webhooks as their rows define them: what a row may say, and the read that shows a changed item as the webhook wants it. */

import { invalidPayload, ServiceError } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import { isOneOf, messageOf } from '../../base/narrow.js';
import { headerProblem } from '../../base/sent-headers.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import { servedCollection } from '../../compiler/plan/read.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { quoteName } from '../../compiler/request/expression.js';
import type { Input, ParseLimits } from '../../compiler/request/parse-context.js';
import { parseImage } from '../../compiler/request/rest.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import { isPublicHost } from '../../server/http/public-addresses.js';
import { parseTemplate, type Template } from './webhook-template.js';
import type { WantedTable } from './webhook-triggers.js';

export const WEBHOOKS = 'service_webhooks';

export const EVENTS = ['create', 'update', 'delete', 'truncate'] as const;
export type WebhookEvent = (typeof EVENTS)[number];

type WebhookStatus = 'active' | 'paused' | 'inactive';

export interface Webhook {
  readonly id: string;
  readonly name: string;
  readonly status: WebhookStatus;
  readonly url: URL;
  readonly collections: readonly string[];
  readonly events: readonly WebhookEvent[];
  readonly filter: unknown;
  /** The fields that are sent, or null for all. */
  readonly fields: unknown;
  readonly headers: Readonly<Record<string, string>>;
  /** The body that the receiver expects, or null for the usual one. */
  readonly template: Template | null;
  /** The keys of the signatures, the newest first: two for a while after a rotation. */
  readonly secrets: readonly string[];
  /** When a change was first missed, or null if none was. */
  readonly incompleteSince: string | null;
}

export interface WebhookRow {
  readonly id: string;
  readonly name: string;
  readonly status: WebhookStatus;
  readonly url: string;
  readonly collections: string;
  readonly events: string;
  readonly filter: string | null;
  readonly fields: string | null;
  readonly headers: string | null;
  readonly template: string | null;
  readonly secret: string;
  readonly previous_secret: string | null;
  readonly incomplete_since: string | null;
}

/** All webhooks. */
export const READ_WEBHOOKS = withCatalog(`
select id::text, name, status, url, collections::text, events::text, filter::text, fields::text, headers::text, template::text, secret,
  case when previous_secret_until > now() then previous_secret end as previous_secret, incomplete_since::text
from service_webhooks order by id`);

/** Limits of webhooks that options set. */
/** $1: the webhook, $2: the reason. */
export const MARK_INCOMPLETE = withCatalog(`update service_webhooks set incomplete_since = now(), incomplete_reason = $2
  where id = $1::uuid and incomplete_since is null`);

export interface WebhookLimits {
  /** Deliveries of one webhook and collection that may be pending. */
  readonly maxBacklog: number;
  /** Bytes. */
  readonly maxPayload: number;
  /** Whether URLs may lead to local addresses. */
  readonly allowLocal: boolean;
}

/** Throws an error about the property that is wrong. */
export function parseWebhook(row: WebhookRow): Webhook {
  const { id, name, status, secret, previous_secret: previous } = row;
  const fields = row.fields === null ? null : parseJson(row.fields);
  if (fields !== null && !isTexts(fields)) throw invalidPayload('"fields" must be a list of fields');
  const filter = row.filter === null ? null : parseJson(row.filter);
  if (filter !== null && !isObject(filter)) throw invalidPayload('"filter" must be an object');
  const secrets = previous === null ? [secret] : [secret, previous];
  for (const each of secrets) secretBytes(each);
  return {
    ...{ id, name, status, secrets, filter, fields },
    url: parseUrl(row.url),
    collections: parseNames(row.collections, 'collections'),
    events: parseEvents(row.events),
    headers: parseHeaders(row.headers),
    template: row.template === null ? null : parseTemplate(row.template),
    incompleteSince: row.incomplete_since,
  };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

function parseNames(text: string, property: string): readonly string[] {
  const names = parseJson(text);
  if (!isTexts(names) || names.length === 0) throw invalidPayload(`"${property}" must be a list of at least one name`);
  return [...new Set(names)];
}

function parseEvents(text: string): readonly WebhookEvent[] {
  return parseNames(text, 'events').map((name) => {
    if (!isOneOf(EVENTS, name)) throw invalidPayload(`"events" must be some of ${EVENTS.join(', ')}, not "${name}"`);
    return name;
  });
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol))
    throw invalidPayload('"url" must be a URL that begins with http or https');
  if (url.username !== '' || url.password !== '')
    throw invalidPayload('"url" must not have credentials: use "headers"');
  return url;
}

function parseHeaders(text: string | null): Readonly<Record<string, string>> {
  const headers = text === null ? {} : parseJson(text);
  if (!isObject(headers)) throw invalidPayload('"headers" must be an object with texts');
  const entries = Object.entries(headers).map(([name, value]): [string, string] => {
    const problem = headerProblem(name, value);
    if (problem !== null) throw invalidPayload(problem);
    return [name, String(value)];
  });
  return Object.fromEntries(entries);
}

/** The key of a secret as Standard Webhooks writes it. */
export function secretBytes(secret: string): Buffer {
  const [, base64 = ''] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret) ?? [];
  const bytes = Buffer.from(base64, 'base64');
  // Libraries of receivers refuse base64 without its padding.
  if (bytes.length < 24 || bytes.length > 64 || bytes.toString('base64') !== base64)
    throw invalidPayload('"secret" must be whsec_ followed by 24 to 64 bytes as base64');
  return bytes;
}

interface CompileServices {
  readonly reads: Reads;
  readonly parseLimits: ParseLimits;
}

/** Throws if the webhook names something that does not exist, or a URL that is not allowed. */
export function checkWebhook(
  webhook: Webhook,
  model: Model,
  { allowLocal }: Pick<WebhookLimits, 'allowLocal'>,
  services: CompileServices,
): void {
  if (!allowLocal && !isPublicHost(webhook.url))
    throw invalidPayload('"url" must not lead to a local address (WEBHOOKS_ALLOW_LOCAL)');
  for (const name of webhook.collections) {
    const collection = servedCollection(model, name);
    if (collection.system) throw invalidPayload(`"${name}" belongs to the service: webhooks cannot follow it`);
    if (!hasTriggers(collection)) throw invalidPayload(`"${name}" is not a table: webhooks cannot follow it`);
    services.reads.compile(imageQuery(webhook, collection.name, services.parseLimits), CLI_IDENTITY);
  }
  checkPlaceholders(webhook, model);
}

/** Without `fields` the deliveries have the fields of the collections. */
function checkPlaceholders({ template, fields, collections }: Webhook, model: Model): void {
  if (template === null || fields !== null) return;
  for (const [root, name] of template.paths) {
    const isKnown = name === undefined || collections.some((each) => model.collections.get(each)?.fields.has(name));
    if (!isKnown)
      throw invalidPayload(`"template" has {{${root}.${name}}}: no collection of the webhook has this field`);
  }
}

function hasTriggers({ kind }: Collection): boolean {
  return kind === 'table' || kind === 'partitioned';
}

/** The read that shows a changed item, or nothing if the item does not match the filter. */
export function imageQuery({ fields, filter }: Webhook, collection: string, limits: ParseLimits): Parsed {
  const query: Input = { ...(fields !== null && { fields }), ...(filter !== null && { filter }) };
  return parseImage(collection, query, limits);
}

/** Why a row cannot be used. */
interface BrokenWebhook {
  readonly id: string;
  readonly status: WebhookStatus;
  readonly reason: string;
}

interface Definitions {
  readonly webhooks: readonly Webhook[];
  /** Rows that statements of others have written, and that no request could. */
  readonly broken: readonly BrokenWebhook[];
}

export function parseWebhooks(rows: readonly WebhookRow[]): Definitions {
  const webhooks: Webhook[] = [];
  const broken: BrokenWebhook[] = [];
  for (const row of rows) {
    try {
      webhooks.push(parseWebhook(row));
    } catch (error) {
      const reason = error instanceof ServiceError ? error.message : messageOf(error);
      broken.push({ id: row.id, status: row.status, reason });
    }
  }
  return { webhooks, broken };
}

/** The tables whose changes the webhooks want. Collections that do not exist are left out. */
export function wantedTables(webhooks: readonly Webhook[], model: Model, services: CompileServices): WantedTable[] {
  const recording = webhooks.filter(({ status }) => status !== 'inactive');
  const names = new Set(recording.flatMap(({ collections }) => collections));
  return [...names].flatMap((name) => {
    const collection = model.collections.get(name);
    if (!collection || collection.system || !hasTriggers(collection)) return [];
    const key = collection.key.map((field) => field.column?.name ?? field.name);
    const following = recording.filter(({ collections }) => collections.includes(name));
    const read = following.map((webhook) => columnsRead(webhook, collection, services));
    const all = columnsOf(collection);
    const isRead = (column: string, part: keyof ColumnsRead): boolean => read.some((each) => each[part].has(column));
    const needed = all.filter(
      (column) => key.includes(column) || isRead(column, 'shown') || isRead(column, 'compared'),
    );
    const whole = all.filter((column) => isRead(column, 'compared'));
    return [
      {
        schema: collection.schema,
        name: collection.table,
        key,
        needed: needed.length === all.length ? null : needed,
        whole,
      },
    ];
  });
}

/** The columns that a webhook needs of an item. */
interface ColumnsRead {
  /** For its fields. */
  readonly shown: ReadonlySet<string>;
  /** For its filter. */
  readonly compared: ReadonlySet<string>;
}

/** Columns that only share their name with one that is read count too. A query that does not fit the schema may become one that does. */
export function columnsRead(
  webhook: Webhook,
  collection: Collection,
  { reads, parseLimits }: CompileServices,
): ColumnsRead {
  const all = columnsOf(collection);
  const inQuery = (fields: unknown, filter: unknown): ReadonlySet<string> => {
    const query = imageQuery({ ...webhook, fields, filter }, collection.name, parseLimits);
    const { text } = reads.compile(query, CLI_IDENTITY).statement;
    const isOfRow = [...collection.fields.values()].some(
      ({ computed }) => computed && text.includes(quoteIdentifier(computed.function)),
    );
    return new Set(isOfRow ? all : all.filter((column) => text.includes(quoteIdentifier(column))));
  };
  try {
    const [first] = collection.key.length > 0 ? collection.key : collection.fields.values();
    const least = first ? [quoteName(first.name)] : null;
    const compared = webhook.filter === null ? new Set<string>() : inQuery(least, webhook.filter);
    return { shown: inQuery(webhook.fields, null), compared };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return { shown: new Set(all), compared: new Set(all) };
  }
}

function columnsOf({ fields }: Collection): string[] {
  return [...fields.values()].flatMap(({ column, computed }) => (column && !computed ? [column.name] : []));
}
