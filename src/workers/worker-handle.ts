/** One worker, as the main thread sees it: what it was told and whether it has taken it, what it asks, and its end. */

import { Worker } from 'node:worker_threads';
import { assertNever } from '../assert-never.js';
import type { Event } from '../observe.js';
import { type Checks, HEALTH_TIMEOUT_MS, unhealthy } from '../postgres/health.js';
import { within } from '../postgres/time-limit.js';
import type { Metric } from '../resources/metrics.js';
import {
  type Assignment,
  errorOf,
  type FromWorker,
  failureOf,
  type Reports,
  type ToWorker,
  type WorkerRequest,
} from './messages.js';
import type { CentralNews } from './threads.js';

const PROGRAM = new URL('./worker.js', import.meta.url);

/** Whom a member turns to. */
export interface WorkerOwner {
  answer(question: WorkerRequest): Promise<unknown>;
  observe(event: Event): void;
  /** Called once it can serve no longer; not when it was told to stop. */
  lost(error: Error): void;
}

export class WorkerHandle {
  readonly #worker: Worker;
  readonly #superior: WorkerOwner;
  readonly #untaken = new Map<number, () => void>();
  /** Called with nothing where the thread has ended. */
  readonly #unreported = new Map<number, (report: Reports[keyof Reports] | null) => void>();
  #told = 0;
  #asked = 0;
  #latest: Promise<void> = Promise.resolve();
  #step: PendingStep | null = null;
  #stopping = false;
  #gone = false;
  #reported = false;
  /** Resolves when the thread is no more. */
  readonly exited: Promise<void>;

  constructor(assignment: Assignment, superior: WorkerOwner) {
    this.#superior = superior;
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

  /** Resolves when it was taken, or there is nobody left to take it. */
  tell(news: CentralNews): Promise<void> {
    if (this.#gone) return Promise.resolve();
    const number = ++this.#told;
    this.#latest = new Promise((resolve) => this.#untaken.set(number, resolve));
    this.#send({ kind: 'news', number, news });
    return this.#latest;
  }

  /** Resolves when everything was taken that it was told so far: it takes one after the other. */
  inStep(): Promise<void> {
    return this.#latest;
  }

  /** Nothing, if there is nobody left to count. */
  collect(): Promise<readonly Metric[]> {
    return this.#report('metrics').then((metrics) => metrics ?? []);
  }

  /** Also of one that has ended, or whose thread is busy with something else for too long. */
  async check(): Promise<Checks> {
    const failure = (output: string): Checks => unhealthy('service:thread', output);
    return within(this.#report('health'), 2 * HEALTH_TIMEOUT_MS).then(
      (checks) => checks ?? failure('the thread has ended'),
      (error: Error) => failure(error.message),
    );
  }

  #report<About extends keyof Reports>(about: About): Promise<Reports[About] | null> {
    if (this.#gone) return Promise.resolve(null);
    const number = ++this.#asked;
    this.#send({ kind: 'report', number, about });
    return new Promise((resolve) => {
      this.#unreported.set(number, (report) => resolve(report as Reports[About] | null));
    });
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
      case 'taken':
        this.#untaken.get(message.number)?.();
        this.#untaken.delete(message.number);
        break;
      case 'reported':
        this.#unreported.get(message.number)?.(message.report);
        this.#unreported.delete(message.number);
        break;
      case 'question':
        this.#answer(message.number, message.question);
        break;
      case 'event':
        this.#superior.observe(message.event);
        break;
      default:
        assertNever(message);
    }
  }

  #answer(number: number, question: WorkerRequest): void {
    this.#superior.answer(question).then(
      (result) => this.#send({ kind: 'answer', number, failure: null, result }),
      (error: unknown) => this.#send({ kind: 'answer', number, failure: failureOf(error) }),
    );
  }

  /** A step that fails is told to whoever waits for it; what fails between two steps is the end. */
  #fail(error: Error): void {
    const step = this.#step;
    this.#step = null;
    if (step) return void step.reject(error);
    if (this.#stopping || this.#reported) return;
    this.#reported = true;
    this.#superior.lost(error);
  }

  #leave(): void {
    this.#gone = true;
    for (const resolve of this.#untaken.values()) resolve();
    this.#untaken.clear();
    for (const resolve of this.#unreported.values()) resolve(null);
    this.#unreported.clear();
    this.#fail(new Error('the thread has ended'));
  }
}

interface PendingStep {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}
