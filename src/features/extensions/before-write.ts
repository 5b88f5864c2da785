/**
 * Calls `beforeWrite` for each item of a payload, from the outside in: a hook may add nested items, whose hooks are called then. The plan
 * is made of the result, so that permissions and validations apply to it.
 */
import { forbiddenCollection, ServiceError } from '../../base/errors.js';
import { Digits, isObject } from '../../base/exact-json.js';
import { forEachInSlices } from '../../base/time-slices.js';
import {
  type Collection,
  collectionOf,
  type Field,
  type Model,
  type OneToMany,
  type OneToOne,
  type Relation,
} from '../../compiler/model/model.js';
import { ownValue } from '../../compiler/model/synonyms.js';
import type { WriteAction } from '../../compiler/plan/access.js';
import { fieldOf, holdingFields } from '../../compiler/plan/resolve-names.js';
import { Secret } from '../../compiler/plan/write/column-value.js';
import { Guard } from '../../compiler/plan/write/guard.js';
import { checkKey, type ImpliedPart, namedKey, newKey, shownWrittenKey } from '../../compiler/plan/write/key.js';
import { impliedParts, type LinkParent } from '../../compiler/plan/write/links.js';
import { operatorIn } from '../../compiler/plan/write/operators.js';
import { fieldNamesOf, without } from '../../compiler/plan/write/payload-fields.js';
import { LinkedItem, type Payload } from '../../compiler/plan/write/payload-row.js';
import type { PlannedRequest } from '../../compiler/plan/write/plan-request.js';
import { checkRows } from '../../compiler/plan/write/write-rows.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { namedOperator, Operated, SET } from '../../compiler/request/update-operators.js';
import type { Key, WriteRequest } from '../../compiler/request/write.js';
import type { ItemKey } from '../../server/execute/hooks/api.js';
import type { BeforeWriteContext, HookAction } from '../../server/execute/hooks/definition.js';
import type { PayloadHooks, UnplannedWrite } from '../../server/execute/hooks/user-hooks.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { type BoundHook, type Extensions, hookCaller, targetsOf } from './extensions.js';
import { MAX_DEPTH, PayloadNames } from './payload-names.js';
import { callsOf } from './transaction-items.js';

/** How the items of a payload are written. */
interface Written {
  readonly action: HookAction;
  readonly keys: readonly unknown[];
  readonly depth: number;
  /** Whether the payload says which item is meant: a hook cannot change that. */
  readonly isNamed?: boolean;
  /** The keys that a hook gave a new item, if the plan makes an upsert of it then. */
  readonly givenKeys?: (changed: Payload) => readonly unknown[];
}

const RIGHTS: Readonly<Record<HookAction, readonly WriteAction[]>> = {
  create: ['create'],
  update: ['update'],
  upsert: ['create', 'update'],
  unlink: ['update'],
  delete: ['delete'],
};

/** Whether hooks are called for the request, or for items in its payload. */
export function isExtended(
  extensions: Extensions,
  request: WriteRequest,
  collection: Collection,
  model: Model,
): boolean {
  if (extensions.hooks('beforeWrite', collection).length > 0) return true;
  if (extensions.reached('beforeWrite', collection.name, model).size === 0) return false;
  const payloads = 'items' in request ? request.items : 'data' in request ? [request.data] : [];
  const isHooked = (payload: Payload): boolean =>
    Object.entries(payload).some(([name, value]) => {
      const relation = collection.fields.get(name)?.relation;
      if (!relation || !changesRelated(relation, value)) return false;
      return targetsOf(relation).some((target) => extensions.reached('beforeWrite', target, model).size > 0);
    });
  return payloads.some(isHooked);
}

/** Whether the value of a relation changes related items. A key of a many-to-one relation only refers to one. */
function changesRelated({ kind }: Relation, value: unknown): boolean {
  return kind === 'one-to-many' || kind === 'one-to-one' || (typeof value === 'object' && value !== null);
}

export class BeforeWrites implements PayloadHooks {
  readonly #guard: Guard | null;
  readonly #names: PayloadNames;
  /** Rows that the plan will have: new ones, and those with a key. */
  #added = 0;
  readonly #keyed = new Set<string>();

  constructor(
    private readonly extensions: Extensions,
    private readonly write: UnplannedWrite,
    private readonly open: () => Promise<Session>,
  ) {
    this.#guard = write.access && new Guard(write.access, write.model);
    this.#names = new PayloadNames(write.model, write.access);
  }

