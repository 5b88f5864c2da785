/** Connection strings, the environment and the files around them, as libpq reads them. Nothing is connected here. */
import t from 'tap';
import {
  type ConnectionSettings,
  findPassword,
  resolveConnection,
  type Surroundings,
} from '../../../src/server/config/connection-settings.js';
import { parseConnectionString } from '../../../src/server/config/connection-string.js';

interface Given {
  readonly environment?: Surroundings['environment'];
  readonly files?: Readonly<Record<string, string>>;
}

function resolve(url: string, { environment = {}, files = {} }: Given = {}): ConnectionSettings {
  return resolveConnection(url, {
    environment,
    home: '/home/me',
    account: 'me',
    read: (path) => files[path] ?? null,
    exists: (path) => path in files,
  });
}

/** In one line. */
function placeOf(settings: ConnectionSettings): string {
  const { hosts, user, password, database } = settings;
  return `${user}:${password ?? ''}@${hosts.map(({ name }) => name).join()} ${database}`;
}

t.test('a URL and pairs say the same', async (t) => {
  for (const [text, expected] of [
    ['postgresql://u:p@h:5433/d', 'u:p@h:5433 d'],
    ['postgres://u%40x:p%2F%3A%25@h/d%20e', 'u@x:p/:%@h:5432 d e'],
    ['postgres://u:p#@+w@h/d', 'u:p#@+w@h:5432 d'],
    ['postgres://h', 'me:@h:5432 me'],
    ['postgres://u@/d', 'u:@localhost:5432 d'],
    ['postgres:///d?host=h&port=1&user=u&password=p', 'u:p@h:1 d'],
    ['postgres://u@%2Fvar%2Frun%2Fpostgresql:5433/d', 'u:@/var/run/postgresql/.s.PGSQL.5433 d'],
    ['postgres:///d?host=/cloudsql/p:r:i', 'me:@/cloudsql/p:r:i/.s.PGSQL.5432 d'],
    ['postgres://[::1]:5433,h2/d', 'me:@[::1]:5433,h2:5432 d'],
    ['host=h port=5433 user=u password=p dbname=d', 'u:p@h:5433 d'],
    [String.raw`host = h password='a b\'c\\' dbname=d\ e`, String.raw`me:a b'c\@h:5432 d e`],
  ] as const)
    t.equal(placeOf(resolve(text)), expected, text);
  t.equal(parseConnectionString('postgres://h/d?ssl=true').get('sslmode'), 'require', 'the parameter of JDBC');
  const { hosts } = resolve('postgres://db.example/d?hostaddr=10.0.0.1');
  t.match(hosts, [{ host: 'db.example', address: '10.0.0.1' }]);
});

t.test('a connection string that cannot be read', async (t) => {
  for (const [text, reason] of [
    ['localhost/d', /must look like/],
    ['postgres://h:x/d', /must look like/],
    ['host=h oops', /must look like/],
    ['postgres://u:50%@h/d', /has a "%" without two hexadecimal digits/],
    ['postgres://u:%ff@h/d', /not UTF-8/],
    ['postgres://h/d?sslmode', /has a parameter "sslmode" without a value/],
    ['postgres://u:1?word@h/d', /has a parameter without a value/],
    ['postgres://h:70000/d', /port must be from 1 to 65535, not 70000/],
    ['postgres://a,b,c/d?port=1,2', /port has 2 entries, and host 3/],
    ['postgres://h/d?sslmode=on', /sslmode must be one of disable, .* not "on"/],
    ['postgres://h/d?sslmode=require&sslrootcert=system', /sslrootcert=system needs sslmode=verify-full/],
    ['postgres://h/d?sslnegotiation=direct', /sslnegotiation=direct needs sslmode=require.* not "prefer"/],
    ['postgres://h/d?gssencmode=require', /gssencmode=require cannot be kept/],
    ['postgres://h/d?sslcertmode=require', /sslcertmode=require cannot be kept/],
    ['postgres://h/d?requirepeer=postgres', /requirepeer is not supported: remove it/],
    ['postgres://h/d?channel_binding=yes', /channel_binding must be one of disable, prefer, require, not "yes"/],
    ['postgres://h/d?target_session_attrs=master', /target_session_attrs must be one of any,/],
    ['postgres://h/d?connect_timeout=soon', /connect_timeout must be a whole number, not "soon"/],
    ['postgres://h/d?require_auth=md5,!none', /require_auth must be a list/],
    ['postgres://h/d?service=shop', /there is no service "shop" in \/home\/me\/.pg_service.conf or /],
  ] as const)
    t.throws(() => resolve(text), { message: reason }, text);
});

