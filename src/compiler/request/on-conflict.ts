/** The treatment of items that exist already by a create: they are found by unique columns, and merged or left alone. */
import { invalidQuery } from '../../base/errors.js';

export const RESOLUTIONS = ['merge', 'ignore'] as const;

export interface OnConflict {
  /** The columns of a unique index, or null if the key finds the item. */
  readonly columns: readonly string[] | null;
  readonly resolution: (typeof RESOLUTIONS)[number];
}

/** Returns null if an item that exists is an error. Either may be left out: the columns are then the key, the resolution is `merge`. */
export function parseOnConflict(columns: readonly string[] | null, resolution: string | null): OnConflict | null {
  if (columns === null && resolution === null) return null;
  const known = RESOLUTIONS.find((each) => each === (resolution ?? 'merge'));
  if (!known) throw invalidQuery(`"resolution" must be one of ${RESOLUTIONS.join(', ')}`);
  const names = columns?.map((name) => name.trim()) ?? null;
  if (names && (names.length === 0 || names.includes('') || new Set(names).size < names.length))
    throw invalidQuery('"on_conflict" must be the names of columns, each once, separated by commas');
  return { columns: names, resolution: known };
}

/** Reads the parameters of a URL. */
export function parseConflictParameters(queryString: string): OnConflict | null {
  if (!/on_conflict|resolution/.test(queryString)) return null;
  const parameters = new URLSearchParams(queryString);
  const columns = parameters.getAll('on_conflict');
  const resolutions = parameters.getAll('resolution');
  if (resolutions.length > 1) throw invalidQuery('"resolution" must be given once');
  const names = columns.length === 0 ? null : columns.flatMap((each) => each.split(','));
  return parseOnConflict(names, resolutions[0] ?? null);
}
