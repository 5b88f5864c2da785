/**
 * Calls between the main thread and a worker. Arguments and results are plain data; JSON of clients travels as text, because copying
 * deeply nested objects could exhaust the stack. Messages arrive in the order in which they were sent. A worker builds a new model
 * with pauses, and applies other broadcasts at once; a call whose result depends on them waits until all are applied.
 */

import { type ErrorCode, ServiceError, StartError } from '../../base/errors.js';
import type { Event } from '../../base/observe.js';
import type { Attempt, AttemptOutcome } from '../../server/accounts/login-backoff.js';
import type { Metric } from '../../server/api/server/metric.js';
import type { Config } from '../../server/config/config.js';
import type { Checks, Health } from '../../server/postgres/health.js';
import type { ServerIdentity } from '../../server/postgres/pools/server-identity.js';
import type { Broadcast } from '../../server/threads/thread-parts.js';
import type { MainBroadcast, SchemaBroadcast } from '../../server/threads/threads.js';
import type { SpeedMemory } from '../layers/speed-state.js';

/** The data with which a worker begins. */
export interface Assignment {
  /** With this worker's share of the connections. */
  readonly config: Config;
  readonly databaseUrl: string;
  /** The database that the main thread uses, or null if any server will do. */
  readonly identity: ServerIdentity | null;
  /** The schema of the service's own tables. */
  readonly system: string;
  /** The names of the service's own tables. */
  readonly tables: readonly string[];
  readonly secret: string;
  readonly schema: SchemaBroadcast;
  /** As JSON. */
  readonly policies: string;
  /** The state of the executors of all threads. */
  readonly shared: SpeedMemory;
  /** Counts the workers that have closed their sockets: the process must not end before. */
  readonly closed: Int32Array;
}

/** The calls of a worker to the main thread. Each resolves when all threads have applied its changes. */
export interface MainCalls {
  adopt(text: string, digest: string): Promise<void>;
  refresh(certain: boolean): Promise<void>;
  broadcast(message: Broadcast): Promise<void>;
  accessChanged(): Promise<void>;
  /** The metrics of all threads. */
  gather(): Promise<readonly (readonly Metric[])[]>;
  /** The answers of the parts of a feature in all threads. */
  ask(feature: string, question: unknown): Promise<readonly unknown[]>;
  /** The health of all threads. */
  health(): Promise<Health>;
  countRequest(address: string): Promise<void>;
  countRegistration(address: string): Promise<void>;
  countLogin(address: string): Promise<void>;
  forgiveLogin(address: string): Promise<void>;
  enterLogin(attempt: Attempt): Promise<void>;
  settleLogin(attempt: Attempt, outcome: AttemptOutcome): Promise<void>;
  /** Logs the event. */
  observe(event: Event): void;
  /** The worker ends. */
  failed(failure: Failure): void;
}

/** The calls of the main thread to a worker. */
export interface WorkerCalls {
  /** Returns when the worker has everything it needs to serve. */
  ready(): void;
  apply(message: MainBroadcast): Promise<void>;
  listen(port: number, url: string): Promise<void>;
  metrics(): Promise<readonly Metric[]>;
  ask(feature: string, question: unknown): unknown;
  health(): Promise<Checks>;
  drain(): void;
  stop(): void;
  /** The process ends now. */
  abandon(): void;
}

type Methods<Calls> = { readonly [Name in keyof Calls]: (...args: never[]) => unknown };

/** A message as it is received; the two threads agree on the types. */
export type Message<Calls> =
  | { readonly call: keyof Calls; readonly args: never[]; readonly number: number | null }
  | { readonly result: number; readonly value: never; readonly failure: Failure | null };

interface PendingCall {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/** One end of a connection between two threads: `Local` are the calls of this one, `Remote` those of the other. */
export class Channel<Local extends Methods<Local>, Remote extends Methods<Remote>> {
  #local: Local | null = null;
  readonly #pending = new Map<number, PendingCall>();
  #calls = 0;
  #closed: Error | null = null;

  constructor(private readonly post: (message: unknown) => void) {}

  /** Must be called before the first message is received. */
  serve(local: Local): void {
    this.#local = local;
  }

  call<Name extends keyof Remote>(
    name: Name,
    ...args: Parameters<Remote[Name]>
  ): Promise<Awaited<ReturnType<Remote[Name]>>> {
    if (this.#closed) return Promise.reject(this.#closed);
    const number = ++this.#calls;
    return new Promise((resolve, reject) => {
      this.#pending.set(number, { resolve, reject });
      this.post({ call: name, args, number });
    });
  }

  /** Calls without waiting for a result. */
  notify<Name extends keyof Remote>(name: Name, ...args: Parameters<Remote[Name]>): void {
    this.post({ call: name, args, number: null });
  }

  receive(message: Message<Local>): void {
    if ('result' in message) {
      const pending = this.#pending.get(message.result);
      this.#pending.delete(message.result);
      if (message.failure) pending?.reject(errorOf(message.failure));
      else pending?.resolve(message.value);
    } else if (message.number === null) this.#local?.[message.call](...message.args);
    else void this.#answer(message.call, message.args, message.number);
  }

  /** The other thread has ended: calls fail from now on. */
  close(error: Error): void {
    this.#closed ??= error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }

  async #answer(name: keyof Local, args: never[], number: number): Promise<void> {
    try {
      this.post({ result: number, value: await this.#local?.[name](...args), failure: null });
    } catch (error) {
      this.post({ result: number, failure: serializeError(error) });
    }
  }
}

/** An error as a message: its class would be lost. */
type Failure =
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
