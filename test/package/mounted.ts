/**
 * The service mounted in Express, as npm has it. Express is downloaded into a temporary folder, so it is no part of `npm test`; without a
 * registry nothing is tested, and it says so. The file create-lateral tests a server of Node.
 */
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { createLateral, type NodeHandler, toNodeHandler } from '../../src/index.js';
import { makeCaller } from '../support/callers.js';
import { APART, createRandom, randomRequest } from '../support/random-requests.js';
import { findRegistry, installPackages } from '../support/registry.js';
import { ADMIN_TOKEN, type Answer, connectSql, createLibrary, request, startDatabase } from '../support/service.js';

t.setTimeout(900_000);
const REQUESTS = Number(process.env['FETCH_REQUESTS'] ?? 1_000);

interface ExpressApp extends RequestListener {
  use(path: string, handler: NodeHandler): void;
  get(path: string, handler: (request: unknown, response: { send(text: string): void }) => void): void;
}

type Express = () => ExpressApp;

/** What must be the same wherever the service is mounted. */
function essenceOf({ status, text, headers }: Answer): object {
  const apart = (name: string): boolean => APART.has(name) || name === 'x-powered-by';
  return {
    status,
    text,
    headers: Object.entries(headers)
      .filter(([name]) => !apart(name))
      .sort(),
  };
}

for (const version of ['express@5.3.0', 'express@4.22.3']) {
  const missing = await findRegistry(version);
  t.test(
    `${REQUESTS} random requests through ${version} get the same bytes as over the port`,
    { skip: missing },
    async (t) => {
      const folder = await installPackages([version]);
      const express: Express = createRequire(join(folder, 'package.json'))('express');
      const server = await startDatabase();
      const databaseUrl = await createLibrary(server, `mounted_${version.at(8)}`);
      const sql = connectSql(databaseUrl);
      t.teardown(() => sql.end());
      const reader = await makeCaller(sql, 'mounted-reader', [
        { permissions: [{ collection: 'articles', action: 'read', fields: ['id', 'title'], permissions: {} }] },
      ]);
      const lateral = createLateral({
        databaseUrl,
        port: 0,
        logLevel: 'silent',
        adminToken: ADMIN_TOKEN,
        serverTiming: false,
      });
      await lateral.start();
      t.teardown(() => lateral.stop());
      const app = express();
      app.get('/', (_, response) => response.send('another page'));
      app.use('/api', toNodeHandler(lateral));
      const http = createServer(app).listen(0, '127.0.0.1');
      await once(http, 'listening');
      t.teardown(() => http.close());
      const place = { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` };
      t.equal((await request(place, 'GET', '/')).text, 'another page');
      const random = createRandom(13);
      const statuses = new Map<number, number>();
      for (let count = 0; count < REQUESTS; count++) {
        const { method, path, body, token, headers = {} } = randomRequest(random, reader.token);
        const type: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' };
        const sent = { headers: { ...headers, ...type }, token, ...(body === undefined ? {} : { body }) };
        const over = await request(lateral, method, path, sent);
        const own = await request(place, method, `/api${path}`, sent);
        const same = JSON.stringify(essenceOf(own)) === JSON.stringify(essenceOf(over));
        if (!same) t.strictSame(essenceOf(own), essenceOf(over), `${method} ${path} ${body ?? ''} as ${token}`);
        statuses.set(over.status, (statuses.get(over.status) ?? 0) + 1);
      }
      t.ok((statuses.get(200) ?? 0) > REQUESTS / 10, `statuses: ${JSON.stringify([...statuses])}`);
      const headers = { 'content-type': 'application/json' };
      const made = await request(place, 'POST', '/api/items/tags?fields=name', { headers, body: '{"name":"mounted"}' });
      t.strictSame(made.json, { data: { name: 'mounted' } });
    },
  );
}
