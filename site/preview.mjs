/** Serves dist/site for a preview: files as they are, without rewriting of addresses. The first argument is the port. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist', 'site');
const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};
const [port = '4173'] = process.argv.slice(2);

async function fileOf(address) {
  const path = join(folder, normalize(decodeURIComponent(new URL(address, 'http://127.0.0.1').pathname)));
  const file = path.endsWith('/') ? join(path, 'index.html') : path;
  const stats = await stat(file).catch(() => null);
  return stats?.isFile() ? file : null;
}

const server = createServer(async (request, response) => {
  const file = await fileOf(request.url ?? '/').catch(() => null);
  response.writeHead(file ? 200 : 404, { 'Content-Type': (file && TYPES[extname(file)]) ?? 'text/plain' });
  if (file) createReadStream(file).pipe(response);
  else response.end('There is no such page\n');
});
if (!(await stat(folder).catch(() => null))) {
  console.error('There is no dist/site: build it with npm run docs');
  process.exit(1);
}
server.listen(Number(port), '127.0.0.1', () => {
  console.log(`The site is at http://127.0.0.1:${server.address().port}`);
});
