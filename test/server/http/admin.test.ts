/** The admin listener and /server/ready: what balancers and scrapers are told, over HTTP/1.0 too, and by the documented settings. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import {
  connectSql,
  createLibrary,
  get,
  makeFolder,
  request,
  sendRaw,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const databaseUrl = await createLibrary(server, 'balanced');
const service = await startTestService({ databaseUrl, ADMIN_PORT: '0' });
const admin = { url: service.adminUrl ?? '' };

t.test('it answers without a token, over HTTP/1.0 and HTTP/1.1', async (t) => {
  for (const path of ['/ping', '/server/ping'])
    t.match(await get(admin, path, { token: null }), { status: 200, text: 'pong' });
  for (const path of ['/', '/ready', '/server/ready', '/ready/'])
    t.match(await get(admin, path, { token: null }), { status: 200, text: 'ready' });
  const health = await get(admin, '/health', { token: null });
  t.match(health, { status: 200, headers: { 'content-type': /^application\/health\+json/ } });
  t.match(health.json, { status: 'ok', checks: { 'database:responseTime': [{ status: 'ok' }] } });
  t.match(await get(admin, '/metrics?x=1', { token: null }), { status: 200, text: /^lateral_info/m });
  for (const method of ['GET', 'HEAD', 'OPTIONS']) {
    const answer = await sendRaw(admin, [`${method} /ready HTTP/1.0\r\n\r\n`]);
    t.match(answer, /^HTTP\/1\.[01] 200 OK\r\n/, `${method} over HTTP/1.0`);
    t.match(answer, /^x-content-type-options: nosniff/im);
    t.equal(answer.endsWith('\r\n\r\nready'), method !== 'HEAD');
  }
});

t.test('it answers nothing else', async (t) => {
  t.match(await request(admin, 'POST', '/ready', { body: 'x' }), {
    status: 405,
    headers: { allow: 'GET, HEAD, OPTIONS' },
  });
  for (const path of ['/items/articles', '/server/info', '/constructor', '/server'])
    t.match(await get(admin, path), { status: 404 });
  t.match(await sendRaw(admin, ['nonsense\r\n\r\n']), /^HTTP\/1\.1 400 /);
});

t.test('it is off by default, and metrics are where they are counted', async (t) => {
  const quiet = await startTestService({ databaseUrl });
  t.equal(quiet.adminUrl, null);
  const uncounted = await startTestService({ databaseUrl, ADMIN_PORT: '0', METRICS: 'off' });
  t.match(await get({ url: uncounted.adminUrl ?? '' }, '/metrics'), { status: 404 });
  t.match(await get({ url: uncounted.adminUrl ?? '' }, '/ready'), { status: 200 });
});

t.test('a database that refuses writes is degraded', async (t) => {
  const sql = connectSql(server.url);
  t.teardown(() => sql.end());
  const set = async (value: string): Promise<void> => {
    await sql`set default_transaction_read_only = off`;
    await sql.unsafe(`alter system set default_transaction_read_only = ${value}`);
    await sql`select pg_reload_conf()`;
  };
  const write = (): ReturnType<typeof request> =>
    request(service, 'PATCH', '/items/tags/1', {
      headers: { 'content-type': 'application/json' },
      body: '{"name":"x"}',
    });
  t.teardown(() => set('off'));
  await set('on');
  await waitFor(async () => (await write()).status === 503, 5_000);
  const health = await get(service, '/server/health');
  t.match(health, { status: 200, json: { status: 'degraded' } });
  t.match(health.text, /PostgreSQL refuses writes: default_transaction_read_only is on/);
  t.match(await get(service, '/server/ready'), { status: 200 }, 'it serves reads');
  await set('off');
  await waitFor(async () => (await write()).status === 200, 5_000);
  await waitFor(async () => /"status":"ok"/.test((await get(service, '/server/health')).text.slice(0, 20)), 5_000);
});

t.test('a port that is taken ends the start', async (t) => {
  await t.rejects(startTestService({ databaseUrl, ADMIN_PORT: new URL(admin.url).port }), /ADMIN_PORT/);
});

const alone = process.platform === 'linux' ? false : 'only Linux lets several threads share a port';
t.test('every thread is asked and counted', { skip: alone }, async (t) => {
  const crew = await startTestService({ databaseUrl, ADMIN_PORT: '0', WORKERS: '2' });
  const whole = { url: crew.adminUrl ?? '' };
  // Each on a connection of its own, so that both threads get some.
  for (let count = 0; count < 20; count++) await get(crew, '/server/ping');
  const { json } = await get(whole, '/health');
  const { checks } = json as { checks: Record<string, { componentId: string }[]> };
  t.same(
    checks['database:responseTime']?.map(({ componentId }) => componentId),
    ['main', 'worker 1', 'worker 2'],
  );
  const shown = await get(crew, '/server/health');
  t.same(
    Object.keys((shown.json as { checks: object }).checks),
    Object.keys(checks),
    'the port for clients shows the same',
  );
  const { text } = await get(whole, '/metrics');
  t.match(text, /^lateral_requests_total\{method="GET",route="\/server\/ping",status="200"\} 20$/m);
  await crew.stop();
});

t.test('an instance that starts is there and not ready', async (t) => {
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  const port = await freePort();
  const starting = { url: `http://127.0.0.1:${port}` };
  let started: Promise<unknown> = Promise.resolve();
  await sql.begin(async (held) => {
    // Where instances that start together wait for one another.
    await held`select pg_advisory_xact_lock(hashtextextended('lateral migrate ' || ${'public'}::text, 0))`;
    started = startTestService({ databaseUrl, ADMIN_PORT: String(port) });
    await waitFor(
      () =>
        get(starting, '/ping').then(
          () => true,
          () => false,
        ),
      10_000,
    );
    t.match(await get(starting, '/ping'), { status: 503, text: 'not ready' });
    t.match(await get(starting, '/ready'), { status: 503, text: 'not ready' });
    t.match(await get(starting, '/health'), {
      status: 503,
      json: { checks: { 'service:state': [{ output: 'starting' }] } },
    });
  });
  await started;
  t.match(await get(starting, '/ping'), { status: 200, text: 'pong' });
  await waitFor(async () => (await get(starting, '/ready')).status === 200, 10_000);
});

for (const WORKERS of ['1', '2'])
  t.test(`every route is 503 until there is an administrator: WORKERS=${WORKERS}`, async (t) => {
    const fresh = await createLibrary(server, `fresh_${WORKERS}`);
    const sql = connectSql(fresh);
    t.teardown(() => sql.end());
    await sql`delete from service_users`;
    const starting = { url: `http://127.0.0.1:${await freePort()}` };
    const { port: PORT } = new URL(starting.url);
    const credentials = { ADMIN_EMAIL: 'first@example.com', ADMIN_PASSWORD: 'first-password' };
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ email: credentials.ADMIN_EMAIL, password: credentials.ADMIN_PASSWORD });
    const login = (): ReturnType<typeof request> =>
      request(starting, 'POST', '/auth/login', { headers, body, token: null });
    let started: Promise<unknown> = Promise.resolve();
    await sql.begin(async (held) => {
      // The account cannot be made meanwhile.
      await held`lock table service_users in share mode`;
      started = startTestService({ databaseUrl: fresh, PORT, WORKERS, ...credentials });
      const answers = (): Promise<boolean> =>
        get(starting, '/server/ping').then(
          () => true,
          () => false,
        );
      await waitFor(answers, 10_000);
      const socket = { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
      for (let round = 0; round < 3; round++) {
        const paths = ['/server/ping', '/server/ready', '/server/health', '/users/me', '/items/articles/1', '/nothing'];
        const refused = [
          ...(await Promise.all(paths.map((path) => get(starting, path)))),
          await login(),
          await request(starting, 'OPTIONS', '/items/articles'),
          await get(starting, '/websocket', {
            headers: { ...socket, 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' },
          }),
        ];
        t.strictSame([...new Set(refused.map(({ status }) => status))], [503]);
        t.strictSame([...new Set(refused.map(({ headers }) => headers['retry-after'] === undefined))], [false]);
      }
    });
    const pinged = (): Promise<boolean> => get(starting, '/server/ping').then(({ status }) => status === 200);
    await waitFor(pinged, 10_000);
    const answers = await Promise.all([get(starting, '/users/me'), get(starting, '/users/me'), login(), login()]);
    t.strictSame(
      answers.map(({ status }) => status),
      [200, 200, 200, 200],
    );
    await started;
  });

t.test('an instance that stops answers what it has begun and takes no more', async (t) => {
  const stopping = await startTestService({ databaseUrl, ADMIN_PORT: '0' });
  const watched = { url: stopping.adminUrl ?? '' };
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const other = new Agent({ keepAlive: true });
  t.teardown(() => {
    agent.destroy();
    other.destroy();
  });
  t.match(await get(stopping, '/server/ready', { token: null, agent }), { status: 200, text: 'ready' });
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  let slow: ReturnType<typeof request> | null = null;
  let stopped: Promise<void> | null = null;
  await sql.begin(async (held) => {
    await held`select from tags where id = 1 for update`;
    slow = request(stopping, 'PATCH', '/items/tags/1', {
      agent: other,
      body: '{"name":"late"}',
      headers: { 'content-type': 'application/json' },
    });
    // On another connection: a transaction goes on to see the backends that were there when it first looked.
    await withSql(databaseUrl, (observer) =>
      waitFor(async () => {
        const waiting =
          await observer`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
        return waiting.length > 0;
      }, 10_000),
    );
    stopped = stopping.stop();
    t.match(await get(watched, '/ready'), { status: 503, text: 'not ready' });
    t.match(await get(watched, '/ping'), { status: 200 });
    // A connection that was open before is told that this was its last answer.
    t.match(await get(stopping, '/server/ready', { token: null, agent }), {
      status: 503,
      headers: { connection: 'close' },
    });
  });
  t.match(await slow, { status: 200, headers: { connection: 'close' } });
  await stopped;
  await t.rejects(get(watched, '/ping'), { code: 'ECONNREFUSED' });
});

t.test('health says that reads wait for a connection, and that they wait in vain', async (t) => {
  const busy = await startTestService({
    databaseUrl,
    ADMIN_PORT: '0',
    WORKERS: '1',
    DATABASE_POOL_SIZE: '1',
    DATABASE_WAIT_TIMEOUT: '3s',
    READ_BATCHING: 'false',
  });
  const watched = { url: busy.adminUrl ?? '' };
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  const seen = async (): Promise<string> => {
    const { json } = await get(watched, '/health');
    const { checks } = json as { checks: Record<string, { status: string }[]> };
    return String(checks['database:readConnections']?.[0]?.status);
  };
  t.equal(await seen(), 'ok');
  const reads = await sql.begin(async (held) => {
    await held`lock table tags in access exclusive mode`;
    const started = [1, 2, 3].map((key) => get(busy, `/items/tags/${key}?fields=id`));
    await waitFor(async () => (await seen()) === 'degraded', 10_000);
    await waitFor(async () => (await seen()) === 'error', 10_000);
    return { started };
  });
  const answers = await Promise.all(reads.started);
  t.strictSame(answers.map(({ status }) => status).sort(), [200, 503, 503]);
  t.equal(await seen(), 'ok', 'with the next answer it is over');
  await busy.stop();
});

t.test('without its database an instance is not ready, and then is again', async (t) => {
  const fragile = await startDatabase({ own: true });
  const lonely = await startTestService({ databaseUrl: await createLibrary(fragile, 'fragile'), ADMIN_PORT: '0' });
  const watched = { url: lonely.adminUrl ?? '' };
  const statuses = async (): Promise<number[]> =>
    Promise.all([lonely, watched].map(async (each) => (await get(each, '/server/ready', { token: null })).status));
  t.same(await statuses(), [200, 200]);
  await fragile.stop();
  await waitFor(async () => String(await statuses()) === '503,503', 10_000);
  t.match(await get(watched, '/health'), { status: 503, json: { status: 'error' } });
  await startDatabase({ directory: fragile.directory });
  await waitFor(async () => String(await statuses()) === '200,200', 20_000);
  await lonely.stop();
});

/** The documented settings, with the ports of this test. */
async function documented(language: string, port: number): Promise<string> {
  const text = await readFile(packagePath('docs', 'proxies.md'), 'utf8');
  const block = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(text)?.[1] ?? '';
  return block
    .replaceAll('8055', new URL(service.url).port)
    .replaceAll('8056', new URL(admin.url).port)
    .replace('bind :8080', `bind 127.0.0.1:${port}`)
    .replace('listen 8080', `listen 127.0.0.1:${port}`);
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  await once(probe.close(), 'close');
  return port;
}

