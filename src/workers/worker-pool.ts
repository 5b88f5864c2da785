/**
 * Several threads on one port. The main thread keeps what there is once and answers no requests: it tells the workers what
 * has changed, counts for all of them, and ends the service when one of them dies. Each worker gets its share of the
 * connections to PostgreSQL.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { assertNever } from '../assert-never.js';
import type { Config } from '../config.js';
import { type Reserved, reservePort } from '../http/listen.js';
import type { Observer } from '../observe.js';
import { checkHealth, type Health, joinHealth, unhealthy } from '../postgres/health.js';
import { collectSources, type Gather, observeProcess } from '../resources/metrics.js';
import type { Assignment, WorkerRequest } from './messages.js';
import { type CentralNews, type Centre, type StructureNews, type Threads, urlOf } from './threads.js';
import { WorkerHandle } from './worker-handle.js';

/** Ports that are tried where any will do: one that was free may be gone a moment later. */
const MOST_PORTS = 5;

/** Milliseconds that a worker gets to close its connections to PostgreSQL. */
const FAREWELL = 3_000;

/** Milliseconds that the end of the process waits for sockets to be closed. */
const LAST_WAIT = 1_000;

/** For the whole service. */
const DIVIDED = [
  'DATABASE_POOL_SIZE',
  'DATABASE_WRITE_POOL_SIZE',
  'DATABASE_STREAM_POOL_SIZE',
  'IMPORT_MAX_CONCURRENCY',
] as const;

/** What the main thread needs for the mirror, the policies and what is to be purged. */
export function centralConfig(config: Config): Config {
  const few = Object.fromEntries(DIVIDED.map((name) => [name, 1]));
  return { ...config, ...few, DATABASE_POOL_SIZE: 2 };
}

/** With a worker's share of the connections: at least one of each kind. */
export function shareOf(config: Config, position: number): Config {
  const share = (total: number): number => {
    const extra = position < total % config.WORKERS ? 1 : 0;
    return Math.max(1, Math.floor(total / config.WORKERS) + extra);
  };
  return { ...config, ...Object.fromEntries(DIVIDED.map((name) => [name, share(config[name])])) };
}

export class WorkerPool implements Threads {
  readonly #config: Config;
  readonly #observe: Observer;
  readonly #closed = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #members: readonly WorkerHandle[] = [];
  #centre: Centre | null = null;
  #structure: StructureNews | null = null;
  #policies = '[]';
  #reserved: Reserved | null = null;
  #lost: (error: Error) => void = () => {};
  readonly failure = new Promise<Error>((resolve) => {
    this.#lost = resolve;
  });

  constructor(config: Config, observe: Observer) {
    this.#config = config;
    this.#observe = observe;
  }

  async tell(news: CentralNews): Promise<void> {
    if (this.#members.length === 0) this.#keep(news);
    await Promise.all(this.#members.map((member) => member.tell(news)));
  }

  async serve(centre: Centre): Promise<string> {
    const { database, databaseUrl, secret } = centre;
    this.#centre = centre;
    const port = await this.#reserve();
    // From here to the first message to the workers nothing may be awaited: news would be lost.
    const structure = this.#structure;
    if (!structure) throw new Error('there is no model to serve');
    const common: Omit<Assignment, 'config'> = {
      databaseUrl,
      system: database.system,
      secret,
      structure,
      policies: this.#policies,
      closed: this.#closed,
    };
    const superior = {
      answer: (question: WorkerRequest) => this.#answer(question, centre),
      observe: this.#observe,
      lost: (error: Error) => this.#lost(error),
    };
    this.#members = Array.from({ length: this.#config.WORKERS }, (_, position) => {
      return new WorkerHandle({ ...common, config: shareOf(this.#config, position) }, superior);
    });
    this.#structure = null;
    if (this.#config.METRICS !== 'off') observeProcess();
    process.on('exit', this.#abandon);
    await Promise.all(this.#members.map((member) => member.ready()));
    return this.#listen(port);
  }

  async stop(): Promise<void> {
    for (const member of this.#members) member.stop();
    const done = new AbortController();
    const patience = sleep(this.#config.SHUTDOWN_TIMEOUT + FAREWELL, null, { signal: done.signal }).catch(() => {});
    const exited = Promise.all(this.#members.map((member) => member.exited));
    const left = exited.then(() => process.off('exit', this.#abandon));
    await Promise.race([left, patience]);
    done.abort();
    await this.#release();
  }

  /** What workers begin with; later each of them has it. */
  #keep(news: CentralNews): void {
    if (news.kind === 'structure') this.#structure = news;
    if (news.kind === 'policies') this.#policies = news.text;
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
    const [first, ...others] = this.#members as [WorkerHandle, ...WorkerHandle[]];
    let port = reserved;
    for (let attempt = 1; ; attempt++) {
      try {
        await first.listen(port, urlOf(this.#config, port));
        break;
      } catch (error) {
        if (this.#config.PORT !== 0 || attempt === MOST_PORTS) throw error;
        port = await this.#reserve();
      }
    }
    const url = urlOf(this.#config, port);
    await Promise.all(others.map((member) => member.listen(port, url)));
    return url;
  }

  /** All that came of it has been taken when it is answered. */
  async #answer(question: WorkerRequest, centre: Centre): Promise<unknown> {
    const { mirror, limits, accessChanged } = centre;
    switch (question.kind) {
      case 'adopt':
        await mirror.adopt({ ...question, document: JSON.parse(question.text) });
        return this.#inStep();
      case 'refresh':
        await mirror.refresh(question.certain);
        return this.#inStep();
      case 'tell':
        return this.tell(question.news);
      case 'access-changed':
        await accessChanged();
        return this.#inStep();
      case 'gather':
        return this.gather();
      case 'health':
        return this.health();
      case 'count-request':
        return limits.requests?.(question.address);
      case 'count-login':
        return limits.logins.attempt(question.address);
      case 'forgive-login':
        return limits.logins.forgive(question.address);
      case 'count-registration':
        return limits.registrations(question.address);
      case 'enter-login':
        return limits.logins.enter(question.attempt);
      case 'settle-login':
        return limits.logins.settle(question.attempt, question.outcome);
      default:
        return assertNever(question);
    }
  }

  readonly gather: Gather = async () => {
    const centre = this.#centre ? [collectSources(this.#centre)] : [];
    return Promise.all([...this.#members.map((member) => member.collect()), ...centre]);
  };

  readonly health = async (): Promise<Health> => {
    const main = this.#centre ? checkHealth(this.#centre) : unhealthy('service:thread', 'it does not serve yet');
    const members = this.#members.map((member) => member.check());
    const checks = await Promise.all([main, ...members]);
    return joinHealth(new Map(checks.map((each, position) => [position === 0 ? 'main' : `worker ${position}`, each])));
  };

  async #inStep(): Promise<void> {
    await Promise.all(this.#members.map((member) => member.inStep()));
  }

  /** However the process ends: a thread that is cut off with sockets open would make a crash of it. */
  readonly #abandon = (): void => {
    for (const member of this.#members) member.abandon();
    const deadline = performance.now() + LAST_WAIT;
    for (;;) {
      const count = Atomics.load(this.#closed, 0);
      const left = deadline - performance.now();
      if (count >= this.#members.length || left <= 0) return;
      Atomics.wait(this.#closed, 0, count, left);
    }
  };
}
