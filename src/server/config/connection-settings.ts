/**
 * Where a database is and how to connect to it, as libpq finds it out: from the connection string, a service file, the environment and
 * the defaults, in this order.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { join } from 'node:path';
import { parseConnectionString } from './connection-string.js';

const TARGETS = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'] as const;

/** Which of several servers to use. */
export type SessionTarget = (typeof TARGETS)[number];

const TLS_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
/** Empty for no limit. */
const TLS_VERSIONS = ['', 'TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const;
const BINDINGS = ['disable', 'prefer', 'require'] as const;
const METHODS = ['none', 'password', 'md5', 'scram-sha-256', 'gss', 'sspi', 'oauth'] as const;

/** How a server may ask for a login; `none` if it does not. */
export type LoginMethod = (typeof METHODS)[number];

export interface HostAddress {
  readonly host: string;
  /** The IP address or the name to connect to. */
  readonly address: string;
  readonly port: number;
  /** The path of the Unix socket, or null. */
  readonly path: string | null;
  /** For messages. */
  readonly name: string;
}

/** A file that libpq looks for in ~/.postgresql if nobody names one. */
export interface NamedFile {
  readonly path: string;
  readonly isNamed: boolean;
}

export interface TlsSettings {
  readonly mode: (typeof TLS_MODES)[number];
  /** Whether TLS begins without a request for it. */
  readonly isDirect: boolean;
  /** The path may be `system`. */
  readonly authorities: NamedFile;
  readonly revoked: NamedFile;
  readonly certificate: NamedFile;
  readonly key: NamedFile;
  readonly keyPassword: string;
  readonly sendsCertificate: boolean;
  readonly sendsName: boolean;
  readonly least: (typeof TLS_VERSIONS)[number];
  readonly most: (typeof TLS_VERSIONS)[number];
}

export interface ConnectionSettings {
  readonly hosts: readonly HostAddress[];
  readonly target: SessionTarget;
  /** Whether to begin with any of the hosts. */
  readonly isBalanced: boolean;
  readonly user: string;
  readonly database: string;
  /** The password, or null if it may be in the password file. */
  readonly password: string | null;
  readonly passwordFile: string;
  readonly tls: TlsSettings;
  readonly binding: (typeof BINDINGS)[number];
  /** The methods that the server may ask for, or null for all. */
  readonly methods: readonly LoginMethod[] | null;
  /** Milliseconds, or null if nobody said. */
  readonly connectTimeout: number | null;
  /** Seconds without traffic before the system probes the connection, or null for no probes. */
  readonly keepAlive: number | null;
  readonly applicationName: string;
  /** Settings for PostgreSQL in the form of its command line. */
  readonly options: string;
  /** Parameters of the connection string that have no effect. */
  readonly unused: readonly string[];
}

/** The environment of a connection string. */
export interface Surroundings {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** The name of the account that runs the process. */
  readonly account: string;
  /** The text of a file, or null if there is none. */
  read(path: string): string | null;
  exists(path: string): boolean;
}

/** The parameters of libpq that have an effect, each with its environment variable. */
const VARIABLES: Readonly<Record<string, string>> = {
  host: 'PGHOST',
  hostaddr: 'PGHOSTADDR',
  port: 'PGPORT',
  dbname: 'PGDATABASE',
  user: 'PGUSER',
  password: 'PGPASSWORD',
  passfile: 'PGPASSFILE',
  require_auth: 'PGREQUIREAUTH',
  channel_binding: 'PGCHANNELBINDING',
  connect_timeout: 'PGCONNECT_TIMEOUT',
  options: 'PGOPTIONS',
  application_name: 'PGAPPNAME',
  fallback_application_name: '',
  keepalives: '',
  keepalives_idle: '',
  gssencmode: 'PGGSSENCMODE',
  sslmode: 'PGSSLMODE',
  sslnegotiation: 'PGSSLNEGOTIATION',
  sslcert: 'PGSSLCERT',
  sslkey: 'PGSSLKEY',
  sslpassword: '',
  sslcertmode: 'PGSSLCERTMODE',
  sslrootcert: 'PGSSLROOTCERT',
  sslcrl: 'PGSSLCRL',
  sslsni: 'PGSSLSNI',
  ssl_min_protocol_version: 'PGSSLMINPROTOCOLVERSION',
  ssl_max_protocol_version: 'PGSSLMAXPROTOCOLVERSION',
  target_session_attrs: 'PGTARGETSESSIONATTRS',
  load_balance_hosts: 'PGLOADBALANCEHOSTS',
  service: 'PGSERVICE',
  servicefile: 'PGSERVICEFILE',
};

/** Demands that cannot be met, with their environment variables. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  requirepeer: 'PGREQUIREPEER',
  sslcrldir: 'PGSSLCRLDIR',
  min_protocol_version: 'PGMINPROTOCOLVERSION',
  scram_client_key: '',
  scram_server_key: '',
  oauth_issuer: '',
  oauth_client_id: '',
  oauth_client_secret: '',
  oauth_scope: '',
  replication: '',
};

/** Parameters of libpq without an effect that a user could miss. */
const HARMLESS = ['requiressl', 'sslcompression', 'krbsrvname', 'gsslib', 'gssdelegation', 'max_protocol_version'];

/** Values by name, of which empty ones count as missing. */
type Values = (name: string, initial?: string) => string;

/** The system probes a connection after this time by default: a firewall may forget it. */
const KEEP_ALIVE_SECONDS = 15;

/** Throws an error whose message follows the name of the option. */
export function resolveConnection(text: string, given: Surroundings = machine()): ConnectionSettings {
  const named = parseConnectionString(text);
  const { environment, home } = given;
  const service = named.get('service') || environment['PGSERVICE'] || '';
  const served = service === '' ? new Map<string, string>() : readService(service, named, given);
  const value: Values = (name, initial = '') => {
    const variable = VARIABLES[name] || UNSUPPORTED[name];
    return named.get(name) || served.get(name) || (variable && environment[variable]) || initial;
  };
  refuseUnsupported(value);
  const user = value('user', given.account);
  const hosts = hostsOf(value, given);
  const target = choose(value, 'target_session_attrs', TARGETS, hosts.length > 1 ? 'primary' : 'any');
  return {
    hosts,
    target,
    isBalanced: choose(value, 'load_balance_hosts', ['disable', 'random'], 'disable') === 'random',
    user,
    database: value('dbname', user),
    password: value('password') || null,
    passwordFile: value('passfile', join(home, '.pgpass')),
    tls: tlsOf(value, home),
    binding: choose(value, 'channel_binding', BINDINGS, 'prefer'),
    methods: methodsOf(value('require_auth')),
    connectTimeout: Math.max(wholeNumber(value, 'connect_timeout', '0'), 0) * 1_000 || null,
    keepAlive: keepAliveOf(value),
    applicationName: value('application_name', value('fallback_application_name')),
    options: value('options'),
    unused: [...named.keys()].filter((name) => !(name in VARIABLES || HARMLESS.includes(name) || !named.get(name))),
  };
}

/** The server that is left, of several. */
export function withHost(settings: ConnectionSettings, host: HostAddress): ConnectionSettings {
  return { ...settings, hosts: [host], target: 'any' };
}

/** The hosts and ports, without the login, for messages. */
export function addressOf({ hosts }: Pick<ConnectionSettings, 'hosts'>): string {
  return hosts.map(({ name }) => name).join(' or ');
}

/** The service writes, so a standby cannot be what DATABASE_URL leads to. */
export function refuseReadOnly(target: string): void {
  const allowed = ['any', 'primary', 'read-write'];
  if (!allowed.includes(target))
    throw new Error(
      `target_session_attrs must be one of ${allowed.join(', ')}, not "${target}": the service writes. Standbys are for DATABASE_REPLICA_URLS`,
    );
}

/** The password for a host in the text of a password file, or null. */
export function findPassword(text: string, host: HostAddress, { database, user }: ConnectionSettings): string | null {
  const wanted = [host.path === null ? host.host : 'localhost', String(host.port), database, user];
  for (const line of text.split(/\r?\n/)) {
    if (line === '' || line.startsWith('#')) continue;
    const fields = [...line.matchAll(/((?:[^:\\]|\\.)*)(?::|$)/g)].map(([, field = '']) => field);
    const matches = wanted.every((part, position) => fields[position] === '*' || plain(fields[position]) === part);
    if (matches && fields.length > wanted.length) return plain(fields[wanted.length]) ?? null;
  }
  return null;
}

function plain(field: string | undefined): string | undefined {
  return field?.replace(/\\(.)/g, '$1');
}

function machine(): Surroundings {
  return {
    environment: process.env,
    // In containers an account may have neither a home nor a name.
    home: orElse(homedir, '/'),
    account: orElse(() => userInfo().username, process.env['USER'] ?? 'postgres'),
    read: (path) => (existsSync(path) && statSync(path).isFile() ? readFileSync(path, 'utf8') : null),
    exists: existsSync,
  };
}

function orElse(find: () => string, otherwise: string): string {
  try {
    return find();
  } catch {
    return otherwise;
  }
}

function readService(name: string, named: ReadonlyMap<string, string>, given: Surroundings): Map<string, string> {
  const { environment, home, read } = given;
  const own = named.get('servicefile') || environment['PGSERVICEFILE'] || join(home, '.pg_service.conf');
  const files = [own, join(environment['PGSYSCONFDIR'] || '/etc/postgresql-common', 'pg_service.conf')];
  for (const file of files) {
    let section = '';
    const found = new Map<string, string>();
    for (const line of (read(file) ?? '').split(/\r?\n/).map((each) => each.trim())) {
      if (line.startsWith('[')) section = line.slice(1, line.indexOf(']'));
      else if (section !== name || line === '' || line.startsWith('#')) continue;
      else if (/^ldap/i.test(line)) throw new Error(`service "${name}" of ${file} needs LDAP, which is not supported`);
      else found.set(line.slice(0, line.indexOf('=')).trim(), line.slice(line.indexOf('=') + 1).trim());
    }
    if (found.size > 0) return found;
  }
  throw new Error(`there is no service "${name}" in ${files.join(' or ')}`);
}

function refuseUnsupported(value: Values): void {
  for (const name of Object.keys(UNSUPPORTED))
    if (value(name) !== '') throw new Error(`${name} is not supported: remove it from the connection settings`);
  if (choose(value, 'gssencmode', BINDINGS, 'disable') === 'require')
    throw new Error('gssencmode=require cannot be kept: there is no GSSAPI encryption. Use sslmode=verify-full');
  if (choose(value, 'sslcertmode', ['disable', 'allow', 'require'], 'allow') === 'require')
    throw new Error('sslcertmode=require cannot be kept: Node does not report requests for certificates. Remove it');
}

function choose<Name extends string>(
  value: Values,
  name: string,
  allowed: readonly Name[],
  initial: NoInfer<Name>,
): Name {
  const text = value(name, initial);
  const found = allowed.find((each) => each === text);
  if (found === undefined) throw new Error(`${name} must be one of ${allowed.join(', ')}, not "${text}"`);
  return found;
}

function wholeNumber(value: Values, name: string, initial: string): number {
  const text = value(name, initial);
  if (!/^-?\d{1,9}$/.test(text)) throw new Error(`${name} must be a whole number, not "${text}"`);
  return Number(text);
}

function hostsOf(value: Values, { exists }: Surroundings): HostAddress[] {
  const ports = value('port').split(',');
  const addresses = value('hostaddr').split(',');
  const names = value('host', addresses.map(() => '').join()).split(',');
  if (addresses[0] !== '' && addresses.length !== names.length)
    throw new Error(`hostaddr has ${addresses.length} entries, and host ${names.length}`);
  if (ports.length > 1 && ports.length !== names.length)
    throw new Error(`port has ${ports.length} entries, and host ${names.length}`);
  return names.map((name, position) => {
    const port = wholeNumber((_, initial = '') => ports[ports.length > 1 ? position : 0] || initial, 'port', '5432');
    if (port < 1 || port > 65_535) throw new Error(`port must be from 1 to 65535, not ${port}`);
    const address = addresses[position] || name;
    const host = name || address || defaultHost(port, exists);
    const path = host.startsWith('/') ? `${host}/.s.PGSQL.${port}` : null;
    const shown = host.includes(':') ? `[${host}]` : host;
    return { host, address: address || host, port, path, name: path ?? `${shown}:${port}` };
  });
}

/** Where the packages of Debian and Red Hat, and PostgreSQL itself, have their sockets. */
const SOCKET_FOLDERS = ['/var/run/postgresql', '/tmp'];

function defaultHost(port: number, exists: Surroundings['exists']): string {
  return SOCKET_FOLDERS.find((folder) => exists(`${folder}/.s.PGSQL.${port}`)) ?? 'localhost';
}

function tlsOf(value: Values, home: string): TlsSettings {
  const file = (name: string, initial: string): NamedFile => {
    const path = value(name);
    return { path: path || join(home, '.postgresql', initial), isNamed: path !== '' };
  };
  const authorities = file('sslrootcert', 'root.crt');
  const isSystem = authorities.path === 'system';
  const mode = choose(value, 'sslmode', TLS_MODES, isSystem ? 'verify-full' : 'prefer');
  if (isSystem && mode !== 'verify-full')
    throw new Error(`sslrootcert=system needs sslmode=verify-full, not "${mode}"`);
  const isDirect = choose(value, 'sslnegotiation', ['postgres', 'direct'], 'postgres') === 'direct';
  if (isDirect && TLS_MODES.indexOf(mode) < TLS_MODES.indexOf('require'))
    throw new Error(`sslnegotiation=direct needs sslmode=require, verify-ca or verify-full, not "${mode}"`);
  return {
    mode,
    isDirect,
    authorities,
    revoked: file('sslcrl', 'root.crl'),
    certificate: file('sslcert', 'postgresql.crt'),
    key: file('sslkey', 'postgresql.key'),
    keyPassword: value('sslpassword'),
    sendsCertificate: value('sslcertmode') !== 'disable',
    sendsName: value('sslsni', '1') === '1',
    least: choose(value, 'ssl_min_protocol_version', TLS_VERSIONS, 'TLSv1.2'),
    most: choose(value, 'ssl_max_protocol_version', TLS_VERSIONS, ''),
  };
}

function methodsOf(text: string): readonly LoginMethod[] | null {
  if (text === '') return null;
  const words = text.split(',').map((word) => word.trim());
  const isExcluding = words.every((word) => word.startsWith('!'));
  const names = words.map((word) => (isExcluding ? word.slice(1) : word));
  const unknown = names.find((name) => !METHODS.some((method) => method === name));
  if (unknown !== undefined)
    throw new Error(`require_auth must be a list of ${METHODS.join(', ')}, all with "!" or none, not "${unknown}"`);
  return METHODS.filter((method) => names.includes(method) !== isExcluding);
}

function keepAliveOf(value: Values): number | null {
  if (wholeNumber(value, 'keepalives', '1') === 0) return null;
  const idle = wholeNumber(value, 'keepalives_idle', '0');
  return idle > 0 ? idle : KEEP_ALIVE_SECONDS;
}
