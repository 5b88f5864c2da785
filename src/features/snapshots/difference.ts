/**
 * The difference of two snapshots, as clients pass it on: per collection, field and relation a list of changes. It is
 * read from a body, taken of two snapshots, and applied to the one it was taken from, which gives the other. Pure.
 */
import { createHash } from 'node:crypto';
import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { mapSteps, type Steps } from '../../base/time-slices.js';
import { requireObject } from '../../compiler/request/write.js';
import { isSameType } from '../../compiler/sql/type-name.js';
import { isSameObject, type ObjectEntry, readObject } from './objects.js';
import {
  type CollectionEntry,
  type DeclaredFunction,
  type FieldEntry,
  PARTIAL_VERSION,
  type RelationEntry,
  readCollection,
  readField,
  readFunction,
  readRelation,
  refuseUnknown,
  type Snapshot,
} from './parse-snapshot.js';
import { type PolicyEntry, readPolicyEntry } from './policies.js';

/** A new entry, one that leaves, or a property that changes. */
type Change =
  | { readonly kind: 'N'; readonly rhs: unknown }
  | { readonly kind: 'D'; readonly lhs: unknown }
  | { readonly kind: 'E'; readonly path: readonly string[]; readonly lhs: unknown; readonly rhs: unknown };

/** A change of an object, a function or a policy has its `name`, any other change its `collection`. */
export interface EntryChange {
  readonly name?: string;
  readonly collection?: string;
  readonly field?: string;
  readonly related_collection?: string | null;
  readonly diff: readonly Change[];
}

export const SECTIONS = ['collections', 'fields', 'relations', 'objects', 'functions', 'policies'] as const;

type Section = (typeof SECTIONS)[number];

type OptionalSection = 'objects' | 'policies';

/** `objects` and `policies` are absent if none of them differs. */
export type Difference = Readonly<Record<Exclude<Section, OptionalSection>, readonly EntryChange[]>> &
  Readonly<Partial<Record<OptionalSection, readonly EntryChange[]>>>;

export interface DifferenceBody {
  /** The hash of the snapshot that the difference was taken from. */
  readonly hash: string;
  readonly diff: Difference;
}

export function* readDifference(value: unknown): Steps<DifferenceBody> {
  const { hash, diff, ...rest } = requireObject(value, 'The body');
  refuseUnknown(rest, 'The body', 'hash, diff');
  if (typeof hash !== 'string' || hash === '') throw invalidPayload('"hash" is required');
  const {
    collections = [],
    fields = [],
    relations = [],
    functions = [],
    objects,
    policies,
    ...others
  } = requireObject(diff, '"diff"');
  refuseUnknown(others, '"diff"', SECTIONS.join(', '));
  const lists = { collections, fields, relations, functions, objects: objects ?? [], policies: policies ?? [] };
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
      ...(objects === undefined ? {} : { objects: yield* read('objects') }),
      ...(policies === undefined ? {} : { policies: yield* read('policies') }),
    },
  };
}

/** The reader of a section's entries, which refuses what is not one of them. */
function readSectionEntry(
  section: Section,
  value: unknown,
): CollectionEntry | FieldEntry | RelationEntry | ObjectEntry | DeclaredFunction | PolicyEntry {
  if (section === 'collections') return readCollection(value);
  if (section === 'policies') return readPolicyEntry(value);
  if (section === 'objects') return readObject(value);
  if (section === 'functions') return readFunction(value);
  return section === 'fields' ? readField(value) : readRelation(value);
}

/** Entries with a `name` instead of a `collection`. */
function isNamed(section: Section): boolean {
  return section === 'functions' || section === 'objects' || section === 'policies';
}

