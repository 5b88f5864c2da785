/** `beforeRead`: the conditions that extensions add for a caller become a part of the caller, as its permissions are. */
import { LRUCache } from 'lru-cache';
import { forbidden } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Collection } from '../../compiler/model/model.js';
import { readRuleFilter } from '../../compiler/plan/rules.js';
import type { Filter } from '../../compiler/request/ast.js';
import { usedCollections } from '../../compiler/statements/used-tables.js';
import { CLI_IDENTITY, type Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { BeforeReadContext } from '../../server/execute/hooks/definition.js';
import type { ReadHooks } from '../../server/execute/hooks/read-hooks.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';
import type { RequestOrigin } from '../../server/execute/stages.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import { type Extensions, hookCaller } from './extensions.js';

/** Reads of collections for which extensions add conditions. */
export class ConditionalReads implements ReadHooks {
  /** By statement: the collections in it that have such a hook. */
  #hooked = new WeakMap<CompiledRead, readonly Collection[]>();
  #generation = -1;

  constructor(
    private readonly extensions: Extensions,
    private readonly mirror: Mirror,
    private readonly policies: Policies,
  ) {
    mirror.onChange(() => {
      this.#hooked = new WeakMap();
    });
  }

  get exist(): boolean {
    return this.extensions.has('beforeRead');
  }

  get revision(): number {
    return this.extensions.generation;
  }

  concern(collection: Collection): boolean {
    return this.extensions.hooks('beforeRead', collection).length > 0;
  }

  check(compiled: CompiledRead, caller: Identity): CompiledRead {
    if (caller.conditions || caller === CLI_IDENTITY) return compiled;
    const [first] = this.#hookedIn(compiled);
    if (first)
      throw forbidden(`An extension adds conditions to reads of "${first.name}": it cannot be read in this way`);
    return compiled;
  }

  async conditioned(
    caller: Identity,
    collections: readonly string[],
    { method, path }: RequestOrigin,
    compile: () => Promise<CompiledRead> | CompiledRead,
  ): Promise<Identity> {
    const hooked = this.#hookedAmong(collections, caller) ?? this.#hookedIn(await compile());
    return withConditions(caller, hooked, { collections, method, path }, this.extensions);
  }

  conditionedFor(caller: Identity, collection: string | null, { method, path }: RequestOrigin): Promise<Identity> {
    const { model } = this.mirror;
    const { extensions } = this;
    // Writes of comments, shares and versions read the collection that their payload names.
    const isAny = collection === null || model.collections.get(collection)?.system;
    const related = isAny ? null : extensions.related('beforeRead', collection, model);
    const hooked = [...model.collections.values()].filter(
      (each) => (related?.has(each.name) ?? true) && this.concern(each),
    );
    const collections = collection === null ? [] : [collection];
    return withConditions(caller, hooked, { collections, method, path }, extensions);
  }

  /** The collections with such a hook, or null if the statement may use others with one, or is not allowed. */
  #hookedAmong(names: readonly string[], caller: Identity): readonly Collection[] | null {
    const { model } = this.mirror;
    const access = this.policies.accessOf(caller);
    const collections = names.flatMap((name) => model.collections.get(name) ?? []);
    // The name of a function says nothing about the items that are nested in its rows.
    if (collections.length < names.length) return null;
    // Permissions are checked before a hook runs.
    if (access && names.some((name) => access.permitted('read', name, model).length === 0)) return null;
    for (const { name } of collections)
      for (const other of this.extensions.related('beforeRead', name, model)) if (!names.includes(other)) return null;
    return collections.filter((each) => this.concern(each));
  }

  #hookedIn(compiled: CompiledRead): readonly Collection[] {
    const { generation } = this.extensions;
    if (generation !== this.#generation) this.#hooked = new WeakMap();
    this.#generation = generation;
    const known = this.#hooked.get(compiled);
    if (known) return known;
    const used = new Set(usedCollections(compiled.statement.text, this.mirror.model));
    const hooked = [...used].filter((each) => this.concern(each));
    this.#hooked.set(compiled, hooked);
    return hooked;
  }
}

/** Sets of conditions of one caller. */
const MAX_CACHED = 100;

/** By the caller and the conditions: equal conditions have one identity, whose permissions and statements are cached. */
const conditionedCallers = new WeakMap<Identity, LRUCache<string, Identity>>();

/** Calls the hooks of these collections. The service itself reads without conditions. */
async function withConditions(
  caller: Identity,
  collections: readonly Collection[],
  query: BeforeReadContext['query'],
  extensions: Extensions,
): Promise<Identity> {
  if (collections.length === 0 || caller === CLI_IDENTITY) return caller;
  const plain = caller.conditions?.caller ?? caller;
  const filters = new Map<string, readonly Filter[]>();
  const texts: [string, unknown[]][] = [];
  for (const collection of collections) {
    const found = await conditionsOf(collection, plain, query, extensions);
    filters.set(
      collection.name,
      found.map(({ filter }) => filter),
    );
    texts.push([collection.name, found.map(({ input }) => input)]);
  }
  const key = JSON.stringify(texts);
  const cached = conditionedCallers.get(plain) ?? new LRUCache<string, Identity>({ max: MAX_CACHED });
  const conditioned = cached.get(key) ?? Object.freeze({ ...plain, conditions: { key, filters, caller: plain } });
  conditionedCallers.set(plain, cached);
  cached.set(key, conditioned);
  return conditioned;
}

interface FoundCondition {
  readonly input: object;
  readonly filter: Filter;
}

async function conditionsOf(
  collection: Collection,
  caller: Identity,
  query: BeforeReadContext['query'],
  extensions: Extensions,
): Promise<FoundCondition[]> {
  const found: FoundCondition[] = [];
  for (const hook of extensions.hooks('beforeRead', collection)) {
    const input = await extensions.run(hook, { collection: collection.name, caller: hookCaller(caller), query });
    if (input === undefined || input === null) continue;
    // A filter that cannot be read must not be dropped.
    const filter = isObject(input) ? readRuleFilter(input) : undefined;
    if (filter === undefined)
      throw extensions.failure(new TypeError(`beforeRead returned no filter: ${JSON.stringify(input)}`), hook);
    if (filter !== null && isObject(input)) found.push({ input, filter });
  }
  return found;
}
