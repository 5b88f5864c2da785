/**
 * The texts of /server/specs, kept while the model stays the same: one per set of rights. Several who ask for a new one at the same time wait for the
 * same work.
 */
import { LRUCache } from 'lru-cache';
import { runInSlices, type Steps } from '../time-slices.js';

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

/** JSON whose outer objects, as far as `depth`, are written entry by entry. */
export async function writeJsonInSlices(value: object, depth: number): Promise<string> {
  const pieces: string[] = [];
  await runInSlices(jsonPieces(value, depth, pieces));
  return pieces.join('');
}

function* jsonPieces(value: unknown, depth: number, pieces: string[]): Steps<void> {
  if (depth === 0 || typeof value !== 'object' || value === null || Array.isArray(value)) {
    pieces.push(JSON.stringify(value));
    yield;
    return;
  }
  let mark = '{';
  for (const [name, entry] of Object.entries(value)) {
    if (entry === undefined) continue;
    pieces.push(mark, JSON.stringify(name), ':');
    mark = ',';
    yield* jsonPieces(entry, depth - 1, pieces);
  }
  pieces.push(mark === '{' ? '{}' : '}');
}
