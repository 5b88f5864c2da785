/** Hostile transformations of images end at their deadline and harm no other request: each image has a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { noise, transforms, uploadImage } from '../../support/images.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  type TestOptions,
  waitFor,
} from '../../support/service.js';
import { makeUser, PASSWORD, post } from '../../support/users.js';

t.setTimeout(240_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'hostile_images');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const LIMIT_MS = 2_000;
const root = await makeFolder();
const options: TestOptions & Record<string, string> = {
  databaseUrl,
  STORAGE_LOCAL_ROOT: root,
  ASSETS_TRANSFORM_TIMEOUT: `${LIMIT_MS}ms`,
};
const service = await startTestService(options);
const { email } = await makeUser(sql, 'honest');
const large = await uploadImage(service, await noise(3_000), 'jpeg');
const small = await uploadImage(service, await noise(100), 'jpeg');
/** Takes far longer than it may, on any machine. */
const hostile = (id: string, seed: number): string =>
  `/assets/${id}?${transforms(['median', 15], ['blur', 60 + seed], ['clahe', { width: 50, height: 50, maxSlope: 9 }])}`;
const messageOf = ({ json }: Answer): string => (json as { errors: { message: string }[] }).errors[0]?.message ?? '';

/** Processes that transform images, of the given process. */
async function transformersOf(parent: number): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const [status, command] = await Promise.all(
      ['status', 'cmdline'].map((file) => readFile(`/proc/${name}/${file}`, 'utf8').catch(() => '')),
    );
    if (command?.includes('image-child') && status?.includes(`\nPPid:\t${parent}\n`)) found.push(Number(name));
  }
  return found;
}

const isGone = async (pid: number): Promise<boolean> =>
  /^State:\s+Z/m.test(await readFile(`/proc/${pid}/status`, 'utf8').catch(() => 'State: Z'));

t.test('a login stays fast beside eight hostile transformations, which end at their deadline', async (t) => {
  const logIn = async (): Promise<number> => {
    const before = performance.now();
    const answer = await post(service, '/auth/login', { email, password: PASSWORD });
    t.equal(answer.status, 200, answer.text);
    return performance.now() - before;
  };
  await logIn();
  const alone = await logIn();
  const asked = performance.now();
  t.match(await request(service, 'GET', `/assets/${small}?width=30`), { status: 200 });
  const starting = performance.now() - asked;
  const start = performance.now();
  const burdens = Array.from({ length: 8 }, (_, seed) =>
    request(service, 'GET', hostile(large, seed)).then(
      (answer) => ({ status: answer.status, message: messageOf(answer), ms: performance.now() - start }),
      (error: Error) => ({ status: 0, message: error.message, ms: performance.now() - start }),
    ),
  );
  const logins: number[] = [];
  let isOver = false;
  void Promise.all(burdens).then(() => {
    isOver = true;
  });
  while (!isOver) {
    logins.push(await logIn());
  }
  logins.sort((one, other) => one - other);
  const median = logins[Math.floor(logins.length / 2)] ?? Number.POSITIVE_INFINITY;
  const figures = `${Math.round(median)} ms, alone ${Math.round(alone)} ms; ${logins.length} were made`;
  t.ok(median < Math.max(500, 4 * alone), `a login takes ${figures}`);
  for (const { status, message, ms } of await Promise.all(burdens)) {
    t.equal(status, 503, message);
    t.match(message, /The image took too long to transform|Too many images are being transformed/);
    // The turn and the image itself, and the start of four processes at a time.
    const most = 3 * LIMIT_MS + 5 * starting;
    t.ok(ms < most, `answered after ${Math.round(ms)} ms; a process starts in ${Math.round(starting)} ms`);
  }
  t.match(await request(service, 'GET', `/assets/${small}?width=20`), { status: 200 }, 'and others are served again');
});

t.test('the process ends promptly while an image is transformed, and so do its children', async (t) => {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const)
    for (const WORKERS of ['1', '2']) {
      const program = spawn(process.execPath, [packagePath('dist', 'src', 'main.js'), 'start'], {
        env: {
          PATH: process.env['PATH'] ?? '',
          PORT: '0',
          WORKERS,
          DATABASE_URL: databaseUrl,
          STORAGE_LOCAL_ROOT: root,
          ASSETS_TRANSFORM_TIMEOUT: '60s',
          LOG_LEVEL: 'warn',
        },
      });
      const ended = once(program, 'exit');
      let said = '';
      program.stdout.on('data', (piece) => {
        said += piece;
      });
      await waitFor(async () => /is ready at \S+\n/.test(said), 10_000);
      const [, url = ''] = /is ready at (\S+)/.exec(said) ?? [];
      const burden = request({ url }, 'GET', hostile(large, 0)).catch((error: Error) => error);
      await waitFor(async () => (await transformersOf(program.pid ?? 0)).length > 0, 10_000);
      const children = await transformersOf(program.pid ?? 0);
      const start = performance.now();
      program.kill(signal);
      await ended;
      const ms = performance.now() - start;
      t.ok(ms < 4_000, `${signal}, ${WORKERS} threads: ended after ${Math.round(ms)} ms`);
      for (const child of children) await waitFor(() => isGone(child), 2_000);
      await burden;
    }
});

t.test('more transformations than can wait are refused as overload', async (t) => {
  const busy = await startTestService({ ...options, ASSETS_TRANSFORM_MAX_CONCURRENT: '1' });
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, width) => request(busy, 'GET', `/assets/${large}?width=${width + 1}`)),
  );
  const refused = answers.filter(({ status }) => status !== 200);
  t.ok(refused.length > 0 && refused.length < 100, `${refused.length} of 100 were refused`);
  for (const answer of refused)
    t.match(answer, {
      status: 503,
      headers: { 'retry-after': /^\d+$/ },
      json: {
        errors: [
          {
            message: /Too many images are being transformed/,
            extensions: { code: 'SERVICE_UNAVAILABLE', service: 'images', option: 'ASSETS_TRANSFORM_MAX_CONCURRENT' },
          },
        ],
      },
    });
  await busy.stop();
  await waitFor(async () => (await transformersOf(process.pid)).length <= 5, 5_000);
});
