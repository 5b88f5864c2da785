/**
 * The texts of /server/specs, kept while the model stays the same: one per set of rights. Several who ask for a new one at the same time wait for the
 * same work.
 */
import { LRUCache } from 'lru-cache';

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