async function lacks(program: string): Promise<string | false> {
  const found = await promisify(execFile)(program, ['-v']).then(
    () => true,
    () => false,
  );
  return found ? false : `${program} is not installed here`;
}

/** Runs until the test ends. */
async function behind(program: string, words: readonly string[], port: number): Promise<{ url: string }> {
  const child = spawn(program, words, { stdio: 'ignore' });
  t.teardown(async () => {
    child.kill('SIGTERM');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  });
  const proxy = { url: `http://127.0.0.1:${port}` };
  await waitFor(
    () =>
      get(proxy, '/server/ping').then(
        ({ status }) => status === 200,
        () => false,
      ),
    20_000,
  );
  return proxy;
}

async function checkProxy(t: Test, proxy: { url: string }): Promise<void> {
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  for (let count = 0; count < 20; count++)
    t.match(await get(proxy, '/items/articles/1?fields=id', { agent }), { status: 200, json: { data: { id: 1 } } });
  const written = await request(proxy, 'PATCH', '/items/tags/2', {
    agent,
    body: '{"name":"behind a proxy"}',
    headers: { 'content-type': 'application/json' },
  });
  t.match(written, { status: 200 });
  const found = await request(proxy, 'SEARCH', '/items/articles', {
    agent,
    body: '{"query":{"limit":1}}',
    headers: { 'content-type': 'application/json' },
  });
  t.match(found, { status: 200 });
}

