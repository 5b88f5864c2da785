/**
 * Measures and transforms images with `sharp`, which operators install next to the service, in processes of their own. Equal requests at
 * the same time share one transformation.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import { invalidQuery, ServiceError, serviceUnavailable, unprocessable } from '../../base/errors.js';
import { Limiter, OWN_TURN, type Turn } from '../../base/limiter.js';
import { packagePath } from '../../base/package-files.js';
import type { ImageAnswer, ImageJob, ImageResult, ImageTask, Transformation } from './image-messages.js';
import type { ImageSize } from './image-sizes.js';
import type { FilesConfig } from './options.js';

/** Images are transformed in memory. */
export const MAX_IMAGE_BYTES = 33_554_432;

/** Milliseconds: it takes about a second to start a process. */
const IDLE_MS = 30_000;

export class Images {
  readonly #most: number;
  readonly #transforming: ImageProcesses;
  /** Uploads do not wait for transformations: to measure an image takes milliseconds. */
  readonly #measuring: ImageProcesses;
  readonly #current = new Map<string, Promise<Buffer>>();
  #isMissing = false;

  constructor(config: FilesConfig) {
    const timeout = config.ASSETS_TRANSFORM_TIMEOUT;
    this.#most = config.ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION;
    this.#transforming = new ImageProcesses({
      processes: config.ASSETS_TRANSFORM_MAX_CONCURRENT,
      timeout,
      idle: IDLE_MS,
    });
    this.#measuring = new ImageProcesses({ processes: 1, timeout, idle: IDLE_MS });
  }

  /** The size in pixels, or null if sharp is not installed or cannot read the bytes. */
  async sizeOf(bytes: () => Promise<Buffer>): Promise<ImageSize | null> {
    const result = await this.#run(this.#measuring, OWN_TURN, bytes, null).catch((error: unknown) => {
      if (error instanceof ServiceError && error.code === 'SERVICE_UNAVAILABLE') throw error;
      return null;
    });
    return result?.answer.kind === 'measured' ? result.answer.size : null;
  }

  /** `name` identifies the image and the transformation. Callers take turns. */
  async transform(
    caller: string,
    name: string,
    bytes: () => Promise<Buffer>,
    transformation: Transformation,
  ): Promise<Buffer> {
    const current = this.#current.get(name);
    if (current) return current;
    const made = this.#make({ caller }, bytes, transformation).finally(() => this.#current.delete(name));
    this.#current.set(name, made);
    return made;
  }

  async #make(turn: Turn, bytes: () => Promise<Buffer>, transformation: Transformation): Promise<Buffer> {
    const result = await this.#run(this.#transforming, turn, bytes, transformation);
    if (!result)
      throw unprocessable('Images can be transformed only where the package "sharp" is installed (npm install sharp)');
    if (result.answer.kind === 'refused')
      throw invalidQuery(
        result.answer.reason,
        result.answer.isTooLarge ? { option: 'ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION', limit: this.#most } : null,
      );
    if (result.answer.kind !== 'made') throw serviceUnavailable('images', 'The image could not be transformed');
    return result.bytes;
  }

  async #run(
    processes: ImageProcesses,
    turn: Turn,
    bytes: () => Promise<Buffer>,
    transformation: Transformation | null,
  ): Promise<ImageResult | null> {
    if (this.#isMissing) return null;
    const job: ImageJob = { most: this.#most, transformation };
    const result = await processes.run(turn, bytes, job);
    this.#isMissing = result === null;
    return result;
  }

  /** Ends the processes. Images in the making have a second. */
  async stop(): Promise<void> {
    await Promise.all([this.#transforming.stop(), this.#measuring.stop()]);
  }
}

/** The bytes in memory, of a file that is small enough. */
export async function wholeFile(bytes: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of bytes) pieces.push(piece);
  return Buffer.concat(pieces);
}

const PROGRAM = packagePath('dist', 'src', 'features', 'files', 'image-child.js');

/** To load sharp. */
const START_MS = 15_000;
/** For images in the making when the service stops. */
const STOP_MS = 1_000;
const WAITING_PER_PROCESS = 25;

/** Environment variables that the process needs. The service's secrets are not among them. */
const ENVIRONMENT = ['PATH', 'LD_LIBRARY_PATH', 'NODE_OPTIONS', 'NODE_PATH', 'TMPDIR', 'LANG'];

interface ProcessLimits {
  readonly processes: number;
  /** Milliseconds for an image, and for an image to wait. */
  readonly timeout: number;
  /** Milliseconds after which a process without work is ended. */
  readonly idle: number;
}

/**
 * The processes that transform images: started when they are needed, killed at the deadline of an image, and ended when they have had
 * nothing to do for a while. Each works on one image at a time; the others wait for their turn, a bounded number for a bounded time.
 */
export class ImageProcesses {
  readonly #turns: Limiter;
  readonly #idle: ImageProcess[] = [];
  readonly #busy = new Set<ImageProcess>();
  #isStopped = false;

  constructor(private readonly limits: ProcessLimits) {
    const { processes, timeout } = limits;
    this.#turns = new Limiter(processes, {
      waitTimeout: timeout,
      share: processes,
      maxWaiting: processes * WAITING_PER_PROCESS,
      refusal: () => overload(processes),
    });
  }

  /** The bytes are loaded when it is their turn: waiting images need no memory. Returns null if sharp is not installed. */
  run(turn: Turn, load: () => Promise<Buffer>, job: ImageJob): Promise<ImageResult | null> {
    return this.#turns.run(turn, async () => {
      const bytes = await load();
      if (this.#isStopped) throw stopping();
      return this.#runWith(this.#takeIdle() ?? new ImageProcess(), bytes, job);
    });
  }

  async #runWith(process: ImageProcess, bytes: Buffer, job: ImageJob): Promise<ImageResult | null> {
    this.#busy.add(process);
    try {
      if (!(await process.started)) return null;
      return await process.ask(job, bytes, this.limits.timeout);
    } finally {
      this.#busy.delete(process);
      if (this.#isStopped) process.kill();
      else if (process.isAlive) this.#keep(process);
    }
  }

  /** An idle process that was killed stays in the list until it has ended. */
  #takeIdle(): ImageProcess | undefined {
    let process = this.#idle.pop();
    while (process && !process.isAlive) process = this.#idle.pop();
    return process;
  }

  #keep(process: ImageProcess): void {
    this.#idle.push(process);
    process.endAfter(this.limits.idle, () => {
      const position = this.#idle.indexOf(process);
      if (position >= 0) this.#idle.splice(position, 1);
    });
  }

  /** Resolves when no process is left. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#turns.close(stopping);
    for (const process of this.#idle.splice(0)) process.kill();
    const timer = setTimeout(() => {
      for (const process of this.#busy) process.kill();
    }, STOP_MS);
    await Promise.all([...this.#busy].map(({ ended }) => ended));
    clearTimeout(timer);
  }
}

class ImageProcess {
  readonly #child: ChildProcess;
  #take: ((result: ImageResult) => void) | null = null;
  #refuse: ((error: ServiceError) => void) | null = null;
  #timer: NodeJS.Timeout | undefined;
  isAlive = true;
  /** Resolves to whether sharp is installed. */
  readonly started: Promise<boolean>;
  readonly ended: Promise<void>;

  constructor() {
    const environment = Object.fromEntries(ENVIRONMENT.map((name) => [name, process.env[name]]));
    this.#child = fork(PROGRAM, {
      // One image at a time needs one thread, and the memory of few.
      env: { ...environment, UV_THREADPOOL_SIZE: '1', MALLOC_ARENA_MAX: '2' },
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    lowerPriority(this.#child.pid);
    this.#child.unref();
    this.#child.channel?.unref();
    this.#child.on('message', (result: ImageResult) => this.#take?.(result));
    this.ended = new Promise((resolve) => {
      const end = (): void => {
        this.isAlive = false;
        clearTimeout(this.#timer);
        this.#refuse?.(serviceUnavailable('images', 'The process that transforms images ended unexpectedly'));
        resolve();
      };
      this.#child.on('exit', end);
      this.#child.on('error', end);
    });
    this.started = this.#next(START_MS).then(({ answer }) => this.#isInstalled(answer));
  }

  #isInstalled(answer: ImageAnswer): boolean {
    if (answer.kind !== 'started') return false;
    if (answer.failure === null) return answer.isInstalled;
    this.kill();
    throw serviceUnavailable('images', `The package "sharp" is installed and cannot be loaded: ${answer.failure}`);
  }

  ask(job: ImageJob, bytes: Buffer, timeoutMs: number): Promise<ImageResult> {
    const answered = this.#next(timeoutMs);
    const task: ImageTask = { job, bytes };
    // Where the process ended, its end is the reason.
    this.#child.send(task, () => {});
    return answered;
  }

  /** The next message, or the end of the process at the deadline. */
  #next(timeoutMs: number): Promise<ImageResult> {
    clearTimeout(this.#timer);
    return new Promise<ImageResult>((resolve, reject) => {
      this.#take = resolve;
      this.#refuse = reject;
      if (!this.isAlive) reject(serviceUnavailable('images', 'The process that transforms images ended unexpectedly'));
      this.#timer = setTimeout(() => {
        reject(tooSlow(timeoutMs));
        this.kill();
      }, timeoutMs);
    }).finally(() => {
      clearTimeout(this.#timer);
      this.#take = this.#refuse = null;
    });
  }

  endAfter(idleMs: number, onEnd: () => void): void {
    this.#timer = setTimeout(() => this.kill(), idleMs).unref();
    void this.ended.then(onEnd);
  }

  kill(): void {
    this.isAlive = false;
    this.#child.kill('SIGKILL');
  }
}

/** Requests come first, also while the process starts. */
function lowerPriority(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, constants.priority.PRIORITY_BELOW_NORMAL);
  } catch {
    // Some systems forbid it.
  }
}

function overload(limit: number): ServiceError {
  return serviceUnavailable('images', 'Too many images are being transformed: try again later', {
    option: 'ASSETS_TRANSFORM_MAX_CONCURRENT',
    limit,
  });
}

function tooSlow(limit: number): ServiceError {
  return serviceUnavailable('images', 'The image took too long to transform', {
    option: 'ASSETS_TRANSFORM_TIMEOUT',
    limit,
  });
}

function stopping(): ServiceError {
  return serviceUnavailable('images', 'The service is stopping');
}
