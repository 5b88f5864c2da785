/** Descriptions of the API as far as a caller may see it, and those that were asked for lately. */
import { LRUCache } from 'lru-cache';
import { schemaAccessOf } from '../../../compiler/access/graphql-access.js';
import type { Identities } from '../../access/identities.js';
import type { Policies } from '../../access/policies.js';
import type { Exchange } from '../../http/exchange.js';
import type { Mirror } from '../../postgres/catalog/watch.js';

export interface SightServices {
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly policies: Policies;
}

/** The part of the model that the caller may see. */
export async function sightOf(exchange: Exchange, { identities, policies, mirror }: SightServices) {
  return schemaAccessOf(policies.accessOf(await identities.identify(exchange)), mirror.model);
}

/** Characters: a document of 3,000 tables has twenty million. */
const CAPACITY = 64 * 1024 * 1024;

export class SpecTexts {
  readonly #known = new LRUCache<string, string>({ maxSize: CAPACITY, sizeCalculation: ({ length }) => length + 1 });
  readonly #underway = new Map<string, Promise<string>>();
  #version = 0;

  /** `version` is that of the model; `write` makes the text. */
  async get(version: number, key: string, write: () => Promise<string>): Promise<string> {
    if (version !== this.#version) {
      this.#known.clear();
      this.#underway.clear();
      this.#version = version;
    }
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const waiting = this.#underway.get(key);
    if (waiting) return waiting;
    const writing = write();
    this.#underway.set(key, writing);
    try {
      const text = await writing;
      if (version === this.#version) this.#known.set(key, text);
      return text;
    } finally {
      if (this.#underway.get(key) === writing) this.#underway.delete(key);
    }
  }
}
