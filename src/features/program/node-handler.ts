/** Mounts the service in a server of Node: `createServer(toNodeHandler(lateral))`, or `app.use('/api', toNodeHandler(lateral))` in Express. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { invalidQuery, LateralError } from '../../base/errors.js';

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
  const target = URL.canParse(origin + url) ? new URL(origin + url) : null;
  if (!url.startsWith('/') || target === null || !isUnchanged(url, target)) throw changedPath(url);
  return new Request(target, {
    method,
    headers,
    signal,
    ...(hasBody ? { body: bodyOf(incoming), duplex: 'half' } : {}),
  });
}

/**
 * The parser of URLs resolves `..`, in its encoded form too, takes `\\` for `/`, and drops what follows `#`. A guard of the program that
 * compared the path has seen another one. To encode a character is no change.
 */
function isUnchanged(path: string, { pathname, search }: URL): boolean {
  return decoded(pathname + search) === decoded(path.endsWith('?') && search === '' ? path.slice(0, -1) : path);
}

function decoded(path: string): string {
  return path.replace(/%[0-9a-f]{2}/gi, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)));
}

function changedPath(path: string): LateralError {
  const reason = `The path of the request must be a path of a URL as it is, without "..", "\\" or "#": ${path.slice(0, 200)}`;
  return invalidQuery(reason);
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