  async request(request: PlannedRequest, collection: Collection): Promise<PlannedRequest> {
    switch (request.kind) {
      case 'create': {
        const isMerged = request.onConflict?.resolution === 'merge' && !request.isNew;
        await this.#checkNames(collection, request.items, isMerged ? 'upsert' : 'create');
        const items = await this.#each(request.items, (item) =>
          isMerged
            ? this.#upserted(collection, item)
            : this.#item(collection, item, { action: 'create', keys: [], depth: 0 }),
        );
        return { ...request, items };
      }
      case 'update-item':
        return { ...request, data: await this.item(collection, request.data, 'update', [request.key]) };
      case 'update-each': {
        await this.#checkNames(collection, request.items, 'update');
        const items = await this.#each(request.items, async (item) => {
          const key = namedKey(collection, item);
          // The plan refuses an item without a key.
          if (key === null) return item;
          return this.#item(collection, item, { action: 'update', keys: [key], depth: 0, isNamed: true });
        });
        return { ...request, items };
      }
    }
  }

  async rows(collection: Collection, rows: readonly Input[], isMerged: boolean): Promise<Input[]> {
    await this.#checkNames(collection, rows, 'upsert');
    return this.#each(rows, (row) =>
      isMerged || namedKey(collection, row) !== null
        ? this.#upserted(collection, row)
        : this.#create(collection, row, { depth: 0, givenKeys: (changed) => namedKeys(collection, changed) }),
    );
  }

  #create(collection: Collection, payload: Payload, written: Omit<Written, 'action' | 'keys'>): Promise<Input> {
    return this.#item(collection, payload, { ...written, action: 'create', keys: [] });
  }

  #upserted(collection: Collection, payload: Payload): Promise<Input> {
    const keys = namedKeys(collection, payload);
    return this.#item(collection, payload, { action: 'upsert', keys, depth: 0, isNamed: keys.length > 0 });
  }

  async item(collection: Collection, payload: Payload, action: HookAction, keys: readonly unknown[]): Promise<Input> {
    await this.#checkNames(collection, [payload], action);
    return this.#item(collection, payload, { action, keys, depth: 0 });
  }

  async removed(collection: Collection, action: 'delete' | 'unlink', keys: readonly unknown[]): Promise<void> {
    this.#checkRight(collection, action);
    await this.#call(collection, {}, { action, keys, depth: 0 });
  }

  /** Before any hook runs. */
  #checkNames(collection: Collection, payloads: readonly Payload[], action: HookAction): Promise<void> {
    const many = payloads.length > 1;
    return forEachInSlices(payloads, (payload, position) =>
      this.#names.check(collection, payload, RIGHTS[action], many ? `${position}` : ''),
    );
  }

  async #each<Entry>(entries: readonly Entry[], work: (entry: Entry) => Promise<Input>): Promise<Input[]> {
    const changed: Input[] = [];
    for (const entry of entries) changed.push(await work(entry));
    return changed;
  }

  async #item(collection: Collection, payload: Payload, written: Written): Promise<Input> {
    if (written.depth > MAX_DEPTH) return payload;
    this.#checkRight(collection, written.action);
    this.#count(collection, written.keys);
    const changed = await this.#call(collection, payload, written);
    const keys = written.givenKeys?.(changed) ?? [];
    // It may exist: items of its lists may leave it.
    const meant: Written = keys.length === 0 ? written : { ...written, action: 'upsert', keys };
    return this.#nested(collection, written.isNamed ? withKeyOf(collection, payload, changed) : changed, meant);
  }

  /** The plan refuses too many rows as well, but only after the hooks of all of them. */
  #count(collection: Collection, keys: readonly unknown[]): void {
    const { maxRows } = this.write;
    if (maxRows === null) return;
    if (keys.length === 0) this.#added++;
    for (const key of keys) this.#keyed.add(`${collection.name}/${checkKey(collection, key)}`);
    checkRows(this.#added + this.#keyed.size, maxRows);
  }

  async #call(collection: Collection, payload: Payload, { action, keys }: Written): Promise<Input> {
    const { extensions, write } = this;
    const { writer, client, attempt } = write;
    const hooks = extensions.hooks('beforeWrite', collection);
    if (hooks.length === 0) return payload;
    const shown = keys.map((key) => shownKeyOf(collection, checkKey(collection, key)));
    let current = payload;
    for (const hook of hooks) {
      const tx = callsOf(hook, write, extensions, this.open);
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
      const returned = await extensions.run(hook, context, (isFailed) => tx.close(isFailed));
      current = withSecretsOf(current, this.#checked(returned ?? context.payload, hook));
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
      throw this.extensions.failure(error, hook);
    }
  }

  async #nested(collection: Collection, payload: Payload, written: Written): Promise<Input> {
    const { extensions } = this;
    const { model } = this.write;
    let changed: Record<string, unknown> | null = null;
    for (const [name, value] of Object.entries(payload)) {
      const field = collection.fields.get(name);
      const { relation } = field ?? {};
      if (!field || !relation || !changesRelated(relation, value)) continue;
      const isReached = targetsOf(relation).some((each) => extensions.reached('beforeWrite', each, model).size > 0);
      const named = isObject(value) ? operatorIn(field, value, model) : null;
      // The plan refuses other operators of relations.
      if (!isReached || named?.operator || named?.isMixed) continue;
      changed ??= { ...payload };
      const parent = { collection, payload, written };
      const isSet = named !== null && isObject(value);
      changed[name] = isSet
        ? { [SET]: await this.#related(relation, value[SET], parent) }
        : await this.#related(relation, value, parent);
    }
    return changed ?? payload;
  }

  async #related(relation: Relation, value: unknown, parent: Parent): Promise<unknown> {
    const { model } = this.write;
    switch (relation.kind) {
      case 'one-to-many':
        return this.#list(this.#childrenOf(relation, parent), value);
      case 'one-to-one':
        return this.#only(this.#childrenOf(relation, parent), value);
      default: {
        const name =
          relation.kind === 'many-to-one'
            ? relation.oneCollection
            : ownValue(model.synonyms, parent.payload[relation.collectionField]);
        const target = model.collections.get(String(name));
        return target && isObject(value) ? this.#one(target, value, parent.written.depth + 1) : value;
      }
    }
  }

  /** The item that a column refers to. It is the one with this key, or a new one. */
  async #one(target: Collection, entry: Payload, depth: number): Promise<unknown> {
    const key = namedKey(target, entry);
    if (key === null) return this.#create(target, entry, { depth, givenKeys: (changed) => namedKeys(target, changed) });
    if (this.#guard?.onlyRefers(target, fieldNamesOf(target, entry))) return entry;
    return this.#item(target, entry, { action: 'upsert', keys: [key], depth, isNamed: true });
  }

  #childrenOf(relation: OneToMany | OneToOne, { collection, payload, written }: Parent): Children {
    const { model } = this.write;
    const target = collectionOf(model, relation.manyCollection);
    const references = [fieldOf(target, relation.manyField), ...holdingFields(model, relation)];
    const isNew = written.action === 'create' || this.#mayOnlyCreate(collection, payload, written);
    const implied = impliedKeys(relation, { collection, payload, written }, model);
    return { target, relation, references, implied, isNew, depth: written.depth + 1 };
  }

  /** The plan makes an upsert of what the caller may do. */
  #mayOnlyCreate(collection: Collection, payload: Payload, { action }: Written): boolean {
    const names = fieldNamesOf(collection, payload);
    return action === 'upsert' && names.length > 0 && this.#guard?.covers('update', collection, names) === false;
  }

  /** The item of a one-to-one relation. If the reference is its key, there is no other that could leave. */
  async #only(children: Children, value: unknown): Promise<unknown> {
    if (value === null || keysOf(children, {}).length === 0) await this.#leave(children, []);
    return value === null ? value : this.#child(children, value);
  }

  async #list(children: Children, value: unknown): Promise<unknown> {
    if (value === null || Array.isArray(value)) {
      await this.#leave(children, []);
      const changed: unknown[] = [];
      for (const entry of value ?? []) changed.push(await this.#child(children, entry));
      return value === null ? null : changed;
    }
    if (!isObject(value)) return value;
    const { target, depth } = children;
    const { create, update, delete: removed } = value;
    const lists: Record<string, unknown> = { ...value };
    if (Array.isArray(create))
      lists['create'] = await this.#entries(create, (entry) => this.#create(target, entry, { depth }));
    if (Array.isArray(update))
      lists['update'] = await this.#entries(update, async (entry) => {
        const keys = keysOf(children, entry);
        // The plan refuses an item without a key.
        return keys.length === 0 ? entry : this.#item(target, entry, { action: 'update', keys, depth, isNamed: true });
      });
    if (Array.isArray(removed) && removed.length > 0) await this.#leave(children, removed);
    return lists;
  }

  /** An item that refers to its parent. A key alone changes its reference, an object may change more of it or be a new item. */
  async #child(children: Children, entry: unknown): Promise<unknown> {
    const { target, references, depth } = children;
    if (!isObject(entry)) {
      const changed = await this.#item(target, {}, { action: 'update', keys: [entry], depth });
      return Object.keys(changed).length === 0 ? entry : new LinkedItem(entry, changed);
    }
    const givenKeys = (changed: Payload): unknown[] => keysOf(children, without(changed, references));
    const keys = givenKeys(entry);
    if (keys.length === 0) return this.#create(target, entry, { depth, givenKeys });
    return this.#item(target, entry, { action: 'upsert', keys, depth, isNamed: true });
  }

  /** The plan refuses entries that are not objects. */
  async #entries(entries: readonly unknown[], work: (entry: Payload) => Promise<Input>): Promise<unknown[]> {
    const changed: unknown[] = [];
    for (const entry of entries) changed.push(isObject(entry) ? await work(entry) : entry);
    return changed;
  }

  /** A new item has no others that could leave it. */
  async #leave({ target, relation, isNew }: Children, keys: readonly unknown[]): Promise<void> {
    if (!isNew) await this.removed(target, relation.deselectAction === 'delete' ? 'delete' : 'unlink', keys);
  }
}

