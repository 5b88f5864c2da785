/**
 * A client for tests that count in tens of thousands: one connection that is kept alive, one request on it at a time, as few
 * bytes and objects as that takes. It believes the service to be well-behaved: answers have a length.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { ADMIN_TOKEN } from './service.js';

export interface Received {
  readonly status: number;
  readonly body: string;
}

export class Connection {
  readonly #url: URL;
  #socket: Socket | null = null;
  #received: Buffer = EMPTY;
  #waiting: { readonly resolve: (received: Received) => void; readonly reject: (error: Error) => void } | null = null;

  constructor(service: { readonly url: string }) {
    this.#url = new URL(service.url);
  }

  /** The request is written before this returns, unless there was no connection yet. */
  async request(method: string, path: string, body = ''): Promise<Received> {
    const socket = this.#socket ?? (await this.#connect());
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      socket.write(head(method, path, body));
    });
  }

  /** Writes the request and goes away without its answer. */
  async leave(method: string, path: string, body = ''): Promise<void> {
    const socket = this.#socket ?? (await this.#connect());
    this.#socket = null;
    await new Promise((resolve) => socket.write(head(method, path, body), resolve));
    socket.removeAllListeners('close').resetAndDestroy();
  }

  /** For those who must not spend the time of a request on it. */
  async open(): Promise<void> {
    if (this.#socket === null) await this.#connect();
  }

  close(): void {
    this.#socket?.removeAllListeners('close').destroy();
    this.#socket = null;
    this.#waiting?.reject(new Error('the connection was closed'));
  }

  async #connect(): Promise<Socket> {
    const socket = connect({ host: this.#url.hostname, port: Number(this.#url.port), noDelay: true });
    await once(socket, 'connect');
    this.#received = EMPTY;
    socket.on('data', (chunk) => this.#take(chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#socket = null;
      this.#waiting?.reject(new Error('the service closed the connection'));
    });
    this.#socket = socket;
    return socket;
  }

  #take(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const headers = this.#received.toString('latin1', 0, end);
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(headers)?.[1] ?? 0);
    if (this.#received.length < end + 4 + length) return;
    const body = this.#received.toString('utf8', end + 4, end + 4 + length);
    this.#received = this.#received.subarray(end + 4 + length);
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.resolve({ status: Number(headers.slice(9, 12)), body });
  }
}

const EMPTY = Buffer.alloc(0);

function head(method: string, path: string, body: string): string {
  const start = `${method} ${path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n`;
  if (body === '') return `${start}\r\n`;
  return `${start}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}
