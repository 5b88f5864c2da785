/** What the parts of a snapshot may be: lists, names, flags and texts, each named by its path where it is none. */
import { invalidPayload } from '../../base/errors.js';
import type { Input } from '../../request/parse-context.js';

export function readEntries(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidPayload(`"${name}" must be a list`);
}

export function readSnapshotName(value: unknown, path: string): string {
  if (typeof value !== 'string' || !/^[^\0]+$/.test(value)) throw invalidPayload(`"${path}" must be a name`);
  if (Buffer.byteLength(value) <= 63) return value;
  throw invalidPayload(`"${path}" is longer than 63 bytes`);
}

export function readSnapshotFlag(value: unknown, initial: boolean, path: string): boolean {
  if (value === undefined || value === null) return initial;
  if (typeof value === 'boolean') return value;
  throw invalidPayload(`"${path}" must be true or false`);
}

export function readSnapshotText(value: unknown, path: string): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'string' || value.includes('\0')) throw invalidPayload(`"${path}" must be a string`);
  return value;
}

export function refuseUnknown(rest: Input, name: string, known: string): void {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`${name} has an unknown property "${unknown}": it takes ${known}`);
}
