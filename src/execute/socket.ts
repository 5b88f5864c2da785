/**
 * Opens the socket of a connection that we read ourselves: bytes arrive in memory that is used again and again, where the
 * driver would have new memory for each piece. TLS is agreed on here too, in the modes that the driver knows.
 */
import { isIP, Socket } from 'node:net';
import { Duplex } from 'node:stream';
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

/** Always answers a socket: where none can be opened, one that breaks for the same reason. */
export function openSocket(target: Target, receiver: Receiver): Promise<Socket> {
  return tryToOpen(target, receiver).catch(brokenSocket);
}

/**
 * The driver forgets a connection whose socket was not given to it: it would never open another. Neither may the socket break
 * while the driver's first message is not written, or it would be sent on the next connection.
 */
async function brokenSocket(reason: Error): Promise<Socket> {
  const broken = new Duplex({ read: () => {}, write: (_chunk, _encoding, written) => written() });
  setImmediate(() => setImmediate(() => broken.destroy(reason)));
  return broken as Socket;
}

async function tryToOpen(target: Target, receiver: Receiver): Promise<Socket> {
  // One that does not answer leaves the next attempt to its neighbour.
  const turn = attempts++ % target.host.length;
  const host = target.host[turn] as string;
  const connect = (socket: Socket): Promise<Socket> => connectSocket(socket, target, turn);
  if (!target.ssl) return connect(openPlain(receiver));
  const socket = await connect(new Socket());
  const direct = target.sslnegotiation === 'direct';
  if (direct || (await acceptsSecurity(socket))) return secure(socket, host, target.ssl, direct, receiver);
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

function connectSocket(socket: Socket, { host, port, path }: Target, turn: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.removeListener('error', reject);
      socket.setNoDelay(true);
      resolve(socket);
    });
    if (path) socket.connect(path);
    else socket.connect(port[turn] as number, host[turn] as string);
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
