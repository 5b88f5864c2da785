/** The parameters of libpq, each against a real server with TLS and an authority of its own. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, copyFile, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect as connectPlainly, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectSecurely, createSecureContext, TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import t from 'tap';
import { elementAt } from '../../../src/base/narrow.js';
import type { Event } from '../../../src/base/observe.js';
import { resolveConnection } from '../../../src/server/config/connection-settings.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import { openClient, startParameters } from '../../../src/server/postgres/wire/client.js';
import { Authority, type Certificate } from '../../support/authority.js';
import { findProgram } from '../../support/programs.js';
import { makeFolder, startDatabase, withSql } from '../../support/service.js';

const HBA = `
local all all trust
hostssl all certified all cert
hostssl all md5er all md5
hostssl all cleartext all password
hostssl all trusted all trust
hostssl all secured all scram-sha-256
hostnossl all plainer all scram-sha-256
host all lateral all scram-sha-256
`;
const ROLES = ['certified', 'cleartext', 'trusted', 'secured', 'plainer'];

/** Percent-encoded SASLprep: a ligature, a soft hyphen and a space that does not break. */
const ODD = { written: 'pa\u00adss\u00a0\ufb01', encoded: encodeURIComponent('pass fi') };

const LIMITS = {
  ...{ schema: 'public', connections: 1, sessions: 1, streams: 1, imports: 1 },
  ...{ waitTimeout: 5_000, statementTimeout: 90_000, connectTimeout: 5_000 },
};

const STATE = `
  select s.ssl, s.client_dn as dn, current_user::text as user, current_setting('application_name') as application,
    current_setting('work_mem') as work_mem, current_setting('app.tenant', true) as tenant
  from pg_stat_ssl s where s.pid = pg_backend_pid()`;

if ((await findProgram('openssl')) === null) t.plan(0, 'openssl is not installed: it makes the certificates');
else await testParameters();

