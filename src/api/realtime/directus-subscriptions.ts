/** `subscribe`: the items that a query selects, and then each change of the collection. */

import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { publicError } from '../../http/reply.js';
import type { ChangedItems, EventHandle, EventListener } from '../../live/events/event-subscriber.js';
import { CHANGES, type Change } from '../../live/events/table-log.js';
import { MAX_VISIBLE_KEYS } from '../../live/events/visible-keys.js';
import type { Rights } from '../../live/subscribers.js';
import type { Parsed } from '../../request/ast.js';
import { quoteName } from '../../request/expression.js';
import { type Input, readObject } from '../../request/parse-context.js';
import { parseChanged, parseItem, parseSearch } from '../../request/rest.js';
import { readKey } from '../../request/write.js';
import { refuseSystem, wholeAnswers } from '../items/items.js';
import type { Speaker, WebsocketServices } from './directus-items.js';
import type { EventOwner } from './message-queue.js';

/** Subscriptions to items have no aggregates: live queries over HTTP have. */
const WITHOUT_ITEMS = ['aggregate', 'groupBy', 'having', 'export'];

/** A subscription, as its client names it. */
interface SubscribedClient {
  readonly name: string | null;
  /** Whether the client still has this subscription. */
  readonly isWanted: () => boolean;
}

export async function subscribeTo(
  message: Input,
  client: SubscribedClient,
  connection: Speaker,
  { live, limits: given }: WebsocketServices,
): Promise<EventHandle> {
  const { collection, query, change, item } = readSubscription(message);
  const limits = wholeAnswers(given);
  const initial = (): Parsed | null => {
    if (change !== null) return null;
    return item === null ? parseSearch(collection, { query }, '', limits) : parseItem(collection, item, query, limits);
  };
  const source = {
    address: connection.client.address,
    collection,
    item,
    change,
    identify: () => connection.identify(),
    parseChanged: () => parseChanged(collection, query, limits),
    parseInitial: initial,
    parseKeys: (_: unknown, key: readonly string[]) => {
      const { filter, search } = query;
      const keys = { fields: key.map(quoteName), filter, search, limit: MAX_VISIBLE_KEYS, alias: query['alias'] };
      return parseSearch(collection, { query: keys }, '', wholeAnswers({ ...given, pageSize: null }));
    },
  };
  const listener = new SocketListener(connection, client, item !== null, live);
  const handle = await live.events.subscribe(source, listener, (error) => listener.end(error));
  return {
    close: () => {
      handle.close();
      listener.drop();
    },
    wake: () => handle.wake(),
    renew: () => {
      listener.drop();
      handle.renew();
    },
  };
}

interface Subscription {
  readonly collection: string;
  readonly query: Input;
  readonly change: Change | null;
  readonly item: string | null;
}

function readSubscription({ collection, event, item, query }: Input): Subscription {
  if (typeof collection !== 'string') throw invalidPayload('"collection" must be a string');
  refuseSystem(collection);
  const change = event === undefined || event === null ? null : CHANGES.find((each) => each === event);
  if (change === undefined) throw invalidPayload(`"event" must be one of ${CHANGES.join(', ')}`);
  const key = item === undefined || item === null ? null : readKey(item);
  if (item !== undefined && item !== null && key === null) throw invalidPayload('"item" must be a key');
  if (query !== undefined && query !== null && !isObject(query)) throw invalidPayload('"query" must be an object');
  const read = readObject(query, 'query');
  const unfit = WITHOUT_ITEMS.find((name) => read[name] !== undefined && read[name] !== null);
  if (unfit !== undefined) throw invalidQuery(`"${unfit}" cannot be subscribed to: items have events, sums have none`);
  return { collection, query: read, change, item: key === null ? null : String(key) };
}

class SocketListener implements EventListener, EventOwner {
  readonly #tail: string;
  #hasLost = false;

  constructor(
    private readonly connection: Speaker,
    private readonly client: SubscribedClient,
    private readonly isItem: boolean,
    private readonly rights: Rights,
  ) {
    this.#tail = client.name === null ? '}' : `,"uid":${JSON.stringify(client.name)}}`;
  }

  get generation(): number {
    return this.rights.generation;
  }

  lose(): void {
    this.#hasLost = true;
  }

  /** Drops the events that wait. */
  drop(): void {
    if (this.connection.outbox.withdraw(this)) this.#hasLost = true;
  }

  withdraw(isSame: boolean): boolean {
    if (!isSame) this.drop();
    const hasLost = this.#hasLost;
    this.#hasLost = false;
    return hasLost;
  }

  isReady(): boolean {
    return this.connection.outbox.isReady;
  }

  initial(body: Buffer | null, isResync: boolean): void {
    if (!this.client.isWanted()) {
      this.lose();
      return;
    }
    const data = body === null ? '' : `,${String(body).slice(1, -1)}`;
    const resync = isResync ? ',"resync":true' : '';
    this.connection.outbox.event(`{"type":"subscription","event":"init"${data}${resync}${this.#tail}`, this);
  }

  changed({ change, keys, items }: ChangedItems): void {
    const data = change === 'delete' ? this.#keys(keys) : this.#items(items);
    this.connection.outbox.event(`{"type":"subscription","event":"${change}","data":${data}${this.#tail}`, this);
  }

  end(error: unknown): void {
    const { code, message } = this.connection.socket.translate(publicError(error));
    const text = JSON.stringify({ code, message });
    this.connection.outbox.reply(`{"type":"subscribe","status":"error","error":${text}${this.#tail}`);
  }

  #keys(keys: readonly string[]): string {
    return this.isItem ? JSON.stringify(keys[0]) : JSON.stringify(keys);
  }

  #items(items: readonly Buffer[]): string {
    return this.isItem ? String(items[0]) : `[${items.join()}]`;
  }
}
