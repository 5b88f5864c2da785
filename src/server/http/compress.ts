/**
 * Compresses bodies for clients that ask for it: whole ones at once, streamed ones piece by piece, both in other
 * threads than the one that answers requests. Nothing here runs if the option is off.
 */
import { promisify } from 'node:util';
import {
  type BrotliCompress,
  type BrotliOptions,
  brotliCompress,
  constants,
  createBrotliCompress,
  createGzip,
  type Gzip,
  gzip,
} from 'node:zlib';
import type { Config } from '../config/config.js';
import { plainTag, strongTags } from './etag.js';
import type { Encoding, Exchange, NegotiatedEncoding } from './exchange.js';
import type { Produce, Reply } from './reply.js';

export interface Compression {
  /** The encoding that the client prefers by its header. */
  negotiate(header: string): NegotiatedEncoding | null;
  /** The reply as it travels. */
  encode(exchange: Exchange, reply: Reply): Reply | Promise<Reply>;
}

/** Returns null if COMPRESSION is empty. */
export function createCompression(config: Config): Compression | null {
  const offered = config.COMPRESSION;
  if (offered.length === 0) return null;
  const minBytes = config.COMPRESSION_MIN_SIZE;
  const known = new Map<string, NegotiatedEncoding | null>();
  return {
    negotiate: (header) => {
      const cachedEncoding = known.get(header);
      if (cachedEncoding !== undefined) return cachedEncoding;
      const negotiated = negotiateEncoding(header, offered);
      // Honest clients send few different headers. With too many, none is worth caching.
      if (known.size >= MAX_CACHED_HEADERS) known.clear();
      if (header.length <= MAX_HEADER_LENGTH) known.set(header, negotiated);
      return negotiated;
    },
    encode: (exchange, reply) => {
      if (!isCompressible(reply)) return reply;
      const { Vary = [] } = reply.headers ?? {};
      const varied = withHeaders(reply, { Vary: [Vary, 'Accept-Encoding'].flat().join(', ') });
      const { encoding } = exchange;
      if (reply.status === 304) return { ...varied, tag: cachedTag(exchange, reply) };
      if (encoding === null || (!encoding.always && sizeOf(reply) < minBytes)) return varied;
      return compress(exchange, varied, encoding.name);
    },
  };
}

const MAX_CACHED_HEADERS = 200;
const MAX_HEADER_LENGTH = 200;

/** The offered coding that the client prefers by its Accept-Encoding (RFC 9110, 12.5.3), the first of equals, or null. */
export function negotiateEncoding(header: string, offered: readonly Encoding[]): NegotiatedEncoding | null {
  if (header === '') return null;
  const qualities = readQualities(header);
  const others = qualities.get('*');
  let encoding: Encoding | null = null;
  let best = 0;
  for (const each of offered) {
    const quality = NAMES[each].map((name) => qualities.get(name)).find((known) => known !== undefined) ?? others ?? 0;
    if (quality <= best) continue;
    encoding = each;
    best = quality;
  }
  if (encoding === null) return null;
  const plain = qualities.get('identity');
  if (plain !== undefined && plain > best) return null;
  return { name: encoding, always: plain === 0 || (plain === undefined && others === 0) };
}

const NAMES: Readonly<Record<Encoding, readonly string[]>> = { gzip: ['gzip', 'x-gzip'], brotli: ['br'] };

/** Malformed entries are ignored. */
function readQualities(header: string): ReadonlyMap<string, number> {
  const qualities = new Map<string, number>();
  for (const each of header.toLowerCase().split(',')) {
    const [, name, quality = '1'] =
      /^\s*([\w.*+-]+)\s*(?:;\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?$/.exec(each) ?? [];
    if (name !== undefined) qualities.set(name, Number(quality));
  }
  return qualities;
}

/**
 * By measurement (bench/profile-big-reads.md): higher levels cost twice as much for a tenth fewer bytes. For long
 * bodies, brotli's lowest level is nearly as small in a fifth of the time.
 */
const GZIP = { level: 3 };
const BROTLI_QUALITY = 4;
const BROTLI_QUALITY_LONG = 1;
const LONG_BODY_BYTES = 131_072;
/** A window of 512 KB, as much as one piece: by default each stream would hold several megabytes. */
const BROTLI_STREAM = {
  params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY_LONG, [constants.BROTLI_PARAM_LGWIN]: 19 },
};

const COMPRESSIBLE = /^(?:application\/(?:[\w.-]+\+)?json|application\/x-ndjson|text\/(?:csv|xml|yaml|plain))\b/;

/**
 * Text of the API, and of the files of the IDE those that are JSON. Nothing secret: its compressed length would reveal
 * it if an attacker can choose a part of the same body.
 */
