/** Events of recordings in the log. */
import { info } from '../../base/log-line.js';
import type { EventOf } from '../../base/observe.js';

export const LOG_EVENTS = {
  'traffic-recorded': ({
    administrator,
    seconds,
  }: {
    readonly administrator: string | null;
    readonly seconds: number;
  }) => info('an administrator records the requests of the service', { administrator, seconds }),
};

export type TrafficLogEvent = EventOf<typeof LOG_EVENTS>;
