/**
 * Several threads on one port. The main thread keeps what there is once and answers no requests: it broadcasts what has
 * changed, counts for all workers, and ends the service when one of them dies. Each worker gets its share of the
 * connections to PostgreSQL.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { collectSources, type Gather, observeProcess } from '../../api/server/metrics.js';
import { assertNever } from '../../base/assert-never.js';
import type { Observer } from '../../base/observe.js';
import type { ShapeReport } from '../../batching/shape-stats.js';
import type { Config } from '../../config/config.js';
import { type Reserved, reservePort } from '../../http/listen.js';
import { checkHealth, type Health, joinHealth, unhealthy } from '../../postgres/health.js';
import type { Assignment, WorkerRequest } from './messages.js';
import { type MainBroadcast, type MainContext, type SchemaBroadcast, type Threads, urlOf } from './threads.js';
import { WorkerHandle } from './worker-handle.js';

/** Ports that are tried where any will do: one that was free may be gone a moment later. */
const MAX_PORT_ATTEMPTS = 5;

/** For a worker to close its connections to PostgreSQL. */
const CLOSE_TIMEOUT_MS = 3_000;

/** For which the end of the process waits for sockets to be closed. */
const EXIT_WAIT_MS = 1_000;

/** Options for the whole service, divided among the workers. */
const DIVIDED_OPTIONS = [
  'DATABASE_POOL_SIZE',
  'DATABASE_WRITE_POOL_SIZE',
  'DATABASE_STREAM_POOL_SIZE',
  'IMPORT_MAX_CONCURRENCY',
  'ASSETS_TRANSFORM_MAX_CONCURRENT',
] as const;

/** What the main thread needs for the mirror, the policies and what is to be purged. */
export function centralConfig(config: Config): Config {
  const few = Object.fromEntries(DIVIDED_OPTIONS.map((name) => [name, 1]));
  return { ...config, ...few, DATABASE_POOL_SIZE: 2 };
}

/** With a worker's share of the connections: at least one of each kind. */
export function shareOf(config: Config, position: number): Config {
  const share = (total: number): number => {
    const extra = position < total % config.WORKERS ? 1 : 0;
    return Math.max(1, Math.floor(total / config.WORKERS) + extra);
  };
  return { ...config, ...Object.fromEntries(DIVIDED_OPTIONS.map((name) => [name, share(config[name])])) };
}

export class WorkerPool implements Threads {
  readonly #config: Config;
  readonly #observe: Observer;
  readonly #closed = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #workers: readonly WorkerHandle[] = [];
  #main: MainContext | null = null;
  #schema: SchemaBroadcast | null = null;
  #policies = '[]';
  #reserved: Reserved | null = null;
  #onLost: (error: Error) => void = () => {};
  readonly failure = new Promise<Error>((resolve) => {
    this.#onLost = resolve;
  });

  constructor(config: Config, observe: Observer) {
    this.#config = config;
    this.#observe = observe;
  }

