/** Events of the embedded PostgreSQL in the log. */
import { warn } from '../../base/log-line.js';
import type { EventOf } from '../../base/observe.js';

export const LOG_EVENTS = {
  'embedded-restarted': ({ message }: { readonly message: string }) => warn(message),
};

export type EmbeddedLogEvent = EventOf<typeof LOG_EVENTS>;
