/**
 * Opens the socket of a connection that we read ourselves: bytes arrive in memory that is used again and again, where the
 * driver would have new memory for each piece. TLS is agreed on here too, in the modes that the driver knows.
 */
import { isIP, Socket } from 'node:net';
import { type ConnectionOptions, connect as connectSecurely } from 'node:tls';

export interface Receiver {
  /** The memory is only lent. */
  receive(chunk: Buffer, size: number): void;
}

/** Where the server is, as the driver has read it from the URL and the environment. */
export interface Target {
  readonly host: readonly string[];
  readonly port: readonly number[];
  /** Of a socket in the file system. */
  readonly path: string | false | undefined;
  readonly ssl: unknown;
  readonly sslnegotiation?: string | null;
}

const RECEIVED = 65_536;

/** Asks for TLS: its length, and a number that no version of the protocol has. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

let attempts = 0;

/**
 * Whether it can be connected is told by its events, never by a failure of the call: the driver would take the connection for
 * one that is still being opened, for ever. What is written before it is connected is sent then.
 */
export async function openSocket(target: Target, receiver: Receiver): Promise<Socket> {
  // One that does not answer leaves the next attempt to its neighbour.
  const turn = attempts++ % target.host.length;
  if (!target.ssl) return connect(openPlain(receiver), target, turn);
  try {
    return await openSecure(target, turn, receiver);
  } catch (error) {
    const failed = new Socket();
    setImmediate(() => failed.destroy(error as Error));
    return failed;
  }
}

async function openSecure(target: Target, turn: number, receiver: Receiver): Promise<Socket> {
  const socket = connect(new Socket(), target, turn);
  await connected(socket);
  const direct = target.sslnegotiation === 'direct';
  if (direct || (await acceptsSecurity(socket)))
    return secure(socket, target.host[turn] as string, target.ssl, direct, receiver);
  if (target.ssl === 'prefer') return socket.on('data', (chunk: Buffer) => receiver.receive(chunk, chunk.length));
  socket.destroy();
  throw Object.assign(new Error('The server does not support TLS'), { code: 'ECONNREFUSED' });
}

function openPlain(receiver: Receiver): Socket {
  const onread = {
    buffer: Buffer.allocUnsafeSlow(RECEIVED),
    callback: (size: number, chunk: Uint8Array): boolean => {
      receiver.receive(chunk as Buffer, size);
      return true;
    },
  };
  return new Socket({ onread } as ConstructorParameters<typeof Socket>[0]);
}

function connect(socket: Socket, { host, port, path }: Target, turn: number): Socket {
  socket.setNoDelay(true);
  return path ? socket.connect(path) : socket.connect(port[turn] as number, host[turn] as string);
}

function connected(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.removeListener('error', reject);
      resolve();
    });
  });
}

function acceptsSecurity(socket: Socket): Promise<boolean> {
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('close', () => resolve(false));
    socket.once('data', (answer: Buffer) => {
      socket.removeAllListeners();
      resolve(answer[0] === 0x53);
    });
    socket.write(SSL_REQUEST);
  });
}

function secure(socket: Socket, host: string, mode: unknown, direct: boolean, receiver: Receiver): Promise<Socket> {
  const options: ConnectionOptions = {
    socket,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(direct ? { ALPNProtocols: ['postgresql'] } : {}),
    ...(mode === 'require' || mode === 'allow' || mode === 'prefer' ? { rejectUnauthorized: false } : {}),
    ...(typeof mode === 'object' ? mode : {}),
  };
  return new Promise((resolve, reject) => {
    const secured = connectSecurely(options);
    secured.once('error', reject);
    secured.once('secureConnect', () => {
      secured.removeListener('error', reject);
      secured.on('data', (chunk: Buffer) => receiver.receive(chunk, chunk.length));
      resolve(secured);
    });
  });
}