/** An item that contains others. */
interface Parent {
  readonly collection: Collection;
  readonly payload: Payload;
  readonly written: Written;
}

/** The items of a relation that refer to their parent. */
interface Children {
  readonly target: Collection;
  readonly relation: OneToMany | OneToOne;
  /** The fields of the reference. */
  readonly references: readonly Field[];
  /** By parent, the parts of a child's key that follow from it. A payload may be written to several parents. */
  readonly implied: readonly (readonly ImpliedPart[])[];
  readonly isNew: boolean;
  readonly depth: number;
}

function namedKeys(collection: Collection, payload: Payload): unknown[] {
  const key = namedKey(collection, payload);
  return key === null ? [] : [key];
}

/** The keys of the children that the payload names, one for each parent; none if they are new. */
function keysOf({ target, implied }: Children, payload: Payload): unknown[] {
  const keys = implied.map((parts) => namedKey(target, payload, parts));
  return keys.includes(null) ? [] : [...new Set(keys)];
}

/** For each item that the payload is written to. A payload that is not valid implies nothing: the plan refuses it. */
function impliedKeys(relation: OneToMany | OneToOne, { collection, payload, written }: Parent, model: Model) {
  const { action, keys } = written;
  const impliedBy = (parent: LinkParent): ImpliedPart[] =>
    impliedParts(parent, payload, { relation, path: relation.oneField }, model);
  try {
    if (action === 'create')
      return [impliedBy({ collection, verb: 'insert', key: newKey(collection, payload, '', model) })];
    return keys.map((key) => impliedBy({ collection, verb: 'update', key: checkKey(collection, key) }));
  } catch (error) {
    if (error instanceof ServiceError) return [[]];
    throw error;
  }
}