  async broadcast(message: MainBroadcast): Promise<void> {
    if (this.#workers.length === 0) this.#keep(message);
    await Promise.all(this.#workers.map((worker) => worker.broadcast(message)));
  }

  async serve(main: MainContext): Promise<string> {
    const { database, databaseUrl, secret } = main;
    this.#main = main;
    const port = await this.#reserve();
    // From here to the first message to the workers nothing may be awaited: broadcasts would be lost.
    const schema = this.#schema;
    if (!schema) throw new Error('there is no model to serve');
    const common: Omit<Assignment, 'config'> = {
      databaseUrl,
      identity: database.primary?.identity ?? null,
      system: database.system,
      secret,
      schema,
      policies: this.#policies,
      replicas: main.replicas?.memory ?? null,
      closed: this.#closed,
    };
    const owner = {
      handle: (request: WorkerRequest) => this.#handle(request, main),
      observe: this.#observe,
      onLost: (error: Error) => this.#onLost(error),
    };
    this.#workers = Array.from({ length: this.#config.WORKERS }, (_, position) => {
      return new WorkerHandle(
        { ...common, config: { ...shareOf(this.#config, position), DATABASE_POOLER: database.pooler } },
        owner,
      );
    });
    this.#schema = null;
    if (this.#config.METRICS !== 'off') observeProcess();
    process.on('exit', this.#abandon);
    await Promise.all(this.#workers.map((worker) => worker.ready()));
    return this.#listen(port);
  }

  drain(): void {
    for (const worker of this.#workers) worker.drain();
  }

  async stop(): Promise<void> {
    for (const worker of this.#workers) worker.stop();
    const done = new AbortController();
    const timeout = sleep(this.#config.SHUTDOWN_TIMEOUT + CLOSE_TIMEOUT_MS, null, { signal: done.signal }).catch(
      () => {},
    );
    const exited = Promise.all(this.#workers.map((worker) => worker.exited));
    const left = exited.then(() => process.off('exit', this.#abandon));
    await Promise.race([left, timeout]);
    done.abort();
    await this.#release();
  }

  /** What workers begin with; later each of them has it. */
  #keep(message: MainBroadcast): void {
    if (message.kind === 'schema') this.#schema = message;
    if (message.kind === 'policies') this.#policies = message.text;
  }

  async #reserve(): Promise<number> {
    await this.#release();
    this.#reserved = await reservePort(this.#config);
    return this.#reserved.port;
  }

  async #release(): Promise<void> {
    const reserved = this.#reserved;
    this.#reserved = null;
    await reserved?.release();
  }

  /** Once the first listens nobody else can take the port. */
  async #listen(reserved: number): Promise<string> {
    const [first, ...others] = this.#workers;
    if (!first) throw new Error('there are no workers');
    let port = reserved;
    for (let attempt = 1; ; attempt++) {
      try {
        await first.listen(port, urlOf(this.#config, port));
        break;
      } catch (error) {
        if (this.#config.PORT !== 0 || attempt === MAX_PORT_ATTEMPTS) throw error;
        port = await this.#reserve();
      }
    }
    const url = urlOf(this.#config, port);
    await Promise.all(others.map((worker) => worker.listen(port, url)));
    return url;
  }

  /** All that came of a request has been applied when it is answered. */
  async #handle(request: WorkerRequest, main: MainContext): Promise<unknown> {
    const { mirror, limits, accessChanged } = main;
    switch (request.kind) {
      case 'adopt':
        await mirror.adopt({ ...request, document: JSON.parse(request.text) });
        return this.#allApplied();
      case 'refresh':
        await mirror.refresh(request.certain);
        return this.#allApplied();
      case 'broadcast':
        return this.broadcast(request.broadcast);
      case 'access-changed':
        await accessChanged();
        return this.#allApplied();
      case 'gather':
        return this.gather();
      case 'shapes':
        return this.#shapes();
      case 'health':
        return this.health();
      case 'count-request':
        return limits.requests?.(request.address);
      case 'count-login':
        return limits.logins.attempt(request.address);
      case 'forgive-login':
        return limits.logins.forgive(request.address);
      case 'count-registration':
        return limits.registrations(request.address);
      case 'enter-login':
        return limits.logins.enter(request.attempt);
      case 'settle-login':
        return limits.logins.settle(request.attempt, request.outcome);
      default:
        return assertNever(request);
    }
  }

  readonly gather: Gather = async () => {
    const main = this.#main ? [collectSources(this.#main)] : [];
    return Promise.all([...this.#workers.map((worker) => worker.collect()), ...main]);
  };

  readonly health = async (): Promise<Health> => {
    const main = this.#main ? checkHealth(this.#main) : unhealthy('service:thread', 'it does not serve yet');
    const workers = this.#workers.map((worker) => worker.check());
    const checks = await Promise.all([main, ...workers]);
    return joinHealth(new Map(checks.map((each, position) => [position === 0 ? 'main' : `worker ${position}`, each])));
  };

  /** The main thread answers no requests, and has none. */
  async #shapes(): Promise<readonly ShapeReport[]> {
    return (await Promise.all(this.#workers.map((worker) => worker.shapes()))).flat();
  }

  async #allApplied(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.allApplied()));
  }

  /** However the process ends: a thread that is cut off with sockets open would make a crash of it. */
  readonly #abandon = (): void => {
    for (const worker of this.#workers) worker.abandon();
    const deadline = performance.now() + EXIT_WAIT_MS;
    for (;;) {
      const count = Atomics.load(this.#closed, 0);
      const left = deadline - performance.now();
      if (count >= this.#workers.length || left <= 0) return;
      Atomics.wait(this.#closed, 0, count, left);
    }
  };
}
