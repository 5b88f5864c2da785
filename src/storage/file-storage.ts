/** The operations of a storage location. Each call ends within a time, or fails. */
import { type ServiceError, serviceUnavailable } from '../base/errors.js';

/** Both ends are included. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

export interface StoredName {
  readonly name: string;
  readonly bytes: number;
  readonly modified: Date;
}

export interface FileStorage {
  /** All or nothing: the name exists when all bytes are there for good. Answers how many there were. */
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

export function storageFailed(location: string, action: string, error: unknown): ServiceError {
  const failure = serviceUnavailable('files', `The storage location "${location}" cannot be ${action}`);
  failure.cause = error;
  return failure;
}

export function contentMissing(): ServiceError {
  return serviceUnavailable('files', 'The content of the file is missing in its storage location');
}