t.test('the documented settings for haproxy work', { skip: await lacks('haproxy') }, async (t) => {
  const port = await freePort();
  const file = join(await makeFolder(), 'haproxy.cfg');
  await writeFile(file, await documented('haproxy', port));
  const proxy = await behind('haproxy', ['-db', '-f', file], port);
  await checkProxy(t, proxy);
});

t.test('the documented settings for nginx work', { skip: await lacks('nginx') }, async (t) => {
  const port = await freePort();
  const folder = await makeFolder();
  const file = join(folder, 'nginx.conf');
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  await writeFile(
    file,
    `daemon off; pid ${folder}/pid; error_log stderr; events {}
     http { access_log off; ${paths.join(' ')} ${await documented('nginx', port)} }`,
  );
  const proxy = await behind('nginx', ['-c', file, '-p', folder], port);
  await checkProxy(t, proxy);
  t.match(await get(proxy, '/ready', { token: null }), { status: 200, text: 'ready' }, 'over HTTP/1.0');
});

t.test('the documented settings for Prometheus can be read', { skip: await lacksPromtool() }, async (t) => {
  const file = join(await makeFolder(), 'prometheus.yml');
  const text = await readFile(packagePath('docs', 'metrics.md'), 'utf8');
  await writeFile(file, /```yaml\n(scrape_configs:[\s\S]*?)```/.exec(text)?.[1] ?? '');
  const { stdout } = await promisify(execFile)('promtool', ['check', 'config', file]);
  t.match(stdout, /SUCCESS/);
});

async function lacksPromtool(): Promise<string | false> {
  const found = await promisify(execFile)('promtool', ['--version']).then(
    () => true,
    () => false,
  );
  return found ? false : 'promtool is not installed here';
}
