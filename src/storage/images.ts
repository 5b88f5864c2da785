/**
 * Transforms images with `sharp`, which is installed beside the service by who wants it. Images are made one by one of a few at a time;
 * what is asked for twice at the same time is made once.
 */
import type { Metadata, Sharp, SharpOptions } from 'sharp';
import type { Config } from '../config.js';
import { invalidQuery, ServiceError, serviceUnavailable, unprocessable } from '../errors.js';
import { asError, isOneOf } from '../narrow.js';

type OpenImage = (input: Buffer, options: SharpOptions) => Sharp;

export type ImageFormat = 'jpeg' | 'png' | 'webp' | 'tiff' | 'avif';

/** A method of sharp and its arguments. */
export type ImageOperation = readonly [name: string, ...values: readonly unknown[]];

export interface Transformation {
  readonly operations: readonly ImageOperation[];
  /** What of the image is kept where both sides are given and `fit` is cover; null for its centre. */
  readonly focus: { readonly x: number; readonly y: number } | null;
  readonly format: ImageFormat;
  readonly quality: number | null;
}

/** Those that take numbers, colours and options; none that reads another file or writes one. */
export const OPERATIONS: ReadonlySet<string> = new Set([
  ...['resize', 'extract', 'extend', 'trim', 'rotate', 'flip', 'flop', 'affine', 'sharpen', 'median', 'blur', 'dilate'],
  ...['erode', 'flatten', 'unflatten', 'gamma', 'negate', 'normalise', 'normalize', 'clahe', 'convolve', 'threshold'],
  ...['linear', 'recomb', 'modulate', 'tint', 'greyscale', 'grayscale', 'toColourspace', 'toColorspace'],
]);

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Images are transformed in memory. */
export const MAX_IMAGE_BYTES = 33_554_432;

/** Whatever type a file claims, no other program reads it: those for drawings and documents take what a caller wrote as instructions. */
const LOADERS = ['Jpeg', 'Png', 'Webp', 'Tiff', 'Heif', 'Nsgif'].map((format) => `VipsForeignLoad${format}`);

/** As sharp calls them; AVIF is a kind of HEIF. */
const READ_FORMATS: readonly (string | undefined)[] = ['jpeg', 'png', 'webp', 'tiff', 'heif'];

export class Images {
  readonly #config: Config;
  #open: Promise<OpenImage | null> | null = null;
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #current = new Map<string, Promise<Buffer>>();

  constructor(config: Config) {
    this.#config = config;
  }

