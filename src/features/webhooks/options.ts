/** The options of webhooks. */
import { boolean, duration, durations, integer, size } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  WEBHOOKS_ALLOW_LOCAL: boolean(
    'false',
    'Let webhooks post to local and private addresses; otherwise only to addresses of the Internet',
  ),
  WEBHOOK_TIMEOUT: duration('10s', 'How long one attempt of a delivery may take'),
  WEBHOOK_CONCURRENCY: integer('8', 1, 1_000, 'Deliveries of one webhook at the same time, per thread'),
  WEBHOOK_RETRY_DELAYS: durations(
    '5s,30s,2m,10m,30m,1h,2h,4h,6h,10h',
    'How long after each failed attempt the next one follows, comma separated; a delivery is dead after the last',
  ),
  WEBHOOK_MAX_BACKLOG: integer(
    '100000',
    100,
    100_000_000,
    'Deliveries of one webhook and collection that may be pending; beyond it one event "resync" replaces further changes',
  ),
  WEBHOOK_MAX_PAYLOAD: size('1mb', 'Largest payload of a webhook; above it the delivery has the key and "data": null'),
  WEBHOOK_RETENTION: duration('3d', 'How long finished deliveries and their answers are kept'),
};
