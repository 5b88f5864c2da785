/** A receiver of webhooks: it keeps what arrives, and answers as it is told. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { waitFor } from './service.js';

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly json: {
    readonly type: string;
    readonly collection: string;
    readonly event: string;
    readonly key: string | null;
    readonly data: Readonly<Record<string, unknown>> | null;
    readonly previous?: Readonly<Record<string, unknown>>;
    readonly omitted?: string;
  };
}

export interface Receiver {
  readonly url: string;
  readonly received: Received[];
  /** Decides on the answer; by default it is 204. */
  answer: (received: Received, response: ServerResponse) => void;
  /** Waits until so many have arrived. */
  count(number: number, within?: number): Promise<readonly Received[]>;
}

export async function startReceiver(): Promise<Receiver> {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const body = Buffer.concat(pieces).toString();
      const arrived = { path: request.url ?? '', headers: request.headers, body, json: JSON.parse(body) };
      receiver.received.push(arrived);
      receiver.answer(arrived, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}`,
    received: [],
    answer: (_, response) => void response.writeHead(204).end(),
    count: async (number, within = 10_000) => {
      await waitFor(async () => receiver.received.length >= number, within);
      return receiver.received;
    },
  };
  return receiver;
}
