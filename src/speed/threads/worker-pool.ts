/**
 * Several threads on one port. The main thread keeps what exists once and answers no requests: it broadcasts changes, counts requests
 * of all workers, and ends the service if one of them fails. Each worker gets its share of the connections to PostgreSQL.
 */

import { Worker } from 'node:worker_threads';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { atMost, within } from '../../base/time-limit.js';
import type { Metric } from '../../server/api/server/metric.js';
import { collectSources, type Gather, observeProcess } from '../../server/api/server/metrics.js';
import type { Config } from '../../server/config/config.js';
import { type Reserved, reservePort } from '../../server/http/listen.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import {
  type Checks,
  checkHealth,
  HEALTH_TIMEOUT_MS,
  type Health,
  joinHealth,
  unhealthy,
} from '../../server/postgres/health.js';
import type { WorkerProgram } from '../../server/threads/speed.js';
import {
  type MainBroadcast,
  type MainContext,
  type SchemaBroadcast,
  type Threads,
  urlOf,
} from '../../server/threads/threads.js';
import { sharedMemoryOf } from '../layers/speed-state.js';
import { type Assignment, Channel, errorOf, type MainCalls, type Message, type WorkerCalls } from './channel.js';

/** Free ports to try if PORT is 0: another process may take a port before the service listens. */
const MAX_PORT_ATTEMPTS = 5;

/** Milliseconds for a worker to close its connections to PostgreSQL. */
const CLOSE_TIMEOUT_MS = 3_000;

/** Milliseconds that the end of the process waits for sockets to be closed. */
const EXIT_WAIT_MS = 1_000;

/** The main thread needs connections only for the mirror, the policies and maintenance. */
export function centralConfig(config: Config, divided: readonly string[]): Config {
  const few = Object.fromEntries(divided.map((name) => [name, 1]));
  return { ...config, ...few, DATABASE_POOL_SIZE: 2 };
}

/** The options with a worker's share of the connections: at least one of each kind. */
export function shareOf(config: Config, position: number, divided: readonly string[]): Config {
  const share = (total: number): number => {
    const extra = position < total % config.WORKERS ? 1 : 0;
    return Math.max(1, Math.floor(total / config.WORKERS) + extra);
  };
  const totals = Object.entries(config).filter(([name]) => divided.includes(name));
  return { ...config, ...Object.fromEntries(totals.map(([name, total]) => [name, share(Number(total))])) };
}

export class WorkerPool implements Threads {
  readonly local = null;
  readonly mainConfig: Config;
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

  constructor(
    private readonly config: Config,
    private readonly observe: Observer,
    private readonly program: WorkerProgram,
  ) {
    this.mainConfig = centralConfig(config, program.divided);
  }

