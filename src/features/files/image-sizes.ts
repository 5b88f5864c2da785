/**
 * How large the image can get in each step of a transformation. sharp carries out its operations in an order of its own: rotate, trim,
 * extract, resize, rotate, extract, affine, extend. The sizes here are upper bounds for that order.
 */
import { isObject } from '../../base/exact-json.js';
import type { ImageOperation } from './image-operations.js';

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** A step and the size that it may make. */
interface SizedStep {
  readonly name: string;
  readonly size: ImageSize;
}

interface Resize {
  /** The width, or null if it follows from the height. */
  readonly width: number | null;
  readonly height: number | null;
  readonly fit: string;
  readonly withoutEnlargement: boolean;
  readonly withoutReduction: boolean;
}

export function sizesOf(operations: readonly ImageOperation[], size: ImageSize): readonly SizedStep[] {
  const steps: SizedStep[] = [];
  const angles = operations.filter(([name]) => name === 'rotate').map(([, angle]) => Number(angle ?? 0));
  const turned = angles.map((angle) => rotated(size, angle));
  for (const each of turned) steps.push({ name: 'rotate', size: each });
  const extracted = operations.flatMap(([name, area]) => (name === 'extract' ? [areaOf(area)] : []));
  let current = size;
  const resize = resizeOf(operations);
  if (resize) {
    current = largest([size, ...turned, ...extracted].map((each) => resized(each, resize)));
    steps.push({ name: 'resize', size: current });
  }
  if (angles.length > 0) {
    current = largest([current, ...angles.map((angle) => rotated(current, angle))]);
    steps.push({ name: 'rotate', size: current });
  }
  for (const [name, ...values] of operations) {
    if (name === 'affine') current = largest([current, sheared(current, values[0])]);
    else if (name === 'extend') current = extended(current, values[0]);
    else continue;
    steps.push({ name, size: current });
  }
  return steps;
}

/** sharp resizes once. A further call replaces the sides and options that it names. */
export function resizeOf(operations: readonly ImageOperation[]): Resize | null {
  let found: Resize | null = null;
  for (const [name, first, second, third] of operations) {
    if (name !== 'resize') continue;
    const before: Resize = found ?? DEFAULTS;
    const given = isObject(first) ? first : isObject(third) ? third : {};
    const isSet = (flag: 'withoutEnlargement' | 'withoutReduction'): boolean =>
      typeof given[flag] === 'boolean' ? given[flag] : before[flag];
    found = {
      width: sideOf(given['width']) ?? (isObject(first) ? before.width : sideOf(first)),
      height: sideOf(given['height']) ?? sideOf(second),
      fit: typeof given['fit'] === 'string' ? given['fit'] : before.fit,
      withoutEnlargement: isSet('withoutEnlargement'),
      withoutReduction: isSet('withoutReduction'),
    };
  }
  return found;
}

const DEFAULTS: Resize = {
  ...{ width: null, height: null, fit: 'cover' },
  ...{ withoutEnlargement: false, withoutReduction: false },
};

function sideOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** With `cover` the image is first scaled until it covers both sides. */
function resized(size: ImageSize, resize: Resize): ImageSize {
  const { width, height, fit, withoutEnlargement, withoutReduction } = resize;
  if (width === null && height === null) return size;
  if (withoutReduction) return largest([size, resized(size, { ...resize, withoutReduction: false })]);
  const factors = [width === null ? null : width / size.width, height === null ? null : height / size.height].filter(
    (factor) => factor !== null,
  );
  if (fit === 'fill') return { width: width ?? size.width, height: height ?? size.height };
  const isInside = fit === 'inside' || fit === 'contain';
  const wanted = isInside ? Math.min(...factors) : Math.max(...factors);
  const scaled = scale(size, withoutEnlargement ? Math.min(1, wanted) : wanted);
  const frame = fit === 'contain' && width !== null && height !== null ? { width, height } : scaled;
  return largest([scaled, frame]);
}

function scale({ width, height }: ImageSize, factor: number): ImageSize {
  return { width: Math.max(1, Math.round(width * factor)), height: Math.max(1, Math.round(height * factor)) };
}

function rotated({ width, height }: ImageSize, angle: number): ImageSize {
  if (angle % 90 === 0) return angle % 180 === 0 ? { width, height } : { width: height, height: width };
  const [sine, cosine] = [Math.abs(Math.sin((angle * Math.PI) / 180)), Math.abs(Math.cos((angle * Math.PI) / 180))];
  return { width: Math.ceil(width * cosine + height * sine), height: Math.ceil(width * sine + height * cosine) };
}

function sheared({ width, height }: ImageSize, matrix: unknown): ImageSize {
  const [a, b, c, d] = (Array.isArray(matrix) ? matrix.flat() : []).map((each) => Math.abs(Number(each)));
  return {
    width: Math.ceil(width * (a ?? 1) + height * (b ?? 0)),
    height: Math.ceil(width * (c ?? 0) + height * (d ?? 1)),
  };
}

function extended({ width, height }: ImageSize, by: unknown): ImageSize {
  const side = (name: string): number => Number((isObject(by) ? by[name] : by) ?? 0);
  return { width: width + side('left') + side('right'), height: height + side('top') + side('bottom') };
}

function areaOf(area: unknown): ImageSize {
  const { width, height } = isObject(area) ? area : {};
  return { width: Number(width), height: Number(height) };
}

function largest(sizes: readonly ImageSize[]): ImageSize {
  return {
    width: Math.max(...sizes.map(({ width }) => width)),
    height: Math.max(...sizes.map(({ height }) => height)),
  };
}
