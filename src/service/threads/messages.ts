/**
 * What the main thread and a worker say to each other. All of it is plain data, and what clients may have nested as deep as
 * they like travels as text: to copy it step by step could exhaust the stack. Messages arrive in the order in which they were
 * sent: the receiver of a response has applied all broadcasts before it.
 */

import type { Attempt, AttemptOutcome } from '../../accounts/login-backoff.js';
import type { Metric } from '../../api/server/metrics.js';
import { type ErrorCode, ServiceError, StartError } from '../../base/errors.js';
import type { Event } from '../../base/observe.js';
import type { ShapeReport } from '../../batching/shape-stats.js';
import type { Config } from '../../config/config.js';
import type { Checks } from '../../postgres/health.js';
import type { ServerIdentity } from '../../postgres/pools/server-identity.js';
import type { ReplicaMemory } from '../../postgres/replicas/replicas.js';
import type { Broadcast } from '../app.js';
import type { MainBroadcast, SchemaBroadcast } from './threads.js';

/** What a worker begins with. */
export interface Assignment {
  /** With this worker's share of the connections. */
  readonly config: Config;
  readonly databaseUrl: string;
  /** The database that the main thread uses; null where any server will do. */
  readonly identity: ServerIdentity | null;
  /** The schema of the service's own tables. */
  readonly system: string;
  readonly secret: string;
  readonly schema: SchemaBroadcast;
  /** As JSON. */
  readonly policies: string;
  /** What the main thread knows of the replicas; null where there are none. */
  readonly replicas: ReplicaMemory | null;
  /** Counts the workers that have closed their sockets: the process must not end before. */
  readonly closed: Int32Array;
}

export type ToWorker =
  | { readonly kind: 'broadcast'; readonly number: number; readonly broadcast: MainBroadcast }
  | { readonly kind: 'response'; readonly number: number; readonly failure: Failure | null; readonly result?: unknown }
  | { readonly kind: 'report'; readonly number: number; readonly about: keyof Reports }
  | { readonly kind: 'listen'; readonly port: number; readonly url: string }
  | { readonly kind: 'drain' }
  | { readonly kind: 'stop' }
  /** The process ends, now. */
  | { readonly kind: 'abandon' };

export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'listening' }
  | { readonly kind: 'failed'; readonly failure: Failure }
  /** The broadcast with this number was applied. */
  | { readonly kind: 'applied'; readonly number: number }
  | { readonly kind: 'reported'; readonly number: number; readonly report: Reports[keyof Reports] }
  | { readonly kind: 'request'; readonly number: number; readonly request: WorkerRequest }
  | { readonly kind: 'event'; readonly event: Event };

/** What the main thread can ask a worker about itself. */
export interface Reports {
  readonly metrics: readonly Metric[];
  readonly health: Checks;
  readonly shapes: readonly ShapeReport[];
}

/** What only the main thread can do. Most have no other response than that it was done, or failed. */
export type WorkerRequest =
  | { readonly kind: 'adopt'; readonly text: string; readonly digest: string }
  | { readonly kind: 'refresh'; readonly certain: boolean }
  | { readonly kind: 'broadcast'; readonly broadcast: Broadcast }
  | { readonly kind: 'access-changed' }
  /** The response is the metrics of all threads. */
  | { readonly kind: 'gather' }
  /** The response is what all threads have counted of their shapes. */
  | { readonly kind: 'shapes' }
  /** The response is the health of all threads. */
  | { readonly kind: 'health' }
  | { readonly kind: 'count-request'; readonly address: string }
  | { readonly kind: 'count-login'; readonly address: string }
  | { readonly kind: 'forgive-login'; readonly address: string }
  | { readonly kind: 'count-registration'; readonly address: string }
  | { readonly kind: 'enter-login'; readonly attempt: Attempt }
  | { readonly kind: 'settle-login'; readonly attempt: Attempt; readonly outcome: AttemptOutcome };

/** An error on its way: its class would be lost. */
export type Failure =
  | {
      readonly kind: 'service';
      readonly code: ErrorCode;
      readonly message: string;
      readonly extensions: Record<string, unknown>;
    }
  | { readonly kind: 'start'; readonly message: string }
  | { readonly kind: 'other'; readonly message: string; readonly stack: string };

export function serializeError(error: unknown): Failure {
  if (error instanceof ServiceError)
    return { kind: 'service', code: error.code, message: error.message, extensions: error.extensions };
  if (error instanceof StartError) return { kind: 'start', message: error.message };
  if (error instanceof Error) return { kind: 'other', message: error.message, stack: error.stack ?? error.message };
  return { kind: 'other', message: String(error), stack: String(error) };
}

export function errorOf(failure: Failure): Error {
  if (failure.kind === 'service') return new ServiceError(failure.code, failure.message, failure.extensions);
  if (failure.kind === 'start') return new StartError(failure.message);
  const error = new Error(failure.message);
  error.stack = failure.stack;
  return error;
}