function readEntry(value: unknown, section: Section, path: string): EntryChange {
  const { name, collection, field, related_collection = null, diff, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'name, collection, field, related_collection, diff');
  if (!Array.isArray(diff)) throw invalidPayload(`"${path}.diff" must be a list`);
  const changes = diff.map((change, position) => readChange(change, `${path}.diff[${position}]`));
  if (isNamed(section)) {
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
  throw invalidPayload(`"${path}" must have "kind" N or D, or "kind" E with a "path", which is a list of names`);
}

export interface DifferenceMode {
  /** Entries that the wanted snapshot does not name stay. */
  readonly merge: boolean;
  /** Entries without metadata stay too, because snapshots of Directus leave them out. */
  readonly keepsUnmanaged?: boolean;
}

/** The changes from one snapshot to the other, or null if nothing differs. */
export function* differenceOf(
  current: Snapshot,
  wanted: Snapshot,
  { merge, keepsUnmanaged = false }: DifferenceMode,
): Steps<Difference | null> {
  const dropped = new Set<string>();
  const wantedCollections = new Set(wanted.collections.map(({ collection }) => collection));
  const isPartial = wanted.version === PARTIAL_VERSION;
  if (!merge && !isPartial) {
    for (const { collection, meta } of current.collections)
      if (!wantedCollections.has(collection) && !(keepsUnmanaged && meta === null)) dropped.add(collection);
  }
  const leaves = (section: Section, entry: Entry): boolean => {
    // A list of policies is complete, also in a part of a snapshot.
    if (section === 'policies') return !merge;
    if (section === 'objects') return !merge && !isExtension(entry);
    // With a collection go its fields and relations: to say so once is enough.
    const collection = entry.collection ?? '';
    const implied = section !== 'collections' && dropped.has(collection);
    const concerned = !isPartial || wantedCollections.has(collection);
    const stays = keepsUnmanaged && (entry['meta'] ?? null) === null;
    return !merge && concerned && !implied && !stays;
  };
  const changes = (section: Section): Steps<EntryChange[]> => changesOf(section, current, wanted, leaves);
  const objects = yield* changes('objects');
  const policies = yield* changes('policies');
  const result: Difference = {
    collections: yield* changes('collections'),
    fields: yield* changes('fields'),
    relations: yield* changes('relations'),
    functions: yield* changes('functions'),
    ...(objects.length === 0 ? {} : { objects }),
    ...(policies.length === 0 ? {} : { policies }),
  };
  return Object.values(result).every((entries) => entries.length === 0) ? null : result;
}

/** `leaves` says whether an entry is deleted that the wanted snapshot does not have. */
function* changesOf(
  section: Section,
  current: Snapshot,
  wanted: Snapshot,
  leaves: (section: Section, entry: Entry) => boolean,
): Steps<EntryChange[]> {
  const before = yield* entriesOf(current, section);
  // Nothing is said of functions by a part of a snapshot, nor by one that was taken before there were any.
  const after = wanted[section] ? yield* entriesOf(wanted, section) : before;
  const changes: EntryChange[] = [];
  for (const [key, entry] of after) {
    const former = before.get(key);
    const diff: readonly Change[] = former
      ? editsOf(former, section === 'objects' ? respelled(former, entry) : entry)
      : [{ kind: 'N', rhs: entry }];
    if (diff.length > 0) changes.push({ ...nameOf(section, entry), diff });
    yield;
  }
  for (const [key, entry] of before)
    if (!after.has(key) && leaves(section, entry))
      changes.push({ ...nameOf(section, entry), diff: [{ kind: 'D', lhs: entry }] });
  return changes;
}

/** Snapshots drop no extension: others may use it. */
function isExtension({ name }: Entry): boolean {
  return name?.startsWith('extension ') ?? false;
}

/** PostgreSQL may write the same definition in two ways. */
function respelled(former: Entry, entry: Entry): Entry {
  const isSame = isSameObject(former as unknown as ObjectEntry, entry as unknown as ObjectEntry);
  return isSame ? { ...entry, definition: former['definition'] } : entry;
}

/** The snapshot that a difference leads to. One that was taken from another snapshot does not fit: nothing is guessed. */
export function* patchSnapshot(current: Snapshot, difference: Difference): Steps<Snapshot> {
  const result: Record<Section, ReadonlyMap<string, Entry>> = {
    collections: yield* changed(current, 'collections', difference),
    fields: yield* changed(current, 'fields', difference),
    relations: yield* changed(current, 'relations', difference),
    functions: yield* changed(current, 'functions', difference),
    objects: yield* changed(current, 'objects', difference),
    policies: yield* changed(current, 'policies', difference),
  };
  const droppedCollections = new Set(current.collections.map(({ collection }) => collection));
  for (const { collection } of result.collections.values()) droppedCollections.delete(collection ?? '');
  const remaining = (section: Section): unknown[] =>
    [...result[section].values()].filter(
      ({ collection }) => section === 'collections' || !droppedCollections.has(collection ?? ''),
    );
  return {
    ...current,
    collections: remaining('collections') as Snapshot['collections'][number][],
    fields: remaining('fields') as Snapshot['fields'][number][],
    relations: remaining('relations') as Snapshot['relations'][number][],
    functions: remaining('functions') as DeclaredFunction[],
    ...(current.objects ? { objects: remaining('objects').map(readObject) } : {}),
    ...(current.policies ? { policies: remaining('policies').map(readPolicyEntry) } : {}),
  };
}

/** A snapshot taken of the same schema has the same digest. */
export function* digestOf(snapshot: Snapshot): Steps<string> {
  const digest = createHash('sha256');
  let isFirst = true;
  // The same as the digest of `canonical` of all of it.
  for (const [name, value] of sorted(snapshot)) {
    digest.update(`${isFirst ? '{' : ','}${JSON.stringify(name)}:`);
    isFirst = false;
    if (!Array.isArray(value)) digest.update(canonical(value));
    else {
      for (const [position, entry] of value.entries()) {
        digest.update(`${position === 0 ? '[' : ','}${canonical(entry)}`);
        yield;
      }
      digest.update(value.length === 0 ? '[]' : ']');
    }
  }
  return digest.update('}').digest('hex');
}

/** JSON whose text depends on the value alone, not on the order in which its properties were set. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  return `{${sorted(value)
    .map(([key, each]) => `${JSON.stringify(key)}:${canonical(each)}`)
    .join(',')}}`;
}

function sorted(value: object): [string, unknown][] {
  return Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
}

type Entry = Readonly<Record<string, unknown>> & { readonly collection?: string; readonly name?: string };

function* entriesOf(snapshot: Snapshot, section: Section): Steps<Map<string, Entry>> {
  const entries: readonly unknown[] = snapshot[section] ?? [];
  return new Map(yield* mapSteps(entries as readonly Entry[], (entry) => [keyOf(entry), entry] as const));
}

interface EntryName {
  readonly collection?: string;
  readonly field?: unknown;
  readonly name?: string;
}

/** Two entries have the same key only if all their names are equal. Joined names could be equal for different entries. */
export function keyOf({ collection, field, name }: EntryName): string {
  return JSON.stringify([collection ?? null, field ?? null, collection === undefined ? name : null]);
}

function nameOf(
  section: Section,
  { collection = '', field, related_collection, name = '' }: Entry,
): Omit<EntryChange, 'diff'> {
  if (isNamed(section)) return { name };
  if (section === 'collections') return { collection };
  if (section === 'fields') return { collection, field: String(field) };
  return {
    collection,
    field: String(field),
    related_collection: typeof related_collection === 'string' ? related_collection : null,
  };
}

function editsOf(before: Entry, after: Entry): Change[] {
  const edits: Change[] = [];
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [lhs, rhs] = [before[key], after[key]];
    if (isObject(lhs) && isObject(rhs)) {
      for (const inner of new Set([...Object.keys(lhs), ...Object.keys(rhs)])) {
        if (!isEqual(lhs[inner], rhs[inner]) && !isSameSpelling(inner, lhs[inner], rhs[inner]))
          edits.push(edit([key, inner], lhs[inner], rhs[inner]));
      }
    } else if (!isEqual(lhs, rhs)) edits.push(edit([key], lhs, rhs));
  }
  return edits;
}

