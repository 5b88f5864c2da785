/**
 * The statements that a connection keeps, by the names they were prepared under: PostgreSQL holds the plan of each. A name is a
 * digest of what the statement means, so that even where a pooler mixes connections up a name never answers for another text.
 */
import { hash, randomUUID } from 'node:crypto';
import { FLUSH, SYNC, writeClosings, writeStatement, writeText } from './protocol.js';
import type { WireQuery } from './wire-query.js';

const MAX_PREPARED_STATEMENTS = 200;

export class PreparedStatements {
  /** By text; of so many as can be kept, the one that was not used for longest is the first. */
  readonly #names = new Map<string, string>();
  readonly #forgotten = new Set<string>();
  /** Put behind the texts that are prepared from now on. */
  #edition = '';

  /** `isKeptByText`: a pooler prepares each text once in each of its sessions, whatever it is told to forget. */
  constructor(
    /** What a text depends on besides itself: the schemas in which its names are looked up. */
    private readonly scope: string,
    private readonly isKeptByText: boolean,
  ) {}

  nameOf(text: string): string | undefined {
    const name = this.#names.get(text);
    if (name !== undefined && this.#names.size >= MAX_PREPARED_STATEMENTS) {
      this.#names.delete(text);
      this.#names.set(text, name);
    }
    return name;
  }

  /** The types of its parameters follow from the text: none are sent. */
  remember(text: string): string {
    if (this.#names.size >= MAX_PREPARED_STATEMENTS) {
      const [oldest] = this.#names.keys();
      if (oldest !== undefined) this.forget(oldest);
    }
    const name = `lateral_${hash('sha256', `${this.scope}\0${this.wordsOf(text)}`, 'base64url')}`;
    this.#names.set(text, name);
    return name;
  }

  /** What a text is prepared as. */
  wordsOf(text: string): string {
    return text + this.#edition;
  }

  /** The server does not know it any more, or has planned it for what is no more. */
  outdate(text: string): void {
    this.forget(text);
    if (this.isKeptByText) this.#edition = ` /*${randomUUID()}*/`;
  }

  forget(text: string): void {
    const name = this.#names.get(text);
    if (name === undefined) return;
    this.#names.delete(text);
    this.#forgotten.add(name);
  }

  /**
   * Names that the server is to forget before it hears of any statement: one that is used again would be taken there otherwise.
   * They stay until `haveClosed` says that they were sent.
   */
  get forgotten(): ReadonlySet<string> {
    return this.#forgotten;
  }

  haveClosed(): void {
    if (this.#forgotten.size > 0) this.#forgotten.clear();
  }

  /** The connection is lost, and what it kept. */
  clear(): void {
    this.#names.clear();
    this.#forgotten.clear();
  }
}

/** Adds to `introduced` the texts that the server has not seen. */
export function writeQueries(
  queries: readonly WireQuery[],
  prepared: PreparedStatements,
  introduced: string[],
): Buffer {
  if (queries[0]?.plain) return writeText(queries[0].text);
  const messages: Buffer[] = [];
  for (const { text, parameters, prepare, decoder, portal } of queries) {
    let name = prepare ? prepared.nameOf(text) : '';
    const isNew = name === undefined || name === '';
    if (isNew) introduced.push(text);
    if (name === undefined) name = prepared.remember(text);
    const described = decoder?.describe !== undefined;
    const maxRows = portal?.maxRows ?? 0;
    const words = isNew ? prepared.wordsOf(text) : null;
    messages.push(writeStatement({ name, text: words, parameters, described, maxRows }));
  }
  messages.push(queries.at(-1)?.portal ? FLUSH : SYNC);
  // In front of all others: behind a statement that fails nothing is heard.
  if (prepared.forgotten.size > 0) {
    messages.unshift(writeClosings(prepared.forgotten));
    prepared.haveClosed();
  }
  return Buffer.concat(messages);
}