async function testParameters(): Promise<void> {
  const folder = await makeFolder();
  const authority = await Authority.found(folder);
  const server = await startDatabase({ own: true });
  const { port, password } = new URL(server.url);
  const data = await withSql(server.url, async (sql) =>
    String((await sql`show data_directory`)[0]?.['data_directory']),
  );
  const ca = `sslrootcert=${authority.certificate}`;

  /** The server's own account must own the key. */
  async function serve({ certificate, key }: Certificate): Promise<void> {
    const { uid, gid } = await stat(data);
    await copyFile(key, join(data, 'server.key'));
    await copyFile(certificate, join(data, 'server.crt'));
    for (const name of ['server.key', 'server.crt']) await chown(join(data, name), uid, gid);
    await withSql(server.url, async (sql) => {
      const [row] = await sql`select pg_conf_load_time()::text as loaded, pg_reload_conf()`;
      while ((await sql`select pg_conf_load_time()::text as loaded`)[0]?.['loaded'] === row?.['loaded'])
        await sleep(10);
    });
    // The postmaster reloads after the connection that asked for it.
    const wanted = (await readFile(certificate, 'utf8')).replaceAll(/-----[^-]+-----|\s/g, '');
    for (;;) {
      const shown = await shownCertificate(Number(port));
      if (shown === wanted || wanted === '') return;
      await sleep(20);
    }
  }

  await writeFile(join(data, 'pg_hba.conf'), HBA);
  await withSql(server.url, async (sql) => {
    for (const role of ROLES) await sql.unsafe(`create role ${role} login password 'secret'`);
    await sql.unsafe(`create role odd login password '${ODD.written}'`);
    await sql.unsafe(`set password_encryption = md5; create role md5er login password 'secret'`);
    await copyFile(authority.certificate, join(data, 'ca.crt'));
    await sql.unsafe(`alter system set ssl_ca_file = 'ca.crt'`);
    await sql.unsafe('alter system set ssl = on');
  });
  const own = await authority.issue('localhost', { names: 'DNS:localhost,DNS:db.example' });
  await serve(own);

  const at = (user: string, query = '', host = 'localhost'): string =>
    `postgres://${user}${user === 'lateral' ? `:${password}` : ':secret'}@${host}:${port}/lateral?${query}`;
  const ask = async (url: string, text = STATE): Promise<Readonly<Record<string, unknown>>> => {
    const settings = resolveConnection(url);
    const client = openClient(
      { ...settings, connectTimeout: settings.connectTimeout ?? 10_000 },
      startParameters(settings),
    );
    try {
      const [row] = await client.unsafe(text);
      return { ...row };
    } finally {
      await client.end();
    }
  };
  const isSecure = async (url: string): Promise<boolean> => (await ask(url))['ssl'] === true;

  t.test('sslmode', async (t) => {
    t.equal(await isSecure(at('lateral')), true, 'prefer is the default');
    for (const mode of ['prefer', 'require', `verify-ca&${ca}`, `verify-full&${ca}`])
      t.equal(await isSecure(at('lateral', `sslmode=${mode}`)), true, mode);
    for (const mode of ['disable', 'allow']) t.equal(await isSecure(at('lateral', `sslmode=${mode}`)), false, mode);
    t.equal(await isSecure(at('secured', 'sslmode=allow')), true, 'allow uses TLS where the server demands it');
    t.equal(await isSecure(at('plainer', 'sslmode=prefer')), false, 'prefer does without where the server refuses it');
    await t.rejects(ask(at('secured', 'sslmode=disable')), { message: /pg_hba.conf/ });
    await t.rejects(ask(at('plainer', 'sslmode=require')), { message: /pg_hba.conf/ });
  });

  t.test('sslrootcert', async (t) => {
    const home = await makeFolder();
    await withEnvironment({ HOME: home }, async () => {
      await t.rejects(ask(at('lateral', 'sslmode=verify-full')), {
        message: /sslmode=verify-full failed: .*sslrootcert/,
      });
      await t.rejects(ask(at('lateral', 'sslmode=verify-ca')), {
        message: /verify-ca needs the certificate of an auth/,
      });
      const missing = at('lateral', 'sslmode=require&sslrootcert=/missing.crt');
      await t.rejects(ask(missing), { message: /sslrootcert: \/missing.crt cannot be read/ });
      await mkdir(join(home, '.postgresql'));
      await copyFile(authority.certificate, join(home, '.postgresql', 'root.crt'));
      t.equal(await isSecure(at('lateral', 'sslmode=verify-full')), true, 'that of ~/.postgresql');
      const other = await Authority.found(await makeFolder());
      await copyFile(other.certificate, join(home, '.postgresql', 'root.crt'));
      await t.rejects(
        ask(at('lateral', 'sslmode=require')),
        { message: /sslmode=require failed/ },
        'require is verify-ca',
      );
    });
    await withEnvironment({ SSL_CERT_FILE: authority.certificate }, async () => {
      t.equal(await isSecure(at('lateral', 'sslrootcert=system')), true, 'the authorities of the system');
    });
    await t.rejects(ask(at('lateral', 'sslrootcert=system')), { message: /sslmode=verify-full failed/ });
    const elsewhere = at('lateral', `sslmode=verify-full&${ca}`, '127.0.0.1');
    await t.rejects(ask(elsewhere), { message: /sslmode=verify-full failed: .*127.0.0.1/ }, 'the name must be right');
    t.equal(await isSecure(at('lateral', `sslmode=verify-ca&${ca}`, '127.0.0.1')), true);
    const addressed = at('lateral', `sslmode=verify-full&${ca}&hostaddr=127.0.0.1`, 'db.example');
    t.equal(await isSecure(addressed), true, 'hostaddr');
    await t.rejects(
      ask(at('lateral', 'sslmode=require&ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2')),
    );
  });

  t.test('sslcert, sslkey and sslpassword', async (t) => {
    const { certificate, key } = await authority.issue('certified');
    const files = `sslmode=require&sslcert=${certificate}&sslkey=${key}`;
    t.match(await ask(at('certified', files)), { ssl: true, dn: '/CN=certified' });
    await t.rejects(ask(at('certified', `${files}&sslcertmode=disable`)), { message: /certificate/ });
    await t.rejects(ask(at('certified', 'sslmode=require')), { message: /certificate/ });
    const loose = await authority.issue('loose');
    await chmod(loose.key, 0o644);
    const readable = at('certified', `sslmode=require&sslcert=${loose.certificate}&sslkey=${loose.key}`);
    await t.rejects(ask(readable), { message: /can be read by others: run chmod 600/ });
    const locked = join(folder, 'locked.key');
    await promisify(execFile)('openssl', ['pkey', '-in', key, '-aes256', '-passout', 'pass:word', '-out', locked]);
    await chmod(locked, 0o600);
    const opened = `sslmode=require&sslcert=${certificate}&sslkey=${locked}`;
    t.match(await ask(at('certified', `${opened}&sslpassword=word`)), { user: 'certified' });
    await t.rejects(ask(at('certified', `${opened}&sslpassword=other`)), {
      message: /certificates for TLS cannot be used/,
    });
  });

  t.test('sslnegotiation=direct', async (t) => {
    const version = Number((await ask(server.url, 'show server_version_num'))['server_version_num']);
    const direct = at('lateral', `sslmode=verify-full&${ca}&sslnegotiation=direct`);
    if (version >= 170_000) t.equal(await isSecure(direct), true);
    else await t.rejects(ask(direct));
  });

  t.test('channel_binding', async (t) => {
    const relay = await startRelay(Number(port), own);
    const through = (binding: string): string =>
      at('secured', `sslmode=verify-full&${ca}&channel_binding=${binding}`).replace(`:${port}/`, `:${relay}/`);
    t.equal(await isSecure(through('disable')), true, 'somebody in the middle with the same certificate');
    const other = await authority.issue('another', { names: 'DNS:localhost' });
    const stranger = await startRelay(Number(port), other);
    const past = (binding: string): string => through(binding).replace(`:${relay}/`, `:${stranger}/`);
    t.equal(await isSecure(past('disable')), true, 'somebody in the middle with another certificate');
    for (const binding of ['prefer', 'require'])
      await t.rejects(ask(past(binding)), { message: /channel binding check failed/ }, binding);
    t.equal(await isSecure(at('secured', 'sslmode=require&channel_binding=require')), true);
    for (const [user, query, reason] of [
      ['lateral', 'sslmode=disable', 'the connection has no TLS'],
      ['md5er', 'sslmode=require', 'the server asks for a login by md5'],
      ['cleartext', 'sslmode=require', 'the server asks for a login by password'],
      ['trusted', 'sslmode=require', 'the server asks for no password'],
    ] as const) {
      const message = new RegExp(`channel_binding=require cannot be kept: ${reason}`);
      await t.rejects(ask(at(user, `${query}&channel_binding=require`)), { message }, reason);
    }
  });

  t.test('channel binding follows the hash of the certificate', async (t) => {
    const pss = ['-sigopt', 'rsa_padding_mode:pss'];
    for (const [name, wish, isBound] of [
      ['ec384', { options: ['-sha384'] }, true],
      ['rsa256', { kind: 'rsa', options: ['-sha256'] }, true],
      ['rsa512', { kind: 'rsa', options: ['-sha512'] }, true],
      ['pss', { kind: 'rsa', options: ['-sha384', ...pss] }, true],
      ['edwards', { kind: 'ed25519' }, false],
    ] as const) {
      await serve(await authority.pretend(name, wish));
      const bound = at('secured', 'sslmode=require&channel_binding=require');
      if (isBound) t.equal(await isSecure(bound), true, name);
      else await t.rejects(ask(bound), { message: /does not offer SCRAM-SHA-256-PLUS for its certificate/ }, name);
    }
    await serve(own);
  });

  t.test('the ways to log in, and require_auth', async (t) => {
    for (const [user, method] of [
      ['md5er', 'md5'],
      ['cleartext', 'password'],
      ['trusted', 'none'],
      ['secured', 'scram-sha-256'],
    ] as const) {
      t.match(await ask(at(user, 'sslmode=require')), { user }, method);
      t.match(await ask(at(user, `require_auth=${method}`)), { user }, method);
      const message = new RegExp(
        `require_auth allows .*, but the server asks for ${method === 'none' ? 'no' : method}`,
      );
      await t.rejects(ask(at(user, `require_auth=!${method}`)), { message }, `not ${method}`);
    }
    await t.rejects(ask(at('secured').replace('secret', 'wrong')), { code: '28P01' });
    await t.rejects(ask(at('md5er').replace('secret', 'wrong')), { code: '28P01' });
    await t.rejects(ask(at('secured').replace(':secret', '')), { message: /asks for a password: add it to the URL/ });
  });

  t.test('passwords are compared after SASLprep', async (t) => {
    await writeFile(join(data, 'pg_hba.conf'), `${HBA}\nhost all odd all scram-sha-256\n`);
    await serve(own);
    t.match(await ask(at('odd').replace('secret', ODD.encoded)), { user: 'odd' });
    t.match(await ask(at('odd').replace('secret', encodeURIComponent(ODD.written))), { user: 'odd' });
  });

  t.test('passwords from the environment and from files', async (t) => {
    const bare = at('secured').replace(':secret', '');
    await withEnvironment({ PGPASSWORD: 'secret' }, async () => t.match(await ask(bare), { user: 'secured' }));
    const home = await makeFolder();
    const file = join(home, '.pgpass');
    const text = `localhost:${port}:lateral:secured:secret\n`;
    await writeFile(file, text, { mode: 0o600 });
    await withEnvironment({ HOME: home }, async () => t.match(await ask(bare), { user: 'secured' }, '~/.pgpass'));
    const other = join(home, 'loose');
    await writeFile(other, text, { mode: 0o644 });
    await withEnvironment({ PGPASSFILE: file }, async () => t.match(await ask(bare), { user: 'secured' }));
    const encoded = encodeURIComponent(other);
    await t.rejects(ask(`${bare}passfile=${encoded}`), { message: /can be read by others: run chmod 600/ });
  });

  t.test('the environment and a service file say where the server is', async (t) => {
    const file = join(await makeFolder(), 'services.conf');
    await writeFile(
      file,
      `[shop]\nhost=localhost\nport=${port}\nuser=secured\npassword=secret\ndbname=lateral\nsslmode=require\n`,
    );
    await withEnvironment({ PGSERVICEFILE: file }, async () => {
      t.match(await ask('postgres://?service=shop'), { user: 'secured', ssl: true });
      t.match(await ask('service=shop sslmode=disable user=lateral password='.concat(password)), { ssl: false });
    });
    const places = {
      PGHOST: 'localhost',
      PGPORT: port,
      PGUSER: 'secured',
      PGPASSWORD: 'secret',
      PGDATABASE: 'lateral',
    };
    await withEnvironment({ ...places, PGSSLMODE: 'verify-full', PGSSLROOTCERT: authority.certificate }, async () =>
      t.match(await ask('postgres://'), { user: 'secured', ssl: true }),
    );
  });

  t.test('application_name, options and client_encoding', async (t) => {
    t.match(await ask(at('lateral')), { application: /^lateral \d/ });
    const named = at('lateral', 'application_name=shop&options=-c%20work_mem%3D7MB%20-c%20app.tenant%3D5');
    t.match(await ask(named), { application: 'shop', work_mem: '7MB', tenant: '5' });
    await withEnvironment({ PGAPPNAME: 'env', PGOPTIONS: '-c work_mem=9MB' }, async () =>
      t.match(await ask(at('lateral')), { application: 'env', work_mem: '9MB' }),
    );
    const unknown = at('lateral', 'pgbouncer=true&schema=x&uselibpqcompat=true&work_mem=5MB');
    t.match(await ask(unknown), { work_mem: '4MB' }, 'unknown parameters are never sent');
    const events: Event[] = [];
    const database = await Database.open({
      ...LIMITS,
      url: unknown,
      directUrl: at('lateral', 'schema=x&tcp_user_timeout=5'),
      replicaUrls: [at('lateral', 'target_session_attrs=standby&tcp_nodelay=1')],
      checksSessions: true,
      observe: (event) => events.push(event),
    });
    await database.close();
    const unused = ['pgbouncer', 'schema', 'uselibpqcompat', 'work_mem', 'tcp_user_timeout', 'tcp_nodelay'];
    t.strictSame(events, [{ kind: 'parameters-unused', unused }], 'one warning names them');
  });

  t.test('statements are stopped over TLS, and DATABASE_URL leads to no standby', async (t) => {
    for (const query of [`sslmode=verify-full&${ca}`, 'sslmode=prefer', 'sslmode=disable']) {
      const database = await Database.open({ ...LIMITS, url: at('lateral', query) });
      const wire = elementAt(database.readConnections, 0);
      const stopped = new Promise<Error | null>((resolve) => {
        const sleeping = { text: 'select pg_sleep(60)', parameters: [], prepare: false, columns: null };
        wire.run({ ...sleeping, row: () => {}, end: resolve });
      });
      const others = "select count(*)::int as count from pg_stat_activity where query = 'select pg_sleep(60)'";
      while ((await ask(server.url, others))['count'] === 0) await sleep(20);
      await wire.cancel();
      t.match(await stopped, { code: '57014' }, query);
      await database.close();
    }
    const standby = Database.open({ ...LIMITS, url: at('lateral', 'target_session_attrs=standby') });
    await t.rejects(standby, { message: /one of any, primary, read-write, not "standby": the service writes/ });
  });

  t.test('target_session_attrs', async (t) => {
    for (const target of ['any', 'primary', 'read-write', 'prefer-standby'])
      t.match(await ask(at('lateral', `target_session_attrs=${target}`)), { user: 'lateral' }, target);
    for (const target of ['standby', 'read-only']) {
      const message = new RegExp(`does not meet target_session_attrs=${target}`);
      await t.rejects(ask(at('lateral', `target_session_attrs=${target}`)), { message }, target);
    }
    await withSql(server.url, (sql) => sql`alter database "lateral" set default_transaction_read_only = on`);
    t.match(await ask(at('lateral', 'target_session_attrs=read-only')), { user: 'lateral' });
    const refused = ask(at('lateral', 'target_session_attrs=read-write'));
    await t.rejects(refused, { message: /does not meet target_session_attrs=read-write/ });
    await withSql(server.url, async (sql) => {
      await sql`set default_transaction_read_only = off`;
      await sql`alter database "lateral" reset default_transaction_read_only`;
    });
  });

  t.test('several hosts, connect_timeout and a server that says nothing', async (t) => {
    const silent = await listenOn(() => {});
    const hosts = `127.0.0.1:1,127.0.0.1:${silent},localhost:${port}`;
    const several = at('lateral', 'connect_timeout=1').replace(`localhost:${port}`, hosts);
    const start = performance.now();
    t.match(await ask(several.concat('&target_session_attrs=any')), { user: 'lateral' });
    t.ok(performance.now() - start >= 990, 'the second is left after a second');
    const alone = at('lateral', 'connect_timeout=1').replace(`localhost:${port}`, `127.0.0.1:${silent}`);
    await t.rejects(ask(alone), { message: /did not answer in time/, code: 'CONNECTION_FAILED' });
  });

  t.test('folders of sockets', async (t) => {
    const sockets = await makeFolder();
    await listenOn(
      (client) => client.pipe(connectPlainly(Number(port))).pipe(client),
      join(sockets, `.s.PGSQL.${port}`),
    );
    for (const url of [
      `postgres://lateral:${password}@${encodeURIComponent(sockets)}:${port}/lateral`,
      `postgres://lateral:${password}@/lateral?host=${sockets}&port=${port}`,
      `host=${sockets} port=${port} user=lateral password=${password} dbname=lateral sslmode=require`,
    ])
      t.match(await ask(url), { ssl: false }, url.replace(password, '***'));
    const bound = `host=${sockets} port=${port} user=lateral password=${password} dbname=lateral channel_binding=require`;
    await t.rejects(ask(bound), { message: /channel_binding=require cannot be kept: the connection has no TLS/ });
  });
}

