/** The connections of a protocol: each is looked at from time to time, and all end with the service. */
import type { Socket, SocketClient, SocketHandler, SocketProtocol } from '../../http/websocket.js';

/** Milliseconds between two looks at whether tokens have expired. */
const LOOK_MS = 1_000;

export interface KeptConnection extends SocketHandler {
  /** Tokens expire, and are withdrawn, without anybody saying so. */
  look(): void;
  /** A client that has sent nothing since the last time is gone. */
  beat(): void;
  /** The service stops. */
  end(): void;
}

/** `period` in milliseconds, 0 for no beats. */
export function keepConnections(
  period: number,
  connect: (socket: Socket, client: SocketClient, onClosed: () => void) => KeptConnection,
): Pick<SocketProtocol, 'open' | 'stop'> {
  const connections = new Set<KeptConnection>();
  const every = (ms: number, work: (connection: KeptConnection) => void): NodeJS.Timeout =>
    setInterval(() => connections.forEach(work), ms).unref();
  let timers: NodeJS.Timeout[] = [];
  let isStopped = false;
  const begin = (): void => {
    if (timers.length > 0) return;
    timers = [every(LOOK_MS, (connection) => connection.look())];
    if (period > 0) timers.push(every(period, (connection) => connection.beat()));
  };
  const rest = (): void => {
    for (const timer of timers.splice(0)) clearInterval(timer);
  };
  return {
    open: (socket, client) => {
      const connection = connect(socket, client, () => {
        connections.delete(connection);
        if (connections.size === 0) rest();
      });
      if (isStopped) connection.end();
      connections.add(connection);
      begin();
      return connection;
    },
    stop: () => {
      isStopped = true;
      rest();
      for (const connection of connections) connection.end();
    },
  };
}
