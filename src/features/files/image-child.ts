/**
 * The program of a process that transforms images with `sharp`, one after the other. A process of its own can be killed at its deadline;
 * threads inside of the service could not. It ends when the service does: then it is disconnected.
 */
import { writeFile } from 'node:fs/promises';
import type { Metadata, Sharp, SharpOptions } from 'sharp';
import { asError, isOneOf } from '../../base/narrow.js';
import type { ImageAnswer, ImageJob, ImageResult, ImageTask, Transformation } from './image-messages.js';
import type { ImageOperation } from './image-operations.js';
import { type ImageSize, resizeOf, sizesOf } from './image-sizes.js';

type OpenImage = (input: Buffer, options: SharpOptions) => Sharp;

/** Other loaders of sharp, such as those for drawings and documents, would follow instructions that the caller wrote. */
const LOADERS = ['Jpeg', 'Png', 'Webp', 'Tiff', 'Heif', 'Nsgif'].map((format) => `VipsForeignLoad${format}`);

/** As sharp calls them; AVIF is a kind of HEIF. */
const READ_FORMATS: readonly (string | undefined)[] = ['jpeg', 'png', 'webp', 'tiff', 'heif'];

/** The service holds a result in memory. */
const MAX_RESULT_BYTES = 134_217_728;

/** Memory that the process may have without and with images of the largest size. */
const BASE_BYTES = 536_870_912;
const BYTES_PER_PIXEL = 16;
const MEMORY_CHECK_MS = 50;

const NOTHING = Buffer.alloc(0);

class Refusal extends Error {
  constructor(
    reason: string,
    readonly isTooLarge = false,
  ) {
    super(reason);
  }
}

/** `process.exit` would wait for the image. */
const end = (): void => void process.kill(process.pid, 'SIGKILL');

function send(answer: ImageAnswer, bytes: Buffer = NOTHING): void {
  const result: ImageResult = { answer, bytes };
  process.send?.(result);
}

async function loadSharp(): Promise<OpenImage> {
  const { default: sharp } = await import('sharp');
  sharp.block({ operation: ['VipsForeignLoad'] });
  sharp.unblock({ operation: LOADERS });
  sharp.concurrency(1);
  sharp.cache(false);
  return sharp;
}

/** Any other failure than a package that is not installed may be temporary. Its message may contain paths, its code does not. */
function reportFailure(error: unknown): void {
  const code = error instanceof Error && 'code' in error ? String(error.code) : null;
  if (code === 'ERR_MODULE_NOT_FOUND') send({ kind: 'started', isInstalled: false, failure: null });
  else send({ kind: 'started', isInstalled: true, failure: code ?? firstLine(error) });
}

async function work(open: OpenImage, { most, transformation }: ImageJob, bytes: Buffer): Promise<void> {
  const limits: SharpOptions = { limitInputPixels: most ** 2, failOn: 'error' };
  const metadata = await open(bytes, limits).metadata().catch(unreadable);
  if (!transformation) return send({ kind: 'measured', size: orientedSize(metadata) });
  if (!isOneOf(READ_FORMATS, metadata.format))
    throw new Refusal(`The image cannot be transformed: its content is ${metadata.format}`);
  const size = orientedSize(metadata);
  if (!size || exceeds(size, most)) throw new Refusal(`The image is larger than ${most} pixels`, true);
  const source = { image: open(bytes, limits).autoOrient(), size, operations: transformation.operations };
  const trimmed = await trim(source, most, (raw, info) => open(raw, { ...limits, raw: info }));
  const { format, quality, focus } = transformation;
  const operations = cropped(trimmed.operations, trimmed.size, focus, most);
  checkSizes(operations, trimmed.size, most);
  for (const operation of operations) apply(trimmed.image, operation);
  trimmed.image.toFormat(format, quality === null ? {} : { quality });
  const made = await trimmed.image.toBuffer().catch(unreadable);
  if (made.length > MAX_RESULT_BYTES) throw new Refusal(`The result is larger than ${MAX_RESULT_BYTES} bytes`);
  send({ kind: 'made' }, made);
}

interface Source {
  readonly image: Sharp;
  readonly size: ImageSize;
  readonly operations: readonly ImageOperation[];
}

type RawImage = NonNullable<SharpOptions['raw']>;

/** How much is trimmed depends on the image. So it happens first, as in sharp, and the steps that follow have a known size. */
async function trim(source: Source, most: number, open: (raw: Buffer, info: RawImage) => Sharp): Promise<Source> {
  const { image, operations, size } = source;
  const position = operations.findLastIndex(([name]) => name === 'trim');
  if (position < 0) return source;
  const isBefore = ([name]: ImageOperation, index: number): boolean =>
    name === 'trim' || (name === 'rotate' && index < position);
  const first = operations.filter(isBefore);
  checkSizes(first, size, most);
  for (const operation of first) apply(image, operation);
  const { data, info } = await image.raw().toBuffer({ resolveWithObject: true }).catch(unreadable);
  const rest = operations.filter((operation, index) => !isBefore(operation, index));
  return { image: open(data, info), size: info, operations: rest };
}

