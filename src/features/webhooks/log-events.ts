/** Events of webhooks in the log. */
import { type Failure, repeated, warn } from '../../base/log-line.js';
import { messageOf } from '../../base/narrow.js';
import type { EventOf } from '../../base/observe.js';

export const LOG_EVENTS = {
  'webhooks-failed': ({ error }: Failure) =>
    repeated(`cannot read or write webhook deliveries, trying again: ${messageOf(error)}`),
  'webhook-incomplete': ({ webhook, reason }: { readonly webhook: string; readonly reason: string }) =>
    warn(`webhook ${webhook} has missed changes: ${reason}`),
  'webhook-gone': ({ webhook }: { readonly webhook: string }) =>
    warn(`webhook ${webhook} is paused: its receiver answered 410, so it wants no more deliveries`),
  'webhook-triggers-missing': ({ table, reason }: { readonly table: string; readonly reason: string }) =>
    repeated(`cannot change the triggers of webhooks on ${table}, trying again: ${reason}`),
};

export type WebhookLogEvent = EventOf<typeof LOG_EVENTS>;
