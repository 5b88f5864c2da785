/** What leads from one snapshot to another, as clients pass it on: per collection, field and relation a list of changes. */

import { invalidPayload } from '../../base/errors.js';
import { mapSteps, type Steps } from '../../base/time-slices.js';
import { requireObject } from '../../request/write.js';
import { type DeclaredFunction, readFunction } from './parse-function.js';
import {
  type CollectionEntry,
  type FieldEntry,
  type RelationEntry,
  readCollection,
  readField,
  readRelation,
} from './parse-snapshot.js';
import { refuseUnknown } from './snapshot-values.js';

/** A new entry, one that leaves, or a property that changes. */
export type Change =
  | { readonly kind: 'N'; readonly rhs: unknown }
  | { readonly kind: 'D'; readonly lhs: unknown }
  | { readonly kind: 'E'; readonly path: readonly string[]; readonly lhs: unknown; readonly rhs: unknown };

/** Of a function by its `name`, of anything else by its `collection`. */
export interface EntryChange {
  readonly name?: string;
  readonly collection?: string;
  readonly field?: string;
  readonly related_collection?: string | null;
  readonly diff: readonly Change[];
}

export const SECTIONS = ['collections', 'fields', 'relations', 'functions'] as const;

export type Section = (typeof SECTIONS)[number];

export type Difference = Readonly<Record<Section, readonly EntryChange[]>>;

export interface DifferenceBody {
  /** Of the snapshot that the difference was taken from. */
  readonly hash: string;
  readonly diff: Difference;
}

export function* readDifference(value: unknown): Steps<DifferenceBody> {
  const { hash, diff, ...rest } = requireObject(value, 'The body');
  refuseUnknown(rest, 'The body', 'hash, diff');
  if (typeof hash !== 'string' || hash === '') throw invalidPayload('"hash" is required');
  const { collections = [], fields = [], relations = [], functions = [], ...others } = requireObject(diff, '"diff"');
  refuseUnknown(others, '"diff"', SECTIONS.join(', '));
  const lists = { collections, fields, relations, functions };
  const read = (section: Section): Steps<EntryChange[]> => {
    const list = lists[section];
    if (!Array.isArray(list)) throw invalidPayload(`"diff.${section}" must be a list`);
    return mapSteps(list, (entry, position) => readEntry(entry, section, `diff.${section}[${position}]`));
  };
  return {
    hash,
    diff: {
      collections: yield* read('collections'),
      fields: yield* read('fields'),
      relations: yield* read('relations'),
      functions: yield* read('functions'),
    },
  };
}

/** The reader of a section's entries, which refuses what is not one of them. */
export function readSectionEntry(
  section: Section,
  value: unknown,
): CollectionEntry | FieldEntry | RelationEntry | DeclaredFunction {
  if (section === 'collections') return readCollection(value);
  if (section === 'functions') return readFunction(value);
  return section === 'fields' ? readField(value) : readRelation(value);
}

function readEntry(value: unknown, section: Section, path: string): EntryChange {
  const { name, collection, field, related_collection = null, diff, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'name, collection, field, related_collection, diff');
  if (!Array.isArray(diff)) throw invalidPayload(`"${path}.diff" must be a list`);
  const changes = diff.map((change, position) => readChange(change, `${path}.diff[${position}]`));
  if (section === 'functions') {
    if (typeof name !== 'string') throw invalidPayload(`"${path}.name" is required`);
    return { name, diff: changes };
  }
  if (typeof collection !== 'string') throw invalidPayload(`"${path}.collection" is required`);
  if (section === 'collections') return { collection, diff: changes };
  if (typeof field !== 'string') throw invalidPayload(`"${path}.field" is required`);
  if (section === 'fields') return { collection, field, diff: changes };
  if (related_collection !== null && typeof related_collection !== 'string')
    throw invalidPayload(`"${path}.related_collection" must be a string`);
  return { collection, field, related_collection, diff: changes };
}

function readChange(value: unknown, path: string): Change {
  const { kind, path: steps, lhs = null, rhs = null, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'kind, path, lhs, rhs');
  if (steps === undefined) {
    if (kind === 'N') return { kind, rhs };
    if (kind === 'D') return { kind, lhs };
  } else if (kind === 'E' && Array.isArray(steps) && steps.every((step) => typeof step === 'string')) {
    return { kind, path: steps, lhs, rhs };
  }
  throw invalidPayload(`"${path}" must be of kind N or D, or of kind E with the path to a property`);
}
