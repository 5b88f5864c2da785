/** Just enough HTTP/1.1 to find the end of each response and its status; bodies are discarded. */

const LINE_END = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Finds the end of each response on a connection. */
export class ResponseReader {
  status = 0;
  keepsConnection = true;
  #part: 'head' | 'body' | 'size' | 'chunk' | 'trailer' | 'rest' = 'head';
  #remaining = 0;
  /** A head or line whose end has not arrived yet. */
  #unread: Buffer = NOTHING;

  /** `bodiless`: the response of a HEAD request has no body, whatever its length says. */
  constructor(public bodiless: boolean) {}

  /** Whether the response ends when the server closes the connection. */
  get endsWithConnection(): boolean {
    return this.#part === 'rest';
  }

  /** True when the chunk completed the response. */
  read(chunk: Buffer): boolean {
    const data = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    this.#unread = NOTHING;
    let position = 0;
    while (position < data.length) {
      if (this.#part === 'rest') return false;
      if (this.#part === 'body' || this.#part === 'chunk') {
        const taken = Math.min(this.#remaining, data.length - position);
        position += taken;
        this.#remaining -= taken;
        if (this.#remaining > 0) return false;
        if (this.#part === 'body') return this.#complete();
        this.#part = 'size';
        continue;
      }
      const mark = this.#part === 'head' ? HEAD_END : LINE_END;
      const found = data.indexOf(mark, position);
      if (found < 0) {
        // A copy, because the memory may be reused for the next chunk.
        this.#unread = Buffer.from(data.subarray(position));
        return false;
      }
      const line = data.toString('latin1', position, found);
      position = found + mark.length;
      if (this.#readLine(line)) return this.#complete();
    }
    return false;
  }

  /** True if nothing follows. */
  #readLine(line: string): boolean {
    if (this.#part === 'trailer') return line === '';
    if (this.#part === 'head') return this.#readHead(line);
    const size = Number.parseInt(line, 16);
    this.#part = size > 0 ? 'chunk' : 'trailer';
    this.#remaining = size + LINE_END.length;
    return false;
  }

  #readHead(head: string): boolean {
    this.status = Number(head.slice(9, 12));
    if (this.status >= 100 && this.status < 200) return false;
    this.keepsConnection = !/\r\nconnection: *close/i.test(head);
    if (this.bodiless || this.status === 204 || this.status === 304) return true;
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length !== undefined) {
      this.#part = 'body';
      this.#remaining = Number(length);
      return this.#remaining === 0;
    }
    this.#part = /\r\ntransfer-encoding:[^\r]*chunked/i.test(head) ? 'size' : 'rest';
    return false;
  }

  #complete(): true {
    this.#part = 'head';
    return true;
  }
}
