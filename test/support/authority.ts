/** An authority that issues certificates for tests, by the program openssl. */
import { execFile } from 'node:child_process';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface Certificate {
  readonly certificate: string;
  readonly key: string;
}

const KEYS = {
  ec: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
  rsa: ['-newkey', 'rsa:2048'],
  ed25519: ['-newkey', 'ed25519'],
} as const;

interface Wish {
  readonly names?: string;
  readonly kind?: keyof typeof KEYS;
  /** More options of openssl, such as the hash of the signature. */
  readonly options?: readonly string[];
}

export class Authority {
  readonly #own: Certificate;

  private constructor(private readonly folder: string) {
    this.#own = this.#files('authority');
  }

  /** Its files are in the folder. */
  static async found(folder: string): Promise<Authority> {
    const authority = new Authority(folder);
    await authority.#make('authority', authority.#own, { options: ['-addext', 'keyUsage=keyCertSign,cRLSign'] });
    return authority;
  }

  /** Those who trust it need this file. */
  get certificate(): string {
    return this.#own.certificate;
  }

  /** `names` are the alternative names, such as `DNS:db,IP:127.0.0.1`. */
  async issue(name: string, { names = '', ...wish }: Wish = {}): Promise<Certificate> {
    const files = this.#files(name);
    const alternatives = names === '' ? [] : ['-addext', `subjectAltName=${names}`];
    const signing = ['-CA', this.#own.certificate, '-CAkey', this.#own.key];
    await this.#make(name, files, { ...wish, options: [...signing, ...alternatives, ...(wish.options ?? [])] });
    return files;
  }

  /** A certificate that signs itself. */
  async pretend(name: string, wish: Wish): Promise<Certificate> {
    const files = this.#files(name);
    await this.#make(name, files, wish);
    return files;
  }

  #files(name: string): Certificate {
    return { certificate: join(this.folder, `${name}.crt`), key: join(this.folder, `${name}.key`) };
  }

  async #make(name: string, { certificate, key }: Certificate, { kind = 'ec', options = [] }: Wish): Promise<void> {
    const words = ['req', '-x509', ...KEYS[kind], '-nodes', '-days', '2', '-subj', `/CN=${name}`, ...options];
    await promisify(execFile)('openssl', [...words, '-keyout', key, '-out', certificate]);
    await chmod(key, 0o600);
  }
}
