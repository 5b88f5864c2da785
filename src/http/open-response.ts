/** Writes responses that stay open. There may be ten thousand of them, so that each holds little, and nothing of what was written. */
import type { Exchange } from './exchange.js';
import type { OpenListener, OpenResponse, Reply } from './reply.js';
import { writeHead } from './write-reply.js';

export interface OpenOptions {
  /** What follows the name of the first header. */
  readonly head: string;
  readonly close: boolean;
  readonly onDone: (exchange: Exchange) => void;
}

export class OpenResponseWriter implements OpenResponse {
  readonly #exchange: Exchange;
  readonly #listener: OpenListener;
  readonly #onDone: (exchange: Exchange) => void;
  readonly #close: boolean;
  /** Null when it was written. */
  #head: { readonly reply: Reply; readonly text: string } | null;

  constructor(exchange: Exchange, reply: Reply, listener: OpenListener, { head, close, onDone }: OpenOptions) {
    this.#exchange = exchange;
    this.#listener = listener;
    this.#onDone = onDone;
    this.#close = close;
    this.#head = { reply, text: head };
  }

  write(piece: Buffer): boolean {
    const { response, aborted } = this.#exchange;
    if (aborted) return true;
    let isTaken = true;
    response.cork(() => {
      this.#writeHead();
      isTaken = response.write(piece);
    });
    return isTaken;
  }

  end(): void {
    const { response, aborted } = this.#exchange;
    if (!aborted) {
      this.#exchange.replied = true;
      response.cork(() => {
        this.#writeHead();
        response.end('', this.#close);
      });
    }
    this.#onDone(this.#exchange);
  }

  #writeHead(): void {
    if (this.#head === null) return;
    writeHead(this.#exchange, this.#head.reply, this.#head.text);
    this.#head = null;
    // Not later: without it a piece that was taken and did not fit would end the connection ten seconds after it has left.
    this.#exchange.response.onWritable(() => {
      this.#listener.writable();
      return true;
    });
  }
}
