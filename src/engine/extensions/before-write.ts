/**
 * Calls `beforeWrite` for each item of a payload, from the outside in: a hook may add nested items, whose hooks are called then. The plan
 * is made of the result, so that permissions and validations apply to it.
 */
import { forbiddenCollection } from '../../base/errors.js';
import { Digits, isObject } from '../../base/exact-json.js';
import type { Collection, Field, Model, OneToMany, OneToOne, Relation } from '../../mirror/model.js';
import { ownValue } from '../../mirror/synonyms.js';
import type { Access, WriteAction } from '../../plan/access.js';
import { Secret } from '../../plan/write/column-value.js';
import { checkKey, keyPayload, namedKey, shownWrittenKey } from '../../plan/write/key.js';
import { fieldNamesOf } from '../../plan/write/payload-fields.js';
import type { Payload } from '../../plan/write/payload-row.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { Input } from '../../request/parse-context.js';
import { namedOperator, Operated } from '../../request/update-operators.js';
import type { Key, WriteRequest } from '../../request/write.js';
import type { WrittenBy } from '../writer.js';
import type { ItemKey } from './api.js';
import type { BeforeWriteContext, HookAction } from './definition.js';
import { type BoundHook, type Extensions, hookCaller, targetsOf } from './extensions.js';
import { TransactionItems, type TransactionScope } from './transaction-items.js';

/** A write as extensions see it. */
export interface HookingWrite extends WrittenBy {
  readonly extensions: Extensions;
  readonly attempt: number;
  /** The transaction for the calls of a hook, which begins when it is opened. Throws if the hook is running already. */
  readonly scopeOf: (hook: BoundHook<never>, open: () => Promise<Session>) => () => Promise<TransactionScope>;
}

interface PlannedHookingWrite extends HookingWrite {
  readonly model: Model;
  readonly access: Access | null;
}

/** How the items of a payload are written. */
interface Written {
  readonly action: HookAction;
  readonly keys: readonly unknown[];
  readonly depth: number;
}

type PlannedRequest = Exclude<WriteRequest, { readonly kind: 'delete' | 'update-selected' | 'update-singleton' }>;

/** The plan refuses payloads that are nested more deeply. */
const MAX_DEPTH = 1_000;

const RIGHTS: Readonly<Record<HookAction, readonly WriteAction[]>> = {
  create: ['create'],
  update: ['update'],
  upsert: ['create', 'update'],
  unlink: ['update'],
  delete: ['delete'],
};

/** Whether hooks are called for the payload, or for items in it. */
export function hasHookedItems(
  extensions: Extensions,
  collection: Collection,
  payload: Payload,
  model: Model,
): boolean {
  const reached = extensions.reached('beforeWrite', collection.name, model);
  if (reached.size === 0) return false;
  if (reached.has(collection.name)) return true;
  return Object.entries(payload).some(([name, value]) => {
    const relation = collection.fields.get(name)?.relation;
    if (!relation || !changesRelated(relation, value)) return false;
    return targetsOf(relation).some((target) => extensions.reached('beforeWrite', target, model).size > 0);
  });
}

/** Whether the value of a relation changes related items. A key of a many-to-one relation only refers to one. */
function changesRelated({ kind }: Relation, value: unknown): boolean {
  return kind === 'one-to-many' || kind === 'one-to-one' || (typeof value === 'object' && value !== null);
}

export class BeforeWrites {
  constructor(
    private readonly write: PlannedHookingWrite,
    private readonly open: () => Promise<Session>,
  ) {}

