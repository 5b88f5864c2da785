/** TLS to a server: which certificates are trusted and shown, as libpq's parameters say. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { isIP, type Socket } from 'node:net';
import {
  type ConnectionOptions,
  checkServerIdentity,
  createSecureContext,
  type SecureContext,
  type SecureContextOptions,
} from 'node:tls';
import { messageOf } from '../../../base/narrow.js';
import type { HostAddress, NamedFile, TlsSettings } from '../../config/connection-settings.js';
import { rejected } from './connection-errors.js';

interface Trust {
  readonly context: SecureContext;
  readonly isVerified: boolean;
}

/** The protocol that a server must agree on if TLS begins without a request. */
export const PROTOCOL = 'postgresql';

export function tlsOptions(socket: Socket, { host }: HostAddress, settings: TlsSettings): ConnectionOptions {
  const { context, isVerified } = trustOf(settings);
  return {
    socket,
    host,
    ...(isIP(host) === 0 && settings.sendsName ? { servername: host } : {}),
    ...(settings.isDirect ? { ALPNProtocols: [PROTOCOL] } : {}),
    secureContext: context,
    rejectUnauthorized: isVerified,
    checkServerIdentity: (_, certificate) =>
      settings.mode === 'verify-full' ? checkServerIdentity(host, certificate) : undefined,
  };
}

/** By the settings and the times of the files: reading the authorities of a system takes milliseconds. */
const known = new Map<string, Trust>();
const MAX_KNOWN = 20;

/** Files are read again when they change: certificates are replaced while the service runs. */
function trustOf(settings: TlsSettings): Trust {
  const files = [settings.authorities, settings.revoked, settings.certificate, settings.key];
  const times = files.map(({ path }) => (existsSync(path) ? statSync(path).mtimeMs : 0));
  const version = JSON.stringify([settings, times, process.env['SSL_CERT_FILE']]);
  const same = known.get(version);
  if (same) return same;
  const authorities = authoritiesOf(settings);
  const revoked = readIfThere(settings.revoked, 'sslcrl');
  const options: SecureContextOptions = {
    ...(authorities === 'default' || authorities === null ? {} : { ca: authorities }),
    ...(revoked === null ? {} : { crl: revoked }),
    ...(settings.sendsCertificate ? ownCertificate(settings) : {}),
    ...(settings.least === '' ? {} : { minVersion: settings.least }),
    ...(settings.most === '' ? {} : { maxVersion: settings.most }),
  };
  try {
    const trust = { context: createSecureContext(options), isVerified: authorities !== null };
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(version, trust);
    return trust;
  } catch (error) {
    throw rejected(`The certificates for TLS cannot be used: ${messageOf(error)}`);
  }
}

/** The trusted certificates, `default` for those of Node, or null if certificates are not verified. */
function authoritiesOf({ authorities, mode }: TlsSettings): string | null {
  if (authorities.path === 'system') return systemAuthorities();
  const found = readIfThere(authorities, 'sslrootcert');
  if (found !== null || !mode.startsWith('verify-')) return found;
  // Any certificate of a public authority would do for verify-ca.
  if (mode === 'verify-full') return 'default';
  throw rejected(
    `sslmode=verify-ca needs the certificate of an authority: set sslrootcert, or create ${authorities.path}`,
  );
}

/** The bundles of Debian, Red Hat, SUSE and Alpine. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

function systemAuthorities(): string {
  const file = process.env['SSL_CERT_FILE'] ?? BUNDLES.find((path) => existsSync(path));
  return file === undefined ? 'default' : read(file, 'SSL_CERT_FILE');
}

function ownCertificate({ certificate, key, keyPassword }: TlsSettings): SecureContextOptions {
  const cert = readIfThere(certificate, 'sslcert');
  if (cert === null) return {};
  if (!existsSync(key.path))
    throw rejected(`sslkey: there is no file ${key.path} for the certificate ${certificate.path}`);
  const { mode, uid } = statSync(key.path);
  if (process.platform !== 'win32' && (mode & (uid === 0 ? 0o037 : 0o077)) !== 0)
    throw rejected(`sslkey: ${key.path} can be read by others: run chmod 600 ${key.path}`);
  return { cert, key: read(key.path, 'sslkey'), ...(keyPassword === '' ? {} : { passphrase: keyPassword }) };
}

function readIfThere({ path, isNamed }: NamedFile, name: string): string | null {
  return isNamed || existsSync(path) ? read(path, name) : null;
}

function read(path: string, name: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw rejected(`${name}: ${path} cannot be read: ${messageOf(error)}`);
  }
}
