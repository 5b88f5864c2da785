/**
 * Messages on their way to a client. The SDK listens for one message at a time, and misses one that comes in the same moment as another:
 * events keep a distance from what was sent before them.
 */
import type { Socket } from '../http/websocket.js';

/** Milliseconds between an event and the message before or after it. */
const DISTANCE_MS = 8;
/** Messages that may wait until no more events are taken. */
const MAX_WAITING = 50;

export class SocketOutbox {
  readonly #socket: Socket;
  readonly #onRoom: () => void;
  #waiting: string[] = [];
  #timer: NodeJS.Timeout | null = null;
  #sentAt = 0;
  #eventAt = 0;

  constructor(socket: Socket, onRoom: () => void) {
    this.#socket = socket;
    this.#onRoom = onRoom;
  }

  /** Whether events are taken now. */
  get isReady(): boolean {
    return this.#waiting.length < MAX_WAITING && !this.#socket.isSlow;
  }

  /** An answer goes out at once, unless an event has just left. */
  reply(text: string): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#eventAt < DISTANCE_MS) this.#wait(text);
    else this.#send(text, now);
  }

  event(text: string): void {
    const now = performance.now();
    if (this.#timer !== null || now - this.#sentAt < DISTANCE_MS) this.#wait(text);
    else {
      this.#eventAt = now;
      this.#send(text, now);
    }
  }

  close(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#waiting = [];
  }

  #send(text: string, now: number): void {
    this.#sentAt = now;
    this.#socket.send(text);
  }

  #wait(text: string): void {
    this.#waiting.push(text);
    this.#timer ??= setTimeout(() => this.#next(), DISTANCE_MS);
  }

  #next(): void {
    this.#timer = null;
    const next = this.#waiting.shift();
    if (next === undefined || !this.#socket.isOpen) return;
    const now = performance.now();
    this.#eventAt = now;
    this.#send(next, now);
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#next(), DISTANCE_MS);
    else this.#onRoom();
  }
}