  /** Null where sharp is not installed, or the bytes are no image that it knows. */
  async sizeOf(bytes: () => Promise<Buffer>): Promise<ImageSize | null> {
    const open = await this.#load();
    if (!open) return null;
    try {
      return orientedSize(await open(await bytes(), this.#limits()).metadata());
    } catch (error) {
      if (error instanceof ServiceError) throw error;
      return null;
    }
  }

  /** `name` stands for the image and the transformation: the same is made once. */
  async transform(name: string, bytes: () => Promise<Buffer>, transformation: Transformation): Promise<Buffer> {
    const open = await this.#load();
    if (!open)
      throw unprocessable('Images can be transformed only where the package "sharp" is installed (npm install sharp)');
    const current = this.#current.get(name);
    if (current) return current;
    const made = this.#inTurn(async () => this.#make(open, await bytes(), transformation)).finally(() =>
      this.#current.delete(name),
    );
    this.#current.set(name, made);
    return made;
  }

  /** Looked for when it is first needed: a service without images does not load it. */
  #load(): Promise<OpenImage | null> {
    this.#open ??= import('sharp').then(
      ({ default: sharp }) => {
        sharp.block({ operation: ['VipsForeignLoad'] });
        sharp.unblock({ operation: LOADERS });
        return sharp;
      },
      () => null,
    );
    return this.#open;
  }

  #limits(): SharpOptions {
    return { limitInputPixels: this.#config.ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION ** 2, failOn: 'error' };
  }

  async #make(open: OpenImage, bytes: Buffer, transformation: Transformation): Promise<Buffer> {
    const { ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION: most, ASSETS_TRANSFORM_TIMEOUT: timeoutMs } = this.#config;
    const metadata = await open(bytes, this.#limits()).metadata().catch(unreadable);
    if (!isOneOf(READ_FORMATS, metadata.format))
      throw invalidQuery(`The image cannot be transformed: its content is ${metadata.format}`);
    const size = orientedSize(metadata);
    if (!size || size.width > most || size.height > most)
      throw invalidQuery(`The image is larger than ${most} pixels`, {
        option: 'ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION',
        limit: most,
      });
    const image = open(bytes, this.#limits()).autoOrient();
    for (const operation of focused(transformation, size)) apply(image, operation);
    image.toFormat(transformation.format, transformation.quality === null ? {} : { quality: transformation.quality });
    try {
      return await image.timeout({ seconds: Math.max(1, Math.ceil(timeoutMs / 1_000)) }).toBuffer();
    } catch (error) {
      if (/timeout/i.test(asError(error).message)) throw tooBusy(timeoutMs);
      throw unreadable(error);
    }
  }

  /** Waits for its turn, but not longer than an image may take. */
  async #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const { ASSETS_TRANSFORM_MAX_CONCURRENT: most, ASSETS_TRANSFORM_TIMEOUT: timeoutMs } = this.#config;
    if (this.#running >= most)
      await new Promise<void>((resolve, reject) => {
        const begin = (): void => {
          clearTimeout(timer);
          resolve();
        };
        const timer = setTimeout(() => {
          this.#waiting.splice(this.#waiting.indexOf(begin), 1);
          reject(tooBusy(timeoutMs));
        }, timeoutMs).unref();
        this.#waiting.push(begin);
      });
    else this.#running++;
    try {
      return await work();
    } finally {
      // Who waits takes the place of who is done.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}

function orientedSize({ width, height, orientation = 1 }: Metadata): ImageSize | null {
  if (!width || !height) return null;
  return orientation >= 5 ? { width: height, height: width } : { width, height };
}

function unreadable(error: unknown): never {
  throw invalidQuery(`The image cannot be transformed: ${asError(error).message.split('\n', 1)[0]}`);
}

function tooBusy(limit: number): ServiceError {
  return serviceUnavailable('images', 'The image took too long', { option: 'ASSETS_TRANSFORM_TIMEOUT', limit });
}

function apply(image: Sharp, [name, ...values]: ImageOperation): void {
  const method: unknown = Reflect.get(image, name);
  if (!OPERATIONS.has(name) || typeof method !== 'function')
    throw invalidQuery(`"transforms": there is no transformation "${name}"`);
  try {
    Reflect.apply(method, image, values);
  } catch (error) {
    throw invalidQuery(`"${name}": ${asError(error).message.split('\n', 1)[0]}`);
  }
}

/** With a point of focus a crop becomes two steps: the image is scaled to cover, then cut out around the point. */
function focused({ operations, focus }: Transformation, size: ImageSize): readonly ImageOperation[] {
  if (!focus) return operations;
  return operations.flatMap((operation): readonly ImageOperation[] => {
    const [name, options] = operation;
    if (name !== 'resize' || !isCrop(options)) return [operation];
    const { width, height } = options;
    const factor = Math.max(width / size.width, height / size.height);
    const scaled = { width: Math.ceil(size.width * factor), height: Math.ceil(size.height * factor) };
    const offset = (point: number, side: number, all: number): number =>
      Math.max(0, Math.min(Math.round(point * factor - side / 2), all - side));
    return [
      ['resize', { ...scaled, fit: 'fill' }],
      [
        'extract',
        { left: offset(focus.x, width, scaled.width), top: offset(focus.y, height, scaled.height), width, height },
      ],
    ];
  });
}

function isCrop(options: unknown): options is ImageSize & { readonly fit: 'cover' } {
  if (typeof options !== 'object' || options === null) return false;
  const { width, height, fit } = Object(options);
  return typeof width === 'number' && typeof height === 'number' && fit === 'cover';
}

/** The bytes in memory, of a file that is small enough. */
export async function wholeFile(bytes: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of bytes) pieces.push(piece);
  return Buffer.concat(pieces);
}
