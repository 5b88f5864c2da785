/** The bytes of files, by name, in the locations that STORAGE_LOCATIONS lists. */

import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, opendir, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { ServiceError, serviceUnavailable } from '../base/errors.js';
import { propertiesOf } from '../base/narrow.js';
import type { LocalLocation, StorageLocation } from '../config/storage-options.js';
import { type ByteRange, contentMissing, type FileStorage, type StoredName, storageFailed } from './file-storage.js';
import { S3Storage } from './s3.js';

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
