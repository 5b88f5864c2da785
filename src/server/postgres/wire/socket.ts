/**
 * Opens the sockets of connections, with TLS as the connection settings say. We read them ourselves: bytes arrive in memory that is used
 * again and again, where the driver would have new memory for each piece.
 */
import { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectSecurely } from 'node:tls';
import { codeOf, elementAt, messageOf } from '../../../base/narrow.js';
import { type ConnectionSettings, type HostAddress, withHost } from '../../config/connection-settings.js';
import { disconnected, failed, rejected } from './connection-errors.js';
import type { Reached } from './login.js';
import { PROTOCOL, tlsOptions } from './tls.js';

export interface Receiver {
  /** The memory may be used until the call has returned and the promises that it settled have been heard. */
  receive(chunk: Buffer, size: number): void;
}

/** The owner of a connection that is being opened. */
export interface SocketOwner extends Receiver {
  /** Called with each socket that is tried. Returns false if the connection is no longer wanted. */
  attach(socket: Socket): boolean;
}

const RECEIVE_BUFFER_BYTES = 65_536;

/** Asks for TLS: its length, and a number that no version of the protocol has. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
const SSL_ACCEPTED = 0x53;
const SSL_REFUSED = 0x4e;

/** Asks to stop what a connection does: its length, the number that says so, and the key of the connection. */
const CANCEL_REQUEST = Buffer.from([0, 0, 0, 16, 4, 210, 22, 46]);

/** Milliseconds that a server may take to hear it. */
const CANCEL_TIMEOUT_MS = 5_000;

/** One way to reach a server: at an address, with or without TLS. */
export class Approach {
  #socket: Socket;
  /** Whether bytes are part of the request for TLS. */
  #isAsking = false;
  /** Whether the server has answered at all: another way may lead to it then. */
  isConnected = false;

  constructor(
    private readonly settings: ConnectionSettings,
    private readonly host: HostAddress,
    private readonly owner: SocketOwner,
  ) {
    this.#socket = this.#openPlain();
  }

