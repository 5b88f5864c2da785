/**
 * The few messages of PostgreSQL's protocol that the service needs: a statement by its name with its values, and errors and
 * notifications of the server. Also the names under which statements are prepared.
 */
import { hash, randomUUID } from 'node:crypto';
import type { WireQuery } from './wire-query.js';

/** A statement on a connection: by the name it was prepared under, '' for one that is not kept. */
export interface Sent {
  readonly name: string;
  /** Null when the connection has prepared it before. */
  readonly text: string | null;
  readonly parameters: readonly (string | null)[];
  /** Whether the server is to say which columns its rows have. */
  readonly described?: boolean;
  /** After how many rows the portal is suspended; 0 for never. */
  readonly maxRows?: number;
}

/** Ends what was sent together: the server answers, and commits or takes all of it back. */
export const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

/** Makes the server send its messages, if no Sync follows. */
const FLUSH = Buffer.from([0x48, 0, 0, 0, 4]);

/** Ends the connection. */
export const TERMINATE = Buffer.from([0x58, 0, 0, 0, 4]);

/** The protocol counts values in two bytes. */
const MAX_PARAMETERS = 65_535;

/** Everything of one statement, in one piece. */
export function writeStatement(sent: Sent): Buffer {
  const { name, text, parameters, described = false, maxRows = 0 } = sent;
  if (parameters.length > MAX_PARAMETERS)
    throw Object.assign(new Error(`a statement has at most ${MAX_PARAMETERS} parameters`), { code: '54000' });
  let size = 5 + (1 + name.length + 1 + 2 + 2 + 2) + 10 + (described ? 7 : 0);
  const lengths: number[] = [];
  for (const parameter of parameters) {
    const length = parameter === null ? 0 : Buffer.byteLength(parameter);
    lengths.push(length);
    size += 4 + length;
  }
  const textLength = text === null ? 0 : Buffer.byteLength(text);
  if (text !== null) size += 5 + name.length + 1 + textLength + 1 + 2;
  const message = Buffer.allocUnsafe(size);
  let at = 0;
  if (text !== null) {
    at = head(message, at, PARSE, 4 + name.length + 1 + textLength + 1 + 2);
    at = zeroEnded(message, at, name);
    at += message.write(text, at);
    message[at++] = 0;
    at = message.writeInt16BE(0, at);
  }
  at = bind(message, at, sent, lengths);
  if (described) {
    at = head(message, at, DESCRIBE, 6);
    message[at++] = PORTAL;
    message[at++] = 0;
  }
  execute(message, at, maxRows);
  return message;
}

/** Fetches so many more rows of the portal, and flushes. */
export function writeFetch(maxRows: number): Buffer {
  const message = Buffer.allocUnsafe(15);
  FLUSH.copy(message, execute(message, 0, maxRows));
  return message;
}

/** Lets the server forget statements. */
function writeClosings(names: ReadonlySet<string>): Buffer {
  let size = 0;
  for (const name of names) size += 7 + name.length;
  const message = Buffer.allocUnsafe(size);
  let at = 0;
  for (const name of names) {
    at = head(message, at, CLOSE, 6 + name.length);
    message[at++] = PREPARED;
    at = zeroEnded(message, at, name);
  }
  return message;
}

/** Any number of statements without values, as plain text; the server answers when it has run the last. */
export function writeText(text: string): Buffer {
  const length = Buffer.byteLength(text);
  const message = Buffer.allocUnsafe(5 + length + 1);
  const at = head(message, 0, QUERY, 4 + length + 1);
  message.write(text, at);
  message[at + length] = 0;
  return message;
}

const QUERY = 0x51;
const PARSE = 0x50;
const BIND = 0x42;
const EXECUTE = 0x45;
const CLOSE = 0x43;
const DESCRIBE = 0x44;
const PORTAL = 0x50;
const PREPARED = 0x53;

