/** What a caller may write, asked while a payload is walked: names at once, rows by rules that the statement checks. */
import { forbidden, forbiddenCollection, forbiddenField } from '../errors.js';
import { keyNames } from '../mirror/item-key.js';
import type { Collection, Field, Model } from '../mirror/model.js';
import { forEachInSlices } from '../time-slices.js';
import type { Access, Grant, PlannedRule, WriteAction } from './access.js';
import { ALWAYS, type Condition } from './plan.js';
import type { RowGuard, Verb, WriteColumn } from './write.js';

export class Guard {
  readonly #access: Access;
  readonly #model: Model;

  constructor(access: Access, model: Model) {
    this.#access = access;
    this.#model = model;
  }

  get key(): string {
    return this.#access.key;
  }

  grant(action: WriteAction, collection: Collection): Grant {
    const grant = this.#access.grant(action, collection, this.#model);
    if (!grant) throw forbiddenCollection(collection.name);
    return grant;
  }

  /** Whether the fields may be written, in some row at least. */
  covers(action: WriteAction, collection: Collection, names: readonly string[]): boolean {
    const grant = this.#access.grant(action, collection, this.#model);
    if (!grant) return false;
    const { rules } = grant;
    const written = writtenNames(action, collection, names);
    return action === 'create'
      ? written.every((name) => grant.fields?.has(name) ?? true)
      : rules.some((rule) => coversAll(rule, written));
  }

  /** Callers who may write every field get an error for a misspelt one later; for others it is a forbidden field. */
  check(action: WriteAction, collection: Collection, names: readonly string[], location: string): void {
    const { fields } = this.grant(action, collection);
    const forbiddenName = writtenNames(action, collection, names).find((name) => fields !== null && !fields.has(name));
    if (forbiddenName !== undefined) throw forbiddenField(forbiddenName, collection.name, location || 'root');
    if (!this.covers(action, collection, names)) throw forbidden();
  }

  /** What the caller may do with an item that may exist or not. */
  verb(collection: Collection, names: readonly string[], location: string): Verb {
    const mayCreate = this.covers('create', collection, [...names, ...keyNames(collection)]);
    const mayUpdate = names.length === 0 || this.covers('update', collection, names);
    if (!mayCreate && !mayUpdate) this.check('update', collection, names, location);
    return mayCreate && mayUpdate ? 'upsert' : mayCreate ? 'insert' : 'update';
  }

  /** Moving an item writes the whole order, so the caller must be allowed to write every row. */
  checkOrder(collection: Collection): void {
    const { sortField } = collection;
    const { rules } = this.grant('update', collection);
    if (sortField === null || anyRule(rules.filter((rule) => coversAll(rule, [sortField]))) !== null)
      throw forbiddenCollection(collection.name);
  }

  /** For each row the fields that the caller gives it; null for one that is only referred to. */
  async rows(
    collection: Collection,
    rows: readonly (readonly string[] | null)[],
  ): Promise<{ guard: RowGuard | null; ruleBits: RuleBits }> {
    const { rules } = rows.every((each) => each === null) ? { rules: [] } : this.grant('update', collection);
    const ruleBits: (string | null)[] = [];
    await forEachInSlices(rows, (names) => {
      const written = names && writtenNames('update', collection, names);
      const bits = written && rules.map((rule) => (coversAll(rule, written) ? '1' : '0')).join('');
      if (bits !== null && !bits.includes('1')) throw forbidden();
      ruleBits.push(bits);
    });
    const [first = null] = ruleBits;
    if (ruleBits.some((bits) => bits !== first))
      return { guard: { rules: rules.map(({ where }) => where), ruleBits: null }, ruleBits };
    const none = ruleBits.map(() => null);
    if (first === null) return { guard: null, ruleBits: none };
    const applicable = rules.filter((_, position) => first[position] === '1').map(({ where }) => where);
    return { guard: applicable.includes(ALWAYS) ? null : { rules: applicable, ruleBits: first }, ruleBits: none };
  }

  /** What a reference takes from the row it leads to ends up in a row that the caller may read: it is read with the caller's rights. */
  lookupOf(collection: Collection, referenced: string, location: string): NonNullable<WriteColumn['lookup']> {
    const readable = this.#access.view(this.#model).collections.get(collection.name);
    const field = readable?.fields.get(referenced);
    if (readable && field) return { collection: readable, field };
    throw forbidden(`"${location}" needs the right to read what it refers to in "${collection.name}"`);
  }

  /** Rows that may leave a relation; null where all may. */
  unlinked(collection: Collection, field: Field, action: 'nullify' | 'delete'): Condition | null {
    const { rules } = this.grant(action === 'delete' ? 'delete' : 'update', collection);
    const cleared = writtenNames('update', collection, [field.name]);
    const fitting = action === 'delete' ? rules : rules.filter((rule) => coversAll(rule, cleared));
    if (fitting.length === 0) throw forbiddenField(field.name, collection.name, 'root');
    return anyRule(fitting);
  }
}

/** By row; null where all rows have the same rules. */
export type RuleBits = readonly (string | null)[];

/** Null where every row fits. */
export function anyRule(rules: readonly PlannedRule[]): Condition | null {
  const conditions = rules.map(({ where }) => where);
  return conditions.includes(ALWAYS) ? null : { kind: 'or', conditions };
}

/** A reference that several columns hold writes them: the field alone is not enough. What names an item is not changed with it. */
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