function isCompressible({ status, type, secret, tag, length, headers }: Reply): boolean {
  if (secret || status === 204 || length !== undefined || headers?.['Content-Encoding'] !== undefined) return false;
  return status === 304 ? tag !== undefined : COMPRESSIBLE.test(type);
}

/** A streamed body may be long. */
function sizeOf({ body }: Reply): number {
  return typeof body === 'function' ? Number.POSITIVE_INFINITY : Buffer.byteLength(body);
}

function compress(exchange: Exchange, reply: Reply, encoding: Encoding): Reply | Promise<Reply> {
  const { body, tag } = reply;
  const encoded = withHeaders(reply, { 'Content-Encoding': CODINGS[encoding] });
  const tagged = tag === undefined ? encoded : { ...encoded, tag: codedTag(tag, encoding) };
  if (typeof body === 'function') return { ...tagged, body: compressing(body, encoding) };
  // Without a body its compressed length is unknown, and left out.
  if (exchange.method === 'HEAD') return { ...tagged, body: async () => {} };
  return compressWhole(body, encoding).then((compressed) => ({ ...tagged, body: compressed }));
}

const CODINGS: Readonly<Record<Encoding, string>> = { gzip: 'gzip', brotli: 'br' };

const gzipWhole = promisify<Buffer | string, typeof GZIP, Buffer>(gzip);
const brotliWhole = promisify<Buffer | string, BrotliOptions, Buffer>(brotliCompress);

function compressWhole(borrowed: Buffer | string, encoding: Encoding): Promise<Buffer> {
  // The memory of a body is only borrowed until the reply is written, and another thread reads it after that.
  const body = typeof borrowed === 'string' ? borrowed : Buffer.from(borrowed);
  return encoding === 'gzip' ? gzipWhole(body, GZIP) : brotliWhole(body, brotliFor(Buffer.byteLength(body)));
}

/** Its tables are as large as the hint says: for a body of some kilobytes that is most of its cost. */
function brotliFor(size: number): BrotliOptions {
  const quality = size < LONG_BODY_BYTES ? BROTLI_QUALITY : BROTLI_QUALITY_LONG;
  return { params: { [constants.BROTLI_PARAM_QUALITY]: quality, [constants.BROTLI_PARAM_SIZE_HINT]: size } };
}

/** Each piece leaves compressed before the next is produced, so that no more than one is held. */
function compressing(produce: Produce, encoding: Encoding): Produce {
  return async (sink) => {
    const engine = encoding === 'gzip' ? createGzip(GZIP) : createBrotliCompress(BROTLI_STREAM);
    const failed = new Promise<never>((_, reject) => engine.once('error', reject));
    failed.catch(() => {});
    const output: Buffer[] = [];
    engine.on('data', (bytes: Buffer) => output.push(bytes));
    const send = (): boolean | Promise<boolean> => {
      // Reads what the engine still holds.
      while (engine.read() !== null);
      const bytes = Buffer.concat(output.splice(0));
      return bytes.length === 0 || sink.write(bytes);
    };
    try {
      await produce({
        address: sink.address,
        onAbort: (listener) => sink.onAbort(listener),
        write: async (piece) => {
          await Promise.race([failed, flush(engine, piece, encoding)]);
          return send();
        },
      });
      await Promise.race([failed, finish(engine)]);
      await send();
    } finally {
      engine.destroy();
    }
  };
}

/** After a flush, the client can decode the piece to its end. */
function flush(engine: Gzip | BrotliCompress, piece: Buffer, encoding: Encoding): Promise<void> {
  engine.write(piece);
  const kind = encoding === 'gzip' ? constants.Z_SYNC_FLUSH : constants.BROTLI_OPERATION_FLUSH;
  return new Promise((resolve) => engine.flush(kind, resolve));
}

function finish(engine: Gzip | BrotliCompress): Promise<void> {
  return new Promise((resolve) => {
    engine.once('end', resolve);
    engine.end();
  });
}

/** The bytes differ, so their strong tags must. */
function codedTag(tag: string, encoding: Encoding): string {
  return tag.replace(/"$/, `-${CODINGS[encoding]}"`);
}

/** The client holds the same content in one coding or another: the reply names the one that is still valid. */
function cachedTag({ headers, encoding }: Exchange, reply: Reply): string {
  const tag = reply.tag ?? '';
  const cached = strongTags(headers.ifNoneMatch);
  const preferred = encoding === null ? tag : codedTag(tag, encoding.name);
  if (cached.includes(preferred)) return preferred;
  return cached.find((each) => plainTag(each) === tag) ?? tag;
}

function withHeaders(reply: Reply, headers: Record<string, string>): Reply {
  return { ...reply, headers: { ...reply.headers, ...headers } };
}