/** The payload that a hook returned for an item, with the key that it had before. */
function withKeyOf(collection: Collection, payload: Payload, changed: Input): Input {
  const names = fieldNamesOf(collection, payload);
  const fields = fieldNamesOf(collection, changed).map((name) => [name, changed[name]]);
  return Object.fromEntries([...Object.entries(payload).filter(([name]) => !names.includes(name)), ...fields]);
}

/** A key as answers show it. */
export function shownKeyOf(collection: Collection, key: Key): ItemKey {
  const shown = shownWrittenKey(collection, key);
  return typeof shown === 'string' || typeof shown === 'number' ? shown : String(key);
}

/** The payload that a hook returned, with the passwords that it left and that are hashed already. */
function withSecretsOf(before: Payload, changed: Input): Input {
  const kept = Object.entries(before).filter(
    ([name, value]) => value instanceof Secret && value.text === changed[name],
  );
  return kept.length === 0 ? changed : { ...changed, ...Object.fromEntries(kept) };
}

/** The operators of GraphQL as hooks get them: elsewhere in a document of GraphQL such an object is a value. */
const operators = new WeakSet<object>();

/**
 * A copy that hooks may change: a retry begins with the payload as it came. They get it as the JSON of REST. Throws for values that JSON
 * does not have.
 */
function plainCopy(value: unknown): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  if (value instanceof Secret) return value.text;
  if (value instanceof Operated) return operatorOf(value);
  if (value instanceof Digits) return value;
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'bigint') return new Digits(String(value));
  if (Array.isArray(value)) return value.map(plainCopy);
  const prototype: unknown = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  if (!isObject(value) || (prototype !== Object.prototype && prototype !== null))
    throw new TypeError(
      `a payload cannot hold ${typeof value === 'object' ? 'a class instance' : `a value of type ${typeof value}`}`,
    );
  const named = operators.has(value) ? namedOperator(value) : null;
  if (named?.operator && !named.isMixed) return new Operated(named.operator, plainCopy(value[named.key]));
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, each]) => (each === undefined ? [] : [[name, plainCopy(each)]])),
  );
}

function operatorOf({ operator, operand }: Operated): object {
  const shown = { [`_${operator}`]: plainCopy(operand) };
  operators.add(shown);
  return shown;
}
