/**
 * The Explorer: a page for browsers at /explorer. Its files are built from web/ into dist/web, compressed there, and kept in memory
 * from the first request on. The page has no endpoint of its own: it calls the public API with the login of its user.
 */
import { readdir, readFile } from 'node:fs/promises';
import { routeNotFound } from '../../base/errors.js';
import { packagePath } from '../../base/package-files.js';
import { isNotModified, tagOf } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import type { Reply } from '../../http/reply.js';
import type { Route } from '../../http/router.js';

const POLICY = [
  "default-src 'self'",
  "object-src 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

const HEADERS = { 'Content-Security-Policy': POLICY, 'Referrer-Policy': 'no-referrer', Vary: 'Accept-Encoding' };

export function explorerRoutes(): Route[] {
  const files = new StaticFiles();
  return [
    { method: 'GET', path: '/', handle: redirect },
    { method: 'GET', path: '/explorer', handle: (exchange) => files.answer(exchange, PAGE) },
    {
      method: 'GET',
      path: '/explorer/:file',
      handle: (exchange) => files.answer(exchange, exchange.parameters[0] ?? ''),
    },
  ];
}

/** The router ignores a slash at the end. */
function redirect({ path }: Exchange): Reply {
  if (path !== '/') throw routeNotFound(path);
  return REDIRECT;
}

/** Relative: a proxy may serve all of it below a path. */
const REDIRECT: Reply = { status: 302, type: '', body: '', headers: { Location: './explorer' } };

const PAGE = 'index.html';

const TYPES: ReadonlyMap<string, string> = new Map([
  ['html', 'text/html; charset=utf-8'],
  ['js', 'text/javascript; charset=utf-8'],
  ['css', 'text/css; charset=utf-8'],
  ['svg', 'image/svg+xml'],
]);

interface StaticFile {
  readonly type: string;
  readonly tag: string;
  readonly plain: Buffer;
  readonly brotli: Buffer;
}

/** Only what lies in the folder when it is first asked for is served: no path of a request reaches the file system. */
class StaticFiles {
  #loaded: Promise<ReadonlyMap<string, StaticFile>> | null = null;

  async answer(exchange: Exchange, name: string): Promise<Reply> {
    this.#loaded ??= loadFiles();
    const file = (await this.#loaded).get(name);
    if (!file) throw routeNotFound(exchange.path);
    const isBrotli = exchange.encoding?.name === 'brotli';
    const tag = isBrotli ? file.tag.replace(/"$/, '-br"') : file.tag;
    if (isNotModified(exchange.headers.ifNoneMatch, file.tag))
      return { status: 304, type: '', body: '', tag, headers: HEADERS };
    if (!isBrotli) return { status: 200, type: file.type, body: file.plain, tag, headers: HEADERS };
    const headers = { ...HEADERS, 'Content-Encoding': 'br' };
    return { status: 200, type: file.type, body: file.brotli, tag, headers };
  }
}

async function loadFiles(): Promise<ReadonlyMap<string, StaticFile>> {
  const folder = packagePath('dist', 'web');
  const files = new Map<string, StaticFile>();
  for (const name of await readdir(folder)) {
    const type = TYPES.get(name.slice(name.lastIndexOf('.') + 1));
    if (type === undefined) continue;
    const path = packagePath('dist', 'web', name);
    const [plain, brotli] = await Promise.all([readFile(path), readFile(`${path}.br`)]);
    files.set(name, { type, tag: tagOf(plain), plain, brotli });
  }
  return files;
}
