/** Records the traffic of a service, sends it again and measures the capacity. */
import type { NoOptions } from '../../server/config/option-kinds.js';
import type { Feature } from '../../server/feature/feature.js';
import { LOG_EVENTS, type TrafficLogEvent } from './log-events.js';

export const traffic: Feature<unknown, NoOptions, TrafficLogEvent> = {
  name: 'traffic',
  events: LOG_EVENTS,
  commands: {
    record: {
      topic: 'Traffic',
      about: 'records the traffic of a running service',
      load: async () => (await import('./record-command.js')).COMMANDS.record,
    },
    replay: {
      topic: 'Traffic',
      about: 'sends recorded traffic to a service, and checks limits of latency and errors',
      load: async () => (await import('./replay-command.js')).COMMANDS.replay,
    },
    capacity: {
      topic: 'Traffic',
      about: 'finds the highest rate of recorded traffic within limits, and what limits it',
      load: async () => (await import('./capacity-command.js')).COMMANDS.capacity,
    },
  },
  open: async (context) => (await import('./part.js')).openTraffic(context),
};
