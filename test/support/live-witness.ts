/**
 * Those who subscribe while others write: each looks through all that it is sent, keeps the last state, and comes back when its
 * connection ends, as clients do.
 */
import { EventStream, type ServerEvent } from './event-stream.js';
import { type Message, MessageSocket } from './message-socket.js';
import { get, request } from './service.js';

export interface Place {
  readonly url: string;
}

export interface Viewer {
  readonly token: string;
  /** What it may never see; null for nothing. */
  readonly hidden: RegExp | null;
}

/** Of authors: it only grows. */
const SCORES = /"id":"?(\d+)"?,"name":"[^"]*","score":"?(-?\d+)/g;

export abstract class Witness {
  readonly viewer: Viewer;
  readonly name: string;
  readonly faults: string[] = [];
  /** Messages with a state or an event. */
  answers = 0;
  /** Nothing more is told: it may not be read any more. */
  isOver = false;
  /** Hears of each message. */
  onSeen: (text: string) => unknown = () => {};
  readonly #scores = new Map<string, number>();

  constructor(viewer: Viewer, name: string) {
    this.viewer = viewer;
    this.name = name;
  }

  abstract connect(place: Place): void;
  /** Whether the connection has ended. */
  abstract get isLost(): boolean;
  /** Whether it has something to begin with. */
  abstract get isReady(): boolean;
  /** How what it has differs from a fresh read; '' where it does not. */
  abstract difference(place: Place): Promise<string>;
  abstract close(): void;

  tend(place: Place): void {
    if (this.isLost && !this.isOver) this.connect(place);
  }

  /** Looks through what was sent. */
  protected look(text: string): void {
    this.answers++;
    this.onSeen(text);
    const found = this.viewer.hidden?.exec(text);
    if (found) this.faults.push(`seen: ${text.slice(Math.max(found.index - 80, 0), found.index + 20)}`);
    for (const [, id = '', score = ''] of text.matchAll(SCORES)) {
      if (Number(score) < (this.#scores.get(id) ?? 0))
        this.faults.push(`the score of ${id} went back from ${this.#scores.get(id)} to ${score}`);
      this.#scores.set(id, Number(score));
    }
  }
}

/** A read as server-sent events: of items, or, with a document, of GraphQL. */
export class StreamWitness extends Witness {
  readonly #path: string;
  readonly #document: string | null;
  #stream: EventStream | null = null;
  #last: ServerEvent | null = null;

  constructor(viewer: Viewer, path: string, document: string | null = null) {
    super(viewer, document ?? path);
    this.#path = path;
    this.#document = document;
  }

  get #asked(): { method: string; body?: string; headers: Record<string, string>; token: string } {
    const { token } = this.viewer;
    if (this.#document === null) return { method: 'GET', headers: {}, token };
    const body = JSON.stringify({ query: this.#document });
    return { method: 'POST', body, headers: { 'content-type': 'application/json' }, token };
  }

  connect(place: Place): void {
    const asked = this.#asked;
    const headers = { ...asked.headers, ...(this.#last?.id ? { 'last-event-id': this.#last.id } : {}) };
    this.#stream = new EventStream(place, this.#path, { ...asked, headers, onEvent: (event) => this.#take(event) });
  }

  get isLost(): boolean {
    // What is refused at the beginning stays so until rights change; a fault passes.
    if (this.#stream?.isEnded && this.#stream.status === 403) this.isOver = true;
    return this.#stream === null || this.#stream.isEnded;
  }

  get isReady(): boolean {
    return this.#last !== null || this.isOver;
  }

  async difference(place: Place): Promise<string> {
    if (this.isOver) return '';
    const { method, ...asked } = this.#asked;
    const { text } = await request(place, method, this.#path, asked);
    return this.#last?.data === text ? '' : `${this.#last?.data.slice(0, 300)} instead of ${text.slice(0, 300)}`;
  }

  close(): void {
    this.isOver = true;
    this.#stream?.close();
  }

  #take(event: ServerEvent): void {
    this.look(event.data);
    if (event.name === 'failed') {
      this.isOver = true;
      if (!event.data.includes('FORBIDDEN')) this.faults.push(event.data);
    } else if (event.name !== 'complete') this.#last = event;
  }
}

/** A query as a subscription over `graphql-transport-ws`. */
export class GraphqlWitness extends Witness {
  readonly #query: string;
  #socket: MessageSocket | null = null;
  protected last: string | null = null;

  /** `query`: a selection, as in `{ articles { id } }`. */
  constructor(viewer: Viewer, query: string) {
    super(viewer, `subscription ${query}`);
    this.#query = query;
  }

  connect(place: Place): void {
    const socket = new MessageSocket(place, { path: '/graphql', protocols: 'graphql-transport-ws' });
    this.#socket = socket;
    socket.socket.on('open', () =>
      socket.send({ type: 'connection_init', payload: { access_token: this.viewer.token } }),
    );
    socket.socket.on('message', (data) => {
      // Everything is kept here: what the socket keeps beside would grow with each answer.
      socket.messages.length = 0;
      if (socket === this.#socket) this.#take(JSON.parse(String(data)));
    });
  }

  get isLost(): boolean {
    return this.#socket === null || this.#socket.closed !== null;
  }

  get isReady(): boolean {
    return this.last !== null;
  }

  async difference(place: Place): Promise<string> {
    const fresh = JSON.stringify(await ask(place, this.#query, this.viewer.token));
    return this.last === fresh ? '' : `${this.last?.slice(0, 300)} instead of ${fresh.slice(0, 300)}`;
  }

  close(): void {
    this.isOver = true;
    this.#socket?.close();
  }

  #take({ type, payload }: Message): void {
    if (type === 'ping') this.#socket?.send({ type: 'pong' });
    if (type === 'connection_ack')
      this.#socket?.send({ id: '1', type: 'subscribe', payload: { query: `subscription ${this.#query}` } });
    if (type === 'next') this.next(payload as Item);
    // What cannot be read for the moment is asked for again.
    if (type === 'error') {
      if (!JSON.stringify(payload).includes('SERVICE_UNAVAILABLE')) this.faults.push(JSON.stringify(payload));
      this.#socket?.close();
    }
  }

  protected next(payload: Item): void {
    const text = JSON.stringify(payload);
    this.look(text);
    this.last = text;
  }
}

type Item = Readonly<Record<string, unknown>>;

export async function ask(place: Place, query: string, token: string): Promise<Item> {
  const headers = { 'content-type': 'application/json' };
  const { json, text } = await request(place, 'POST', '/graphql', { body: JSON.stringify({ query }), headers, token });
  if (json === undefined) throw new Error(text);
  return json as Item;
}

export async function readItems(place: Place, path: string, token: string): Promise<readonly Item[]> {
  const { status, text, json } = await get(place, path, { token });
  if (status !== 200) throw new Error(`${status} ${text}`);
  return (json as { data: readonly Item[] }).data;
}
