/**
 * The first contact with the database: a start waits for one that does not answer, and says so, but not for what will never
 * be, such as a wrong password.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { hostPortsOf } from '../../config/database-url.js';

export interface FirstConnectionOptions {
  readonly url: string;
  /** Milliseconds to go on trying. */
  readonly startTimeout?: number;
  readonly observe?: Observer;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 5_000;

/** Resolves with what the attempt that succeeds answers. */
export async function connectWithRetries<Result>(
  attempt: () => Promise<Result>,
  options: FirstConnectionOptions,
): Promise<Result> {
  const { url, startTimeout = 0, observe = () => {}, signal } = options;
  const start = performance.now();
  for (let count = 0; ; count++) {
    try {
      const result = await attempt();
      if (count > 0) observe({ kind: 'database-reached', milliseconds: performance.now() - start });
      return result;
    } catch (error) {
      if (error instanceof StartError) throw error;
      const reason = describeFailure(error, url);
      const left = startTimeout - (performance.now() - start);
      if (left <= 0 || !mayPass(error)) throw new StartError(`cannot use the database: ${reason}`);
      observe({ kind: 'database-awaited', reason, milliseconds: left });
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** count, MAX_PAUSE_MS, left);
      await sleep(pause, null, signal ? { signal } : {}).catch(() => {
        throw new StartError('the start was stopped while it waited for the database');
      });
    }
  }
}

/** Refused, not found, silent, starting, shutting down, or full. */
const PASSING =
  /^(ECONN|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ETIMEDOUT|EPIPE|ENOENT|CONNECT_TIMEOUT|CONNECTION_(CLOSED|FAILED|TIMEOUT|DESTROYED|ENDED)|57P0[123]|53300|08(?!P01))/;

function mayPass(error: unknown): boolean {
  // Whether the server speaks TLS is a matter of its settings.
  return PASSING.test(codeOf(error)) && !/\b(TLS|SSL)\b/.test(messageOf(error));
}

/** The cause of a failure, where it is known. */
function codeOf(error: unknown): string {
  let code = '';
  for (let each = error; each instanceof Error; each = each.cause) if ('code' in each) code = String(each.code);
  return code;
}

function describeFailure(error: unknown, url: string): string {
  const address = hostPortsOf(url);
  const code = codeOf(error);
  const message = messageOf(error);
  if (code === '28P01' || code === '28000') return `${message} (at ${address})`;
  if (code === '3D000') return message;
  if (/^unsupported startup parameter/.test(message))
    return `${message} (a pooler at ${address} refuses session settings: connect to PostgreSQL itself)`;
  if (/^(ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ETIMEDOUT|CONNECT_TIMEOUT|EAI_AGAIN)/.test(code)) {
    return `nothing answers at ${address} (${code})`;
  }
  return message || code;
}
