/** What a subscription of a GraphQL socket sends: states, of which the newest counts, or events, of which each does. */
import type { EventMember, EventOutput } from '../../graphql/parsed-document.js';
import type { ChangedItems, EventListener } from '../../live/events/event-subscriber.js';
import type { LiveStats } from '../../live/live-stats.js';
import type { LiveAnswer, LiveListener, Rights } from '../../live/subscriber.js';

/** Where messages of an operation go. */
export interface FeedTarget {
  /** Whether the client reads as fast as it is sent to. */
  readonly isReady: boolean;
  next(payload: Buffer | string): void;
  /** `flush` is to be called when the client has caught up. */
  wait(feed: Feed): void;
  fail(error: unknown): void;
}

export interface Feed {
  /** Sends what waits, unless rights have changed since: then it is withdrawn soon. False where the client is too slow for all of it. */
  flush(): boolean;
}

export class StateFeed implements LiveListener, Feed {
  readonly #target: FeedTarget;
  readonly #live: Rights & { readonly stats: LiveStats };
  #newest: LiveAnswer | null = null;
  #generation = 0;

  constructor(target: FeedTarget, live: Rights & { readonly stats: LiveStats }) {
    this.#target = target;
    this.#live = live;
  }

  answer(answer: LiveAnswer): void {
    if (this.#newest !== null) this.#live.stats.dropped++;
    this.#newest = answer;
    this.#generation = this.#live.generation;
    if (!this.flush()) this.#target.wait(this);
  }

  flush(): boolean {
    if (this.#newest === null || this.#generation !== this.#live.generation) return true;
    if (!this.#target.isReady) return false;
    this.#target.next(this.#newest.body);
    this.#newest = null;
    return true;
  }

  withdraw(isSame: boolean): boolean {
    if (isSame || this.#newest === null) return false;
    this.#newest = null;
    return true;
  }

  /** Where the service stops, its connections end too. */
  end(error: unknown): void {
    if (error !== null) this.#target.fail(error);
  }

  ping(): void {}
}

/** No more are taken while some wait, so that at most those of one round do. */
export class ChangeFeed implements EventListener, Feed {
  readonly #target: FeedTarget;
  readonly #output: EventOutput;
  readonly #rights: Rights;
  readonly #waiting: { readonly items: ChangedItems; sent: number }[] = [];
  /** Of the rights under which those that wait were read. */
  #generation = 0;

  constructor(target: FeedTarget, output: EventOutput, rights: Rights) {
    this.#target = target;
    this.#output = output;
    this.#rights = rights;
  }

  isReady(): boolean {
    return this.#waiting.length === 0 && this.#target.isReady;
  }

  /** There is nothing to begin with; where changes may have been missed, that is what is said. */
  initial(_: Buffer | null, isResync: boolean): void {
    if (!isResync) return;
    this.#target.next(`{"data":{${JSON.stringify(this.#output.name)}:null},"extensions":{"resync":true}}`);
  }

  changed(items: ChangedItems): void {
    this.#waiting.push({ items, sent: 0 });
    this.#generation = this.#rights.generation;
    if (!this.flush()) this.#target.wait(this);
  }

  withdraw(isSame: boolean): boolean {
    return !isSame && this.#waiting.splice(0).length > 0;
  }

  flush(): boolean {
    if (this.#generation !== this.#rights.generation) return true;
    for (let first = this.#waiting[0]; first; first = this.#waiting[0]) {
      const { change, keys, items } = first.items;
      for (let key = keys[first.sent]; key !== undefined; key = keys[++first.sent]) {
        if (!this.#target.isReady) return false;
        this.#target.next(eventText(this.#output, change, key, items[first.sent] ?? null));
      }
      this.#waiting.shift();
    }
    return true;
  }
}

/** `item`: an object with a member for each name of `data`; null for one that was deleted. */
function eventText(
  { name, before, data, after }: EventOutput,
  change: string,
  key: string,
  item: Buffer | null,
): string {
  const write = ({ name: member, value }: EventMember): string => {
    const text = value === 'key' ? key : value === 'event' ? change : value.text;
    return `${JSON.stringify(member)}:${JSON.stringify(text)}`;
  };
  const nulls = data.map((member) => `${JSON.stringify(member)}:null`);
  const read = item === null || data.length === 0 ? nulls : [String(item).slice(1, -1)];
  const members = [...before.map(write), ...read, ...after.map(write)];
  return `{"data":{${JSON.stringify(name)}:{${members.join(',')}}}}`;
}
