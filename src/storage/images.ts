/**
 * Measures and transforms images with `sharp`, which operators install next to the service, in processes of their own. Equal requests at
 * the same time share one transformation.
 */

import { invalidQuery, ServiceError, serviceUnavailable, unprocessable } from '../base/errors.js';
import type { Config } from '../config/config.js';
import type { ImageJob, Transformation } from './image-messages.js';
import { ImageProcesses, type ImageResult } from './image-processes.js';
import type { ImageSize } from './image-sizes.js';

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

  constructor(config: Config) {
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
    const result = await this.#run(this.#measuring, bytes, null).catch((error: unknown) => {
      if (error instanceof ServiceError && error.code === 'SERVICE_UNAVAILABLE') throw error;
      return null;
    });
    return result?.answer.kind === 'measured' ? result.answer.size : null;
  }

  /** `name` identifies the image and the transformation. */
  async transform(name: string, bytes: () => Promise<Buffer>, transformation: Transformation): Promise<Buffer> {
    const current = this.#current.get(name);
    if (current) return current;
    const made = this.#make(bytes, transformation).finally(() => this.#current.delete(name));
    this.#current.set(name, made);
    return made;
  }

  async #make(bytes: () => Promise<Buffer>, transformation: Transformation): Promise<Buffer> {
    const result = await this.#run(this.#transforming, bytes, transformation);
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
    bytes: () => Promise<Buffer>,
    transformation: Transformation | null,
  ): Promise<ImageResult | null> {
    if (this.#isMissing) return null;
    const job: ImageJob = { most: this.#most, transformation };
    const result = await processes.run(bytes, job);
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