/** All values and results are texts. */
function bind(message: Buffer, start: number, { name, parameters }: Sent, lengths: readonly number[]): number {
  let at = head(message, start, BIND, 0);
  message[at++] = 0;
  at = zeroEnded(message, at, name);
  at = message.writeInt16BE(0, at);
  at = message.writeUInt16BE(parameters.length, at);
  for (let position = 0; position < parameters.length; position++) {
    const parameter = parameters[position] as string | null;
    const length = lengths[position] as number;
    at = message.writeInt32BE(parameter === null ? -1 : length, at);
    if (parameter === null) continue;
    if (length === parameter.length) message.write(parameter, at, 'latin1');
    else message.write(parameter, at);
    at += length;
  }
  at = message.writeInt16BE(0, at);
  message.writeInt32BE(at - start - 1, start + 1);
  return at;
}

/** Executes the unnamed portal. */
function execute(message: Buffer, start: number, maxRows: number): number {
  const at = head(message, start, EXECUTE, 9);
  message[at] = 0;
  return message.writeInt32BE(maxRows, at + 1);
}

function head(message: Buffer, at: number, kind: number, length: number): number {
  message[at] = kind;
  return message.writeInt32BE(length, at + 1);
}

function zeroEnded(message: Buffer, at: number, text: string): number {
  const end = at + message.write(text, at, 'latin1');
  message[end] = 0;
  return end + 1;
}

/** The fields of an error by PostgreSQL's letter, as the driver spells them. */
const ERROR_FIELDS: Readonly<Record<string, string>> = {
  V: 'severity',
  C: 'code',
  D: 'detail',
  H: 'hint',
  P: 'position',
  p: 'internal_position',
  q: 'internal_query',
  W: 'where',
  s: 'schema_name',
  t: 'table_name',
  c: 'column_name',
  d: 'data type_name',
  n: 'constraint_name',
  F: 'file',
  R: 'routine',
};

/** An ErrorResponse as an error, with the fields the driver would give it. */
export function readError(message: Buffer, start: number, end: number): Error {
  const fields: Record<string, string> = {};
  let text = 'PostgreSQL failed';
  for (let at = start; at < end && message[at] !== 0; ) {
    const letter = String.fromCharCode(message[at] ?? 0);
    const stop = message.indexOf(0, at + 1);
    const value = message.toString('utf8', at + 1, stop);
    const name = ERROR_FIELDS[letter];
    if (letter === 'M') text = value;
    else if (name !== undefined) fields[name] = value;
    at = stop + 1;
  }
  return Object.assign(new Error(text), fields);
}

/** The channel and the payload. */
export function readNotification(message: Buffer, start: number): [channel: string, payload: string] {
  // Behind the number of the notifying process.
  const end = message.indexOf(0, start + 4);
  return [message.toString('utf8', start + 4, end), message.toString('utf8', end + 1, message.indexOf(0, end + 1))];
}

/** The types of the messages that the server sends and a connection handles, each by its first byte. */
export const BACKEND_KEY_DATA = 0x4b;
export const ROW_DESCRIPTION = 0x54;
export const PARSE_COMPLETE = 0x31;
export const DATA_ROW = 0x44;
export const COMMAND_COMPLETE = 0x43;
export const PORTAL_SUSPENDED = 0x73;
export const NOTIFICATION_RESPONSE = 0x41;
export const ERROR_RESPONSE = 0x45;
export const READY_FOR_QUERY = 0x5a;

/** The transaction status in ReadyForQuery: no transaction is open, or one that can only be rolled back. */
export const TRANSACTION_IDLE = 0x49;
export const TRANSACTION_FAILED = 0x45;

const MAX_PREPARED_STATEMENTS = 200;

/**
 * The statements that a connection keeps, by the names they were prepared under: PostgreSQL holds the plan of each. A name is a
 * digest of what the statement means: even if a pooler mixes connections up, a name never stands for another text.
 */
export class PreparedStatements {
  /** By text; of so many as can be kept, the one that was not used for longest is the first. */
  readonly #names = new Map<string, string>();
  readonly #forgotten = new Set<string>();
  /** Put behind the texts that are prepared from now on. */
  #edition = '';

  /** `isKeptByText`: a pooler prepares each text once in each of its sessions, and forgets none. */
  constructor(
    /** The schemas in which the names of a text are looked up. */
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

  /** The text under which it is prepared. */
  wordsOf(text: string): string {
    return text + this.#edition;
  }

  /** The server has forgotten the statement, or its plan is outdated. */
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
