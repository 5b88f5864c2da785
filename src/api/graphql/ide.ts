/**
 * The GraphQL IDE: a page for browsers at the GraphQL endpoints, with everything it loads served from here. It is a static
 * application from npm; a strict policy keeps it from talking to anybody else.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { routeNotFound, ServiceError } from '../../base/errors.js';
import type { RootScope } from '../../graphql/schema-access.js';
import { isNotModified, tagOf } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import type { Reply } from '../../http/reply.js';
import type { Route } from '../../http/router.js';

const BASE = '/graphql/ide';

const POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "worker-src 'self' blob:",
  "frame-ancestors 'none'",
  "base-uri 'self'",
].join('; ');

const HEADERS = { 'Content-Security-Policy': POLICY, Vary: 'Accept' };

export async function idePage(scope: RootScope): Promise<Reply> {
  const altair = await load();
  const body = altair.renderAltair({
    baseURL: `${BASE}/`,
    serveInitialOptionsInSeperateRequest: `${scope}.js`,
  });
  return { status: 200, type: 'text/html; charset=utf-8', body, headers: HEADERS };
}

/** Loaded when the first browser comes: most services never meet one, and may do without it. */
async function load(): Promise<typeof import('altair-static')> {
  try {
    const { default: altair } = await import('altair-static');
    return altair;
  } catch {
    const reason = 'The GraphQL IDE is not installed: npm install altair-static';
    throw new ServiceError('ROUTE_NOT_FOUND', reason, { path: BASE });
  }
}

export function ideRoutes(): Route[] {
  const files = new Files();
  const paths = ['/:file', '/:folder/:file', '/:folder/:folder/:file', '/:folder/:folder/:folder/:file'];
  return paths.map((path) => ({ method: 'GET', path: `${BASE}${path}`, handle: (exchange) => files.answer(exchange) }));
}

const ENDPOINTS: ReadonlyMap<string, string> = new Map([
  ['items.js', '/graphql'],
  ['system.js', '/graphql/system'],
]);

async function options(endpointURL: string): Promise<string> {
  const altair = await load();
  return altair.renderInitSnippet({
    endpointURL,
    instanceStorageNamespace: `lateral${endpointURL.replaceAll('/', '_')}_`,
    disableAccount: true,
  });
}

const TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    js: 'text/javascript; charset=utf-8',
    css: 'text/css; charset=utf-8',
    html: 'text/html; charset=utf-8',
    json: 'application/json; charset=utf-8',
    svg: 'image/svg+xml',
    png: 'image/png',
    ico: 'image/x-icon',
    woff: 'font/woff',
    woff2: 'font/woff2',
  }),
);

interface File {
  readonly body: Buffer;
  readonly tag: string;
}

interface Folder {
  readonly directory: string;
  readonly names: ReadonlySet<string>;
}

/** Only what lies in the folder when it is first asked for is served: no path of a request reaches the file system. */
class Files {
  readonly #read = new Map<string, Promise<File>>();
  #folder: Promise<Folder> | null = null;

  async answer(exchange: Exchange): Promise<Reply> {
    const name = exchange.parameters.join('/');
    const type = TYPES.get(name.slice(name.lastIndexOf('.') + 1));
    const endpoint = ENDPOINTS.get(name);
    if (endpoint !== undefined && type) return { status: 200, type, body: await options(endpoint), headers: HEADERS };
    this.#folder ??= openFolder();
    const { directory, names } = await this.#folder;
    if (!type || !names.has(name)) throw routeNotFound(exchange.path);
    const { body, tag } = await this.#file(join(directory, name));
    const headers = name.startsWith('iframe-sandbox/') ? { ...HEADERS, ...SANDBOX } : HEADERS;
    if (isNotModified(exchange.headers.ifNoneMatch, tag)) return { status: 304, type: '', body: '', tag, headers };
    return { status: 200, type, body, tag, headers };
  }

  #file(path: string): Promise<File> {
    const cached = this.#read.get(path);
    if (cached) return cached;
    const created = readFile(path).then((body) => ({ body, tag: tagOf(body) }));
    this.#read.set(path, created);
    return created;
  }
}

async function openFolder(): Promise<Folder> {
  const directory = (await load()).getDistDirectory();
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return { directory, names: new Set(files.map((file) => relative(directory, file).split(sep).join('/'))) };
}

/** Scripts that users write in the IDE run in a frame without an origin. */
const SANDBOX = { 'Content-Security-Policy': 'sandbox allow-scripts' };
