/**
 * The server that carries requests: uWebSockets, `node:http` where that does not load, or the program itself (`memory-socket.ts`). Each of
 * them gives the exchange a request and a response with the methods that uWebSockets has.
 */

/** The part of a request of uWebSockets that the service reads. */
export interface ServerRequest {
  getCaseSensitiveMethod(): string;
  getUrl(): string;
  getQuery(): string;
  getHeader(lowerCaseName: string): string;
  forEach(read: (name: string, value: string) => void): void;
}

/** The part of a response of uWebSockets that the service writes. */
export interface ServerResponse {
  pause(): void;
  resume(): void;
  getWriteOffset(): number;
  getRemoteAddress(): ArrayBuffer;
  getRemoteAddressAsText(): ArrayBuffer;
  write(chunk: string | Uint8Array): boolean;
  tryEnd(chunk: string | Uint8Array, size: number): [sent: boolean, done: boolean];
  writeStatus(status: string): unknown;
  writeHeader(name: Uint8Array | string, value: Uint8Array | string): unknown;
  end(body?: string | Uint8Array, closes?: boolean): unknown;
  endWithoutBody(length?: number, closes?: boolean): unknown;
  onWritable(handler: (offset: number) => boolean): unknown;
  onAborted(handler: () => void): unknown;
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): unknown;
  cork(write: () => void): unknown;
  close(): unknown;
}

/** The part of a WebSocket of uWebSockets that the service uses. */
export interface SocketConnection {
  cork(write: () => void): unknown;
  send(message: string | Buffer, isBinary: boolean): unknown;
  /** Bytes that wait for the client. */
  getBufferedAmount(): number;
  end(code?: number, reason?: string | Buffer): unknown;
}

/** The client, as its upgrade request describes it. */
export interface SocketClient {
  readonly address: string;
  readonly userAgent: string;
  readonly origin: string;
  /** The token of the URL, a header or the session cookie, in the form of an Authorization header; '' for none. */
  readonly authorization: string;
  /** The subprotocols it offers. */
  readonly protocols: readonly string[];
}

export interface SocketEvents {
  message(text: string): void;
  /** The connection has sent what waited. */
  drained(): void;
  closed(): void;
}

/** How requests for a path become WebSockets. */
export interface SocketServer {
  readonly path: string;
  readonly maxMessageBytes: number;
  /** Resolves with null if the request was answered with an error, or if its client has left. */
  admit(request: ServerRequest, response: ServerResponse): Promise<AdmittedSocket | null>;
  open(connection: SocketConnection, client: SocketClient): SocketEvents;
}

interface AdmittedSocket {
  readonly client: SocketClient;
  /** The subprotocol; '' for none. */
  readonly protocol: string;
  /** To be called if the connection is not opened nevertheless. */
  withdraw(): void;
}

/** Seconds without anything received, also no answer to a ping, until a WebSocket ends. */
export const SOCKET_IDLE_S = 120;
/** Bytes that may wait for the client of a WebSocket which does not read: beyond, the connection ends. */
export const MAX_SOCKET_BYTES = 16_777_216;

/** The order of the arguments is that of uWebSockets. */
export type HandleRequest = (response: ServerResponse, request: ServerRequest) => void;

export interface RequestHandlers {
  readonly get: HandleRequest;
  readonly any: HandleRequest;
  readonly sockets: readonly SocketServer[];
}

export interface ListenAddress {
  readonly host: string;
  /** 0 for any that is free. */
  readonly port: number;
  /** With other threads of this process, or other processes. */
  readonly shared: boolean;
}

export interface OpenPort {
  readonly port: number;
  /** Accepts no further connections. */
  refuse(): void;
  /** Closes all connections. */
  close(): void;
}

export interface Transport {
  readonly name: 'uws' | 'node';
  open(address: ListenAddress, handlers: RequestHandlers): Promise<OpenPort>;
}
