/** What the admin listener answers: the same as /server/ping, /server/ready, /server/health and /server/metrics, without a token. */

import type { AdminAnswers } from '../../http/admin-server.js';
import type { Reply } from '../../http/reply.js';
import type { Health, Readiness } from '../../postgres/health.js';
import { type Gather, metricsReply } from './metrics.js';
import { healthReply, pong, readyReply } from './server.js';

export interface AdminServices {
  /** Whether metrics are counted. */
  readonly metrics: boolean;
  readonly health: () => Promise<Health>;
  readonly gather: Gather;
  readonly readiness: Readiness;
  /** Whether all that a start has to do is done. */
  readonly hasStarted: () => boolean;
}

export function adminAnswers({ metrics, health, gather, readiness, hasStarted }: AdminServices): AdminAnswers {
  const ready = async (): Promise<Reply> => readyReply(await readiness.isReady());
  const answers: AdminAnswers = {
    ping: async () => (hasStarted() ? pong : readyReply(false)),
    ready,
    health: async () => healthReply(await health(), true),
    ...(metrics ? { metrics: () => metricsReply(gather) } : {}),
  };
  const paths = Object.entries(answers).flatMap(([name, answer]) => [
    [`/${name}`, answer] as const,
    [`/server/${name}`, answer] as const,
  ]);
  // For checks that name no path.
  return { '/': ready, ...Object.fromEntries(paths) };
}
