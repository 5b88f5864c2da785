/** The bytes of files, by name, in the locations that STORAGE_LOCATIONS lists. */
import { serviceUnavailable } from '../base/errors.js';
import type { StorageLocation } from '../config/storage-options.js';
import type { ByteRange, FileStorage } from './file-storage.js';
import { LocalStorage } from './local.js';
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