  async open(isSecure: boolean): Promise<Reached> {
    const { settings, host } = this;
    try {
      this.#attach();
      await this.#connect();
      this.isConnected = true;
      const certificate = isSecure ? await this.#secure() : null;
      return { socket: this.#socket, settings: withHost(settings, host), certificate };
    } catch (error) {
      this.#socket.destroy();
      throw error;
    }
  }

  destroy(reason?: Error): void {
    this.#socket.destroy(reason);
  }

  #attach(): void {
    // The users of a socket come and go. Nobody needs an error before "close".
    this.#socket.on('error', () => {});
    if (!this.owner.attach(this.#socket)) throw disconnected();
  }

  #openPlain(): Socket {
    const onread = {
      buffer: Buffer.allocUnsafeSlow(RECEIVE_BUFFER_BYTES),
      callback: (size: number, chunk: Uint8Array): boolean => {
        if (this.#isAsking) this.#socket.emit('data', Buffer.from(chunk.subarray(0, size)));
        else this.owner.receive(chunk as Buffer, size);
        return true;
      },
    };
    return new Socket({ onread } as ConstructorParameters<typeof Socket>[0]);
  }

  async #connect(): Promise<void> {
    const { path, port, address } = this.host;
    const { keepAlive } = this.settings;
    const socket = this.#socket;
    if (path !== null) socket.connect(path);
    else socket.connect(port, address);
    await event(socket, 'connect');
    socket.setNoDelay(true);
    if (keepAlive !== null) socket.setKeepAlive(true, keepAlive * 1_000);
  }

  /** Returns the certificate of the server, or null if it has no TLS and need not have it. */
  async #secure(): Promise<Buffer | null> {
    const { tls } = this.settings;
    if (!tls.isDirect && !(await this.#acceptsSecurity())) {
      if (tls.mode === 'prefer') return null;
      throw rejected(
        `The server does not support TLS, which sslmode=${tls.mode} demands. Enable it there, or set sslmode=disable`,
      );
    }
    const options = tlsOptions(this.#socket, this.host, tls);
    const secured = connectSecurely(options);
    this.#socket = secured;
    this.#attach();
    try {
      await event(secured, 'secureConnect');
    } catch (error) {
      const isHangUp = /^(ECONN|EPIPE|CONNECTION)/.test(codeOf(error));
      throw isHangUp ? failed(`TLS failed: ${messageOf(error)}`, error) : refusedCertificate(error, tls.mode);
    }
    if (tls.isDirect && secured.alpnProtocol !== PROTOCOL)
      throw rejected('The server does not support sslnegotiation=direct: remove it');
    divert(secured, this.owner);
    return secured.getPeerX509Certificate()?.raw ?? null;
  }

  async #acceptsSecurity(): Promise<boolean> {
    this.#isAsking = true;
    this.#socket.write(SSL_REQUEST);
    const answer = await event(this.#socket, 'data');
    this.#isAsking = false;
    // Bytes behind the answer were not encrypted: an attacker may have added them.
    if (!Buffer.isBuffer(answer) || answer.length !== 1 || (answer[0] !== SSL_ACCEPTED && answer[0] !== SSL_REFUSED))
      throw failed('The server did not say whether it supports TLS');
    return answer[0] === SSL_ACCEPTED;
  }
}

function refusedCertificate(error: unknown, mode: string): Error {
  return rejected(
    `TLS with sslmode=${mode} failed: ${messageOf(error)}. Name the certificate of its authority in sslrootcert`,
    error,
  );
}

/** Whether to begin with TLS, in the order of the attempts. TLS is for networks only. */
export function waysTo({ path }: HostAddress, { tls }: ConnectionSettings): readonly boolean[] {
  if (path !== null || tls.mode === 'disable') return [false];
  if (tls.mode === 'allow') return [false, true];
  return tls.mode === 'prefer' ? [true, false] : [true];
}

/**
 * Asks the server of a connection to stop the statement that runs on it, by a separate connection. The server has done so,
 * or will never, once it has closed that one.
 */
export async function cancelStatement(settings: ConnectionSettings, socket: Socket, key: Buffer): Promise<void> {
  const host = hostOf(settings, socket);
  try {
    const approach = new Approach(settings, host, { attach: () => true, receive: () => {} });
    const timer = setTimeout(() => approach.destroy(), CANCEL_TIMEOUT_MS);
    try {
      const { socket: asking } = await approach.open(waysTo(host, settings)[0] === true);
      asking.end(Buffer.concat([CANCEL_REQUEST, key]));
      await event(asking.resume(), 'end');
    } finally {
      clearTimeout(timer);
      approach.destroy();
    }
  } catch {
    // It ends by itself, if later.
  }
}

/** The host that the socket leads to: a name may have several addresses. */
function hostOf({ hosts }: ConnectionSettings, { remoteAddress, remotePort }: Socket): HostAddress {
  const first = elementAt(hosts, 0);
  if (hosts.length === 1 || !remoteAddress || !remotePort) return first;
  const found = hosts.find(({ port, address }) => port === remotePort && address === remoteAddress);
  return {
    ...(found ?? hosts.find(({ port }) => port === remotePort) ?? first),
    address: remoteAddress,
    port: remotePort,
  };
}

/** The driver learns of a failure from a socket's events alone, and must have written before they come. */
export function failingSocket(error: Error): Socket {
  return new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done(error) }) as unknown as Socket;
}

/** All that arrives goes to the receiver alone: the driver must not see what is ours. */
function divert(socket: Socket, receiver: Receiver): void {
  const push = socket.push.bind(socket);
  socket.push = (chunk: Buffer | null): boolean => {
    if (chunk === null) return push(null);
    receiver.receive(chunk, chunk.length);
    return true;
  };
}

/** The value of the event; fails if the socket fails or closes before it. */
function event(socket: Socket, name: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: () => void): void => {
      socket.off(name, happened).off('error', reported).off('close', ended);
      outcome();
    };
    const happened = (value: unknown): void => settle(() => resolve(value));
    const reported = (error: Error): void => settle(() => reject(error));
    const ended = (): void => settle(() => reject(disconnected()));
    socket.on(name, happened).on('error', reported).on('close', ended);
  });
}
