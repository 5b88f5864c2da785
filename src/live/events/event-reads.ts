/** The reads of subscriptions to events: initial states, visible keys, and items that were changed. */
import { callerName, type Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden, forbiddenCollection, unprocessable } from '../../base/errors.js';
import { tableKey } from '../../engine/cache/dependencies.js';
import type { PreparedRead, Reads } from '../../engine/reads/reads.js';
import { NO_CLIENT } from '../../engine/stages.js';
import { showsKey } from '../../mirror/item-key.js';
import type { Collection } from '../../mirror/model.js';
import type { Mirror } from '../../mirror/watch.js';
import type { RestrictedCollection } from '../../plan/access.js';
import { isAlways } from '../../plan/plan.js';
import type { Parsed } from '../../request/ast.js';
import { withKeys } from '../../request/rest.js';
import { joinKey } from '../../sql/key-text.js';
import type { Sources } from '../changes/change-source.js';
import { type CommitVisibility, type Known, knownBy } from '../changes/visibility.js';
import type { LiveStats } from '../live-stats.js';
import type { EventSource } from './event-subscriber.js';
import { Semaphore } from './semaphore.js';
import { MAX_VISIBLE_KEYS } from './visible-keys.js';

/** Reads of changed items at the same time: in total, and for one group of subscribers. More would delay those of requests. */
const MAX_RUNNING = 256;
const MAX_LANES = 64;

export interface EventServices {
  readonly reads: Reads;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly visibility: CommitVisibility;
  readonly stats: LiveStats;
}

/** A read of the keys of all visible items, and the names of the key's fields in its answer. */
interface KeyRead {
  readonly prepared: PreparedRead<Parsed>;
  readonly names: readonly string[];
}

/** The beginning of a subscription, all of one snapshot. */
interface FirstState {
  /** The answer of the query, or null if there is none. */
  readonly body: Buffer | null;
  /** The transactions that it contains, or null if they are not known. */
  readonly known: Known | null;
  /** The keys of the visible items if some rows are hidden, else null. */
  readonly visible: Set<string> | null;
}

export class EventReads {
  readonly #running = new Semaphore(MAX_RUNNING);

  constructor(private readonly services: EventServices) {}

  /** The caller's view of the collection. */
  collection({ collection: name }: EventSource, caller: Identity): Collection {
    const { mirror, policies } = this.services;
    const model = policies.accessOf(caller)?.view(mirror.model) ?? mirror.model;
    const collection = model.collections.get(name);
    if (!collection || collection.system) throw forbiddenCollection(name);
    if (this.services.reads.isConditional(collection))
      throw forbidden(`There are no events of "${name}": an extension adds conditions to its reads`);
    return collection;
  }

  async prepare(query: Parsed, caller: Identity, { address }: EventSource): Promise<PreparedRead<Parsed>> {
    const compiled = await this.services.reads.prepare(query, caller, { ...NO_CLIENT, address });
    return { query, compiled, caller, need: null };
  }

  async prepareKeys(source: EventSource, caller: Identity): Promise<KeyRead> {
    const names = this.collection(source, caller).key.map(({ name }) => name);
    return { prepared: await this.prepare(source.parseKeys(caller, names), caller, source), names };
  }

  async visibleKeys({ prepared, names }: KeyRead): Promise<Set<string>> {
    return keysIn(await this.services.reads.run(prepared, NO_CLIENT), names);
  }

  async firstState(
    source: EventSource,
    caller: Identity,
    query: Parsed | null,
    hidesRows: boolean,
  ): Promise<FirstState> {
    const { reads, visibility } = this.services;
    const first = query && (await this.prepare(query, caller, source));
    const keys = hidesRows ? await this.prepareKeys(source, caller) : null;
    const [one, ...others] = [first, keys?.prepared].flatMap((read) => read ?? []);
    if (one === undefined) return { body: null, known: await visibility.knownNow(), visible: null };
    const { bodies, snapshot } = await reads.runTogether(one, others);
    return {
      body: first && (bodies[0] ?? null),
      known: knownBy(snapshot),
      visible: keys && keysIn(bodies.at(-1) ?? null, keys.names),
    };
  }

  /** The items that the query selects, by their keys; stops early if `isWanted` is false. `ReadBatcher` sends them together. */
  async changed(
    prepared: PreparedRead<Parsed>,
    keys: readonly string[],
    isWanted: () => boolean,
  ): Promise<ReadonlyMap<string, Buffer>> {
    const items = new Map<string, Buffer>();
    const left = keys.values();
    let hasFailed = false;
    const lane = async (): Promise<void> => {
      for (const key of left) {
        if (hasFailed || !isWanted()) return;
        const item = await this.#running.run(() => this.#readItem(prepared, key));
        if (item !== null) items.set(key, item);
      }
    };
    try {
      await Promise.all(Array.from({ length: Math.min(MAX_LANES, keys.length) }, lane));
    } catch (error) {
      hasFailed = true;
      throw error;
    }
    return items;
  }

  #readItem(prepared: PreparedRead<Parsed>, key: string): Promise<Buffer | null> {
    const { reads, stats } = this.services;
    stats.reads++;
    const read = { ...prepared, query: withKeys(prepared.query, [key]) };
    return new Promise((resolve, reject) => {
      reads.answer(read, {
        // An aborted read would be answered as if the item did not exist.
        aborted: false,
        caller: callerName(prepared.caller, { address: '' }),
        onResult: (cell) => resolve(itemIn(cell)),
        onError: reject,
      });
    });
  }
}

/** Whether this view of the collection has all of its rows. */
export function showsAllRows(collection: Collection): boolean {
  return !isRestricted(collection) || isAlways(collection.restriction.rows);
}

/** Whether the caller sees the keys of all visible rows. */
export function showsKeys(collection: Collection): boolean {
  if (!showsKey(collection)) return false;
  return !isRestricted(collection) || collection.key.every(({ name }) => !collection.restriction.masks.has(name));
}

function isRestricted(collection: Collection): collection is RestrictedCollection {
  return 'restriction' in collection;
}

/** Refuses views, because PostgreSQL does not report which of their rows change. `sources` is null until it is known. */
export function checkTable({ schema, table, name, key }: Collection, sources: Sources | null): void {
  if (key.length === 0) throw unprocessable(`There are no events of "${name}": its items have no key`);
  const own = tableKey({ schema, name: table });
  const source = sources?.get(own)?.find((each) => tableKey(each) === own);
  if (sources !== null && source === undefined)
    throw unprocessable(`There are no events of "${name}": it is not a table`);
  if (source && source.unseen !== null) throw unprocessable(`There are no events of "${name}": ${source.unseen}`);
}

const OPENING = Buffer.from('{"data":[');

/** The only item of an answer, or null if there is none. */
function itemIn(body: Buffer | null): Buffer | null {
  const item = body?.subarray(OPENING.length, body.length - 2) ?? null;
  return item === null || item.length === 0 ? null : Buffer.from(item);
}

function keysIn(body: Buffer | null, names: readonly string[]): Set<string> {
  const { data = [] }: { data?: Record<string, unknown>[] } = body === null ? {} : JSON.parse(String(body));
  const [only] = names;
  const keyOf = (item: Record<string, unknown>): string =>
    names.length === 1 && only ? String(item[only]) : joinKey(names.map((name) => item[name]));
  return new Set(data.slice(0, MAX_VISIBLE_KEYS).map(keyOf));
}
