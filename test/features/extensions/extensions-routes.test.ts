/** Routes of extensions: the responses that they pass on, and schemas that are wrong. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import type { Event } from '../../../src/base/observe.js';
import type { ExtensionLogEvent } from '../../../src/features/extensions/log-events.js';
import { createLateral, defineExtension, type RouteOptions } from '../../../src/index.js';
import { ADMIN_TOKEN, createDatabase, request, startDatabase, waitFor } from '../../support/service.js';
import { passTime } from '../../support/time.js';

const ADMIN = { as: 'administrator' } as const;
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_routes');

const TEXT = 'hello '.repeat(500);
const upstream = createServer((_, response) => {
  response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': 'gzip', 'x-from': 'upstream' });
  response.end(gzipSync(TEXT));
});
await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
t.teardown(() => upstream.close());
const upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/`;

let cancelled = 0;
const extension = defineExtension({
  name: 'edges',
  routes: (router) => {
    const open: RouteOptions = { allow: 'anyone' };
    router.get('/upstream', open, () => fetch(upstreamUrl));
    router.get('/packed', open, () => {
      const headers = {
        'content-type': 'text/plain',
        'content-encoding': 'gzip',
        'cache-control': 'public, max-age=60',
      };
      return new Response(gzipSync(TEXT), { headers: { ...headers, 'x-request-id': 'mine', date: 'never' } });
    });
    router.get('/error', open, () => Response.error());
    router.get('/function', open, () => () => 1);
    router.get('/nothing', open, () => ({ toJSON: () => undefined }));
    router.get('/hops', open, () => new Response('x', { headers: { upgrade: 'h2c', te: 'trailers', trailer: 'x-a' } }));
    router.get('/endless', open, () => new Response(new ReadableStream({ cancel: () => void cancelled++ })));
    router.get('/late', open, async () => {
      await passTime(1_200, 'the response is later than its deadline');
      return new Response(new ReadableStream({ cancel: () => void cancelled++ }));
    });
  },
});
const events: (Event | ExtensionLogEvent)[] = [];
const lateral = createLateral(
  { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN, extensionTimeout: '1s' },
  { extensions: [extension] },
);
lateral.on('log', (event) => events.push(event as Event));
await lateral.start();
t.teardown(() => lateral.stop());

t.test('responses of routes', async (t) => {
  const over = (path: string) => request(lateral, 'GET', `/ext/edges${path}`);
  const passed = await fetch(`${lateral.url}/ext/edges/upstream`);
  t.equal(await passed.text(), TEXT, 'the answer of another server, which fetch has decoded');
  t.equal(passed.headers.get('x-from'), 'upstream');
  const packed = await fetch(`${lateral.url}/ext/edges/packed`);
  t.equal(await packed.text(), TEXT, 'a body that the route has encoded');
  t.equal(packed.headers.get('cache-control'), 'public, max-age=60');
  t.notMatch(packed.headers.get('x-request-id'), /mine/);
  t.notMatch(packed.headers.get('date'), /never/);
  for (const path of ['/error', '/function']) {
    t.equal((await over(path)).status, 503, path);
    const inside = await lateral.fetch(new Request(`http://lateral/ext/edges${path}`), ADMIN);
    t.equal(inside.status, 503, path);
  }
  t.match(await over('/nothing'), { status: 204, text: '' });
  const hops = await over('/hops');
  t.match(hops, { status: 200, text: 'x' });
  t.strictSame(
    [hops.headers['upgrade'], hops.headers['te'], hops.headers['trailer']],
    [undefined, undefined, undefined],
  );
  t.equal((await over('/endless')).status, 503);
  await waitFor(async () => cancelled === 1, 5_000);
  t.equal((await over('/late')).status, 503);
  await waitFor(async () => cancelled === 2, 5_000);
  t.ok(events.some((event) => event.kind === 'extension-failed' && event.hook === 'GET /ext/edges/error'));
});

t.test('a pattern that is none stops the start', async (t) => {
  const body = { type: 'object', properties: { name: { type: 'string', pattern: '(' } } };
  const wrong = defineExtension({ name: 'wrong', routes: (router) => router.post('/', { body }, () => {}) });
  const other = createLateral({ databaseUrl, port: 0, logLevel: 'silent' }, { extensions: [wrong] });
  await t.rejects(other.start(), /"pattern": Invalid regular expression/);
  await other.stop();
});
