/**
 * Writes all messages that are sent together into one buffer, which is used again. In a pipeline, a read with the settings of its caller is
 * three statements, so the cost of a statement here limits such reads.
 */
import { FLUSH, type PreparedStatements, SYNC, writeClosings, writeText } from './protocol.js';
import type { WireQuery } from './wire-query.js';

/** Larger messages get memory of their own. */
const MEMORY_BYTES = 65_536;

/** Up to this length, a loop is faster than `Buffer.write`. */
const SHORT_VALUE = 40;

/** For the messages behind a large value. */
const ROOM_BYTES = 64;

/** The protocol counts values in two bytes. */
const MAX_PARAMETERS = 65_535;

const PARSE = 0x50;
const BIND = 0x42;
const EXECUTE = 0x45;
const DESCRIBE = 0x44;
const PORTAL = 0x50;

/** A Bind begins with its length and the unnamed portal. */
const BIND_START_BYTES = 6;
const EXECUTE_BYTES = 10;
const DESCRIBE_BYTES = 7;

/** The values of `leading`, as a Bind has them. */
const encoded = new WeakMap<readonly string[], Buffer>();

/** All values and results are texts. */
class MessageWriter {
  #memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
  #at = 0;

  /** Drops bytes that were written and not taken. */
  begin(): void {
    this.#at = 0;
    if (this.#memory.length > MEMORY_BYTES) this.#memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
  }

  /** Returns the written bytes. No later message changes them, so a socket may keep them. */
  take(): Buffer {
    const [memory, size] = [this.#memory, this.#at];
    this.#at = 0;
    if (memory.length > MEMORY_BYTES) {
      this.#memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
      return memory.subarray(0, size);
    }
    const message = Buffer.allocUnsafe(size);
    memory.copy(message, 0, 0, size);
    return message;
  }

  bytes(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#memory.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** Prepares the text under the name. The types of its parameters follow from the text. */
  parse(name: Uint8Array, text: string): void {
    const length = Buffer.byteLength(text);
    this.#reserve(1 + 4 + name.length + length + 3);
    this.#memory[this.#at++] = PARSE;
    this.#int32(4 + name.length + length + 3);
    this.bytes(name);
    this.#at += this.#memory.write(text, this.#at);
    this.#memory.fill(0, this.#at, this.#at + 3);
    this.#at += 3;
  }

  /** `name` ends with a zero. */
  bind(name: Uint8Array, { leading, parameters }: WireQuery): void {
    const start = this.#at;
    const count = parameters.length + (leading?.length ?? 0);
    if (count > MAX_PARAMETERS)
      throw Object.assign(new Error(`a statement has at most ${MAX_PARAMETERS} parameters`), { code: '54000' });
    this.#reserve(BIND_START_BYTES + name.length + 4);
    this.#memory[start] = BIND;
    this.#memory[start + BIND_START_BYTES - 1] = 0;
    this.#at = start + BIND_START_BYTES;
    this.bytes(name);
    this.#int16(0);
    this.#int16(count);
    if (leading !== undefined && leading.length > 0) this.bytes(this.#encode(leading));
    for (const parameter of parameters) this.#value(parameter);
    this.#reserve(2);
    this.#int16(0);
    const end = this.#at;
    this.#at = start + 1;
    this.#int32(end - start - 1);
    this.#at = end;
  }

  /** Describes the columns of the unnamed portal. */
  describe(): void {
    this.#reserve(DESCRIBE_BYTES);
    this.#memory[this.#at++] = DESCRIBE;
    this.#int32(DESCRIBE_BYTES - 1);
    this.#memory[this.#at++] = PORTAL;
    this.#memory[this.#at++] = 0;
  }

  /** Executes the unnamed portal, up to so many rows; 0 for all. */
  execute(maxRows: number): void {
    this.#reserve(EXECUTE_BYTES);
    this.#memory[this.#at++] = EXECUTE;
    this.#int32(EXECUTE_BYTES - 1);
    this.#memory[this.#at++] = 0;
    this.#int32(maxRows);
  }

  #encode(values: readonly string[]): Buffer {
    const known = encoded.get(values);
    if (known !== undefined) return known;
    const start = this.#at;
    for (const value of values) this.#value(value);
    const bytes = Buffer.from(this.#memory.subarray(start, this.#at));
    this.#at = start;
    encoded.set(values, bytes);
    return bytes;
  }

  #value(value: string | null): void {
    if (value === null) {
      this.#reserve(4);
      this.#int32(-1);
      return;
    }
    const { length } = value;
    if (length <= SHORT_VALUE && this.#shortValue(value)) return;
    const size = Buffer.byteLength(value);
    this.#reserve(4 + size);
    this.#int32(size);
    // A text of as many bytes as characters is ASCII.
    if (size === length) this.#memory.write(value, this.#at, 'latin1');
    else this.#memory.write(value, this.#at);
    this.#at += size;
  }

  /** Returns false, and writes nothing, unless the value is ASCII. */
  #shortValue(value: string): boolean {
    const { length } = value;
    this.#reserve(4 + length);
    const memory = this.#memory;
    const start = this.#at + 4;
    for (let index = 0; index < length; index++) {
      const code = value.charCodeAt(index);
      if (code > 0x7f) return false;
      memory[start + index] = code;
    }
    this.#int32(length);
    this.#at = start + length;
    return true;
  }

  #int16(value: number): void {
    this.#memory[this.#at++] = value >> 8;
    this.#memory[this.#at++] = value;
  }

  #int32(value: number): void {
    const memory = this.#memory;
    const at = this.#at;
    memory[at] = value >> 24;
    memory[at + 1] = value >> 16;
    memory[at + 2] = value >> 8;
    memory[at + 3] = value;
    this.#at = at + 4;
  }

  #reserve(bytes: number): void {
    const needed = this.#at + bytes;
    const memory = this.#memory;
    if (needed <= memory.length) return;
    this.#memory = Buffer.allocUnsafeSlow(Math.max(needed + ROOM_BYTES, 2 * memory.length));
    memory.copy(this.#memory, 0, 0, this.#at);
  }
}

const writer = new MessageWriter();

/** The name of a statement that the connection does not keep. */
const UNNAMED = Buffer.from([0]);

/** Adds to `introduced` the texts that the server has not seen. */
export function writeQueries(
  queries: readonly WireQuery[],
  prepared: PreparedStatements,
  introduced: string[],
): Buffer {
  if (queries[0]?.plain) return writeText(queries[0].text);
  writer.begin();
  for (const query of queries) writeQuery(query, prepared, introduced);
  writer.bytes(queries.at(-1)?.portal ? FLUSH : SYNC);
  const message = writer.take();
  if (prepared.forgotten.size === 0) return message;
  // In front of all others: behind a statement that fails nothing is heard.
  const closings = writeClosings(prepared.forgotten);
  prepared.haveClosed();
  return Buffer.concat([closings, message]);
}

function writeQuery(query: WireQuery, prepared: PreparedStatements, introduced: string[]): void {
  const { text } = query;
  let name = query.prepare ? prepared.nameOf(text) : UNNAMED;
  if (name === undefined || name === UNNAMED) {
    introduced.push(text);
    name ??= prepared.remember(text);
    writer.parse(name, prepared.wordsOf(text));
  }
  writer.bind(name, query);
  if (query.decoder?.describe !== undefined) writer.describe();
  writer.execute(query.portal?.maxRows ?? 0);
}