t.test('the environment and a service file fill in what the connection string leaves out', async (t) => {
  const environment = {
    PGHOST: 'from-env',
    PGPORT: '6000',
    PGUSER: 'env-user',
    PGPASSWORD: 'env-word',
    PGDATABASE: 'env-db',
    PGSSLMODE: 'require',
    PGCHANNELBINDING: 'require',
    PGAPPNAME: 'env-app',
    PGOPTIONS: '-c work_mem=8MB',
    PGCONNECT_TIMEOUT: '7',
    PGREQUIREAUTH: '!password',
    PGTARGETSESSIONATTRS: 'primary',
    PGSSLROOTCERT: '/ca.crt',
  };
  const settings = resolve('postgres://', { environment });
  t.equal(placeOf(settings), 'env-user:env-word@from-env:6000 env-db');
  t.match(settings, {
    binding: 'require',
    applicationName: 'env-app',
    options: '-c work_mem=8MB',
    connectTimeout: 7_000,
    target: 'primary',
    tls: { mode: 'require', authorities: { path: '/ca.crt', isNamed: true } },
  });
  t.notOk(settings.methods?.includes('password'));
  t.equal(placeOf(resolve('postgres://u@h/d', { environment })), 'u:env-word@h:6000 d', 'the URL comes first');
  t.throws(() => resolve('postgres://', { environment: { PGGSSENCMODE: 'require' } }), { message: /gssencmode/ });

  const service = '# shops\n[other]\nhost=other\n\n[shop]\nhost=s1,s2\nport=1\nuser = su\nsslmode=verify-full\n';
  const files = { '/home/me/.pg_service.conf': service, '/etc/pg/pg_service.conf': '[late]\nhost=late' };
  t.equal(placeOf(resolve('postgres:///d?service=shop', { files })), 'su:@s1:1,s2:1 d');
  t.equal(resolve('service=shop', { files }).tls.mode, 'verify-full');
  t.equal(placeOf(resolve('postgres://u@h/d?service=shop', { files })), 'u:@h:1 d', 'the URL comes before the service');
  const served = { PGSERVICE: 'shop', PGHOST: 'from-env' };
  t.equal(placeOf(resolve('postgres:///d', { environment: served, files })), 'su:@s1:1,s2:1 d');
  const late = resolve('service=late', { environment: { PGSYSCONFDIR: '/etc/pg' }, files });
  t.equal(placeOf(late), 'me:@late:5432 me');
  const named = { PGSERVICEFILE: '/my.conf' };
  t.equal(placeOf(resolve('service=a', { environment: named, files: { '/my.conf': '[a]\nhost=h' } })), 'me:@h:5432 me');
});

t.test('without a host a socket is used if there is one', async (t) => {
  const files = { '/var/run/postgresql/.s.PGSQL.5432': '' };
  t.equal(placeOf(resolve('postgres:///d', { files })), 'me:@/var/run/postgresql/.s.PGSQL.5432 d');
  t.equal(placeOf(resolve('postgres:///d?port=1', { files })), 'me:@localhost:1 d');
});

t.test('defaults, and parameters that libpq does not know', async (t) => {
  const { tls, ...settings } = resolve('postgres://h/d');
  t.match(settings, { binding: 'prefer', connectTimeout: null, keepAlive: 15, unused: [], methods: null });
  t.match(tls, { mode: 'prefer', isDirect: false, sendsName: true, least: 'TLSv1.2' });
  t.equal(tls.authorities.path, '/home/me/.postgresql/root.crt');
  t.equal(resolve('postgres://h/d?sslrootcert=system').tls.mode, 'verify-full');
  t.equal(resolve('postgres://h/d?keepalives=0').keepAlive, null);
  t.equal(resolve('postgres://h/d?keepalives_idle=60').keepAlive, 60);
  t.equal(resolve('postgres://h/d?fallback_application_name=f').applicationName, 'f');
  const { unused, options } = resolve(
    'postgres://h/d?pgbouncer=true&schema=sales&uselibpqcompat=true&keepalives_count=3&krbsrvname=x&sslmode=require&options=-c%20a.b%3D1',
  );
  t.strictSame(unused, ['pgbouncer', 'schema', 'uselibpqcompat', 'keepalives_count']);
  t.equal(options, '-c a.b=1');
});

t.test('the password file', async (t) => {
  const text = [
    '# comment',
    'h:5432:d:u:first',
    'h:*:*:u:second',
    String.raw`*:*:with\:colon:*:a\:b\\c`,
    'localhost:*:*:*:local',
  ].join('\n');
  for (const [url, expected] of [
    ['postgres://u@h/d', 'first'],
    ['postgres://u@h:1/d', 'second'],
    ['postgres://u@other/d', null],
    ['postgres://u@other/with:colon', String.raw`a:b\c`],
    ['postgres://u@%2Ftmp/d', 'local'],
  ] as const) {
    const settings = resolve(url);
    const [host] = settings.hosts;
    t.equal(host && findPassword(text, host, settings), expected, url);
  }
});
