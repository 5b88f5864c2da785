/**
 * Persisted queries: a client sends the digest of a document it has sent before. With a list of allowed texts nothing else
 * runs, whether it comes as a text or as its digest.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { LRUCache } from 'lru-cache';
import { forbidden, invalidPayload, StartError } from '../../../base/errors.js';
import { propertiesOf } from '../../../base/narrow.js';

export class PersistedQueries {
  readonly #known = new LRUCache<string, string>({
    max: 5_000,
    maxSize: 16_777_216,
    sizeCalculation: (text) => text.length + 1,
  });
  /** Digests of texts that were found on the list. */
  readonly #permitted = new LRUCache<string, true>({ max: 5_000 });

  /** `publish` has the text taken wherever requests are served, here too. */
  constructor(
    private readonly allowed: ReadonlyMap<string, string> | null,
    private readonly publish: (digest: string, text: string) => Promise<void>,
  ) {}

  /** The text to run; null for a digest that nobody has sent a text for. */
  resolve(text: string | null, extensions: Readonly<Record<string, unknown>>): string | null | Promise<string | null> {
    const digest = digestIn(extensions);
    if (text === null) {
      if (digest === null) throw invalidPayload('Must provide query string');
      return (this.allowed ?? this.#known).get(digest) ?? null;
    }
    if (digest !== null && this.#isNew(digest, text)) return this.publish(digest, text).then(() => text);
    if (this.allowed && !this.#permitted.has(text)) {
      if (!this.allowed.has(digestOf(text))) throw forbidden('The document is not in the list of allowed documents.');
      this.#permitted.set(text, true);
    }
    return text;
  }

  take(digest: string, text: string): void {
    this.#known.set(digest, text);
  }

  /** With a list of allowed texts there is nothing to learn. */
  #isNew(digest: string, text: string): boolean {
    if (this.allowed || this.#known.get(digest) === text) return false;
    if (digestOf(text) !== digest) throw invalidPayload('"sha256Hash" must be the SHA-256 hash of the query');
    return true;
  }
}

/** A list of texts, or an object whose values are texts, as tools for clients write it. */
export function readAllowList(file: string): ReadonlyMap<string, string> {
  let list: unknown;
  try {
    list = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new StartError(
      `GRAPHQL_ALLOW_LIST: "${file}" cannot be read (${error instanceof Error ? error.message : error})`,
    );
  }
  const texts = list !== null && typeof list === 'object' ? Object.values(list) : [];
  if (texts.length === 0 || !texts.every((text) => typeof text === 'string'))
    throw new StartError(`GRAPHQL_ALLOW_LIST: "${file}" must contain a JSON list of documents`);
  return new Map(texts.map((text) => [digestOf(text), text]));
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function digestIn({ persistedQuery }: Readonly<Record<string, unknown>>): string | null {
  if (persistedQuery === undefined || persistedQuery === null) return null;
  const { version, sha256Hash } = propertiesOf(persistedQuery);
  if (version !== 1 || typeof sha256Hash !== 'string' || !/^[0-9a-f]{64}$/i.test(sha256Hash))
    throw invalidPayload('"persistedQuery" needs version 1 and a sha256Hash');
  return sha256Hash.toLowerCase();
}
