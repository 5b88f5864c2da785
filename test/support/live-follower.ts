/** Those who keep a copy of a collection by its events: over the family's `/websocket`, or over GraphQL. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CollectionCopy, type Followed, type Item } from './collection-copy.js';
import { GraphqlWitness, type Place, readItems, type Viewer, Witness } from './live-witness.js';
import { type Message, MessageSocket } from './message-socket.js';

/** `limit`: items up to this key may be hidden and shown again; of the others each deletion is told to who has seen them. */
export interface FollowedItems extends Followed {
  readonly limit: number;
  /** An administrator, who sees what there is. */
  readonly witnessToken: string;
  /** Whether all fields are asked for, of which rules take some away: what comes is looked through, and not compared. */
  readonly isWhole: boolean;
}

async function differenceOf(
  copy: CollectionCopy,
  place: Place,
  token: string,
  followed: FollowedItems,
): Promise<string> {
  if (followed.isWhole) return '';
  const path = (fields: readonly string[]): string =>
    `/items/${followed.collection}?fields=${fields.join()}&sort=id&limit=-1`;
  const there = await readItems(place, path(['id']), followed.witnessToken);
  const keys = new Set(there.map(({ id }) => String(id)));
  const fresh = await readItems(place, path(followed.fields), token);
  return copy.differenceFrom(fresh, (key) => Number(key) > followed.limit && !keys.has(key));
}

/** `subscribe` without a kind of change: `init`, and then each. */
export class EventFollower extends Witness {
  readonly copy: CollectionCopy;
  readonly #followed: FollowedItems;
  #socket: MessageSocket | null = null;
  #hasBegun = false;
  resyncs = 0;

  constructor(viewer: Viewer, followed: FollowedItems) {
    super(viewer, `/websocket ${followed.isWhole ? '*' : followed.fields.join()}`);
    this.#followed = followed;
    this.copy = new CollectionCopy(followed, this.faults);
  }

  connect(place: Place): void {
    const socket = new MessageSocket(place);
    this.#socket = socket;
    this.#hasBegun = false;
    socket.socket.on('open', () => socket.send({ type: 'auth', access_token: this.viewer.token }));
    socket.socket.on('message', (data) => {
      socket.messages.length = 0;
      if (socket === this.#socket) this.#take(JSON.parse(String(data)), socket);
    });
  }

  get isLost(): boolean {
    return this.#socket === null || this.#socket.closed !== null;
  }

  get isReady(): boolean {
    return this.#hasBegun;
  }

  difference(place: Place): Promise<string> {
    return this.#hasBegun
      ? differenceOf(this.copy, place, this.viewer.token, this.#followed)
      : Promise.resolve('it has not begun');
  }

  close(): void {
    this.isOver = true;
    this.#socket?.close();
  }

  #take(message: Message, socket: MessageSocket): void {
    const { type, event, data, resync, error } = message;
    if (type === 'ping') socket.send({ type: 'pong' });
    if (type === 'auth' && !error) {
      const { collection, isWhole, fields } = this.#followed;
      const query = { fields: isWhole ? ['*'] : fields, sort: ['id'], limit: -1 };
      socket.send({ type: 'subscribe', collection, query, uid: 'followed' });
    }
    if (error) this.#fail(JSON.stringify(error), socket);
    if (type !== 'subscription' || !Array.isArray(data)) return;
    this.look(JSON.stringify(data));
    if (event === 'init') this.#begin(data, resync === true);
    else if (event === 'delete') for (const key of data) this.copy.remove(String(key));
    else for (const item of data) this.copy.put(String(event), item);
  }

  /** What cannot be read for the moment is asked for again. */
  #fail(error: string, socket: MessageSocket): void {
    if (!error.includes('SERVICE_UNAVAILABLE') && !error.includes('AUTH_FAILED')) this.faults.push(error);
    socket.close();
  }

  #begin(items: readonly Item[], isResync: boolean): void {
    if (this.#hasBegun && !isResync) this.faults.push('a second beginning that is no resync');
    if (isResync) this.resyncs++;
    this.#hasBegun = true;
    this.copy.begin(items, true);
  }
}

/** `<collection>_mutated`, which begins with nothing: what there is is read when it is said that changes may have been missed. */
export class MutationFollower extends GraphqlWitness {
  readonly copy: CollectionCopy;
  readonly #followed: FollowedItems;
  /** Events that came while the state was read; null while none is. */
  #waiting: Item[] | null = null;
  #hasBegun = false;
  /** The first time nobody writes. */
  #isExact = true;
  #place: Place | null = null;
  resyncs = 0;

  constructor(viewer: Viewer, followed: FollowedItems) {
    const selected = followed.fields.map((field) => (field === 'author' ? 'author { id }' : field));
    super(viewer, `{ ${followed.collection}_mutated { key event data { ${selected.join(' ')} } } }`);
    this.#followed = followed;
    this.copy = new CollectionCopy(followed, this.faults);
  }

  override connect(place: Place): void {
    this.#place = place;
    this.#hasBegun = false;
    super.connect(place);
  }

  override get isReady(): boolean {
    return this.#hasBegun && this.#waiting === null;
  }

  override difference(place: Place): Promise<string> {
    if (!this.isReady) return Promise.resolve('it has not begun');
    return differenceOf(this.copy, place, this.viewer.token, this.#followed);
  }

  protected override next(payload: Item): void {
    this.look(JSON.stringify(payload));
    const { [`${this.#followed.collection}_mutated`]: event } = payload['data'] as Record<string, Item | null>;
    if (!event) this.resyncs++;
    if (!event || !this.#hasBegun) void this.#begin();
    if (event && this.#waiting) this.#waiting.push(event);
    else if (event) this.#apply(event);
  }

  async #begin(): Promise<void> {
    this.#hasBegun = true;
    this.#waiting = [];
    const mine = this.#waiting;
    const path = `/items/${this.#followed.collection}?fields=${this.#followed.fields.join()}&sort=id&limit=-1`;
    for (;;) {
      const place = this.#place;
      const items = place && (await readItems(place, path, this.viewer.token).catch(() => null));
      if (this.#waiting !== mine || this.isOver) return;
      if (items) {
        this.copy.begin(items, this.#isExact);
        this.#isExact = false;
        this.#waiting = null;
        for (const event of mine) this.#apply(event);
        return;
      }
      await sleep(50);
    }
  }

  /** GraphQL writes keys as strings, and related items as objects; the copy is compared with what REST answers. */
  #apply({ key, event, data }: Item): void {
    if (event === 'delete') {
      this.copy.remove(String(key));
      return;
    }
    const item: Record<string, unknown> = { ...(data as Item), id: Number(key) };
    const author = item['author'] as { readonly id: string } | null | undefined;
    if (author !== undefined) item['author'] = author && Number(author.id);
    this.copy.put(String(event), item);
  }
}
