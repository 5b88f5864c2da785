/** One worker, as the main thread sees it: which broadcasts it has applied, what it requests, and its end. */
import { Worker } from 'node:worker_threads';
import type { Metric } from '../../api/server/metrics.js';
import { assertNever } from '../../base/assert-never.js';
import type { Event } from '../../base/observe.js';
import { packagePath } from '../../base/package-files.js';
import type { ShapeReport } from '../../batching/shape-stats.js';
import { type Checks, HEALTH_TIMEOUT_MS, unhealthy } from '../../postgres/health.js';
import { within } from '../../postgres/wire/time-limit.js';
import {
  type Assignment,
  errorOf,
  type FromWorker,
  type Reports,
  serializeError,
  type ToWorker,
  type WorkerRequest,
} from './messages.js';
import type { MainBroadcast } from './threads.js';

const PROGRAM = packagePath('dist', 'src', 'service', 'threads', 'worker.js');

/** Handles the messages of a worker. */
export interface WorkerOwner {
  handle(request: WorkerRequest): Promise<unknown>;
  observe(event: Event): void;
  /** Called when it can serve no longer; not when it was stopped. */
  onLost(error: Error): void;
}

export class WorkerHandle {
  readonly #worker: Worker;
  readonly #owner: WorkerOwner;
  readonly #unapplied = new Map<number, () => void>();
  /** Called with nothing where the thread has ended. */
  readonly #unreported = new Map<number, (report: Reports[keyof Reports] | null) => void>();
  #broadcasts = 0;
  #reports = 0;
  #latest: Promise<void> = Promise.resolve();
  #step: PendingStep | null = null;
  #stopping = false;
  #gone = false;
  #reported = false;
  /** Resolves when the thread is no more. */
  readonly exited: Promise<void>;

  constructor(assignment: Assignment, owner: WorkerOwner) {
    this.#owner = owner;
    this.#worker = new Worker(PROGRAM, { workerData: assignment });
    this.#worker.on('message', (message: FromWorker) => this.#receive(message));
    this.#worker.on('error', (error) => this.#fail(error));
    this.exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#leave();
        resolve();
      });
    });
  }

  /** Resolves when it has everything it needs to serve. To be called at once. */
  ready(): Promise<void> {
    return this.#next();
  }

  listen(port: number, url: string): Promise<void> {
    const listening = this.#next();
    this.#send({ kind: 'listen', port, url });
    return listening;
  }

  /** Resolves when it was applied, or the worker has ended. */
  broadcast(message: MainBroadcast): Promise<void> {
    if (this.#gone) return Promise.resolve();
    const number = ++this.#broadcasts;
    this.#latest = new Promise((resolve) => this.#unapplied.set(number, resolve));
    this.#send({ kind: 'broadcast', number, broadcast: message });
    return this.#latest;
  }

  /** Resolves when every broadcast so far was applied: one is applied after the other. */
  allApplied(): Promise<void> {
    return this.#latest;
  }

  /** Nothing, if there is nobody left to count. */
  collect(): Promise<readonly Metric[]> {
    return this.#report('metrics').then((metrics) => metrics ?? []);
  }

  shapes(): Promise<readonly ShapeReport[]> {
    return this.#report('shapes').then((shapes) => shapes ?? []);
  }

  /** Also of a worker that has ended, or whose thread is busy with something else for too long. */
  async check(): Promise<Checks> {
    const failure = (output: string): Checks => unhealthy('service:thread', output);
    return within(this.#report('health'), 2 * HEALTH_TIMEOUT_MS).then(
      (checks) => checks ?? failure('the thread has ended'),
      (error: Error) => failure(error.message),
    );
  }

  #report<About extends keyof Reports>(about: About): Promise<Reports[About] | null> {
    if (this.#gone) return Promise.resolve(null);
    const number = ++this.#reports;
    this.#send({ kind: 'report', number, about });
    return new Promise((resolve) => {
      this.#unreported.set(number, (report) => resolve(report as Reports[About] | null));
    });
  }

  drain(): void {
    this.#send({ kind: 'drain' });
  }

  stop(): void {
    this.#stopping = true;
    this.#send({ kind: 'stop' });
  }

  abandon(): void {
    this.#stopping = true;
    this.#send({ kind: 'abandon' });
  }

  #next(): Promise<void> {
    if (this.#gone) return Promise.reject(new Error('the thread has ended'));
    return new Promise((resolve, reject) => {
      this.#step = { resolve, reject };
    });
  }

  #send(message: ToWorker): void {
    this.#worker.postMessage(message);
  }

  #receive(message: FromWorker): void {
    switch (message.kind) {
      case 'ready':
      case 'listening':
        this.#step?.resolve();
        this.#step = null;
        break;
      case 'failed':
        this.#fail(errorOf(message.failure));
        break;
      case 'applied':
        this.#unapplied.get(message.number)?.();
        this.#unapplied.delete(message.number);
        break;
      case 'reported':
        this.#unreported.get(message.number)?.(message.report);
        this.#unreported.delete(message.number);
        break;
      case 'request':
        this.#handle(message.number, message.request);
        break;
      case 'event':
        this.#owner.observe(message.event);
        break;
      default:
        assertNever(message);
    }
  }

  #handle(number: number, request: WorkerRequest): void {
    this.#owner.handle(request).then(
      (result) => this.#send({ kind: 'response', number, failure: null, result }),
      (error: unknown) => this.#send({ kind: 'response', number, failure: serializeError(error) }),
    );
  }

  /** A failure rejects the step that is waited for; without one it is the end of the worker. */
  #fail(error: Error): void {
    const step = this.#step;
    this.#step = null;
    if (step) return void step.reject(error);
    if (this.#stopping || this.#reported) return;
    this.#reported = true;
    this.#owner.onLost(error);
  }

  #leave(): void {
    this.#gone = true;
    for (const resolve of this.#unapplied.values()) resolve();
    this.#unapplied.clear();
    for (const resolve of this.#unreported.values()) resolve(null);
    this.#unreported.clear();
    this.#fail(new Error('the thread has ended'));
  }
}

interface PendingStep {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}
