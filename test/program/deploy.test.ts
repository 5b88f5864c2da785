/** The files of deploy/: they name metrics, options and paths that exist, and the programs they are for can read them. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { parse } from 'yaml';
import { options } from '../../src/app/options.js';
import { packagePath } from '../../src/base/package-files.js';
import { EventStream } from '../support/event-stream.js';
import { findProgram } from '../support/programs.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  databaseUrl,
  get,
  makeFolder,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../support/service.js';
import { post } from '../support/users.js';

const run = promisify(execFile);
const read = (...path: string[]): Promise<string> => readFile(packagePath('deploy', ...path), 'utf8');

interface Alerts {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
}

interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
}

const alerts = parse(await read('alerts.yaml')) as Alerts;
const dashboard = JSON.parse(await read('dashboard.json')) as Dashboard;
const expressions = [
  ...alerts.groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
  ...dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
];

t.test('every metric that is named exists', async (t) => {
  const server = await startDatabase();
  const service = await startTestService({ databaseUrl: await createLibrary(server, 'deployed') });
  const { text } = await get(service, '/server/metrics');
  const documented = await readFile(packagePath('docs', 'metrics.md'), 'utf8');
  const existing = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name));
  const named = new Set(
    expressions.flatMap((each) => each.match(/\b(?:lateral|nodejs|process)_\w+/g) ?? []).map(withoutSuffix),
  );
  t.ok(named.size > 10);
  for (const name of named) {
    // Those of replicas appear with the first replica.
    const isOptional = /^lateral_(replica|server)_/.test(name);
    t.ok(isOptional ? documented.includes(name) : existing.has(name), name);
  }
});

const withoutSuffix = (name: string): string => name.replace(/_(bucket|sum|count)$/, '');

t.test('the options of the example exist, and the paths of the image', async (t) => {
  const { services } = parse(await read('compose.yaml')) as {
    services: Record<string, { environment: Record<string, string> }>;
  };
  const known = new Set(options.rows().map(({ name }) => name));
  for (const name of Object.keys(services['lateral']?.environment ?? {})) t.ok(known.has(name), name);
  const [, copied = ''] = /^cp -R (package\.json .*) "\$image\/app\/"$/m.exec(await read('assemble-image.sh')) ?? [];
  t.ok(copied.split(' ').length >= 3);
  for (const path of copied.split(' ')) await t.resolves(stat(packagePath(path)), path);
  const { files } = JSON.parse(await readFile(packagePath('src', 'server', 'http', 'uws-binaries.json'), 'utf8'));
  // The image has Node 24.
  for (const arch of ['x64', 'arm64']) t.equal(files[`uws_linux_${arch}_137.node`]?.published, true, arch);
});

t.test(
  'the example connects as a role without superuser rights, which reads, writes and follows the log',
  async (t) => {
    const { services, configs } = parse(await read('compose.yaml')) as {
      services: Record<string, { environment: Record<string, string>; configs?: { source: string; target: string }[] }>;
      configs: Record<string, { content: string }>;
    };
    const { environment = {} } = services['lateral'] ?? {};
    const names = ['DATABASE_URL', 'DATABASE_DIRECT_URL', 'DATABASE_REPLICA_URLS'];
    const logins = names.map((name) =>
      /^postgres:\/\/(\w+):\$\{LATERAL_PASSWORD:\?\}@\w+:5432\/(\w+)$/.exec(environment[name] ?? ''),
    );
    t.strictSame(new Set(logins.map((login) => login?.slice(1).join(' '))), new Set(['lateral lateral']));
    t.match(services['pgbouncer']?.environment, { DB_USER: 'lateral', DB_PASSWORD: `$\{LATERAL_PASSWORD:?}` });
    const scripts = services['primary']?.configs?.map(({ source }) => configs[source]?.content ?? '') ?? [];
    const [, statements = ''] = /<<'SQL'\n(.*?)\nSQL$/ms.exec(scripts.join('\n')) ?? [];
    const server = await startDatabase({ settings: { wal_level: 'logical' } });
    // The superuser of the test's server is called "lateral" as well.
    const texts = statements.replaceAll('"lateral"', 'example').replace(":'password'", "'secret'").split(/;\s*/);
    await withSql(databaseUrl(server, 'postgres'), async (sql) => {
      for (const each of texts.filter((text) => text !== '')) await sql.unsafe(each);
      t.match(await sql`select rolsuper, rolcreaterole, rolcreatedb from pg_roles where rolname = 'example'`, [
        { rolsuper: false, rolcreaterole: false, rolcreatedb: false },
      ]);
    });
    const url = databaseUrl(server, 'example', { user: 'example', password: 'secret' });
    const service = await startTestService({ databaseUrl: url, LIVE: 'logical' });
    await withSql(url, (sql) => sql`create table notes (id serial primary key, body text)`);
    await waitFor(async () => (await get(service, '/items/notes')).status === 200, 10_000);
    const stream = new EventStream(service, '/items/notes');
    t.teardown(() => stream.close());
    await stream.count(1, 20_000);
    t.equal((await post(service, '/items/notes', { body: 'kept' }, { token: ADMIN_TOKEN })).status, 200);
    await stream.count(2, 20_000);
    t.match(stream.last, { data: [{ body: 'kept' }] });
    t.match((await get(service, '/server/health')).json, { status: 'ok' });
  },
);

