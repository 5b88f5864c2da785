/** Checks permissions while a payload is walked: names at once, rows by rules that the statement checks. */
import { forbidden, forbiddenCollection, forbiddenField } from '../../../base/errors.js';
import { onlyOf } from '../../../base/narrow.js';
import { forEachInSlices } from '../../../base/time-slices.js';
import { keyNames } from '../../model/item-key.js';
import type { Collection, Field, Model } from '../../model/model.js';
import { type Access, type Grant, maskOf, type PlannedRule, restrictionOf, type WriteAction } from '../access.js';
import { ALWAYS, both, type Condition, isAlways } from '../plan.js';
import { fieldOf } from '../resolve-names.js';
import type { RowGuard, Verb, WriteColumn, WriteNode } from './write.js';

export class Guard {
  constructor(
    private readonly access: Access,
    private readonly model: Model,
  ) {}

  get key(): string {
    return this.access.key;
  }

  grant(action: WriteAction, collection: Collection): Grant {
    const grant = this.access.grant(action, collection, this.model);
    if (!grant) throw forbiddenCollection(collection.name);
    return grant;
  }

  /** Whether the fields may be written, in some row at least. */
  covers(action: WriteAction, collection: Collection, names: readonly string[]): boolean {
    const grant = this.access.grant(action, collection, this.model);
    return grant !== null && writtenNames(action, collection, names).every((name) => grant.fields?.has(name) ?? true);
  }

  /** Callers who may write every field get an error for a misspelt one later; for others it is a forbidden field. */
  check(action: WriteAction, collection: Collection, names: readonly string[], location: string): void {
    const { fields } = this.grant(action, collection);
    const forbiddenName = writtenNames(action, collection, names).find((name) => fields !== null && !fields.has(name));
    if (forbiddenName !== undefined) throw forbiddenField(forbiddenName, collection.name, location || 'root');
  }

  /** The verb that the caller may use for an item that may exist or not. */
  verb(collection: Collection, names: readonly string[], location: string): Verb {
    const mayCreate = this.covers('create', collection, [...names, ...keyNames(collection)]);
    const mayUpdate = names.length === 0 || this.covers('update', collection, names);
    if (!mayCreate && !mayUpdate) this.check('update', collection, names, location);
    return mayCreate && mayUpdate ? 'upsert' : mayCreate ? 'insert' : 'update';
  }

  /** A nested payload with only a key refers to an item, if the caller may not create it. */
  onlyRefers(collection: Collection, names: readonly string[]): boolean {
    return names.length === 0 && !this.covers('create', collection, keyNames(collection));
  }

  /** Moving an item writes the whole order, so the caller must be allowed to write every row. */
  checkOrder(collection: Collection): void {
    const { sortField } = collection;
    const { rules } = this.grant('update', collection);
    if (sortField === null || anyRule(rules.filter((rule) => coversAll(rule, [sortField]))) !== null)
      throw forbiddenCollection(collection.name);
  }

  /** For each row the fields that the caller gives it, or null for one that is only referred to; and those that operators read. */
  async rows(
    collection: Collection,
    rows: readonly (readonly string[] | null)[],
    read: readonly (readonly string[])[],
  ): Promise<{ guard: RowGuard | null; needBits: NeedBits }> {
    const { rules } = rows.every((each) => each === null) ? { rules: [] } : this.grant('update', collection);
    const known = new Map<string, readonly string[]>();
    const needsOfRows: (readonly string[])[] = [];
    const toRead = this.#readNeeds(collection, new Set(read.flat()));
    await forEachInSlices(rows, (names, position) => {
      const text = JSON.stringify([names, read[position]]);
      const needs = known.get(text) ?? [
        ...(names ? needsOf(rules, writtenNames('update', collection, names)) : []),
        ...(read[position] ?? []).flatMap((name) => [ROW_READ, FIELD_READ + name].filter((key) => toRead.has(key))),
      ];
      known.set(text, needs);
      needsOfRows.push(needs);
    });
    const keys = [...new Set([...known.values()].flat())].sort();
    const perRow = [...known.values()].some((needs) => needs.length < keys.length);
    const bitsOf = (needs: readonly string[]): string => keys.map((key) => (needs.includes(key) ? '1' : '0')).join('');
    return {
      guard:
        keys.length === 0
          ? null
          : { needs: keys.map((key) => toRead.get(key) ?? needed(rules, key)), key: keys.join(), perRow },
      needBits: needsOfRows.map((needs) => (perRow ? bitsOf(needs) : null)),
    };
  }

