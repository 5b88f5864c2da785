/** Logs in on a socket whose server has not heard anything yet: start-up parameters, the password, and what the server then reports. */
import { createHash } from 'node:crypto';
import { on } from 'node:events';
import { existsSync, readFileSync, statSync } from 'node:fs';
import type { Socket } from 'node:net';
import { type ConnectionSettings, findPassword, type LoginMethod } from '../../config/connection-settings.js';
import { disconnected, rejected } from './connection-errors.js';
import type { Settings } from './connection-options.js';
import { AUTHENTICATION, ERROR_RESPONSE, READY_FOR_QUERY, readError } from './protocol.js';
import { bindingData, SCRAM, SCRAM_PLUS, Scram } from './scram.js';

/** A server that has accepted a connection, before the login. */
export interface Reached {
  readonly socket: Socket;
  /** With one host. */
  readonly settings: ConnectionSettings;
  /** That of the server, in DER, or null without TLS. */
  readonly certificate: Buffer | null;
}

/** The kinds of authentication requests. */
const OK = 0;
const CLEARTEXT = 3;
const MD5 = 5;
const SASL = 10;
const SASL_CONTINUE = 11;
const SASL_FINAL = 12;
const OTHERS: Readonly<Record<number, string>> = { 2: 'Kerberos', 7: 'GSSAPI', 9: 'SSPI' };

export class Login {
  /** Whether the server has asked for a password, or has accepted the login without one. */
  isAsked = false;
  #method: LoginMethod = 'none';
  #scram: Scram | null = null;
  #isBound = false;

  constructor(private readonly reached: Reached) {}

  /** Each "data" event of the socket has to be one message. */
  async run(parameters: Settings): Promise<void> {
    const { socket, settings } = this.reached;
    const messages = on(socket, 'data', { close: ['close', 'end'] });
    socket.write(startupMessage(settings, parameters));
    for await (const [message] of messages as AsyncIterable<[Buffer]>) {
      if (message[0] === ERROR_RESPONSE) throw readError(message, 5, message.length);
      if (message[0] === AUTHENTICATION) await this.#authenticate(message);
      if (message[0] === READY_FOR_QUERY) return;
    }
    throw disconnected();
  }

  async #authenticate(message: Buffer): Promise<void> {
    const { socket, settings } = this.reached;
    const kind = message.readInt32BE(5);
    this.isAsked = true;
    if (kind === OK) this.#accept();
    else if (kind === CLEARTEXT) {
      this.#use('password');
      socket.write(passwordMessage(Buffer.from(`${this.#password()}\0`)));
    } else if (kind === MD5) {
      this.#use('md5');
      const inner = md5(Buffer.from(this.#password() + settings.user)).toString('hex');
      const outer = md5(Buffer.concat([Buffer.from(inner), message.subarray(9, 13)])).toString('hex');
      socket.write(passwordMessage(Buffer.from(`md5${outer}\0`)));
    } else if (kind === SASL) {
      socket.write(this.#begin(message.toString('utf8', 9).split('\0')));
    } else if (kind === SASL_CONTINUE && this.#scram) {
      socket.write(passwordMessage(Buffer.from(await this.#scram.prove(message.toString('utf8', 9)))));
    } else if (kind === SASL_FINAL && this.#scram) this.#scram.verify(message.toString('utf8', 9));
    else throw rejected(`The server asks for a login by ${OTHERS[kind] ?? `method ${kind}`}, which is not supported`);
  }

  /** The first message of SCRAM. */
  #begin(mechanisms: readonly string[]): Buffer {
    const { certificate, settings } = this.reached;
    const data = certificate && settings.binding !== 'disable' ? bindingData(certificate) : null;
    this.#isBound = data !== null && mechanisms.includes(SCRAM_PLUS);
    if (!this.#isBound && !mechanisms.includes(SCRAM))
      throw rejected(`The server asks for a login by ${mechanisms.join(' ').trim()}, which is not supported`);
    this.#use('scram-sha-256');
    const isOneSided = data !== null && !this.#isBound;
    this.#scram = new Scram(
      this.#password(),
      this.#isBound ? 'p' : isOneSided ? 'y' : 'n',
      this.#isBound && data ? data : undefined,
    );
    const first = Buffer.from(this.#scram.first());
    const length = Buffer.alloc(4);
    length.writeInt32BE(first.length);
    const name = this.#isBound ? SCRAM_PLUS : SCRAM;
    return passwordMessage(Buffer.concat([Buffer.from(`${name}\0`), length, first]));
  }

  /** Before anything that depends on the password is sent. */
  #use(method: LoginMethod): void {
    const { binding, methods } = this.reached.settings;
    this.#method = method;
    if (binding === 'require' && !this.#isBound)
      throw rejected(
        `channel_binding=require cannot be kept: ${this.#obstacle()}. Use SCRAM and TLS to the server itself, or channel_binding=prefer`,
      );
    if (methods && !methods.includes(method))
      throw rejected(
        `require_auth allows ${methods.join(', ')}, but the server asks for ${method === 'none' ? 'no password' : method}`,
      );
  }

  #obstacle(): string {
    if (this.reached.certificate === null) return 'the connection has no TLS';
    if (this.#method === 'none') return 'the server asks for no password';
    return this.#method === 'scram-sha-256'
      ? 'the server does not offer SCRAM-SHA-256-PLUS for its certificate'
      : `the server asks for a login by ${this.#method}`;
  }

  #accept(): void {
    if (this.#scram && !this.#scram.isVerified) throw rejected('The server ended the SCRAM login before its own proof');
    if (this.#method === 'none') this.#use('none');
  }

  #password(): string {
    const { settings } = this.reached;
    const password = settings.password ?? this.#kept();
    if (password === null)
      throw rejected('The server asks for a password: add it to the URL, or set PGPASSWORD or PGPASSFILE');
    return password;
  }

  /** From the password file, which others must not be able to read. */
  #kept(): string | null {
    const { settings } = this.reached;
    const { passwordFile, hosts } = settings;
    const [host] = hosts;
    const file = existsSync(passwordFile) ? statSync(passwordFile) : null;
    if (!host || !file?.isFile()) return null;
    if (process.platform !== 'win32' && (file.mode & 0o077) !== 0)
      throw rejected(`The password file ${passwordFile} can be read by others: run chmod 600 ${passwordFile}`);
    return findPassword(readFileSync(passwordFile, 'utf8'), host, settings);
  }
}

const PROTOCOL_VERSION = 196_608;

/** Empty parameters are left out. */
function startupMessage({ user, database }: ConnectionSettings, parameters: Settings): Buffer {
  const all = Object.entries({ user, database, client_encoding: 'UTF8', ...parameters });
  const body = Buffer.from(`${all.flatMap(([name, value]) => (value ? [`${name}\0${value}\0`] : [])).join('')}\0`);
  const head = Buffer.alloc(8);
  head.writeInt32BE(8 + body.length);
  head.writeInt32BE(PROTOCOL_VERSION, 4);
  return Buffer.concat([head, body]);
}

function passwordMessage(body: Buffer): Buffer {
  const head = Buffer.from([0x70, 0, 0, 0, 0]);
  head.writeInt32BE(4 + body.length, 1);
  return Buffer.concat([head, body]);
}

function md5(bytes: Buffer): Buffer {
  return createHash('md5').update(bytes).digest();
}
