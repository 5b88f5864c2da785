/**
 * GET /assets: the content of a file, for callers who may read its row. An uploaded file may be a page with scripts, so it is never
 * shown as a page on the origin of the service.
 */
import { createHash } from 'node:crypto';
import { forbidden, invalidQuery, rangeNotSatisfiable } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { isOneOf } from '../../base/narrow.js';
import { networkOf } from '../../server/access/addresses.js';
import { type ApiRoute, type Description, route } from '../../server/api/action.js';
import {
  BOOLEAN,
  file,
  INTEGER,
  oneOf,
  queryParameter,
  type Schema,
  STRING,
} from '../../server/api/openapi/json-schema.js';
import { isNotModified } from '../../server/http/etag.js';
import type { Exchange } from '../../server/http/exchange.js';
import { contentDisposition, type Produce, type Reply } from '../../server/http/reply.js';
import { type FileRow, type FileSettings, type FilesServices, readFileRow, readFileSettings } from './file-rows.js';
import type { ImageFormat, Transformation } from './image-messages.js';
import { type ImageOperation, readOperation } from './image-operations.js';
import { MAX_IMAGE_BYTES, wholeFile } from './images.js';
import type { FilesConfig } from './options.js';
import { type ByteRange, contentMissing, DERIVED, type FileStorage } from './storage.js';

const ASSET_PARAMETERS: readonly Schema[] = [
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

const DESCRIPTION: Description = {
  summary: 'Read the content of a file',
  parameters: ASSET_PARAMETERS,
  answers: [
    file(['application/octet-stream']),
    { status: 206, description: 'A part of it, as the header `Range` says.' },
  ],
};

export function assetsRoutes(services: FilesServices): ApiRoute[] {
  const handle = (exchange: Exchange): Promise<Reply> => readAsset(exchange, services);
  return [route('GET /assets/:id', handle, DESCRIPTION), route('GET /assets/:id/:filename', handle, DESCRIPTION)];
}

/** The length of a key: an ending may follow it. */
const KEY_LENGTH = 36;

async function readAsset(exchange: Exchange, services: FilesServices): Promise<Reply> {
  const caller = await services.identities.identify(exchange);
  const [path = '', filename] = exchange.parameters;
  const row = await readFileRow(path.slice(0, KEY_LENGTH), caller, exchange, services);
  if (row.filename_disk === null) throw forbidden();
  const { download, transform } = readAssetQuery(exchange.queryString);
  const transformation =
    transform &&
    transformationOf(transform, row, {
      settings: await readFileSettings(exchange, services),
      accept: exchange.headers.accept,
      config: services.config,
    });
  const isPreset = transform?.['key'] !== undefined;
  const type = transformation ? `image/${transformation.format}` : contentType(row);
  const head = {
    type,
    tag: tagOf(row, transformation),
    cache: cacheControl(exchange, services),
    headers: {
      'Content-Disposition': contentDisposition(
        download || !isShown(type) ? 'attachment' : 'inline',
        filename ?? row.filename_download,
      ),
      'Content-Security-Policy': policyOf(type),
      'Last-Modified': new Date(row.modified_on).toUTCString(),
      ...(transform?.['format'] === 'auto' || isPreset ? { Vary: 'Accept' } : {}),
    },
  };
  if (isUnchanged(exchange, head.tag, row)) return { status: 304, body: '', ...head, type: '' };
  return transformation
    ? { status: 200, ...head, body: await transformed(row, { transformation, isPreset, exchange }, services) }
    : content(exchange, row, head, services);
}

type Head = Pick<Reply, 'type' | 'tag' | 'cache' | 'headers'>;

async function content(exchange: Exchange, row: FileRow, head: Head, services: FilesServices): Promise<Reply> {
  const storage = services.storages.of(row.storage);
  const name = String(row.filename_disk);
  const size = await storage.sizeOf(name, row.filesize === null ? null : Number(row.filesize));
  if (size === null) throw contentMissing();
  const { range, ifRange } = exchange.headers;
  const isCurrent = ifRange === '' || ifRange === head.tag || ifRange === head.headers?.['Last-Modified'];
  const part = range !== '' && isCurrent ? rangeOf(range, size) : null;
  const { start, end } = part ?? { start: 0, end: size - 1 };
  const headers = {
    ...head.headers,
    'Accept-Ranges': 'bytes',
    ...(part ? { 'Content-Range': `bytes ${start}-${end}/${size}` } : {}),
  };
  const body = sending(storage, name, { start, end });
  return { ...head, status: part ? 206 : 200, headers, body, length: end - start + 1 };
}

function sending(storage: FileStorage, name: string, range: ByteRange): Produce {
  return async (sink) => {
    const left = new AbortController();
    sink.onAbort(() => left.abort());
    try {
      for await (const piece of storage.read(name, range, left.signal)) if (!(await sink.write(piece))) return;
    } catch (error) {
      if (!left.signal.aborted) throw error;
    }
  };
}

/** One range; several, and what is no range of bytes, are answered with the whole file, as HTTP allows. */
function rangeOf(header: string, size: number): ByteRange | null {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim()) ?? [];
  if (first === '' && last === '') return null;
  const start = first === '' ? Math.max(size - Number(last), 0) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (first !== '' && last !== '' && Number(last) < Number(first)) return null;
  if (start >= size || end < start) throw rangeNotSatisfiable(header, size);
  return { start, end };
}

