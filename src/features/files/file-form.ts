/**
 * Where the bytes of files come from. A form has the files of an upload in their order, each with the fields before it, or the only file of
 * an import. Other files are fetched from a URL.
 */

import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import { isIP } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { Busboy, type BusboyConfig, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { forbidden, invalidPayload, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import { ANY_ORIGIN } from '../../server/config/option-kinds.js';
import type { BodyLimits } from '../../server/http/body.js';
import { isPublicAddress, publicLookup } from '../../server/http/public-addresses.js';
import type { FilesConfig } from './options.js';

export interface FormFile {
  readonly name: string;
  readonly type: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly bytes: AsyncIterable<Buffer>;
}

const MAX_FILES = 100;
const MAX_FIELDS = 1_000;
const MAX_FIELD_BYTES = 65_536;

/** Bytes of the form around its files. */
export const FORM_BYTES = 1_048_576;

/**
 * Passes one file after the other to `take`. Resolves when all are taken, or rejects with the first failure: then the rest of the form is
 * not read.
 */
export function readFileForm(
  body: AsyncIterable<Buffer>,
  contentType: string,
  maxFileBytes: number,
  take: (file: FormFile) => Promise<void>,
): Promise<void> {
  const limits = { files: MAX_FILES, fields: MAX_FIELDS, fieldSize: MAX_FIELD_BYTES, fileSize: maxFileBytes };
  return new Promise((resolve, reject) => {
    const form = openForm(contentType, limits);
    const reader = new FormReader(form, Readable.from(body), take, reject);
    form.on('field', (name, value, _, truncated) => {
      if (truncated) reader.fail(invalidPayload(`"${name}" is longer than ${MAX_FIELD_BYTES} bytes`));
      else reader.fields[name] = formValue(value);
    });
    form.on('file', (_, stream, name, ...[, type]) => reader.takeFile(stream, name, type, maxFileBytes));
    form.on('filesLimit', () => reader.fail(invalidPayload(`The form has more than ${MAX_FILES} files`)));
    form.on('fieldsLimit', () => reader.fail(invalidPayload(`The form has more than ${MAX_FIELDS} fields`)));
    form.on('error', () => reader.fail(unreadable()));
    form.on('finish', () => {
      if (reader.taken.length === 0) reject(invalidPayload('The form contains no file'));
      else Promise.all(reader.taken).then(() => resolve(), reject);
    });
    reader.start();
  });
}

/** Throws if the type has no boundary. */
function openForm(contentType: string, limits: BusboyConfig['limits'] = {}): BusboyInstance {
  try {
    return new Busboy({ headers: { 'content-type': contentType }, limits });
  } catch {
    throw unreadable();
  }
}

class FormReader {
  /** The fields before the next file. */
  fields: Record<string, unknown> = {};
  readonly taken: Promise<void>[] = [];
  #current: BusboyFileStream | null = null;
  #hasFailed = false;

  constructor(
    private readonly form: BusboyInstance,
    private readonly source: Readable,
    private readonly take: (file: FormFile) => Promise<void>,
    private readonly reject: (error: Error) => void,
  ) {}

  start(): void {
    this.source.on('error', (error) => this.fail(error));
    this.source.pipe(this.form);
  }

  fail(error: Error): void {
    this.#hasFailed = true;
    this.source.unpipe(this.form);
    this.source.destroy();
    this.#current?.destroy(error);
    // Files that were begun end before the caller removes them.
    void Promise.allSettled(this.taken).then(() => this.reject(error));
  }

  takeFile(stream: BusboyFileStream, name: string, type: string, maxBytes: number): void {
    stream.on('error', () => {});
    // The piece of the body in which the form failed is read to its end: a file that begins there would never end.
    if (this.#hasFailed) {
      stream.resume();
      return;
    }
    if (!name) {
      this.fail(invalidPayload('A file of the form has no file name'));
      return;
    }
    this.#current = stream;
    const file = { name, type, fields: this.fields, bytes: bytesOf(stream, maxBytes) };
    this.fields = {};
    this.taken.push(
      this.take(file).catch((error: unknown) => {
        this.fail(asError(error));
        throw error;
      }),
    );
  }
}

async function* bytesOf(stream: BusboyFileStream, maxBytes: number): AsyncIterable<Buffer> {
  for await (const piece of stream) yield piece as Buffer;
  if (stream.truncated) throw tooLarge(maxBytes);
}

/** For files that do not come in a form. */
export async function* atMost(bytes: AsyncIterable<Buffer>, maxBytes: number): AsyncIterable<Buffer> {
  let total = 0;
  for await (const piece of bytes) {
    total += piece.length;
    if (total > maxBytes) throw tooLarge(maxBytes);
    yield piece;
  }
}

function tooLarge(limit: number): ServiceError {
  return invalidPayload(`The file is larger than ${limit} bytes`, { option: 'FILES_MAX_UPLOAD_SIZE', limit });
}

function unreadable(): ServiceError {
  return invalidPayload('The form cannot be read');
}

/** A form has only texts; lists and objects are written as JSON. */
function formValue(text: string): unknown {
  if (text === 'null') return null;
  if (text === 'true' || text === 'false') return text === 'true';
  return text;
}

interface Upload {
  readonly bytes: AsyncIterable<Buffer>;
  readonly type: string;
}

export function importLimits({ IMPORT_MAX_FILE_SIZE, BODY_TIMEOUT }: FilesConfig): BodyLimits {
  return { bytes: IMPORT_MAX_FILE_SIZE, option: 'IMPORT_MAX_FILE_SIZE', pauseMs: BODY_TIMEOUT };
}

/** Resolves at the first file; its bytes follow as they are read. */
export function openUpload(body: AsyncIterable<Buffer>, contentType: string): Promise<Upload> {
  return new Promise((resolve, reject) => {
    const form = openForm(contentType);
    const bytes = new PassThrough();
    // A reader of the bytes gets the failure there; before that the promise is rejected.
    bytes.on('error', () => {});
    let hasFile = false;
    const fail = (error: Error): void => {
      reject(error);
      bytes.destroy(error);
    };
    form.on('file', (_, file, name, ...[, type]) => {
      if (hasFile) {
        file.resume();
        return;
      }
      hasFile = true;
      file.on('error', fail);
      file.pipe(bytes);
      resolve({ bytes, type: typeOf(type, name) });
    });
    form.on('error', () => fail(unreadable()));
    form.on('finish', () => {
      if (!hasFile) reject(invalidPayload('The form contains no file'));
    });
    const source = Readable.from(body);
    source.on('error', fail);
    source.pipe(form);
  });
}

/** Browsers and tools often send a general type: then the ending of the name says more. */
function typeOf(type: string, name: string): string {
  if (type !== 'application/octet-stream' && type !== 'text/plain') return type;
  const ending = /\.(json|ndjson|jsonl|csv)$/i.exec(name)?.[1]?.toLowerCase();
  return ending === 'csv'
    ? 'text/csv'
    : ending === 'json'
      ? 'application/json'
      : ending
        ? 'application/x-ndjson'
        : type;
}

interface RemoteFile {
  readonly bytes: AsyncIterable<Buffer>;
  readonly type: string;
  /** The last part of the path. */
  readonly name: string;
}

interface RemoteOptions {
  readonly allowed: readonly string[];
  /** For the whole download, redirects included. */
  readonly timeoutMs: number;
}

/** When the download must end. */
interface Deadline {
  readonly at: number;
  readonly limit: number;
}

const MAX_REDIRECTS = 3;

/** A server may be silent for so long, and never for longer than the whole download may take. */
const SILENCE_MS = 10_000;

/**
 * Fetches a file from a URL that a caller names. Such a request comes from inside the network of the service, so it is made only to
 * origins of FILES_IMPORT_ALLOW_LIST, and only to public addresses: a name is resolved once, each of its addresses is checked, and the
 * connection goes to one of those. A private address counts as allowed only where the list itself names it as an address. Redirects are
 * followed by the same rules.
 */
export async function fetchRemote(text: string, options: RemoteOptions): Promise<RemoteFile> {
  if (options.allowed.length === 0) throw forbidden('Importing files from a URL is off (FILES_IMPORT_ALLOW_LIST).');
  let url = parseUrl(text);
  const deadline: Deadline = { at: performance.now() + options.timeoutMs, limit: options.timeoutMs };
  for (let redirects = 0; ; redirects++) {
    const response = await request(url, options.allowed, deadline);
    const { statusCode = 0, headers } = response;
    if (statusCode === 200)
      return {
        bytes: remoteBytes(response, deadline),
        type: headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '',
        name: nameOf(url),
      };
    response.destroy();
    if (![301, 302, 303, 307, 308].includes(statusCode) || headers.location === undefined)
      throw unreachable(`The server of the URL answered with status ${statusCode}`);
    if (redirects === MAX_REDIRECTS) throw unreachable(`The URL redirects more than ${MAX_REDIRECTS} times`);
    url = parseUrl(headers.location, url);
  }
}

function parseUrl(text: string, base?: URL): URL {
  const url = URL.canParse(text, base?.href) ? new URL(text, base) : null;
  if (!url || !/^https?:$/.test(url.protocol))
    throw invalidPayload('"url" must be a URL that begins with http or https');
  if (url.username !== '' || url.password !== '') throw invalidPayload('"url" must not have credentials');
  return url;
}

/** A refusal looks the same for every reason, so that the network cannot be mapped by the answers. */
function refused(): ServiceError {
  return forbidden('Files may not be imported from this URL.');
}

const lookupPublic = publicLookup(refused);

function request(url: URL, allowed: readonly string[], deadline: Deadline): Promise<IncomingMessage> {
  const isNamed = allowed.includes(url.origin);
  if (!isNamed && !allowed.includes(ANY_ORIGIN)) throw refused();
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // Addresses are not looked up, and one that the list itself names is what its operator wants.
  if (isIP(host) !== 0 && !isNamed && !isPublicAddress(host)) throw refused();
  return new Promise((resolve, reject) => {
    const get = url.protocol === 'https:' ? getHttps : getHttp;
    const sent = get(url, { agent: false, lookup: lookupPublic, headers: { 'User-Agent': 'lateral' } }, resolve);
    const timer = setTimeout(() => sent.destroy(tooSlow(deadline)), silenceOf(deadline)).unref();
    sent.on('response', () => clearTimeout(timer));
    sent.on('error', (error) => {
      clearTimeout(timer);
      reject(error instanceof ServiceError ? error : unreachable('The URL cannot be fetched'));
    });
  });
}

async function* remoteBytes(response: IncomingMessage, deadline: Deadline): AsyncIterable<Buffer> {
  const stop = (): void => void response.destroy(tooSlow(deadline));
  let silence: NodeJS.Timeout | undefined;
  const whole = setTimeout(stop, Math.max(0, deadline.at - performance.now())).unref();
  const wait = (): void => {
    silence = setTimeout(stop, silenceOf(deadline)).unref();
  };
  try {
    wait();
    for await (const piece of response) {
      clearTimeout(silence);
      yield piece as Buffer;
      wait();
    }
  } catch (error) {
    throw error instanceof ServiceError ? error : unreachable('The file did not arrive completely');
  } finally {
    clearTimeout(silence);
    clearTimeout(whole);
    response.destroy();
  }
}

function silenceOf({ at }: Deadline): number {
  return Math.max(0, Math.min(SILENCE_MS, at - performance.now()));
}

function tooSlow({ limit }: Deadline): ServiceError {
  return serviceUnavailable('url', 'The download took too long', { option: 'FILES_IMPORT_TIMEOUT', limit });
}

function unreachable(reason: string): ServiceError {
  return serviceUnavailable('url', reason);
}

function nameOf({ pathname }: URL): string {
  const last = pathname.split('/').at(-1) ?? '';
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}
