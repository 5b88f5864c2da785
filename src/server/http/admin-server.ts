/**
 * The admin listener: a separate small server for load balancers and scrapers, off by default. It speaks HTTP/1.0 as well, which
 * the server for clients does not and the health checks of some proxies do, and it is there while the service starts and stops.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { StartError } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import { errorReply, type Reply } from './reply.js';

interface AdminServer {
  readonly port: number;
  close(): Promise<void>;
}

/** By path; what they answer is small and has no secrets of users. */
export type AdminAnswers = Readonly<Record<string, () => Promise<Reply>>>;

const MAX_CONNECTIONS = 100;

/** For a request to arrive, its head and all of it. */
const HEAD_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 10_000;

/** OPTIONS is what haproxy's check sends by default. */
const METHODS = ['GET', 'HEAD', 'OPTIONS'];

export async function openAdmin(host: string, port: number, answers: AdminAnswers): Promise<AdminServer> {
  const server = createServer(
    {
      headersTimeout: HEAD_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: HEAD_TIMEOUT_MS,
    },
    (request, response) => void answer(request, response, answers),
  );
  server.maxConnections = MAX_CONNECTIONS;
  try {
    server.listen(port, host);
    await once(server, 'listening');
  } catch (error) {
    throw new StartError(`cannot listen on ADMIN_HOST ${host}, ADMIN_PORT ${port}: ${asError(error).message}`);
  }
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(request: IncomingMessage, response: ServerResponse, answers: AdminAnswers): Promise<void> {
  request.resume();
  const path = (request.url ?? '').replace(/\?.*$/s, '').replace(/(?<=.)\/$/, '');
  const handler = Object.hasOwn(answers, path) ? answers[path] : undefined;
  if (!handler) return send(response, { status: 404, type: TEXT, body: 'not found' });
  if (!METHODS.includes(request.method ?? ''))
    return send(response, { status: 405, type: TEXT, body: 'not allowed', headers: { Allow: METHODS.join(', ') } });
  send(response, await handler().catch(errorReply));
}

const TEXT = 'text/plain; charset=utf-8';

function send(response: ServerResponse, { status, type, body, headers }: Reply): void {
  if (typeof body === 'function') throw new Error('nothing is streamed here');
  for (const [name, value] of Object.entries(headers ?? {})) response.setHeader(name, value);
  response.writeHead(status, {
    'Content-Type': type,
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
  });
  // Node leaves the body out for HEAD.
  response.end(body);
}
