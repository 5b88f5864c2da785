/**
 * Opens the socket of a connection that we read ourselves: bytes arrive in memory that is used again and again, where the
 * driver would have new memory for each piece. TLS is agreed on here too, in the modes that the driver knows.
 */
import { isIP, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectSecurely } from 'node:tls';
import { elementAt } from '../../../base/narrow.js';
import { closed } from './connection-errors.js';

export interface Receiver {
  /** The memory may be used until the call has returned and the promises that it settled have been heard. */
  receive(chunk: Buffer, size: number): void;
}

/** Where the server is, as the driver has read it from the URL and the environment. */
export interface Target {
  readonly host: readonly string[];
  readonly port: readonly number[];
  /** The path of a Unix socket. */
  readonly path: string | false | undefined;
  readonly ssl: unknown;
  readonly sslnegotiation?: string | null;
  /** Seconds. */
  readonly connect_timeout?: number;
  /** Which of several servers will do: the driver asks each for it. */
  readonly target_session_attrs?: unknown;
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

let attempts = 0;

/** Connects to the first host that answers. Each attempt begins with another host. */
export async function openSocket(target: Target, receiver: Receiver): Promise<Socket> {
  const first = attempts++;
  let cause: unknown;
  for (let tried = 0; tried < target.host.length; tried++) {
    try {
      return await openAt(target, (first + tried) % target.host.length, receiver);
    } catch (error) {
      cause = error;
    }
  }
  throw failed(cause instanceof Error ? cause.message : 'There is no host to connect to', cause);
}

/**
 * Asks the server of a connection to stop the statement that runs on it, by a separate connection. The server has done so,
 * or will never, once it has closed that one.
 */
export async function cancelStatement(target: Target, socket: Socket, key: Buffer): Promise<void> {
  const { remoteAddress, remotePort } = socket;
  const there = remoteAddress && remotePort && target.host.length > 1;
  const location = there ? { ...target, host: [remoteAddress], port: [remotePort] } : target;
  try {
    const asking = await openSocket(location, { receive: () => {} });
    asking.setTimeout(CANCEL_TIMEOUT_MS, () => asking.destroy());
    asking.end(Buffer.concat([CANCEL_REQUEST, key]));
    await event(asking.resume(), 'end');
    asking.destroy();
  } catch {
    // It ends by itself, if later.
  }
}

/** The driver learns of a failure from a socket's events alone, and must have written before they come. */
export function failingSocket(error: Error): Socket {
  return new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done(error) }) as unknown as Socket;
}

/**
 * If a server hangs up before it has answered, the driver would try again, at once and without an end: it gets a failure
 * instead. Not to be used where it hangs up itself, because the server is not of the kind that is wanted.
 */
export function reportHangUp(socket: Socket, isHungUp: () => boolean = () => true): void {
  socket.once('close', (hadError) => {
    if (!hadError && isHungUp()) socket.emit('error', closed());
  });
}

async function openAt(target: Target, turn: number, receiver: Receiver): Promise<Socket> {
  const { ssl, connect_timeout: seconds = 0 } = target;
  let socket = ssl ? new Socket() : openPlain(receiver);
  const timer = seconds > 0 && setTimeout(() => socket.destroy(failed('There is no answer')), seconds * 1_000);
  try {
    await connected(socket, target, turn);
    if (!ssl) return socket;
    const direct = target.sslnegotiation === 'direct';
    if (direct || (await acceptsSecurity(socket))) {
      socket = connectSecurely(securityOf(socket, elementAt(target.host, turn), ssl, direct));
      await event(socket, 'secureConnect');
    } else if (ssl !== 'prefer') throw failed('The server does not support TLS');
    return divert(socket, receiver);
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    if (timer) clearTimeout(timer);
  }
}

function openPlain(receiver: Receiver): Socket {
  const onread = {
    buffer: Buffer.allocUnsafeSlow(RECEIVE_BUFFER_BYTES),
    callback: (size: number, chunk: Uint8Array): boolean => {
      receiver.receive(chunk as Buffer, size);
      return true;
    },
  };
  return new Socket({ onread } as ConstructorParameters<typeof Socket>[0]);
}

async function connected(socket: Socket, { host, port, path }: Target, turn: number): Promise<void> {
  if (path) socket.connect(path);
  else socket.connect(elementAt(port, turn), elementAt(host, turn));
  await event(socket, 'connect');
  socket.setNoDelay(true);
}

async function acceptsSecurity(socket: Socket): Promise<boolean> {
  socket.write(SSL_REQUEST);
  const answer = await event(socket, 'data');
  // Bytes behind the answer were not encrypted: an attacker may have added them.
  if (!Buffer.isBuffer(answer) || answer.length !== 1 || (answer[0] !== SSL_ACCEPTED && answer[0] !== SSL_REFUSED))
    throw failed('The server did not say whether it supports TLS');
  return answer[0] === SSL_ACCEPTED;
}

function securityOf(socket: Socket, host: string, mode: unknown, direct: boolean): ConnectionOptions {
  return {
    socket,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(direct ? { ALPNProtocols: ['postgresql'] } : {}),
    ...(mode === 'require' || mode === 'allow' || mode === 'prefer' ? { rejectUnauthorized: false } : {}),
    ...(typeof mode === 'object' ? mode : {}),
  };
}

/** All that arrives goes to the receiver alone: the driver must not see what is ours. */
function divert(socket: Socket, receiver: Receiver): Socket {
  const push = socket.push.bind(socket);
  socket.push = (chunk: Buffer | null): boolean => {
    if (chunk === null) return push(null);
    receiver.receive(chunk, chunk.length);
    return true;
  };
  return socket;
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
    const ended = (): void => settle(() => reject(failed('The server closed the connection')));
    socket.on(name, happened).on('error', reported).on('close', ended);
  });
}

function failed(message: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code: 'CONNECTION_FAILED' });
}
