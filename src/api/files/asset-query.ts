/** What the query string of GET /assets says: how the image is to be transformed, and whether it is a download. */

import { invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { isOneOf } from '../../base/narrow.js';
import type { Config } from '../../config/config.js';
import type { ImageFormat, Transformation } from '../../storage/image-messages.js';
import { type ImageOperation, readOperation } from '../../storage/image-operations.js';
import { BOOLEAN, INTEGER, oneOf, type Schema, STRING } from '../openapi/json-schema.js';
import { queryParameter } from '../openapi/parameters.js';
import type { FileRow, FileSettings } from './file-rows.js';

export const ASSET_PARAMETERS: readonly Schema[] = [
  queryParameter('download', BOOLEAN, 'Whether the content is to be saved.'),
  queryParameter('key', STRING, 'A preset of the settings, or `system-small-cover` and the like.'),
  queryParameter('width', INTEGER, 'The width of the image in pixels.'),
  queryParameter('height', INTEGER, 'The height of the image in pixels.'),
  queryParameter('fit', oneOf('cover', 'contain', 'inside', 'outside', 'fill'), 'How the image fits both.'),
  queryParameter('format', oneOf('auto', 'jpg', 'jpeg', 'png', 'webp', 'tiff', 'avif'), 'The format of the image.'),
  queryParameter('quality', INTEGER, 'From 1 to 100.'),
  queryParameter('withoutEnlargement', BOOLEAN, 'Whether a smaller image stays as it is.'),
  queryParameter('focal_point_x', INTEGER, 'The centre of a crop.'),
  queryParameter('focal_point_y', INTEGER, 'The centre of a crop.'),
  queryParameter('transforms', STRING, 'A JSON list of `[method, ...arguments]` of sharp.'),
];

/** Of these types; other files are sent as they are. */
const FORMATS: Readonly<Record<string, ImageFormat>> = {
  'image/jpeg': 'jpeg',
  'image/png': 'png',
  'image/webp': 'webp',
  'image/tiff': 'tiff',
  'image/avif': 'avif',
};

const FITS = ['cover', 'contain', 'inside', 'outside', 'fill'] as const;
const NAMES = ['key', 'width', 'height', 'fit', 'format', 'quality', 'withoutEnlargement', 'transforms'] as const;
const POINTS = ['focal_point_x', 'focal_point_y'] as const;

type Parameters = Readonly<Record<string, unknown>>;

/** Sides of the presets that there always are, in pixels. */
const SYSTEM_SIDES: Readonly<Record<string, number>> = { small: 64, medium: 300, large: 800 };

export interface AssetQuery {
  readonly download: boolean;
  /** The parameters of a transformation; null where none is asked for. */
  readonly transform: Parameters | null;
}

/** Parameters that mean nothing here, such as one that keeps a cache from answering, are left to their senders. */
export function readAssetQuery(queryString: string): AssetQuery {
  const given = new URLSearchParams(queryString);
  const parameters: Record<string, unknown> = {};
  for (const name of [...NAMES, ...POINTS]) {
    const value = given.get(name);
    if (value !== null && value !== '') parameters[name] = value;
  }
  return {
    download: given.has('download') && given.get('download') !== 'false',
    transform: Object.keys(parameters).length > 0 ? parameters : null,
  };
}

/** Null for a file that is no image, or is to be sent as it is. */
export function transformationOf(
  parameters: Parameters,
  row: FileRow,
  settings: FileSettings,
  accept: string,
  config: Config,
): Transformation | null {
  const original = FORMATS[row.type ?? ''];
  const wanted = presetOf(parameters, settings);
  const most = config.ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION;
  const [width, height] = [numberOf(wanted, 'width', most), numberOf(wanted, 'height', most)];
  const fit = wanted['fit'] ?? 'cover';
  if (!isOneOf(FITS, fit)) throw invalidQuery(`"fit" must be one of ${FITS.join(', ')}`);
  const quality = numberOf(wanted, 'quality', 100);
  const operations = operationsOf(wanted['transforms'], config);
  const format = formatOf(wanted['format'], original ?? 'png', accept);
  // A point outside of the image is the nearest one inside: it makes no image of its own.
  const inside = (name: (typeof POINTS)[number], side: number | null): number | null => {
    const point = numberOf(wanted, name, Number.MAX_SAFE_INTEGER, 0) ?? row[name];
    return point === null ? null : Math.max(0, Math.min(point, side ?? most));
  };
  const [x, y] = [inside('focal_point_x', row.width), inside('focal_point_y', row.height)];
  if (!original) return null;
  const isCrop = width !== null && height !== null && fit === 'cover';
  const withoutEnlargement = isTrue(wanted['withoutEnlargement']);
  const resize: ImageOperation[] =
    width === null && height === null
      ? []
      : [['resize', { ...(width && { width }), ...(height && { height }), fit, withoutEnlargement }]];
  const focus = isCrop && x !== null && y !== null ? { x, y } : null;
  return { operations: [...resize, ...operations], format, quality, focus };
}

/** `storage_asset_transform` says whether callers may ask for anything, for presets by their key, or for those of the system alone. */
function presetOf(parameters: Parameters, settings: FileSettings): Parameters {
  const { key, ...others } = parameters;
  const mode = settings.storage_asset_transform;
  if (key === undefined) {
    if (mode === 'all' || Object.keys(others).every((name) => isOneOf<string>(POINTS, name))) return others;
    throw invalidQuery('Images can be transformed by "key" only');
  }
  const preset = systemPreset(String(key)) ?? (mode === 'none' ? null : ownPreset(key, settings.storage_asset_presets));
  if (!preset) throw invalidQuery(`Key "${key}" isn't configured`);
  return preset;
}

function systemPreset(key: string): Parameters | null {
  const [, name = '', fit = ''] = /^system-(small|medium|large)-(cover|contain)$/.exec(key) ?? [];
  const side = SYSTEM_SIDES[name];
  if (side === undefined) return null;
  return fit === 'cover'
    ? { width: side, height: side, fit, format: 'auto' }
    : { width: side, fit, format: 'auto', withoutEnlargement: true };
}

function ownPreset(key: unknown, presets: unknown): Parameters | null {
  if (!Array.isArray(presets)) return null;
  return presets.find((each) => isObject(each) && each['key'] === key) ?? null;
}

function numberOf(parameters: Parameters, name: string, most: number, least = 1): number | null {
  const value = parameters[name];
  if (value === undefined || value === null) return null;
  const number = /^\d{1,9}$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!(number >= least && number <= most))
    throw invalidQuery(`"${name}" must be a whole number from ${least} to ${most}`);
  return number;
}