  async broadcast(message: MainBroadcast): Promise<void> {
    if (this.#workers.length === 0) this.#keep(message);
    await Promise.all(this.#workers.map((worker) => worker.broadcast(message)));
  }

  async serve(main: MainContext): Promise<string> {
    const { database, databaseUrl, secret } = main;
    this.#main = main;
    const port = await this.#reserve();
    // Nothing may be awaited from here until the workers exist: broadcasts would be lost.
    const schema = this.#schema;
    if (!schema) throw new Error('there is no model to serve');
    const common: Omit<Assignment, 'config'> = {
      databaseUrl,
      identity: database.primary?.identity ?? null,
      system: database.system,
      tables: [...systemTables()],
      secret,
      schema,
      policies: this.#policies,
      shared: sharedMemoryOf(main.shared),
      closed: this.#closed,
    };
    const calls = this.#callsFrom(main);
    this.#workers = Array.from({ length: this.config.WORKERS }, (_, position) => {
      const config = { ...shareOf(this.config, position, this.program.divided), DATABASE_POOLER: database.pooler };
      return new WorkerHandle(this.program.file, { ...common, config }, calls, this.#onLost);
    });
    this.#schema = null;
    if (this.config.METRICS !== 'off') observeProcess();
    process.on('exit', this.#abandon);
    await Promise.all(this.#workers.map((worker) => worker.ready()));
    return this.#listen(port);
  }

  drain(): void {
    for (const worker of this.#workers) worker.drain();
  }

  async stop(): Promise<void> {
    for (const worker of this.#workers) worker.stop();
    const exited = Promise.all(this.#workers.map((worker) => worker.exited));
    const left = exited.then(() => process.off('exit', this.#abandon));
    await atMost(this.config.SHUTDOWN_TIMEOUT + CLOSE_TIMEOUT_MS, left);
    await this.#release();
  }

  /** Kept for the workers that begin later. */
  #keep(message: MainBroadcast): void {
    if (message.kind === 'schema') this.#schema = message;
    if (message.kind === 'policies') this.#policies = message.text;
  }

  async #reserve(): Promise<number> {
    await this.#release();
    this.#reserved = await reservePort(this.config);
    return this.#reserved.port;
  }

  async #release(): Promise<void> {
    const reserved = this.#reserved;
    this.#reserved = null;
    await reserved?.release();
  }

  /** Once the first worker listens, no other process can take the port. */
  async #listen(reserved: number): Promise<string> {
    const [first, ...others] = this.#workers;
    if (!first) throw new Error('there are no workers');
    let port = reserved;
    for (let attempt = 1; ; attempt++) {
      try {
        await first.listen(port, urlOf(this.config, port));
        break;
      } catch (error) {
        if (this.config.PORT !== 0 || attempt === MAX_PORT_ATTEMPTS) throw error;
        port = await this.#reserve();
      }
    }
    const url = urlOf(this.config, port);
    await Promise.all(others.map((worker) => worker.listen(port, url)));
    return url;
  }

  /** The calls of workers. Each resolves when all workers have applied its changes. */
  #callsFrom({ mirror, limits, accessChanged }: MainContext): Omit<MainCalls, 'failed'> {
    const { requests, registrations, logins } = limits;
    return {
      adopt: async (text, digest) => {
        await mirror.adopt({ text, digest, document: JSON.parse(text) });
        await this.#allApplied();
      },
      refresh: async (certain) => {
        await mirror.refresh(certain);
        await this.#allApplied();
      },
      accessChanged: async () => {
        await accessChanged();
        await this.#allApplied();
      },
      broadcast: (message) => this.broadcast(message),
      gather: this.gather,
      ask: async (feature, question) =>
        (await Promise.all(this.#workers.map((worker) => worker.ask(feature, question)))).flat(1),
      health: this.health,
      countRequest: async (address) => requests?.(address),
      countRegistration: (address) => registrations(address),
      countLogin: (address) => logins.attempt(address),
      forgiveLogin: (address) => logins.forgive(address),
      enterLogin: (attempt) => logins.enter(attempt),
      settleLogin: (attempt, outcome) => logins.settle(attempt, outcome),
      observe: this.observe,
    };
  }

  readonly gather: Gather = async () => {
    const main = this.#main ? [collectSources(this.#main)] : [];
    return Promise.all([...this.#workers.map((worker) => worker.collect()), ...main]);
  };

  readonly health = async (): Promise<Health> => {
    const main = this.#main ? this.#checkMain(this.#main) : unhealthy('service:thread', 'it does not serve yet');
    const workers = this.#workers.map((worker) => worker.check());
    const checks = await Promise.all([main, ...workers]);
    return joinHealth(new Map(checks.map((each, position) => [position === 0 ? 'main' : `worker ${position}`, each])));
  };

  /** This thread watches the replicas for all. */
  async #checkMain(main: MainContext): Promise<Checks> {
    return { ...(await checkHealth(main)), ...main.shared.checks() };
  }

  async #allApplied(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.allApplied()));
  }

  /** Called whenever the process ends: a thread that is cut off with open sockets would crash it. */
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

/** One worker, as the main thread sees it. */
class WorkerHandle {
  readonly #channel: Channel<MainCalls, WorkerCalls>;
  /** Resolves when the last broadcast was applied: they are applied in order. */
  #applied: Promise<void> = Promise.resolve();
  /** Before it listens, a failure rejects `ready` or `listen`. After `stop`, none is reported. */
  #isServing = false;
  /** Resolves when the thread has ended. */
  readonly exited: Promise<void>;

  /** Calls `onLost` if it fails while it serves. */
  constructor(
    program: string,
    assignment: Assignment,
    calls: Omit<MainCalls, 'failed'>,
    private readonly onLost: (error: Error) => void,
  ) {
    const worker = new Worker(program, { workerData: assignment });
    this.#channel = new Channel((message) => worker.postMessage(message));
    this.#channel.serve({ ...calls, failed: (failure) => this.#fail(errorOf(failure)) });
    worker.on('message', (message: Message<MainCalls>) => this.#channel.receive(message));
    worker.on('error', (error) => this.#fail(asError(error)));
    this.exited = new Promise((resolve) => {
      worker.on('exit', () => {
        this.#fail(new Error('the thread has ended'));
        resolve();
      });
    });
  }

  /** Resolves when it has everything it needs to serve. */
  ready(): Promise<void> {
    return this.#channel.call('ready');
  }

  async listen(port: number, url: string): Promise<void> {
    await this.#channel.call('listen', port, url);
    this.#isServing = true;
  }

  /** Resolves when it was applied, or the worker has ended. */
  broadcast(message: MainBroadcast): Promise<void> {
    const applied = this.#channel.call('apply', message).catch(() => {});
    const earlier = this.#applied;
    this.#applied = applied.then(() => earlier);
    return applied;
  }

  /** Resolves when every broadcast so far was applied. */
  allApplied(): Promise<void> {
    return this.#applied;
  }

  /** Returns nothing if the worker has ended. */
  collect(): Promise<readonly Metric[]> {
    return this.#channel.call('metrics').catch(() => []);
  }

  /** Returns nothing if the worker has ended, or its thread is blocked. */
  ask(feature: string, question: unknown): Promise<readonly unknown[]> {
    return within(this.#channel.call('ask', feature, question), HEALTH_TIMEOUT_MS).then(
      (answer) => [answer],
      () => [],
    );
  }

  /** Also answers if the worker has ended, or its thread is blocked for too long. */
  check(): Promise<Checks> {
    return within(this.#channel.call('health'), 2 * HEALTH_TIMEOUT_MS).catch((error: Error) =>
      unhealthy('service:thread', error.message),
    );
  }

  drain(): void {
    this.#channel.notify('drain');
  }

  stop(): void {
    this.#isServing = false;
    this.#channel.notify('stop');
  }

  abandon(): void {
    this.#isServing = false;
    this.#channel.notify('abandon');
  }

  #fail(error: Error): void {
    this.#channel.close(error);
    if (!this.#isServing) return;
    this.#isServing = false;
    this.onLost(error);
  }
}
