/** The body of a delivery. */
import type { WebhookEvent } from './webhook-hook.js';

/** The subject of a delivery: an event, a test by an administrator, or changes that are not reported one by one. */
type DeliveryEvent = WebhookEvent | 'resync' | 'test';

interface Envelope {
  readonly collection: string;
  readonly event: DeliveryEvent;
  /** When the change was made. */
  readonly timestamp: string;
  /** The key as in the path of the item, or null. */
  readonly key: string | null;
}

/**
 * Why a delivery lacks the item: the payload would be larger than WEBHOOK_MAX_PAYLOAD, PostgreSQL cannot read a value of the row, or the
 * webhook has got other fields since the change.
 */
export type Omission = 'too_large' | 'unreadable' | 'not_recorded';

/** `data` and `previous` are JSON: the item, and for an update the item before. */
export function payloadOf(envelope: Envelope, data: string | null, previous: string | null): string {
  return `${headOf(envelope)},"data":${data ?? 'null'}${previous === null ? '' : `,"previous":${previous}`}}`;
}

export function payloadWithoutItem(envelope: Envelope, omitted: Omission): string {
  return `${headOf(envelope)},"data":null,"omitted":"${omitted}"}`;
}

function headOf({ collection, event, timestamp, key }: Envelope): string {
  return JSON.stringify({ type: `${collection}.${event}`, timestamp, collection, event, key }).slice(0, -1);
}