function isTrue(value: unknown): boolean {
  return value === true || value === 'true' || value === '1';
}

function formatOf(value: unknown, original: ImageFormat, accept: string): ImageFormat {
  if (value === undefined || value === null) return original;
  if (value === 'jpg') return 'jpeg';
  if (value === 'auto') {
    if (accept.includes('image/avif')) return 'avif';
    if (accept.includes('image/webp')) return 'webp';
    return original === 'jpeg' ? 'jpeg' : 'png';
  }
  const formats = Object.values(FORMATS);
  if (!isOneOf<unknown>(formats, value)) throw invalidQuery(`"format" must be one of auto, jpg, ${formats.join(', ')}`);
  return formats.find((each) => each === value) ?? original;
}

function operationsOf(value: unknown, config: Config): readonly ImageOperation[] {
  if (value === undefined || value === null) return [];
  const limit = config.ASSETS_TRANSFORM_MAX_OPERATIONS;
  const list = typeof value === 'string' ? jsonOf(value) : value;
  if (!Array.isArray(list)) throw invalidQuery('"transforms" must be a JSON list');
  if (list.length > limit)
    throw invalidQuery(`"transforms" must have at most ${limit} entries`, {
      option: 'ASSETS_TRANSFORM_MAX_OPERATIONS',
      limit,
    });
  return list.map((entry) => readOperation(entry, config.ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION));
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalidQuery('"transforms" must be a JSON list');
  }
}
