/** SCRAM-SHA-256 (RFC 5802, RFC 7677), with channel binding to the certificate of the server (RFC 5929) where both sides can. */
import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { rejected } from './connection-errors.js';

export const SCRAM = 'SCRAM-SHA-256';
export const SCRAM_PLUS = 'SCRAM-SHA-256-PLUS';

/** Encoded object identifiers of hashes, and of signatures with them: SHA-1 and MD5 are replaced by SHA-256. */
const HASHES: readonly (readonly [hash: string, identifiers: RegExp])[] = [
  ['sha256', /2a864886f70d01010[45b]|2a8648ce3d0401|2a8648ce3d040302|608648016503040201/],
  ['sha384', /2a864886f70d01010c|2a8648ce3d040303|608648016503040202/],
  ['sha512', /2a864886f70d01010d|2a8648ce3d040304|608648016503040203/],
];

/** The hash of a certificate in DER to which a login is bound, or null if its signature has no hash, as with Ed25519. */
export function bindingData(certificate: Buffer): Buffer | null {
  const [whole = 0] = contentOf(certificate, 0);
  const [, behindBody = 0] = contentOf(certificate, whole);
  const [start, end] = contentOf(certificate, behindBody);
  const algorithm = certificate.toString('hex', start, end);
  const [hash] = HASHES.find(([, identifiers]) => identifiers.test(algorithm)) ?? [];
  return hash === undefined ? null : createHash(hash).update(certificate).digest();
}

/** Where the content of a value in DER begins and ends. */
function contentOf(bytes: Buffer, at: number): [start: number, end: number] {
  const length = bytes[at + 1] ?? 0;
  if (length < 128) return [at + 2, at + 2 + length];
  const start = at + 2 + (length & 127);
  return [start, start + bytes.readUIntBE(at + 2, length & 127)];
}

/** Characters that are left out, and those that become a space (RFC 4013); ASCII has none of either. */
const LEFT_OUT = /\p{Default_Ignorable_Code_Point}/gu;
const SPACES = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/g;

export class Scram {
  readonly #nonce = randomBytes(18).toString('base64');
  readonly #header: string;
  #signature: Buffer | null = null;
  isVerified = false;

  /** `flag`: `n` without channel binding, `y` if only this side can do it, `p` with it. */
  constructor(
    private readonly password: string,
    flag: 'n' | 'y' | 'p',
    private readonly binding: Buffer = Buffer.alloc(0),
  ) {
    this.#header = `${flag === 'p' ? 'p=tls-server-end-point' : flag},,`;
  }

  first(): string {
    return `${this.#header}n=,r=${this.#nonce}`;
  }

  /** The answer to the first message of the server. */
  async prove(challenge: string): Promise<string> {
    const { r: nonce = '', s: salt = '', i: iterations = '' } = attributesOf(challenge);
    if (!nonce.startsWith(this.#nonce) || !/^[1-9]\d{0,9}$/.test(iterations) || salt === '')
      throw rejected('The server sent a malformed SCRAM message');
    const password = this.password.replace(LEFT_OUT, '').replace(SPACES, ' ').normalize('NFKC');
    const salted = await derive(password, Buffer.from(salt, 'base64'), Number(iterations), 32, 'sha256');
    const key = hmac(salted, 'Client Key');
    const bound = Buffer.concat([Buffer.from(this.#header), this.binding]).toString('base64');
    const final = `c=${bound},r=${nonce}`;
    const signed = `n=,r=${this.#nonce},${challenge},${final}`;
    this.#signature = hmac(hmac(salted, 'Server Key'), signed);
    const signature = hmac(createHash('sha256').update(key).digest(), signed);
    return `${final},p=${Buffer.from(key.map((byte, at) => byte ^ (signature[at] ?? 0))).toString('base64')}`;
  }

  /** The server must know the password too. */
  verify(message: string): void {
    const { v: signature = '', e: failure } = attributesOf(message);
    if (failure !== undefined) throw rejected(`The server refused the SCRAM login: ${failure}`);
    const given = Buffer.from(signature, 'base64');
    const wanted = this.#signature;
    if (wanted === null || given.length !== wanted.length || !timingSafeEqual(given, wanted))
      throw rejected('The server does not know the password: its SCRAM signature is wrong');
    this.isVerified = true;
  }
}

const derive = promisify(pbkdf2);

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function attributesOf(message: string): Record<string, string | undefined> {
  return Object.fromEntries(message.split(',').map((each) => [each.slice(0, 1), each.slice(2)]));
}
