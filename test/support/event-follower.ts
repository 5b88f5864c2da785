/** A client that keeps a copy of a collection by its events alone, and notes each that contradicts those before it. */
import { type Message, MessageSocket } from './message-socket.js';

export interface Followed {
  readonly collection: string;
  readonly fields: readonly string[];
  /** Whether every item is visible: then nothing can change that was not created before. */
  readonly seesAll: boolean;
}

type Item = Readonly<Record<string, unknown>>;

export class EventFollower {
  readonly #socket: MessageSocket;
  readonly #followed: Followed;
  readonly items = new Map<string, Item>();
  readonly faults: string[] = [];
  /** All that was ever told, as text. */
  readonly seen = new Set<string>();
  events = 0;
  resyncs = 0;
  isReady = false;

  constructor(service: { readonly url: string }, followed: Followed) {
    this.#socket = new MessageSocket(service);
    this.#followed = followed;
    this.#socket.socket.on('message', (data) => this.#take(JSON.parse(String(data))));
  }

  async open(token: string): Promise<void> {
    await this.#socket.opened();
    await this.#socket.signIn(token);
    const { collection, fields } = this.#followed;
    this.#socket.send({ type: 'subscribe', collection, query: { fields, sort: ['id'], limit: -1 }, uid: 'followed' });
  }

  get isClosed(): boolean {
    return this.#socket.closed !== null;
  }

  close(): void {
    this.#socket.close();
  }

  #take({ type, event, data, resync, error }: Message): void {
    if (type === 'ping') this.#socket.send({ type: 'pong' });
    if (error) this.faults.push(JSON.stringify(error));
    if (type !== 'subscription' || !Array.isArray(data)) return;
    this.events++;
    // Everything is kept here: what the socket keeps beside would grow with each event.
    this.#socket.messages.length = 0;
    if (event === 'init') this.#begin(data, resync === true);
    else if (event === 'delete') for (const key of data) this.#remove(String(key));
    else for (const item of data) this.#put(String(event), item);
  }

  #begin(items: readonly Item[], isResync: boolean): void {
    if (this.isReady && !isResync) this.faults.push('a second beginning that is no resync');
    if (isResync) this.resyncs++;
    this.isReady = true;
    this.items.clear();
    for (const item of items) this.#keep(item);
  }

  #put(event: string, item: Item): void {
    const isKnown = this.items.has(String(item['id']));
    if (event === 'create' && isKnown) this.faults.push(`created twice: ${JSON.stringify(item)}`);
    if (event === 'update' && !isKnown && this.#followed.seesAll)
      this.faults.push(`its creation was lost: ${JSON.stringify(item)}`);
    this.#keep(item);
  }

  #keep(item: Item): void {
    this.items.set(String(item['id']), item);
    this.seen.add(JSON.stringify(item));
  }

  #remove(key: string): void {
    if (!this.items.delete(key)) this.faults.push(`deleted, but never seen: ${key}`);
  }

  /** How the copy differs from what a read answers; '' where it does not. Of what is hidden meanwhile nobody is told. */
  differenceFrom(fresh: readonly Item[]): string {
    for (const item of fresh) {
      const kept = this.items.get(String(item['id']));
      if (JSON.stringify(kept) !== JSON.stringify(item))
        return `${JSON.stringify(kept)} instead of ${JSON.stringify(item)}`;
    }
    if (!this.#followed.seesAll || this.items.size === fresh.length) return '';
    return `${this.items.size} items instead of ${fresh.length}`;
  }
}
