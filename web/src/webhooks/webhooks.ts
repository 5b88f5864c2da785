/** Webhooks and their deliveries, as the API has them (docs/webhooks.md). */
import { call } from '../api';
import type { FilterJson } from '../filter/filter';

export const EVENTS = ['create', 'update', 'delete', 'truncate'] as const;

export const MASK = '**********';

/** The part of a webhook that its form defines. */
export interface Definition {
  readonly name: string;
  readonly url: string;
  readonly collections: readonly string[];
  readonly events: readonly string[];
  readonly filter: FilterJson | null;
  /** The fields, or null if all are sent. */
  readonly fields: readonly string[] | null;
  /** The API shows them as `MASK`, which leaves them as they are if it is sent back. */
  readonly headers: Readonly<Record<string, string>> | string | null;
  /** The body that is sent instead of the usual one, or null. */
  readonly template: unknown;
}

export interface Webhook extends Definition {
  readonly id: string;
  readonly status: 'active' | 'paused' | 'inactive';
  readonly incomplete_since: string | null;
  readonly incomplete_reason: string | null;
  readonly date_created: string | null;
}

export type DeliveryStatus = 'pending' | 'delivered' | 'dead';

export interface Delivery {
  readonly id: string;
  readonly collection: string;
  readonly event: string;
  readonly item: string | null;
  readonly status: DeliveryStatus;
  readonly attempts: number;
  readonly created_at: string;
  readonly next_attempt_at: string;
  readonly response_status: number | null;
  readonly response_ms: number | null;
  readonly response_body: string | null;
  readonly error: string | null;
  readonly payload: unknown;
}

export interface Attempt {
  readonly delivered: boolean;
  readonly status: number | null;
  readonly ms: number;
  readonly body: string;
  readonly error: string | null;
}

const FIELDS = [
  ...['id', 'name', 'url', 'status', 'collections', 'events', 'filter', 'fields', 'headers', 'template'],
  ...['incomplete_since', 'incomplete_reason', 'date_created'],
];

export async function listWebhooks(): Promise<Webhook[]> {
  const query = { fields: FIELDS, sort: ['name', 'id'], limit: -1 };
  const { data } = await call<Webhook[]>('SEARCH', '/webhooks', { body: { query } });
  return data;
}

export async function loadWebhook(id: string): Promise<Webhook> {
  const { data } = await call<Webhook>('GET', `/webhooks/${encodeURIComponent(id)}?fields=${FIELDS.join()}`);
  return data;
}

/** The number of deliveries by webhook and status. */
export type Counts = ReadonlyMap<string, Readonly<Partial<Record<DeliveryStatus, number>>>>;

export async function countDeliveries(webhook?: string): Promise<Counts> {
  const query = {
    aggregate: { count: ['*'] },
    groupBy: ['webhook', 'status'],
    ...(webhook === undefined ? {} : { filter: { webhook: { _eq: webhook } } }),
    limit: -1,
  };
  const { data } = await call<{ webhook: string; status: DeliveryStatus; count: number | string }[]>(
    'SEARCH',
    '/webhook_deliveries',
    { body: { query } },
  );
  const counts = new Map<string, Partial<Record<DeliveryStatus, number>>>();
  for (const { webhook: id, status, count } of data) counts.set(id, { ...counts.get(id), [status]: Number(count) });
  return counts;
}

export const PAGE = 50;

/** The latest first. */
export async function listDeliveries(webhook: string, status: DeliveryStatus | null): Promise<Delivery[]> {
  const query = {
    filter: { webhook: { _eq: webhook }, ...(status === null ? {} : { status: { _eq: status } }) },
    fields: [
      ...['id', 'collection', 'event', 'item', 'status', 'attempts', 'created_at', 'next_attempt_at'],
      ...['response_status', 'response_ms', 'response_body', 'error', 'payload'],
    ],
    sort: ['-created_at', '-sequence'],
    limit: PAGE,
  };
  const { data } = await call<Delivery[]>('SEARCH', '/webhook_deliveries', { body: { query } });
  return data;
}

/** Returns the id, and the secret that no other answer shows. */
export async function createWebhook(definition: Definition, secret: string): Promise<{ id: string; secret: string }> {
  const { data } = await call<{ id: string; secret: string }>('POST', '/webhooks?fields=id,secret', {
    body: { ...definition, ...(secret === '' ? {} : { secret }) },
  });
  return data;
}

export async function changeWebhook(id: string, change: Partial<Definition & Pick<Webhook, 'status'>>): Promise<void> {
  await call('PATCH', `/webhooks/${id}?fields=id`, { body: change });
}

export async function deleteWebhook(id: string): Promise<void> {
  await call('DELETE', `/webhooks/${id}`);
}

export async function act<Data>(id: string, action: string, body?: unknown): Promise<Data> {
  const { data } = await call<Data>('POST', `/webhooks/${id}/${action}`, body === undefined ? {} : { body });
  return data;
}