  /** The request with the payloads that hooks made of its own. */
  async request(request: PlannedRequest, collection: Collection): Promise<PlannedRequest> {
    switch (request.kind) {
      case 'create': {
        const action = request.onConflict?.resolution === 'merge' && !request.isNew ? 'upsert' : 'create';
        const items = await this.#each(request.items, (item) => this.item(collection, item, action, []));
        return { ...request, items };
      }
      case 'update-item':
        return { ...request, data: await this.item(collection, request.data, 'update', [request.key]) };
      case 'update-each': {
        const items = await this.#each(request.items, async (item) => {
          const key = namedKey(collection, item);
          // The plan refuses an item without a key.
          if (key === null) return item;
          const changed = await this.item(collection, item, 'update', [key]);
          return { ...changed, ...keyPayload(collection, key) };
        });
        return { ...request, items };
      }
    }
  }

  /** Rows of a file: those with a key may exist. */
  rows(collection: Collection, rows: readonly Input[], isMerged: boolean): Promise<Input[]> {
    return this.#each(rows, (row) => {
      const key = namedKey(collection, row);
      return this.item(collection, row, key !== null || isMerged ? 'upsert' : 'create', key === null ? [] : [key]);
    });
  }

  item(collection: Collection, payload: Payload, action: HookAction, keys: readonly unknown[]): Promise<Input> {
    return this.#item(collection, payload, { action, keys, depth: 0 });
  }

  /** Items that are deleted, or leave a list. Without keys, only the statement knows which they are. */
  async removed(collection: Collection, action: 'delete' | 'unlink', keys: readonly unknown[]): Promise<void> {
    await this.#call(collection, {}, { action, keys, depth: 0 });
  }

  async #each<Entry>(entries: readonly Entry[], work: (entry: Entry) => Promise<Input>): Promise<Input[]> {
    const changed: Input[] = [];
    for (const entry of entries) changed.push(await work(entry));
    return changed;
  }

  async #item(collection: Collection, payload: Payload, written: Written): Promise<Input> {
    if (written.depth > MAX_DEPTH) return payload;
    const changed = await this.#call(collection, payload, written);
    return this.#nested(collection, changed, written);
  }

  async #call(collection: Collection, payload: Payload, { action, keys }: Written): Promise<Input> {
    const { extensions, writer, client, attempt } = this.write;
    const hooks = extensions.hooks('beforeWrite', collection);
    if (hooks.length === 0) return payload;
    this.#checkRight(collection, action);
    const shown = keys.map((key) => shownKeyOf(collection, checkKey(collection, key)));
    let current = payload;
    for (const hook of hooks) {
      const tx = new TransactionItems(this.write.scopeOf(hook, this.open));
      const given = plainCopy(current);
      const context: BeforeWriteContext = {
        collection: collection.name,
        action,
        payload: isObject(given) ? { ...given } : {},
        keys: shown,
        caller: hookCaller(writer.caller),
        requestId: client.id ?? '',
        attempt,
        tx,
      };
      const returned = await extensions.run(hook, context, () => tx.close());
      current = this.#checked(returned ?? context.payload, hook);
    }
    return current;
  }

  /** Before any hook runs. Rows and fields are checked after the last one. */
  #checkRight(collection: Collection, action: HookAction): void {
    const { access, model } = this.write;
    if (access && !RIGHTS[action].some((right) => access.grant(right, collection, model)))
      throw forbiddenCollection(collection.name);
  }

  #checked(payload: unknown, hook: BoundHook<never>): Input {
    try {
      const copy = plainCopy(payload);
      if (isObject(copy)) return copy;
      throw new TypeError('beforeWrite must return an object, or nothing');
    } catch (error) {
      throw this.write.extensions.failure(error, hook);
    }
  }

  async #nested(collection: Collection, payload: Payload, parent: Written): Promise<Input> {
    const { extensions, model } = this.write;
    let changed: Record<string, unknown> | null = null;
    for (const [name, value] of Object.entries(payload)) {
      const field = collection.fields.get(name);
      if (!field?.relation || !changesRelated(field.relation, value)) continue;
      const isReached = targetsOf(field.relation).some(
        (each) => extensions.reached('beforeWrite', each, model).size > 0,
      );
      if (!isReached || (isObject(value) && namedOperator(value))) continue;
      changed ??= { ...payload };
      changed[name] = await this.#related(field, payload, value, parent);
    }
    return changed ?? payload;
  }

  async #related({ relation }: Field, payload: Payload, value: unknown, parent: Written): Promise<unknown> {
    const { model } = this.write;
    if (relation?.kind === 'one-to-many') return this.#list(relation, value, parent);
    if (relation?.kind === 'one-to-one') {
      const target = model.collections.get(relation.manyCollection);
      if (!target) return value;
      if (parent.action !== 'create') await this.#leave(target, relation, []);
      if (isObject(value)) return this.#owned(target, value, parent);
      return value === null ? value : this.#linked(target, value, parent.depth + 1);
    }
    const name =
      relation?.kind === 'many-to-one'
        ? relation.oneCollection
        : ownValue(model.synonyms, payload[relation?.collectionField ?? '']);
    return isObject(value) ? this.#one(model.collections.get(String(name)), value, parent) : value;
  }

  /** An object with a key alone refers to an item. */
  async #one(target: Collection | undefined, entry: Payload, parent: Written): Promise<unknown> {
    if (!target || (namedKey(target, entry) !== null && fieldNamesOf(target, entry).length === 0)) return entry;
    return this.#owned(target, entry, parent);
  }

  /** An item whose own column refers to the parent: the column changes, also of one with a key alone. Without a key it is a new item. */
  async #owned(target: Collection, entry: Payload, { depth }: Written): Promise<unknown> {
    const key = namedKey(target, entry);
    if (key === null) return this.#item(target, entry, { action: 'create', keys: [], depth: depth + 1 });
    return this.#keyed(target, entry, { action: 'upsert', keys: [key], depth: depth + 1 });
  }

  /** The hook cannot change which item is meant. */
  async #keyed(target: Collection, entry: Payload, written: Written): Promise<Input> {
    const changed = await this.#item(target, entry, written);
    return { ...changed, ...keyPayload(target, written.keys[0]) };
  }

  async #list(relation: OneToMany, value: unknown, parent: Written): Promise<unknown> {
    const target = this.write.model.collections.get(relation.manyCollection);
    const depth = parent.depth + 1;
    if (!target) return value;
    if (value === null || Array.isArray(value)) {
      if (parent.action !== 'create') await this.#leave(target, relation, []);
      const entries: readonly unknown[] = value ?? [];
      const changed: unknown[] = [];
      for (const entry of entries)
        changed.push(
          isObject(entry) ? await this.#owned(target, entry, parent) : await this.#linked(target, entry, depth),
        );
      return value === null ? null : changed;
    }
    if (!isObject(value)) return value;
    const { create, update, delete: removed } = value;
    const lists: Record<string, unknown> = { ...value };
    if (Array.isArray(create))
      lists['create'] = await this.#entries(create, (entry) =>
        this.#item(target, entry, { action: 'create', keys: [], depth }),
      );
    if (Array.isArray(update))
      lists['update'] = await this.#entries(update, (entry) => {
        const key = namedKey(target, entry);
        return key === null
          ? Promise.resolve(entry)
          : this.#keyed(target, entry, { action: 'update', keys: [key], depth });
      });
    if (Array.isArray(removed) && removed.length > 0) await this.#leave(target, relation, removed);
    return lists;
  }

  /** The plan refuses entries that are not objects. */
  async #entries(entries: readonly unknown[], work: (entry: Payload) => Promise<Input>): Promise<unknown[]> {
    const changed: unknown[] = [];
    for (const entry of entries) changed.push(isObject(entry) ? await work(entry) : entry);
    return changed;
  }

  /** A key in a list changes the reference of the item. */
  async #linked(target: Collection, key: unknown, depth: number): Promise<unknown> {
    const changed = await this.#item(target, {}, { action: 'update', keys: [key], depth });
    return Object.keys(changed).length === 0 ? key : { ...changed, ...keyPayload(target, key) };
  }

  async #leave(target: Collection, { deselectAction }: OneToMany | OneToOne, keys: readonly unknown[]): Promise<void> {
    await this.removed(target, deselectAction === 'delete' ? 'delete' : 'unlink', keys);
  }
}

/** A key as answers show it. */
export function shownKeyOf(collection: Collection, key: Key): ItemKey {
  const shown = shownWrittenKey(collection, key);
  return typeof shown === 'string' || typeof shown === 'number' ? shown : String(key);
}

/** A copy that hooks may change: a retry begins with the payload as it came. Throws for values that JSON does not have. */
function plainCopy(value: unknown): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  if (value instanceof Digits || value instanceof Secret || value instanceof Operated) return value;
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'bigint') return new Digits(String(value));
  if (Array.isArray(value)) return value.map(plainCopy);
  const prototype: unknown = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  if (!isObject(value) || (prototype !== Object.prototype && prototype !== null))
    throw new TypeError(`a payload cannot hold a ${typeof value === 'object' ? 'class instance' : typeof value}`);
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, each]) => (each === undefined ? [] : [[name, plainCopy(each)]])),
  );
}