async function withEnvironment(
  environment: Readonly<Record<string, string>>,
  work: () => Promise<unknown>,
): Promise<void> {
  const before = { ...process.env };
  Object.assign(process.env, environment);
  try {
    await work();
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name];
    Object.assign(process.env, before);
  }
}

/** Returns the port. */
async function listenOn(serve: (client: Socket) => void, path?: string): Promise<number> {
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client.on('error', () => {}));
    serve(client);
  });
  if (path === undefined) server.listen(0, '127.0.0.1');
  else server.listen(path);
  await once(server, 'listening');
  t.teardown(() => {
    for (const client of clients) client.destroy();
    server.close();
  });
  return path === undefined ? (server.address() as AddressInfo).port : 0;
}

/** The certificate that a server shows, in base64. */
function shownCertificate(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectPlainly(port, '127.0.0.1', () => socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47])));
    socket.once('error', reject).once('data', (answer) => {
      if (String(answer) !== 'S') {
        socket.destroy();
        return resolve('');
      }
      const secured = connectSecurely({ socket, rejectUnauthorized: false }, () => {
        resolve(secured.getPeerX509Certificate()?.raw.toString('base64') ?? '');
        secured.destroy();
      });
      secured.once('error', reject);
    });
  });
}

/** Ends the TLS of its clients with a certificate of its own, and begins another with the server. */
async function startRelay(port: number, { certificate, key }: Certificate): Promise<number> {
  const secureContext = createSecureContext({ cert: await readFile(certificate), key: await readFile(key) });
  const request = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
  return listenOn((client) => {
    client.once('data', () => {
      client.write('S');
      const inner = new TLSSocket(client, { isServer: true, secureContext });
      const plain = connectPlainly(port, '127.0.0.1', () => plain.write(request));
      for (const socket of [inner, plain, client]) socket.on('error', () => inner.destroy());
      plain.once('data', () => {
        const outer = connectSecurely({ socket: plain, rejectUnauthorized: false }, () =>
          inner.pipe(outer).pipe(inner),
        );
        outer.on('error', () => inner.destroy());
      });
    });
  });
}
