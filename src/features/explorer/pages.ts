/**
 * The pages for browsers: the Explorer at /explorer, which web/ is built to, and a GraphQL IDE at the GraphQL endpoints, which is a static
 * application from npm. Both call the public API with the login of their user. Everything that they load is served from here, and a strict
 * policy keeps them from other servers.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { routeNotFound, ServiceError } from '../../base/errors.js';
import { packagePath } from '../../base/package-files.js';
import type { RootScope } from '../../compiler/graphql/schema-access.js';
import { isNotModified, tagOf } from '../../server/http/etag.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Reply } from '../../server/http/reply.js';
import type { Route } from '../../server/http/router.js';

const EXPLORER_HEADERS = {
  'Content-Security-Policy': [
    "default-src 'self'",
    "object-src 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; '),
  'Referrer-Policy': 'no-referrer',
  Vary: 'Accept-Encoding',
};

export function explorerRoutes(): Route[] {
  const files = new StaticFiles(async () => packagePath('dist', 'web'));
  const answer = (exchange: Exchange, name: string): Promise<Reply> => files.answer(exchange, name, EXPLORER_HEADERS);
  return [
    { method: 'GET', path: '/', handle: redirect },
    { method: 'GET', path: '/explorer', handle: (exchange) => answer(exchange, 'index.html') },
    { method: 'GET', path: '/explorer/:file', handle: (exchange) => answer(exchange, exchange.parameters[0] ?? '') },
  ];
}

/** The router ignores a slash at the end. */
function redirect({ path }: Exchange): Reply {
  if (path !== '/') throw routeNotFound(path);
  return REDIRECT;
}

/** Relative: a proxy may serve all of it below a path. */
const REDIRECT: Reply = { status: 302, type: '', body: '', headers: { Location: './explorer' } };

const IDE = '/graphql/ide';

const IDE_HEADERS = {
  'Content-Security-Policy': [
    "default-src 'self'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "worker-src 'self' blob:",
    "frame-ancestors 'none'",
    "base-uri 'self'",
  ].join('; '),
  Vary: 'Accept',
};

/** Scripts that users write in the IDE run in a frame without an origin. */
const SANDBOX_HEADERS = { ...IDE_HEADERS, 'Content-Security-Policy': 'sandbox allow-scripts' };

export async function idePage(scope: RootScope): Promise<Reply> {
  const altair = await loadIde();
  const body = altair.renderAltair({ baseURL: `${IDE}/`, serveInitialOptionsInSeperateRequest: `${scope}.js` });
  return { status: 200, type: 'text/html; charset=utf-8', body, headers: IDE_HEADERS };
}

const ENDPOINTS: ReadonlyMap<string, string> = new Map([
  ['items.js', '/graphql'],
  ['system.js', '/graphql/system'],
]);

export function ideRoutes(): Route[] {
  const files = new StaticFiles(async () => (await loadIde()).getDistDirectory());
  const handle = async (exchange: Exchange): Promise<Reply> => {
    const name = exchange.parameters.join('/');
    const endpoint = ENDPOINTS.get(name);
    if (endpoint !== undefined) return ideOptions(endpoint);
    return files.answer(exchange, name, name.startsWith('iframe-sandbox/') ? SANDBOX_HEADERS : IDE_HEADERS);
  };
  const paths = ['/:file', '/:folder/:file', '/:folder/:folder/:file', '/:folder/:folder/:folder/:file'];
  return paths.map((path) => ({ method: 'GET', path: `${IDE}${path}`, handle }));
}

async function ideOptions(endpointURL: string): Promise<Reply> {
  const altair = await loadIde();
  const body = altair.renderInitSnippet({
    endpointURL,
    instanceStorageNamespace: `lateral${endpointURL.replaceAll('/', '_')}_`,
    disableAccount: true,
  });
  return { status: 200, type: 'text/javascript; charset=utf-8', body, headers: IDE_HEADERS };
}

/** Loaded when the first browser comes: most services never meet one, and may do without it. */
async function loadIde(): Promise<typeof import('altair-static')> {
  try {
    const { default: altair } = await import('altair-static');
    return altair;
  } catch {
    const reason = 'The GraphQL IDE is not installed: npm install altair-static';
    throw new ServiceError('ROUTE_NOT_FOUND', reason, { path: IDE });
  }
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

interface StaticFile {
  readonly tag: string;
  readonly plain: Buffer;
  /** The file that lies compressed next to it, or null. */
  readonly brotli: Buffer | null;
}

interface Folder {
  readonly directory: string;
  readonly names: ReadonlySet<string>;
}

/** Only what lies in the folder when it is first asked for is served: no path of a request reaches the file system. */
class StaticFiles {
  #folder: Promise<Folder> | null = null;
  readonly #files = new Map<string, Promise<StaticFile>>();

  constructor(private readonly locate: () => Promise<string>) {}

  async answer(exchange: Exchange, name: string, headers: Readonly<Record<string, string>>): Promise<Reply> {
    this.#folder ??= this.#open();
    const folder = await this.#folder;
    const type = TYPES.get(name.slice(name.lastIndexOf('.') + 1));
    if (!type || !folder.names.has(name)) throw routeNotFound(exchange.path);
    const file = this.#files.get(name) ?? read(folder, name);
    this.#files.set(name, file);
    const { tag, plain, brotli } = await file;
    const isBrotli = brotli !== null && exchange.encoding?.name === 'brotli';
    const sent = isBrotli ? tag.replace(/"$/, '-br"') : tag;
    if (isNotModified(exchange.headers.ifNoneMatch, tag))
      return { status: 304, type: '', body: '', tag: sent, headers };
    if (!isBrotli) return { status: 200, type, body: plain, tag: sent, headers };
    return { status: 200, type, body: brotli, tag: sent, headers: { ...headers, 'Content-Encoding': 'br' } };
  }

  async #open(): Promise<Folder> {
    const directory = await this.locate();
    const entries = await readdir(directory, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    return { directory, names: new Set(files.map((file) => relative(directory, file).split(sep).join('/'))) };
  }
}

async function read({ directory, names }: Folder, name: string): Promise<StaticFile> {
  const path = join(directory, name);
  const compressed = `${name}.br`;
  const [plain, brotli] = await Promise.all([
    readFile(path),
    names.has(compressed) ? readFile(join(directory, compressed)) : null,
  ]);
  return { tag: tagOf(plain), plain, brotli };
}
