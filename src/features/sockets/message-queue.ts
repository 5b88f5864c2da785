/**
 * Messages on their way to a client. The SDK listens for one message at a time and misses one that arrives together with another, so
 * events keep a distance from the message before them.
 */
import type { Socket } from '../../server/http/websocket.js';

/** Milliseconds between an event and the message before or after it. */
const DISTANCE_MS = 8;
/** Messages that may wait until no more events are taken. */
const MAX_WAITING = 50;
/** Messages that may wait if items that are created together have one each: the last one leaves after 1.6 seconds. */
const MAX_SEPARATE = 200;
/** Answers that may wait: with one more, the connection ends. */
const MAX_REPLIES = 1_000;
/** Characters that may wait when there is another message: beyond, the connection ends. */
const MAX_CHARACTERS = 16_777_216;

/** The subscription that sends events. */
export interface EventOwner {
  /** Grows when rights change: events that were read before are not sent after. */
  readonly generation: number;
  /** One was not sent. */
  lose(): void;
}

interface Waiting {
  readonly text: string;
  /** The subscription of an event, or null for an answer. */
  readonly owner: EventOwner | null;
  readonly generation: number;
}

export class OutgoingQueue {
  #waiting: Waiting[] = [];
  #characters = 0;
  /** Answers that wait. */
  replies = 0;
  #timer: NodeJS.Timeout | null = null;
  #sentAt = 0;
  #eventAt = 0;
  /** Whether a subscription waits until the client reads. */
  #isHeld = false;

  constructor(
    private readonly socket: Socket,
    private readonly onRoom: () => void,
  ) {}

  /** Whether events are taken now. */
  get isReady(): boolean {
    const isSlow = this.socket.isSlow;
    if (isSlow) this.#isHeld = true;
    return this.#waiting.length < MAX_WAITING && !this.isFull && !isSlow;
  }

  /** Whether so many more events, of so many characters in all, are taken without a limit being reached. */
  hasRoom(events: number, characters: number): boolean {
    return this.#waiting.length + events <= MAX_SEPARATE && this.#characters + characters <= MAX_CHARACTERS / 2;
  }

  /** Calls back if the client has caught up: uWebSockets does not report every buffer that has emptied. */
  resume(): void {
    if (!this.#isHeld || this.socket.isSlow) return;
    this.#isHeld = false;
    this.onRoom();
  }

  get isFull(): boolean {
    return this.#characters > MAX_CHARACTERS;
  }

  /** An answer goes out at once, unless an event has just left. */
  reply(text: string): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#eventAt < DISTANCE_MS) this.#wait(text, null);
    else this.#send(text, now);
  }

  event(text: string, owner: EventOwner): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#sentAt < DISTANCE_MS) this.#wait(text, owner);
    else {
      this.#eventAt = now;
      this.#send(text, now);
    }
  }

  /** Drops the events that wait; answers whether there were any. */
  withdraw(owner: EventOwner): boolean {
    const waiting = this.#waiting;
    this.#waiting = waiting.filter((each) => each.owner !== owner);
    for (const each of waiting) if (each.owner === owner) this.#characters -= each.text.length;
    return this.#waiting.length < waiting.length;
  }

  /** Sends the answers that wait, so that none comes after the next message. */
  hurry(): void {
    const waiting = this.#waiting;
    this.#waiting = waiting.filter(({ owner }) => owner !== null);
    for (const { text, owner } of waiting) {
      if (owner !== null) continue;
      this.#characters -= text.length;
      this.replies--;
      this.#send(text, performance.now());
    }
  }

  close(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#waiting = [];
    this.#characters = this.replies = 0;
  }

  #send(text: string, now: number): void {
    this.#sentAt = now;
    this.socket.send(text);
  }

  #wait(text: string, owner: EventOwner | null): void {
    const isReply = owner === null;
    if (this.isFull || (isReply && this.replies >= MAX_REPLIES)) this.socket.end(1013, 'Too many messages wait');
    if (!this.socket.isOpen) return;
    this.#waiting.push({ text, owner, generation: owner?.generation ?? 0 });
    this.#characters += text.length;
    if (isReply) this.replies++;
    this.#timer ??= setTimeout(() => this.#next(), DISTANCE_MS);
  }

  #next(): void {
    this.#timer = null;
    if (!this.socket.isOpen) return;
    const text = this.#take();
    if (text !== null) {
      const now = performance.now();
      this.#eventAt = now;
      this.#send(text, now);
    }
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#next(), DISTANCE_MS);
    else this.onRoom();
  }

  /** The next that may still be sent. */
  #take(): string | null {
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) {
      const { text, owner, generation } = next;
      this.#characters -= text.length;
      if (owner === null) this.replies--;
      if (owner === null || owner.generation === generation) return text;
      owner.lose();
    }
    return null;
  }
}
