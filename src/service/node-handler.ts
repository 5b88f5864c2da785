/** Mounts the service in a server of Node: `createServer(toNodeHandler(lateral))`, or `app.use('/api', toNodeHandler(lateral))` in Express. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { LateralError } from '../base/errors.js';

interface Fetching {
  fetch(request: Request, options: { readonly address: string }): Promise<Response>;
}

export type NodeHandler = (request: IncomingMessage, response: ServerResponse, next?: (error: unknown) => void) => void;

export function toNodeHandler(lateral: Fetching): NodeHandler {
  return (incoming, outgoing, next) => {
    handle(lateral, incoming, outgoing).catch((error: unknown) => {
      if (next && !outgoing.headersSent) next(error);
      else if (outgoing.headersSent || outgoing.destroyed || !(error instanceof LateralError)) outgoing.destroy();
      else refuse(outgoing, error);
    });
  };
}

/** A server without a handler for errors would leave the client without an answer. */
function refuse(outgoing: ServerResponse, { status, message, code, extensions }: LateralError): void {
  const body = JSON.stringify({ errors: [{ message, extensions: { code, ...extensions } }] });
  if (status === 405) outgoing.setHeader('allow', 'GET, HEAD, OPTIONS, POST, PATCH, DELETE, SEARCH, QUERY');
  outgoing.writeHead(status, { 'content-type': 'application/json; charset=utf-8', connection: 'close' }).end(body);
}

/** The Fetch standard has no such requests. */
const NO_FETCH = /^(connect|trace|track)$/i;

async function handle(lateral: Fetching, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const left = new AbortController();
  outgoing.once('close', () => {
    if (!outgoing.writableFinished) left.abort(new Error('the client disconnected'));
  });
  const address = incoming.socket.remoteAddress ?? '';
  const response = await lateral.fetch(requestOf(incoming, left.signal), { address });
  const cookies = response.headers.getSetCookie();
  const headers = [...response.headers].filter(([name]) => name !== 'set-cookie');
  for (const [name, value] of headers) outgoing.setHeader(name, value);
  if (cookies.length > 0) outgoing.setHeader('set-cookie', cookies);
  outgoing.writeHead(response.status, response.statusText);
  if (response.body === null || incoming.method === 'HEAD') outgoing.end();
  else {
    // The first event of a stream may come late: its head must not wait for it.
    outgoing.flushHeaders();
    await pipeline(response.body, outgoing);
  }
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request {
  const {
    method = 'GET',
    url = '/',
    headers: { host = 'localhost' },
  } = incoming;
  if (NO_FETCH.test(method)) throw new LateralError(405, 'METHOD_NOT_ALLOWED', `${method} is not supported.`);
  const headers = new Headers();
  for (let index = 0; index + 1 < incoming.rawHeaders.length; index += 2)
    headers.append(incoming.rawHeaders[index] ?? '', incoming.rawHeaders[index + 1] ?? '');
  const hasBody = method !== 'GET' && method !== 'HEAD';
  if (hasBody && incoming.readableDidRead)
    throw new LateralError(
      500,
      'INTERNAL_SERVER_ERROR',
      'The body of the request was read already: mount Lateral before body parsers such as express.json()',
    );
  // A host with other characters could end before the path of the request, and replace it.
  const isHost = /^[\w.:[\]-]+$/.test(host) && URL.canParse(`http://${host}`);
  const origin = isHost ? `http://${host}` : 'http://localhost';
  return new Request(`${origin}${url}`, {
    method,
    headers,
    signal,
    ...(hasBody ? { body: bodyOf(incoming), duplex: 'half' } : {}),
  });
}

/** The service drops the part of a body that it does not read, so that the response can leave. */
function bodyOf(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  let isOpen = true;
  const settle = (end: () => void): void => {
    if (isOpen) end();
    isOpen = false;
  };
  return new ReadableStream<Uint8Array>({
    start: (controller) => {
      incoming.on('data', (piece: Uint8Array) => {
        if (!isOpen) return;
        controller.enqueue(piece);
        if ((controller.desiredSize ?? 0) <= 0) incoming.pause();
      });
      incoming.on('end', () => settle(() => controller.close()));
      incoming.on('error', (error) => settle(() => controller.error(error)));
    },
    pull: () => void incoming.resume(),
    cancel: () => {
      isOpen = false;
      incoming.resume();
    },
  });
}
