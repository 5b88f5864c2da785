/** The reads of subscriptions to events: initial states, visible keys, and items that were changed. */

import { forbidden, forbiddenCollection, unprocessable } from '../../base/errors.js';
import { Limiter, OWN_TURN } from '../../base/limiter.js';
import { showsKey } from '../../compiler/model/item-key.js';
import type { Collection } from '../../compiler/model/model.js';
import type { RestrictedCollection } from '../../compiler/plan/access.js';
import { isAlways } from '../../compiler/plan/plan.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { withKeys } from '../../compiler/request/rest.js';
import { joinKey } from '../../compiler/sql/key-text.js';
import { callerName, type Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { LoggedTable, Sources } from '../../server/changes/change-source.js';
import type { CommitVisibility, Known } from '../../server/changes/changes.js';
import { tableKey } from '../../server/changes/dependencies.js';
import type { PreparedRead, Reads } from '../../server/execute/reads/reads.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import { knownBy } from '../change-stream/visibility.js';
import type { EventSource } from './event-subscriber.js';
import type { LiveStats } from './live-stats.js';
import { MAX_VISIBLE_KEYS } from './visible-keys.js';

/** Reads of changed items at the same time: in total, and for one group of subscribers. More would delay those of requests. */
const MAX_RUNNING = 256;
const MAX_LANES = 64;
/** Bytes of changed items that are held at a time for one group of subscribers, except for a single larger item. */
const MAX_HELD_BYTES = 4_194_304;
/** Bytes that an item is expected to have before the first one was read. */
const EXPECTED_BYTES = 524_288;

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

/** Changed items that were read. */
interface ReadItems {
  /** Without those that the query does not select. */
  readonly items: ReadonlyMap<string, Buffer>;
  /** The keys that are left for later. */
  readonly unread: ReadonlySet<string>;
}

export class EventReads {
  readonly #running = new Limiter(MAX_RUNNING, { share: MAX_RUNNING, maxWaiting: Number.POSITIVE_INFINITY });
  /** The largest item of the last reads with a statement, in bytes. */
  readonly #sizes = new WeakMap<object, number>();

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

  /** The collection of a table, or undefined if it has none with events. */
  collectionOf({ schema, name }: LoggedTable): Collection | undefined {
    const all = [...this.services.mirror.model.collections.values()];
    return all.find((each) => !each.system && each.key.length > 0 && each.table === name && each.schema === schema);
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

  /**
   * The items that the query selects, by their keys, up to a number of bytes: the others are left for later. Stops early if `isWanted` is
   * false. `ReadBatcher` sends the reads together.
   */
  async changed(prepared: PreparedRead<Parsed>, keys: readonly string[], isWanted: () => boolean): Promise<ReadItems> {
    const read = new Map<string, Buffer | null>();
    const left = keys.values();
    let bytes = 0;
    let hasFailed = false;
    const lane = async (): Promise<void> => {
      while (bytes < MAX_HELD_BYTES && !hasFailed && isWanted()) {
        const { value: key, done } = left.next();
        if (done) return;
        const item = await this.#running.run(OWN_TURN, () => this.#readItem(prepared, key));
        read.set(key, item);
        bytes += item?.length ?? 0;
      }
    };
    const size = this.#sizes.get(prepared.compiled) ?? EXPECTED_BYTES;
    const lanes = Math.min(MAX_LANES, keys.length, Math.ceil(MAX_HELD_BYTES / size));
    try {
      await Promise.all(Array.from({ length: lanes }, lane));
    } catch (error) {
      hasFailed = true;
      throw error;
    }
    const largest = Math.max(1, ...[...read.values()].map((item) => item?.length ?? 0));
    if (read.size > 0) this.#sizes.set(prepared.compiled, largest);
    return firstOf(keys, read);
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

/** The first items that may be held together; the others are read again later. */
function firstOf(keys: readonly string[], read: ReadonlyMap<string, Buffer | null>): ReadItems {
  const items = new Map<string, Buffer>();
  const unread = new Set<string>();
  let bytes = 0;
  for (const key of keys) {
    const item = read.get(key);
    if (unread.size > 0 || item === undefined || (items.size > 0 && bytes + (item?.length ?? 0) > MAX_HELD_BYTES))
      unread.add(key);
    else if (item !== null) {
      items.set(key, item);
      bytes += item.length;
    }
  }
  return { items, unread };
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
