/** The bytes of files, by name, in the locations that STORAGE_LOCATIONS lists. */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, opendir, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { AwsClient } from 'aws4fetch';
import { ServiceError, serviceUnavailable } from '../../base/errors.js';
import { propertiesOf } from '../../base/narrow.js';
import type { LocalLocation, S3Location, StorageLocation } from './storage-options.js';

/** Both ends are included. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

interface StoredName {
  readonly name: string;
  readonly bytes: number;
  readonly modified: Date;
}

export interface FileStorage {
  /** Stores all bytes or none: the name exists only once all bytes are durable. Returns their number. */
  write(name: string, bytes: AsyncIterable<Buffer>): Promise<number>;
  /** `recorded` is what the row says, where asking would cost a request. Returns null if there is no such name. */
  sizeOf(name: string, recorded: number | null): Promise<number | null>;
  /** Read as they are taken. */
  read(name: string, range: ByteRange, signal: AbortSignal): AsyncIterable<Buffer>;
  /** A name that is not there is as good as removed. */
  remove(name: string): Promise<void>;
  removeFolder(name: string): Promise<void>;
  /** How many names there are in a folder; of thousands at least a thousand. */
  count(folder: string): Promise<number>;
  /** Everything but derived images, in no order. */
  list(): AsyncIterable<StoredName>;
}

/** Transformed images, a folder for each file: they can be made again. */
export const DERIVED = 'derived';

function storageFailed(location: string, action: string, error: unknown): ServiceError {
  const failure = serviceUnavailable('files', `The storage location "${location}" cannot be ${action}`);
  failure.cause = error;
  return failure;
}

export function contentMissing(): ServiceError {
  return serviceUnavailable('files', 'The content of the file is missing in its storage location');
}

export class Storages {
  readonly #locations = new Map<string, FileStorage>();
  /** Where new files go. */
  readonly first: string;

  constructor(locations: readonly StorageLocation[]) {
    for (const location of locations)
      this.#locations.set(
        location.name,
        checked(location.driver === 'local' ? new LocalStorage(location) : new S3Storage(location)),
      );
    this.first = locations[0]?.name ?? '';
  }

  get names(): readonly string[] {
    return [...this.#locations.keys()];
  }

  has(name: string): boolean {
    return this.#locations.has(name);
  }

  /** A row may name a location that was configured when it was written. */
  of(name: string): FileStorage {
    const storage = this.#locations.get(name);
    if (!storage) throw serviceUnavailable('files', `The storage location "${name}" is not configured`);
    return storage;
  }
}

/** One or two folders and a name, none of which leads upward: whatever a row says, nothing else is touched. */
export function isStorageName(name: string): boolean {
  return /^(?!\.)[\w.-]+(?:\/(?!\.)[\w.-]+){0,2}$/.test(name) && name.length <= 255;
}

function checked(storage: FileStorage): FileStorage {
  const check = (name: string): string => {
    if (!isStorageName(name)) throw serviceUnavailable('files', 'The name of the stored file is not valid');
    return name;
  };
  return {
    write: (name, bytes) => storage.write(check(name), bytes),
    sizeOf: (name, recorded) => storage.sizeOf(check(name), recorded),
    read: (name: string, range: ByteRange, signal: AbortSignal) => storage.read(check(name), range, signal),
    remove: (name) => storage.remove(check(name)),
    removeFolder: (name) => storage.removeFolder(check(name)),
    count: (folder) => storage.count(check(folder)),
    list: () => storage.list(),
  };
}

/** A folder of this machine, or one that is mounted. */
class LocalStorage implements FileStorage {
  readonly #name: string;
  readonly #root: string;

  constructor({ name, root }: LocalLocation) {
    this.#name = name;
    this.#root = resolve(root);
  }