function checkSizes(operations: readonly ImageOperation[], size: ImageSize, most: number): void {
  const step = sizesOf(operations, size).find((each) => exceeds(each.size, most));
  if (step)
    throw new Refusal(
      `"${step.name}" would make an image of ${step.size.width} × ${step.size.height} pixels: at most ${most} × ${most} are allowed`,
      true,
    );
}

function exceeds({ width, height }: ImageSize, most: number): boolean {
  return !(width <= most && height <= most);
}

function apply(image: Sharp, [name, ...values]: ImageOperation): void {
  const method: unknown = Reflect.get(image, name);
  if (typeof method !== 'function') throw new Refusal(`"transforms": this version of sharp has no "${name}"`);
  try {
    Reflect.apply(method, image, values);
  } catch (error) {
    throw new Refusal(`"transforms": "${name}": ${firstLine(error)}`);
  }
}

/**
 * A crop around a point: the image is scaled until it covers both sides, then cut. Where the scaled image would be larger than allowed,
 * it is cut first.
 */
function cropped(
  operations: readonly ImageOperation[],
  size: ImageSize,
  focus: Transformation['focus'],
  most: number,
): readonly ImageOperation[] {
  const resize = resizeOf(operations);
  if (resize?.fit !== 'cover' || resize.width === null || resize.height === null) return operations;
  const { width, height } = resize;
  const factor = Math.max(width / size.width, height / size.height);
  const scaled = { width: Math.ceil(size.width * factor), height: Math.ceil(size.height * factor) };
  const [first, ...others] = operations;
  const isAlone = first?.[0] === 'resize' && others.every(([name]) => !MOVES.includes(name));
  const cutsFirst = isAlone && exceeds(scaled, most) && !resize.withoutEnlargement;
  if (!focus && !cutsFirst) return operations;
  const point = focus ?? { x: size.width / 2, y: size.height / 2 };
  if (cutsFirst) {
    const area = { width: Math.ceil(width / factor), height: Math.ceil(height / factor) };
    return [['extract', areaAt(point, area, size)], ['resize', { width, height, fit: 'fill' }], ...others];
  }
  const at = { x: point.x * factor, y: point.y * factor };
  const crop: readonly ImageOperation[] = [
    ['resize', { ...scaled, fit: 'fill' }],
    ['extract', areaAt(at, resize, scaled)],
  ];
  return operations.flatMap((operation) => (operation[0] === 'resize' ? crop : [operation]));
}

/** Operations that change which part of the image is where. */
const MOVES: readonly string[] = ['resize', 'extract', 'rotate', 'trim', 'affine'];

function areaAt(
  point: { readonly x: number; readonly y: number },
  area: { readonly width: number | null; readonly height: number | null },
  size: ImageSize,
): Readonly<Record<'left' | 'top' | 'width' | 'height', number>> {
  const offset = (at: number, side: number, all: number): number =>
    Math.max(0, Math.min(Math.round(at - side / 2), all - side));
  const [width, height] = [area.width ?? size.width, area.height ?? size.height];
  return { left: offset(point.x, width, size.width), top: offset(point.y, height, size.height), width, height };
}

function orientedSize({ width, height, orientation = 1 }: Metadata): ImageSize | null {
  if (!width || !height) return null;
  return orientation >= 5 ? { width: height, height: width } : { width, height };
}

function unreadable(error: unknown): never {
  throw new Refusal(`The image cannot be transformed: ${firstLine(error)}`);
}

function firstLine(error: unknown): string {
  return asError(error).message.split('\n', 1)[0] ?? '';
}

/** Memory of images is not in the heap of JavaScript, whose limit does not apply to it. */
function watchMemory(most: number): NodeJS.Timeout {
  const limit = BASE_BYTES + BYTES_PER_PIXEL * most ** 2;
  return setInterval(() => process.memoryUsage.rss() > limit && end(), MEMORY_CHECK_MS);
}

async function main(): Promise<void> {
  process.on('disconnect', end);
  // A signal for the whole group: the service decides when this process ends.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
  // Where memory runs out, this process is the one to end.
  await writeFile('/proc/self/oom_score_adj', '1000').catch(() => {});
  const open = await loadSharp().catch(reportFailure);
  // The service ends this process when it has the answer.
  if (!open) return;
  process.on('message', ({ job, bytes }: ImageTask) => {
    const watch = watchMemory(job.most);
    work(open, job, bytes)
      .catch((error: unknown) => {
        const isTooLarge = error instanceof Refusal && error.isTooLarge;
        send({ kind: 'refused', reason: asError(error).message, isTooLarge });
      })
      .finally(() => clearInterval(watch));
  });
  send({ kind: 'started', isInstalled: true, failure: null });
}

await main();
