/**
 * GET /assets: the content of a file, for who may read its row. What was uploaded may be a page with scripts: it is never shown as one on
 * the origin of the service.
 */
import { createHash } from 'node:crypto';
import { forbidden, invalidQuery, rangeNotSatisfiable } from '../../base/errors.js';
import { isNotModified } from '../../http/compress.js';
import { contentDisposition } from '../../http/disposition.js';
import type { Exchange } from '../../http/exchange.js';
import type { Produce, Reply } from '../../http/reply.js';
import { type ByteRange, contentMissing, DERIVED, type FileStorage } from '../../storage/file-storage.js';
import type { Transformation } from '../../storage/image-messages.js';
import { MAX_IMAGE_BYTES, wholeFile } from '../../storage/images.js';
import { type ApiRoute, type Description, route } from '../action.js';
import { file } from '../openapi/json-schema.js';
import { ASSET_PARAMETERS, readAssetQuery, transformationOf } from './asset-query.js';
import { type FileRow, type FilesServices, readFileRow, readFileSettings } from './file-rows.js';

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
    transformationOf(
      transform,
      row,
      await readFileSettings(exchange, services),
      exchange.headers.accept,
      services.config,
    );
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
      ...(transform?.['format'] === 'auto' || transform?.['key'] !== undefined ? { Vary: 'Accept' } : {}),
    },
  };
  if (isUnchanged(exchange, head.tag, row)) return { status: 304, body: '', ...head, type: '' };
  return transformation
    ? { status: 200, ...head, body: await transformed(row, transformation, transform?.['key'] !== undefined, services) }
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

/** Of one file: whoever may read it could fill the storage with others. There are only so many presets, and they are always kept. */
const MAX_KEPT = 100;

/** Kept beside the files: made again if somebody removes it. */
async function transformed(
  row: FileRow,
  transformation: Transformation,
  isPreset: boolean,
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
  const made = await images.transform(name, original, transformation);
  // An image that cannot be kept is sent all the same.
  await keep().catch(() => {});
  return made;

  async function keep(): Promise<void> {
    if (isPreset || (await storage.count(folder)) < MAX_KEPT) await storage.write(name, oneOf(made));
  }
}

async function* oneOf(bytes: Buffer): AsyncIterable<Buffer> {
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

/** What a browser may show; all else is saved. SVG is shown by pages that embed it, and alone in a sandbox. */
function isShown(type: string): boolean {
  return INERT.test(type) || type === 'image/svg+xml';
}

function policyOf(type: string): string {
  const nothing = "default-src 'none'; style-src 'unsafe-inline'";
  return INERT.test(type) ? nothing : `${nothing}; sandbox`;
}
