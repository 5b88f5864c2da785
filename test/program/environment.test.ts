/** What the program takes from its environment: `.env`, names that look like options, and signals under `npm start`. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import t from 'tap';
import { options } from '../../src/app/options.js';
import { packagePath } from '../../src/base/package-files.js';
import { runCommand } from '../support/command.js';
import { createServed, get, makeFolder, startDatabase, waitFor, withSql } from '../support/service.js';

const server = await startDatabase();
const DATABASE_URL = await createServed(server, 'environment');
const TOKEN = '-a-token-that-begins-with-a-dash';

interface Run {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  readonly said: () => string;
  readonly ended: Promise<unknown>;
}

function launch(cwd: string, command: string, words: readonly string[], environment: Record<string, string>): Run {
  const env = { PATH: process.env['PATH'] ?? '', ...environment };
  const child = spawn(command, words, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  return { child, said: () => said, ended: once(child, 'close') };
}

function lateral(cwd: string, words: readonly string[], environment: Record<string, string> = {}): Run {
  return launch(cwd, process.execPath, [packagePath('dist', 'src', 'main.js'), ...words], environment);
}

async function ready(run: Run): Promise<{ readonly url: string }> {
  await waitFor(async () => /Try it:/.test(run.said()) || run.child.exitCode !== null, 60_000);
  const url = /is ready at (http:\S+)/.exec(run.said())?.[1];
  if (url === undefined) throw new Error(`it did not start:\n${run.said()}`);
  return { url };
}

t.test('.env of the working folder sets options, and the environment wins', async (t) => {
  await withSql(DATABASE_URL, (sql) =>
    sql.unsafe(`update service_users set token = encode(sha256($1), 'hex') where email = 'admin@example.com'`, [
      Buffer.from(TOKEN),
    ]),
  );
  const folder = await makeFolder();
  const lines = [`DATABASE_URL=${DATABASE_URL}`, `ADMIN_TOKEN="${TOKEN}" # of ours`, 'PORT=1', 'QUERY_LIMT_MAX=7'];
  await writeFile(join(folder, '.env'), lines.join('\n'));
  const run = lateral(folder, ['start'], { PORT: '0', ADMIN_PASSWORD: 'not-the-one', HOME: '/' });
  const service = await ready(run);
  t.match(await get(service, '/users/me?fields=email', { token: TOKEN }), { status: 200, text: /admin@example/ });
  const [, set = ''] = /"msg":"\.env sets ([^"]*)"/.exec(run.said()) ?? [];
  t.strictSame(set.split(', ').sort(), ['ADMIN_TOKEN', 'DATABASE_URL', 'QUERY_LIMT_MAX']);
  t.match(run.said(), /there is no option QUERY_LIMT_MAX: did you mean QUERY_LIMIT_MAX\?/);
  t.match(run.said(), /without effect: ADMIN_PASSWORD\. The first start/, 'and not ADMIN_TOKEN, which works');
  t.notMatch(run.said(), new RegExp(TOKEN), 'values are not logged');
  run.child.kill('SIGTERM');
  await run.ended;
});

t.test('--env-file names another file, and a folder called .env is no file', async (t) => {
  const folder = await makeFolder();
  await mkdir(join(folder, '.env'));
  await writeFile(join(folder, 'shop.env'), `DATABASE_URL=${DATABASE_URL}\nDATABSE_URL=x`);
  const doctor = lateral(folder, ['doctor', '--env-file', 'shop.env']);
  await doctor.ended;
  t.match(doctor.said(), /ok +shop\.env sets (DATABASE_URL, DATABSE_URL|DATABSE_URL, DATABASE_URL)\n/);
  t.match(doctor.said(), /note +there is no option DATABSE_URL: did you mean DATABASE_URL\?/);
  t.match(doctor.said(), /database \w*environment/);
  const { code, complaints } = await runCommand(['types', '--env-file=no.env']);
  t.equal(code, 2);
  t.match(complaints, /^lateral: no\.env cannot be read: ENOENT/);
});

t.test('a program that creates the service reads no file', async (t) => {
  const folder = await makeFolder();
  const program = join(folder, 'program.mjs');
  await writeFile(join(folder, '.env'), 'LOG_LEVEL=wrong\nDATABASE_URL=postgres://nowhere.invalid/x');
  await writeFile(
    program,
    `import { createLateral } from ${JSON.stringify(packagePath('dist', 'src', 'index.js'))};
createLateral({ ...process.env });
console.log(process.env.DATABASE_URL ?? 'none');`,
  );
  const run = launch(folder, process.execPath, [program], {});
  await run.ended;
  t.equal(run.said(), 'none\n');
});

t.test('under npm start, a signal reaches the service', async (t) => {
  const run = launch(packagePath(), 'npm', ['start', '--ignore-scripts'], {
    DATABASE_URL,
    PORT: '0',
    HOME: await makeFolder(),
  });
  const service = await ready(run);
  run.child.kill('SIGTERM');
  await run.ended;
  t.match(run.said(), /"msg":"stopped"/);
  await t.rejects(get(service, '/server/ping'), { code: 'ECONNREFUSED' });
});

t.test('ordinary variables are not taken for options', async (t) => {
  const ordinary = (await readFile(packagePath('test', 'program', 'ordinary-variables.txt'), 'utf8')).split(/\s+/);
  t.ok(ordinary.length > 300);
  t.strictSame(options.misspelt(Object.fromEntries(ordinary.map((name) => [name, 'x']))), []);
  for (const [name, meant] of [
    ['DATABSE_URL', 'DATABASE_URL'],
    ['DATABASE_URI', 'DATABASE_URL'],
    ['database_url', 'DATABASE_URL'],
    ['DATABASEURL', 'DATABASE_URL'],
    ['ADMIN_PASSWROD', 'ADMIN_PASSWORD'],
    ['ADMIN_PASWORDS', 'ADMIN_PASSWORD'],
    ['CORS_ORIGINS', 'CORS_ORIGIN'],
    ['EXTENSION', 'EXTENSIONS'],
    ['RATE_LIMITER_ENABELD', 'RATE_LIMITER_ENABLED'],
  ] as const)
    t.strictSame(options.misspelt({ [name]: 'x' }), [{ name, meant }]);
  t.strictSame(options.misspelt({ DATABSE_URL: '', STORAGE_LOCAL_ROOT: './uploads', READ_BATCHING: 'true' }), []);
});