const lacking = await Promise.all(['ldd', 'dpkg-query'].map(async (name) => ((await findProgram(name)) ? [] : [name])));
t.test(
  'no image is assembled without a library that it needs',
  { skip: lacking.flat().length > 0 && `not installed: ${lacking.flat().join(', ')}` },
  async (t) => {
    const folder = await makeFolder();
    const server = join(folder, 'dist', 'uws');
    for (const each of [
      server,
      join(folder, 'node_modules'),
      join(folder, 'sql'),
      join(folder, 'dist', 'src'),
      join(folder, 'dist', 'web'),
    ])
      await mkdir(each, { recursive: true });
    await writeFile(join(folder, 'package.json'), '{}');
    const name = `uws_linux_${process.arch}_${process.versions.modules}.node`;
    const binary = await readFile(packagePath('dist', 'uws', name), 'latin1');
    const assemble = async (needed: string): Promise<string> => {
      await writeFile(join(server, name), binary.replaceAll('libc.so.6', needed), 'latin1');
      const image = join(folder, `image-${needed.slice(0, 4)}`);
      return run('sh', [packagePath('deploy', 'assemble-image.sh'), image], { cwd: folder }).then(
        () => '',
        ({ code, stderr }: { code: number; stderr: string }) => `${code} ${stderr}`,
      );
    };
    t.match(await assemble('libx.so.6'), /^1 a library is missing: .*libx\.so\.6 => not found/);
    t.equal(await assemble('libc.so.6'), '', 'with all of them it is');
    t.match(await readdir(join(folder, 'image-libc', 'usr', 'local', 'bin')), ['node']);
    t.match(await readdir(join(folder, 'image-libc', 'var', 'lib', 'dpkg', 'status.d')), ['libc6']);
  },
);

const promtool = await findProgram('promtool');
t.test(
  'Prometheus reads the rules and the queries',
  {
    skip: promtool === null && 'promtool is not installed: apt-get install prometheus',
  },
  async (t) => {
    await t.resolves(run('promtool', ['check', 'rules', packagePath('deploy', 'alerts.yaml')]));
    const rules = expressions.map((expr, position) => ({
      record: `query_${position}`,
      expr: expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.+'),
    }));
    const file = join(await makeFolder(), 'queries.yaml');
    await writeFile(file, JSON.stringify({ groups: [{ name: 'queries', rules }] }));
    await t.resolves(run('promtool', ['check', 'rules', file]));
  },
);

const analyze = await findProgram('systemd-analyze');
t.test(
  'systemd reads the unit',
  {
    skip: analyze === null && 'systemd-analyze is not installed: apt-get install systemd',
  },
  async (t) => {
    await t.resolves(run('systemd-analyze', ['verify', packagePath('deploy', 'lateral.service')]));
  },
);

t.test('systemd is told when it is ready, and when it stops', async (t) => {
  const server = await startDatabase();
  const folder = await makeFolder();
  const told = join(folder, 'told');
  await writeFile(join(folder, 'systemd-notify'), `#!/bin/sh\necho "$@" >> ${told}\n`);
  await chmod(join(folder, 'systemd-notify'), 0o755);
  await writeFile(told, '');
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js'), 'start'], {
    env: {
      PATH: `${folder}:${process.env['PATH']}`,
      PORT: '0',
      DATABASE_URL: await createLibrary(server, 'notified'),
      NOTIFY_SOCKET: '/nowhere',
    },
    stdio: 'ignore',
  });
  t.teardown(() => child.kill('SIGKILL'));
  const lines = async (): Promise<string> => readFile(told, 'utf8');
  await waitFor(async () => (await lines()).includes('--ready'), 60_000);
  const stopped = once(child, 'exit');
  child.kill('SIGTERM');
  t.strictSame(await stopped, [0, null]);
  t.equal(await lines(), '--ready\n--stopping\n');
});

t.test('a release is refused until the publisher is named', async (t) => {
  const { code, stderr } = await run(process.execPath, [packagePath('scripts', 'release.mjs'), '--dirty']).then(
    () => ({ code: 0, stderr: '' }),
    (error: { code: number; stderr: string }) => error,
  );
  t.equal(code, 1);
  for (const name of ['name', 'author', 'homepage', 'repository', 'bugs'])
    t.ok(stderr.includes(`- "${name}" in package.json is a placeholder: set it to your own`), name);
});
