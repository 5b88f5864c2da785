/** A request and a response of `node:http` with the methods of uWebSockets that the exchange and the writer of responses call. */
import type { EventEmitter } from 'node:events';
import { type IncomingMessage, ServerResponse as Outgoing } from 'node:http';
import type { Socket } from 'node:net';
import { arrayBufferOf, copyOf, ResponseHead } from './memory-socket.js';
import type { ServerRequest, ServerResponse } from './transport.js';

export class NodeRequest implements ServerRequest {
  readonly #path: string;
  readonly #query: string;

  constructor(private readonly incoming: IncomingMessage) {
    const target = incoming.url ?? '';
    const at = target.indexOf('?');
    this.#path = at < 0 ? target : target.slice(0, at);
    this.#query = at < 0 ? '' : target.slice(at + 1);
  }

  getCaseSensitiveMethod(): string {
    return this.incoming.method ?? '';
  }

  getUrl(): string {
    return this.#path;
  }

  getQuery(): string {
    return this.#query;
  }

  getHeader(lowerCaseName: string): string {
    const value = this.incoming.headers[lowerCaseName] ?? '';
    return typeof value === 'string' ? value : value.join(', ');
  }

  forEach(read: (name: string, value: string) => void): void {
    const { rawHeaders } = this.incoming;
    for (let at = 0; at < rawHeaders.length; at += 2)
      read((rawHeaders[at] ?? '').toLowerCase(), rawHeaders[at + 1] ?? '');
  }
}

/** The bytes of a large body that are copied at a time: the rest is written when they have left. */
const PIECE_BYTES = 65_536;

/** Node ends the connection of a client that has read nothing for so long, as uWebSockets does. */
const STALL_MS = 10_000;

export class NodeResponse extends ResponseHead implements ServerResponse {
  #begun = false;
  #offset = 0;
  #onWritable: ((offset: number) => boolean) | null = null;

  /** `closing` emits `close` when the response has left or never will. */
  constructor(
    private readonly incoming: IncomingMessage,
    private readonly outgoing: Outgoing,
    private readonly closing: EventEmitter,
  ) {
    super();
    outgoing.on('drain', this.#writable);
  }

  getRemoteAddress(): ArrayBuffer {
    return this.getRemoteAddressAsText();
  }

  getRemoteAddressAsText(): ArrayBuffer {
    return new TextEncoder().encode(this.incoming.socket.remoteAddress ?? '').buffer;
  }

  /** Node sends the head with the first piece. If it is corked, it may not say that more can be written. */
  cork(write: () => void): void {
    write();
  }

  write(piece: Parameters<ServerResponse['write']>[0]): boolean {
    this.#begin(null);
    return this.#write(copyOf(piece));
  }

  /** Returns whether it has taken the whole piece, and whether the body is complete. */
  tryEnd(piece: Parameters<ServerResponse['tryEnd']>[0], length: number): [boolean, boolean] {
    this.#begin(length);
    const bytes = piece as Uint8Array;
    const isWhole = bytes.byteLength <= PIECE_BYTES;
    const isTaken = this.#write(copyOf(bytes.subarray(0, PIECE_BYTES)));
    const isComplete = this.#offset >= length;
    if (isComplete) this.outgoing.end();
    else if (isTaken && !isWhole) setImmediate(this.#writable);
    return [isComplete || (isTaken && isWhole), isComplete];
  }

  end(body: string | Uint8Array = '', closes = false): void {
    const bytes = copyOf(body);
    // The head of a body that has begun may say that the connection is kept.
    if (closes && this.#begun) this.outgoing.once('finish', () => this.incoming.socket.destroySoon());
    this.#begin(bytes.byteLength, closes);
    this.outgoing.end(bytes);
  }

  endWithoutBody(length?: number, closes = false): void {
    this.#begin(length ?? null, closes);
    this.outgoing.end();
  }

  getWriteOffset(): number {
    return this.#offset;
  }

  onWritable(handler: (offset: number) => boolean): void {
    this.#onWritable = handler;
  }

  onAborted(handler: () => void): void {
    this.closing.once('close', () => {
      if (!this.outgoing.writableFinished) handler();
    });
  }

  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): void {
    this.incoming.on('data', (chunk: Buffer) => handler(arrayBufferOf(chunk), false));
    this.incoming.on('end', () => handler(new ArrayBuffer(0), true));
    // The client has left: `onAborted` says so.
    this.incoming.on('error', () => {});
  }

  pause(): void {
    this.incoming.pause();
  }

  resume(): void {
    this.incoming.resume();
  }

  close(): void {
    this.incoming.socket.destroy();
  }

  readonly #writable = (): void => {
    this.incoming.socket.setTimeout(0);
    if (!this.outgoing.writableEnded && !this.outgoing.destroyed) this.#onWritable?.(this.#offset);
  };

  #write(bytes: Uint8Array): boolean {
    if (bytes.byteLength === 0) return true;
    this.#offset += bytes.byteLength;
    const isTaken = this.outgoing.write(bytes);
    if (!isTaken) this.incoming.socket.setTimeout(STALL_MS);
    return isTaken;
  }

  #begin(length: number | null, closes = false): void {
    if (this.#begun) return;
    this.#begun = true;
    // Node adds the header of connections that are kept open.
    const headers = this.headers().filter(([name]) => name !== 'Keep-Alive');
    if (length !== null && this.status.code !== NO_CONTENT && headers.every(([name]) => name !== 'Content-Length'))
      headers.push(['Content-Length', String(length)]);
    if (closes) this.outgoing.shouldKeepAlive = false;
    this.outgoing.writeHead(this.status.code, this.status.text, headers.flat());
  }
}

const NO_CONTENT = 204;

/** The response to a request that asks for another protocol. Node has let go of its socket, which ends with the response. */
export function upgradeResponse(
  incoming: IncomingMessage,
  socket: Socket,
): { readonly outgoing: Outgoing; readonly response: NodeResponse } {
  const outgoing = new Outgoing(incoming);
  outgoing.shouldKeepAlive = false;
  outgoing.assignSocket(socket);
  outgoing.once('finish', () => socket.destroySoon());
  // Node has removed its own listeners.
  socket.on('drain', () => outgoing.emit('drain'));
  socket.on('error', () => socket.destroy());
  return { outgoing, response: new NodeResponse(incoming, outgoing, socket) };
}
