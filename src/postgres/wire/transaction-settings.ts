/**
 * Settings behind a pooler that gives each transaction another session: none of them stays, so each transaction begins with them, in
 * the same round trip. What is sent together up to a Sync is one transaction, and a local setting holds until its end.
 */
import type { Settings } from './connection-options.js';
import { settingQuery, type WireQuery } from './wire-query.js';

export class TransactionSettings {
  readonly #text: string;
  readonly #parameters: readonly string[];
  /** Whether a transaction was begun that has not been ended yet. */
  #isBegun = false;

  constructor(settings: Settings) {
    const names = Object.keys(settings);
    const calls = names.map((name, position) => `pg_catalog.set_config('${name}', $${position + 1}, true)`);
    this.#text = `select ${calls.join(', ')}`;
    this.#parameters = Object.values(settings);
  }

  /** The connection is another one. */
  reset(): void {
    this.#isBegun = false;
  }

  apply(queries: readonly WireQuery[]): readonly WireQuery[] {
    const [first] = queries;
    if (first === undefined || first.text === this.#text) return queries;
    if (first.plain) {
      if (/^begin\b/.test(first.text)) {
        this.#isBegun = true;
        return [{ ...first, plain: false }, this.#settingFor(first)];
      }
      const isEnd = /^(commit|rollback)$/.test(first.text);
      if (isEnd) this.#isBegun = false;
      if (isEnd || this.#isBegun || first.text === '') return queries;
      return [this.#settingFor(first), { ...first, plain: false }];
    }
    return this.#isBegun ? queries : [this.#settingFor(first), ...queries];
  }

  #settingFor(query: WireQuery): WireQuery {
    return settingQuery(this.#text, this.#parameters, query);
  }
}
