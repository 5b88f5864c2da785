/**
 * The few messages of PostgreSQL's protocol that the service needs, except those of a statement (`message-writer.ts`): errors and
 * notifications of the server, and texts without values. Also the names under which statements are prepared.
 */
import { hash, randomUUID } from 'node:crypto';

/** Ends what was sent together: the server answers, and commits or takes all of it back. */
export const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

/** Makes the server send its messages, if no Sync follows. */
export const FLUSH = Buffer.from([0x48, 0, 0, 0, 4]);

/** Ends the connection. */
export const TERMINATE = Buffer.from([0x58, 0, 0, 0, 4]);

/** Fetches so many more rows of the portal, and flushes. */
export function writeFetch(maxRows: number): Buffer {
  const message = Buffer.allocUnsafe(15);
  FLUSH.copy(message, execute(message, 0, maxRows));
  return message;
}

/** Lets the server forget statements: their names, each with the zero at its end. */
export function writeClosings(names: ReadonlySet<Uint8Array>): Buffer {
  let size = 0;
  for (const name of names) size += 6 + name.length;
  const message = Buffer.allocUnsafe(size);
  let at = 0;
  for (const name of names) {
    at = head(message, at, CLOSE, 5 + name.length);
    message[at++] = PREPARED;
    message.set(name, at);
    at += name.length;
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
const EXECUTE = 0x45;
const CLOSE = 0x43;
const PREPARED = 0x53;

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
export const AUTHENTICATION = 0x52;
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
  readonly #names = new Map<string, Buffer>();
  /**
   * Names that the server is to forget before it hears of any statement: one that is used again would be taken there otherwise.
   * They stay until `haveClosed` says that they were sent.
   */
  readonly forgotten = new Set<Buffer>();
  /** Put behind the texts that are prepared from now on. */
  #edition = '';

  /** `isKeptByText`: a pooler prepares each text once in each of its sessions, and forgets none. */
  constructor(
    /** The schemas in which the names of a text are looked up. */
    private readonly scope: string,
    private readonly isKeptByText: boolean,
  ) {}

  /** The bytes of the name, with the zero at their end. */
  nameOf(text: string): Buffer | undefined {
    const name = this.#names.get(text);
    if (name !== undefined && this.#names.size >= MAX_PREPARED_STATEMENTS) {
      this.#names.delete(text);
      this.#names.set(text, name);
    }
    return name;
  }

  /** The types of its parameters follow from the text: none are sent. */
  remember(text: string): Buffer {
    if (this.#names.size >= MAX_PREPARED_STATEMENTS) {
      const [oldest] = this.#names.keys();
      if (oldest !== undefined) this.forget(oldest);
    }
    const digest = hash('sha256', `${this.scope}\0${this.wordsOf(text)}`, 'base64url');
    const name = Buffer.from(`lateral_${digest}\0`);
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
    this.forgotten.add(name);
  }

  haveClosed(): void {
    if (this.forgotten.size > 0) this.forgotten.clear();
  }

  /** The connection is lost, and what it kept. */
  clear(): void {
    this.#names.clear();
    this.forgotten.clear();
  }
}
