/** A client of a WebSocket that keeps every message. */
import { WebSocket } from 'ws';
import { waitFor } from './service.js';

export type Message = Readonly<Record<string, unknown>>;

export interface MessageSocketOptions {
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Null for none. */
  readonly protocols?: string | null;
}

export class MessageSocket {
  readonly messages: Message[] = [];
  readonly socket: WebSocket;
  /** Of the answer, where it was no upgrade. */
  status = 101;
  closed: { readonly code: number; readonly reason: string } | null = null;

  constructor(
    service: { readonly url: string },
    { path = '/websocket', headers = {}, protocols = null }: MessageSocketOptions = {},
  ) {
    this.socket = new WebSocket(`${service.url.replace(/^http/, 'ws')}${path}`, protocols ?? [], { headers });
    this.socket.on('message', (data) => this.messages.push(JSON.parse(String(data))));
    this.socket.on('close', (code, reason) => {
      this.closed = { code, reason: String(reason) };
    });
    this.socket.on('unexpected-response', (request, response) => {
      this.status = response.statusCode ?? 0;
      this.closed = { code: 0, reason: '' };
      request.destroy();
    });
    this.socket.on('error', () => {});
  }

  /** Resolves when it is open, or was refused. */
  async opened(): Promise<this> {
    await waitFor(async () => this.socket.readyState === WebSocket.OPEN || this.closed !== null, 5_000);
    return this;
  }

  send(message: unknown): void {
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  /** The first message that fits; those before it stay. */
  async next(fits: (message: Message) => boolean, within = 5_000): Promise<Message> {
    await waitFor(async () => this.messages.some(fits), within);
    const position = this.messages.findIndex(fits);
    const [found] = this.messages.splice(position, 1);
    if (!found) throw new Error('it was there a moment ago');
    return found;
  }

  /** Sends it with a uid, and answers what comes back with it. */
  async ask(message: Message): Promise<Message> {
    const uid = message['uid'] ?? `ask-${Math.random()}`;
    this.send({ ...message, uid });
    return this.next((each) => each['uid'] === uid);
  }

  async signIn(token: string): Promise<Message> {
    this.send({ type: 'auth', access_token: token });
    return this.next(({ type }) => type === 'auth');
  }

  async ended(within = 5_000): Promise<void> {
    await waitFor(async () => this.closed !== null, within);
  }

  close(): void {
    this.socket.terminate();
  }
}