  async write(name: string, bytes: AsyncIterable<Buffer>): Promise<number> {
    const path = join(this.#root, name);
    const folder = dirname(path);
    // No name of a file ends so. A file that a crash leaves begins with the key as well, so that it is found.
    const partial = join(folder, `${basename(path)}-${randomBytes(6).toString('hex')}.part~`);
    let size = 0;
    try {
      await mkdir(folder, { recursive: true });
      const file = await open(partial, 'wx', 0o640);
      try {
        for await (const piece of bytes) {
          await writeAll(file, piece);
          size += piece.length;
        }
        // A row may not outlive its bytes, also where the power fails right behind the commit.
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(partial, path);
      await syncFolder(folder);
      return size;
    } catch (error) {
      await unlink(partial).catch(() => {});
      throw error instanceof ServiceError ? error : storageFailed(this.#name, 'written', error);
    }
  }

  async sizeOf(name: string): Promise<number | null> {
    try {
      const found = await stat(join(this.#root, name));
      return found.isFile() ? found.size : null;
    } catch (error) {
      if (isMissing(error)) return null;
      throw storageFailed(this.#name, 'read', error);
    }
  }

  async *read(name: string, { start, end }: ByteRange, signal: AbortSignal): AsyncIterable<Buffer> {
    if (end < start) return;
    const bytes = createReadStream(join(this.#root, name), { start, end, signal, highWaterMark: 262_144 });
    try {
      for await (const piece of bytes) yield piece as Buffer;
    } catch (error) {
      throw isMissing(error) ? contentMissing() : storageFailed(this.#name, 'read', error);
    } finally {
      bytes.destroy();
    }
  }

  async remove(name: string): Promise<void> {
    await unlink(join(this.#root, name)).catch((error: unknown) => {
      if (!isMissing(error)) throw storageFailed(this.#name, 'written', error);
    });
  }

  async removeFolder(name: string): Promise<void> {
    await rm(join(this.#root, name), { recursive: true, force: true }).catch((error: unknown) => {
      throw storageFailed(this.#name, 'written', error);
    });
  }

  async count(folder: string): Promise<number> {
    try {
      return (await readdir(join(this.#root, folder))).length;
    } catch (error) {
      if (isMissing(error)) return 0;
      throw storageFailed(this.#name, 'read', error);
    }
  }

  async *list(): AsyncIterable<StoredName> {
    const folder = await opendir(this.#root).catch((error: unknown) => {
      if (isMissing(error)) return [];
      throw storageFailed(this.#name, 'read', error);
    });
    for await (const entry of folder) {
      if (!entry.isFile()) continue;
      const found = await stat(join(this.#root, entry.name)).catch(() => null);
      if (found) yield { name: entry.name, bytes: found.size, modified: found.mtime };
    }
  }
}

async function writeAll(file: FileHandle, piece: Buffer): Promise<void> {
  for (let sent = 0; sent < piece.length; ) sent += (await file.write(piece, sent)).bytesWritten;
}

/** The name is in the folder, which is written on its own. Not every system lets a folder be synchronised. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r').catch(() => null);
  await folder?.sync().catch(() => {});
  await folder?.close();
}

function isMissing(error: unknown): boolean {
  const { code } = propertiesOf(error);
  return code === 'ENOENT' || code === 'ENOTDIR';
}

/** The protocol wants 5 MiB at least, and 10,000 parts at most: a file may have 78 GiB. */
const PART_BYTES = 8_388_608;

/** For a response to begin, and for the next bytes of it. */
const RESPONSE_TIMEOUT_MS = 30_000;
const RETRIES = 2;

/**
 * A bucket of Amazon S3 or of a server that speaks its protocol. Files whose size is not known beforehand are sent in parts, so that one
 * part is in memory at a time; a file of one part is one request.
 */
class S3Storage implements FileStorage {
  readonly #name: string;
  readonly #url: string;
  readonly #root: string;
  readonly #client: AwsClient;

  constructor({ name, url, root, region, key, secret }: S3Location) {
    this.#name = name;
    this.#url = url;
    this.#root = root;
    this.#client = new AwsClient({
      accessKeyId: key,
      secretAccessKey: secret,
      service: 's3',
      region,
      retries: RETRIES,
    });
  }

  async write(name: string, bytes: AsyncIterable<Buffer>): Promise<number> {
    let upload: string | null = null;
    const tags: string[] = [];
    let size = 0;
    try {
      for await (const { part, isLast } of partsOf(bytes)) {
        size += part.length;
        if (isLast && upload === null) await this.#send('PUT', name, { body: part });
        else {
          upload ??= elementOf(await (await this.#send('POST', name, { query: '?uploads=' })).text(), 'UploadId');
          const query = `?partNumber=${tags.length + 1}&uploadId=${encodeURIComponent(upload)}`;
          const { headers } = await this.#send('PUT', name, { query, body: part });
          tags.push(headers.get('etag') ?? '');
        }
      }
      if (upload !== null) await this.#complete(name, upload, tags);
      return size;
    } catch (error) {
      // Parts that belong to nothing are paid for.
      const query = `?uploadId=${encodeURIComponent(upload ?? '')}`;
      if (upload !== null) await this.#send('DELETE', name, { query }).catch(() => {});
      throw error instanceof ServiceError ? error : storageFailed(this.#name, 'written', error);
    }
  }

  async #complete(name: string, upload: string, tags: readonly string[]): Promise<void> {
    const parts = tags.map((tag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${tag}</ETag></Part>`);
    const list = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
    const query = `?uploadId=${encodeURIComponent(upload)}`;
    const response = await this.#send('POST', name, { query, body: Buffer.from(list) });
    // It may fail after it was answered with 200.
    const text = await response.text();
    if (text.includes('<Error>')) throw new Error(text.slice(0, 500));
  }

  async sizeOf(name: string, recorded: number | null): Promise<number | null> {
    if (recorded !== null) return recorded;
    const response = await this.#request('HEAD', name).catch((error: unknown) => {
      throw storageFailed(this.#name, 'read', error);
    });
    if (response.status === 404) return null;
    if (!response.ok) throw storageFailed(this.#name, 'read', new Error(`status ${response.status}`));
    return Number(response.headers.get('content-length'));
  }

  async *read(name: string, { start, end }: ByteRange, signal: AbortSignal): AsyncIterable<Buffer> {
    if (end < start) return;
    const deadline = new Deadline(signal);
    try {
      const headers = { Range: `bytes=${start}-${end}` };
      const response = await this.#request('GET', name, { headers, signal: deadline.signal });
      if (response.status === 404) throw contentMissing();
      if (response.status !== 206 || response.body === null) throw new Error(`status ${response.status}`);
      const reader = response.body.getReader();
      for (;;) {
        deadline.extend();
        const { done, value } = await reader.read();
        if (done) return;
        deadline.pause();
        yield Buffer.from(value.buffer, value.byteOffset, value.byteLength);
      }
    } catch (error) {
      throw error instanceof ServiceError ? error : storageFailed(this.#name, 'read', error);
    } finally {
      deadline.end();
    }
  }

  async remove(name: string): Promise<void> {
    await this.#send('DELETE', name).catch((error: unknown) => {
      throw storageFailed(this.#name, 'written', error);
    });
  }

  async removeFolder(name: string): Promise<void> {
    for await (const { name: found } of this.#listBelow(`${name}/`)) await this.remove(found);
  }

  async count(folder: string): Promise<number> {
    let count = 0;
    for await (const _ of this.#listBelow(`${folder}/`)) if (++count === 1_000) break;
    return count;
  }

  async *list(): AsyncIterable<StoredName> {
    for await (const stored of this.#listBelow('')) if (!stored.name.startsWith(`${DERIVED}/`)) yield stored;
  }

  async *#listBelow(folder: string): AsyncIterable<StoredName> {
    // The names in the answer are as they are; those of requests are encoded.
    const root = decodeURIComponent(this.#root);
    for (let next: string | null = ''; next !== null; ) {
      const more: string = next === '' ? '' : `&continuation-token=${encodeURIComponent(next)}`;
      const query = `?list-type=2&prefix=${encodeURIComponent(root + folder)}${more}`;
      const response = await this.#ok(this.#fetch('GET', `${this.#url}${query}`)).catch((error: unknown) => {
        throw storageFailed(this.#name, 'read', error);
      });
      const text = await response.text();
      for (const [, entry = ''] of text.matchAll(/<Contents>(.*?)<\/Contents>/gs))
        yield {
          name: elementOf(entry, 'Key').slice(root.length),
          bytes: Number(elementOf(entry, 'Size')),
          modified: new Date(elementOf(entry, 'LastModified')),
        };
      next = /<NextContinuationToken>/.test(text) ? elementOf(text, 'NextContinuationToken') : null;
    }
  }

  #send(method: string, name: string, request: S3Request = {}): Promise<Response> {
    return this.#ok(this.#request(method, name, request));
  }

  async #ok(sent: Promise<Response>): Promise<Response> {
    const response = await sent;
    if (response.ok) return response;
    throw new Error(`status ${response.status}: ${(await response.text()).slice(0, 500)}`);
  }

  #request(method: string, name: string, request: S3Request = {}): Promise<Response> {
    return this.#fetch(method, `${this.#url}${this.#root}${name}${request.query ?? ''}`, request);
  }

  #fetch(method: string, url: string, { body, headers, signal }: S3Request = {}): Promise<Response> {
    const digest = createHash('sha256')
      .update(body ?? '')
      .digest('hex');
    return this.#client.fetch(url, {
      method,
      headers: { ...headers, 'X-Amz-Content-Sha256': digest },
      ...(body ? { body: new Uint8Array(body) } : {}),
      signal: signal ?? AbortSignal.timeout(RESPONSE_TIMEOUT_MS),
    });
  }
}

interface S3Request {
  readonly query?: string;
  readonly body?: Buffer;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

/** Ends a request whose next bytes do not come in time, or whose client has left. */
class Deadline {
  readonly #controller = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  readonly #abort = (): void => this.#controller.abort(new Error('it took too long, or the client has left'));

  constructor(private readonly outer: AbortSignal) {
    if (outer.aborted) this.#abort();
    outer.addEventListener('abort', this.#abort);
    this.extend();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  extend(): void {
    this.pause();
    this.#timer = setTimeout(this.#abort, RESPONSE_TIMEOUT_MS).unref();
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.pause();
    this.outer.removeEventListener('abort', this.#abort);
    // A response that was not read to its end would hold its connection.
    this.#controller.abort();
  }
}

/** Pieces of one size; the last, which may be empty, has what is left. */
async function* partsOf(bytes: AsyncIterable<Buffer>): AsyncIterable<{ part: Buffer; isLast: boolean }> {
  let waiting: Buffer[] = [];
  let size = 0;
  for await (const piece of bytes) {
    waiting.push(piece);
    size += piece.length;
    if (size <= PART_BYTES) continue;
    const whole = Buffer.concat(waiting);
    let at = 0;
    for (; whole.length - at > PART_BYTES; at += PART_BYTES)
      yield { part: whole.subarray(at, at + PART_BYTES), isLast: false };
    waiting = [whole.subarray(at)];
    size = whole.length - at;
  }
  yield { part: Buffer.concat(waiting), isLast: true };
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

function elementOf(text: string, name: string): string {
  const value = new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  if (value === undefined) throw new Error(`the response has no ${name}`);
  return value.replace(/&(amp|lt|gt|quot|apos);/g, (_, entity: string) => ENTITIES[entity] ?? '');
}