/** Stored variants per file: otherwise readers could fill the storage. Presets are few, and their variants are always stored. */
const MAX_KEPT = 100;

interface TransformRequest {
  readonly transformation: Transformation;
  readonly isPreset: boolean;
  readonly exchange: Exchange;
}

/** Stored next to the files, and made again if it is removed. */
async function transformed(
  row: FileRow,
  { transformation, isPreset, exchange }: TransformRequest,
  services: FilesServices,
): Promise<Buffer> {
  const { storages, images, config } = services;
  const storage = storages.of(row.storage);
  const folder = `${DERIVED}/${row.id}`;
  const name = `${folder}/${digest(row.filename_disk, transformation)}.${transformation.format}`;
  // From when a read begins: waiting for a turn does not count.
  const read = (file: string, size: number): Promise<Buffer> =>
    wholeFile(storage.read(file, { start: 0, end: size - 1 }, AbortSignal.timeout(config.ASSETS_TRANSFORM_TIMEOUT)));
  const kept = await storage.sizeOf(name, null);
  if (kept !== null) return read(name, kept);
  const original = async (): Promise<Buffer> => {
    const file = String(row.filename_disk);
    const size = await storage.sizeOf(file, row.filesize === null ? null : Number(row.filesize));
    if (size === null) throw contentMissing();
    if (size > MAX_IMAGE_BYTES)
      throw invalidQuery(`The image is larger than ${MAX_IMAGE_BYTES} bytes: it can be read, but not transformed`);
    return read(file, size);
  };
  const made = await images.transform(networkOf(exchange.address), name, original, transformation);
  // An image that cannot be kept is sent all the same.
  await keep().catch(() => {});
  return made;

  async function keep(): Promise<void> {
    if (isPreset || (await storage.count(folder)) < MAX_KEPT) await storage.write(name, asStream(made));
  }
}

async function* asStream(bytes: Buffer): AsyncIterable<Buffer> {
  yield bytes;
}

function digest(...parts: readonly unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

/** New content has a new name, and a changed row another time. */
function tagOf({ filename_disk, filesize, modified_on }: FileRow, transformation: Transformation | null): string {
  return `"${digest(filename_disk, filesize, modified_on, transformation)}"`;
}

function isUnchanged({ headers }: Exchange, tag: string, { modified_on }: FileRow): boolean {
  if (headers.ifNoneMatch !== '') return isNotModified(headers.ifNoneMatch, tag);
  const since = Date.parse(headers.ifModifiedSince);
  // Dates of headers have whole seconds.
  return !Number.isNaN(since) && Math.floor(Date.parse(modified_on) / 1_000) * 1_000 <= since;
}

/** Only what everybody may read may be kept for everybody: visitors of a share have no account either. */
function cacheControl(exchange: Exchange, { config, identities }: FilesServices): string {
  const scope = identities.isFromAnybody(exchange) ? 'public' : 'private';
  const seconds = Math.floor(config.ASSETS_CACHE_TTL / 1_000);
  return seconds === 0 ? `${scope}, no-cache` : `${scope}, max-age=${seconds}`;
}

function contentType({ type, charset }: FileRow): string {
  if (type === null || !/^[\w.+-]+\/[\w.+-]+$/.test(type)) return 'application/octet-stream';
  return type.startsWith('text/') && /^[\w-]+$/.test(charset ?? '') ? `${type}; charset=${charset}` : type;
}

/** Types that run no scripts: browsers show these in a page of their own. Types that end in `xml` can hold a page. */
const INERT =
  /^(?:image\/(?:png|apng|p?jpe?g|gif|webp|avif|bmp|tiff|heic|heif|jxl|x-icon|vnd\.microsoft\.icon)$|(?:audio|video)\/(?!.*xml)|application\/pdf$|text\/plain\b)/;

/** Types that a browser may show; it saves all others. SVG is shown in pages that embed it, and alone in a sandbox. */
function isShown(type: string): boolean {
  return INERT.test(type) || type === 'image/svg+xml';
}

function policyOf(type: string): string {
  const nothing = "default-src 'none'; style-src 'unsafe-inline'";
  return INERT.test(type) ? nothing : `${nothing}; sandbox`;
}

/** Types of images that can be transformed; other files are sent as they are. */
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

interface AssetQuery {
  readonly download: boolean;
  /** The parameters of a transformation, or null if there are none. */
  readonly transform: Parameters | null;
}

/** Unknown parameters are ignored: clients add some to bypass caches. */
function readAssetQuery(queryString: string): AssetQuery {
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

interface TransformationContext {
  readonly settings: FileSettings;
  readonly accept: string;
  readonly config: FilesConfig;
}

/** The transformation of an image, or null for other files and for images that are sent as they are. */
function transformationOf(
  parameters: Parameters,
  row: FileRow,
  { settings, accept, config }: TransformationContext,
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
  // One side leaves nothing to fill. Without enlargement, sharp would still add black bars up to that side.
  const shape = fit === 'contain' && (width === null || height === null) ? 'inside' : fit;
  const resize: ImageOperation[] =
    width === null && height === null
      ? []
      : [['resize', { ...(width && { width }), ...(height && { height }), fit: shape, withoutEnlargement }]];
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
  if (!preset) throw invalidQuery(`The key "${key}" is not a configured transformation`);
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

function operationsOf(value: unknown, config: FilesConfig): readonly ImageOperation[] {
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
