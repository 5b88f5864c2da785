/**
 * Messages on their way to a client. The SDK listens for one message at a time, and misses one that comes in the same moment as another:
 * events keep a distance from what was sent before them.
 */
import type { Socket } from '../http/websocket.js';

/** Milliseconds between an event and the message before or after it. */
const DISTANCE_MS = 8;
/** Messages that may wait until no more events are taken. */
const MAX_WAITING = 50;
/** Answers that may wait: with one more, the connection ends. */
const MAX_REPLIES = 1_000;
/** Characters that may wait when there is another message: beyond, the connection ends. */
const MAX_CHARACTERS = 16_777_216;

interface Waiting {
  readonly text: string;
  readonly isReply: boolean;
}

export class SocketOutbox {
  readonly #socket: Socket;
  readonly #onRoom: () => void;
  #waiting: Waiting[] = [];
  #characters = 0;
  /** Answers that wait. */
  replies = 0;
  #timer: NodeJS.Timeout | null = null;
  #sentAt = 0;
  #eventAt = 0;

  constructor(socket: Socket, onRoom: () => void) {
    this.#socket = socket;
    this.#onRoom = onRoom;
  }

  /** Whether events are taken now. */
  get isReady(): boolean {
    return this.#waiting.length < MAX_WAITING && !this.isFull && !this.#socket.isSlow;
  }

  get isFull(): boolean {
    return this.#characters > MAX_CHARACTERS;
  }

  /** An answer goes out at once, unless an event has just left. */
  reply(text: string): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#eventAt < DISTANCE_MS) this.#wait(text, true);
    else this.#send(text, now);
  }

  event(text: string): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#sentAt < DISTANCE_MS) this.#wait(text, false);
    else {
      this.#eventAt = now;
      this.#send(text, now);
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
    this.#socket.send(text);
  }

  #wait(text: string, isReply: boolean): void {
    if (this.isFull || (isReply && this.replies >= MAX_REPLIES)) this.#socket.end(1013, 'Too many messages wait');
    if (!this.#socket.isOpen) return;
    this.#waiting.push({ text, isReply });
    this.#characters += text.length;
    if (isReply) this.replies++;
    this.#timer ??= setTimeout(() => this.#next(), DISTANCE_MS);
  }

  #next(): void {
    this.#timer = null;
    const next = this.#waiting.shift();
    if (next === undefined || !this.#socket.isOpen) return;
    this.#characters -= next.text.length;
    if (next.isReply) this.replies--;
    const now = performance.now();
    this.#eventAt = now;
    this.#send(next.text, now);
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#next(), DISTANCE_MS);
    else this.#onRoom();
  }
}
