/** What a subscription to events begins with: a state, and which transactions are in it, so that they are not told once more. */
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbiddenCollection } from '../../base/errors.js';
import type { PreparedRead, Reads } from '../../engine/reads/reads.js';
import { NO_CLIENT } from '../../engine/stages.js';
import type { Collection } from '../../mirror/model.js';
import type { Mirror } from '../../mirror/watch.js';
import type { Parsed } from '../../request/ast.js';
import { type CommitVisibility, type Known, knownBy } from '../changes/visibility.js';
import { type EventSource, type EventSubscriber, MAX_VISIBLE_KEYS } from './event-subscriber.js';
import { keysIn } from './visible-items.js';

export interface EventServices {
  readonly reads: Reads;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly visibility: CommitVisibility;
}

/** As far as the caller may see it. */
export function collectionOf({ mirror, policies }: EventServices, source: EventSource, caller: Identity): Collection {
  const model = policies.accessOf(caller)?.view(mirror.model) ?? mirror.model;
  const collection = model.collections.get(source.collection);
  if (!collection || collection.system) throw forbiddenCollection(source.collection);
  return collection;
}

export async function prepareRead(
  { reads }: EventServices,
  query: Parsed,
  caller: Identity,
  address: string,
): Promise<PreparedRead<Parsed>> {
  const compiled = await reads.prepare(query, caller, { ...NO_CLIENT, address });
  return { query, compiled, caller, need: null };
}

/** The body of the query, the transactions that are in it, and the keys of what is visible where some rows are hidden: all of one moment. */
export async function readFirst(
  services: EventServices,
  { source, visible }: EventSubscriber,
  caller: Identity,
  query: Parsed | null,
): Promise<readonly [body: Buffer | null, known: Known | null, visible: Set<string> | null]> {
  const { address } = source;
  const first = query && (await prepareRead(services, query, caller, address));
  if (visible === null) {
    if (first === null) return [null, await services.visibility.knownNow(), null];
    const { bodies, snapshot } = await services.reads.runTogether(first, []);
    return [bodies[0] ?? null, knownBy(snapshot), null];
  }
  const names = collectionOf(services, source, caller).key.map(({ name }) => name);
  const keys = await prepareRead(services, source.parseKeys(caller, names), caller, address);
  const { bodies, snapshot } = await services.reads.runTogether(first ?? keys, first === null ? [] : [keys]);
  const shown = keysIn(bodies.at(-1) ?? null, names).slice(0, MAX_VISIBLE_KEYS);
  return [first && (bodies[0] ?? null), knownBy(snapshot), new Set(shown)];
}