/** A hand-written snapshot may say `int` where PostgreSQL says `integer`. */
function isSameSpelling(property: string, left: unknown, right: unknown): boolean {
  return property === 'data_type' && typeof left === 'string' && typeof right === 'string' && isSameType(left, right);
}

function edit(path: readonly string[], lhs: unknown, rhs: unknown): Change {
  return { kind: 'E', path, lhs: lhs ?? null, rhs: rhs ?? null };
}

function* changed(current: Snapshot, section: Section, difference: Difference): Steps<ReadonlyMap<string, Entry>> {
  const entries = yield* entriesOf(current, section);
  for (const change of difference[section] ?? []) {
    yield;
    const key = keyOf(change);
    for (const step of change.diff) {
      const before = entries.get(key);
      if (step.kind === 'N') {
        if (before) throw misfit(section, change, 'already exists');
        entries.set(key, step.rhs as Entry);
      } else if (!before) throw misfit(section, change, 'does not exist');
      else if (step.kind === 'D') entries.delete(key);
      else
        entries.set(
          key,
          edited(before, step.path, step.rhs, () => misfit(section, change, 'has no such property')),
        );
    }
    const after = entries.get(key);
    if (after === undefined) continue;
    // As strict as with a snapshot: an edit may have put anything anywhere.
    const read = readSectionEntry(section, after) as unknown as Entry;
    if (keyOf(read) !== key) throw misfit(section, change, 'has another name inside its change');
    entries.set(key, read);
  }
  return entries;
}

function edited(
  entry: Entry,
  [key = '', inner, ...deeper]: readonly string[],
  value: unknown,
  refuse: () => Error,
): Entry {
  const former = Object.hasOwn(entry, key) ? entry[key] : undefined;
  if (former === undefined || deeper.length > 0 || FIXED.has(key)) throw refuse();
  if (inner === undefined) return { ...entry, [key]: value };
  if (!isObject(former)) throw refuse();
  return { ...entry, [key]: { ...former, [inner]: value } };
}

/** Names cannot change: another name is another entry. */
const FIXED: ReadonlySet<string> = new Set(['collection', 'field', 'name']);

function misfit(section: Section, { name, collection = name, field }: EntryChange, complaint: string): Error {
  const path = field === undefined ? collection : `${collection}.${field}`;
  return invalidPayload(`The diff cannot be applied: in "${section}", "${path}" ${complaint}`);
}

export function isEqual(left: unknown, right: unknown): boolean {
  return left === right || canonical(left ?? null) === canonical(right ?? null);
}