  /** Conditions under which the caller may read the fields of an existing row, by the keys of these needs. */
  #readNeeds(collection: Collection, names: ReadonlySet<string>): Map<string, Condition> {
    const needs = new Map<string, Condition>();
    const readable = names.size === 0 ? null : this.readable(collection);
    const restriction = readable && restrictionOf(readable);
    if (!readable || !restriction) return needs;
    if (!isAlways(restriction.rows)) needs.set(ROW_READ, restriction.rows);
    for (const name of names) {
      const mask = maskOf(readable, fieldOf(readable, name));
      if (!isAlways(mask)) needs.set(FIELD_READ + name, mask);
    }
    return needs;
  }

  checkReadable(collection: Collection, { name }: Field, location: string): void {
    if (!this.readable(collection)?.fields.has(name)) throw forbiddenField(name, collection.name, location);
  }

  /** A value that is copied from a related row ends up in a row that the caller may read, so it is read with the caller's permissions. */
  lookupOf(collection: Collection, referenced: string, location: string): NonNullable<WriteColumn['lookup']> {
    const readable = this.readable(collection);
    const field = readable?.fields.get(referenced);
    if (readable && field) return { collection: readable, field };
    throw forbidden(`"${location}" requires permission to read what it refers to in "${collection.name}"`);
  }

  /** The collection as the caller may read it, or null if nothing of it may be read. */
  readable(collection: Collection): Collection | null {
    return this.access.view(this.model).collections.get(collection.name) ?? null;
  }

  privileges(collection: Collection): WriteNode['privileges'] {
    return this.access.privileges(collection, this.model);
  }

  /** Rows that may leave a relation, or null if all may. */
  unlinked(collection: Collection, field: Field, action: 'nullify' | 'delete'): Condition | null {
    const { rules } = this.grant(action === 'delete' ? 'delete' : 'update', collection);
    if (action === 'delete') return anyRule(rules);
    const cleared = writtenNames('update', collection, [field.name]);
    if (!this.covers('update', collection, [field.name])) throw forbiddenField(field.name, collection.name, 'root');
    const needs = needsOf(rules, cleared).map((key) => needed(rules, key));
    return needs.length === 0 ? null : both(...needs);
  }
}

/** The keys of needs to read; those of needs to write are digits. */
const ROW_READ = 'read';
const FIELD_READ = 'read ';

/** By row, or null if the same rules apply to all rows. */
export type NeedBits = readonly (string | null)[];

/**
 * The conditions under which the fields of a row may be written, each as a digit per rule, of which one has to hold. Conditions that
 * follow from another one, or always hold, are left out.
 */
function needsOf(rules: readonly PlannedRule[], names: readonly string[]): readonly string[] {
  const granting = names.map((name) => rules.map((rule) => (coversAll(rule, [name]) ? '1' : '0')).join(''));
  const distinct = [...new Set(names.length === 0 ? [rules.map(() => '1').join('')] : granting)];
  if (distinct.some((key) => !key.includes('1'))) throw forbidden();
  const isPartOf = (one: string, other: string): boolean =>
    one !== other && [...one].every((digit, position) => digit === '0' || other[position] === '1');
  const isAlwaysMet = (key: string): boolean =>
    rules.some(({ where }, position) => key[position] === '1' && isAlways(where));
  return distinct.filter((key) => !isAlwaysMet(key) && !distinct.some((other) => isPartOf(other, key)));
}

function needed(rules: readonly PlannedRule[], key: string): Condition {
  const conditions = rules.filter((_, position) => key[position] === '1').map(({ where }) => where);
  return onlyOf(conditions) ?? { kind: 'or', conditions };
}

/** The condition that one of the rules holds, or null if every row meets it. */
export function anyRule(rules: readonly PlannedRule[]): Condition | null {
  const conditions = rules.map(({ where }) => where);
  return conditions.includes(ALWAYS) ? null : { kind: 'or', conditions };
}

/** A composite reference writes several columns, so all of them must be granted. Columns of the key that names the item are not changed. */
function writtenNames(action: WriteAction, collection: Collection, names: readonly string[]): readonly string[] {
  if (!names.some((name) => referenceColumns(collection, name).length > 0)) return names;
  const key = action === 'create' ? [] : keyNames(collection);
  return names.flatMap((name) => [
    name,
    ...referenceColumns(collection, name).filter((column) => !key.includes(column)),
  ]);
}

function referenceColumns({ fields }: Collection, name: string): string[] {
  const relation = fields.get(name)?.relation;
  if (relation?.kind !== 'many-to-one' || relation.columns.length === 1) return [];
  return relation.columns.map(({ column }) => column);
}

function coversAll({ fields }: PlannedRule, names: readonly string[]): boolean {
  return fields === null || names.every((name) => fields.has(name));
}
