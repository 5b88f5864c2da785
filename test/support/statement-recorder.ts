/**
 * What the service sends to PostgreSQL, statement by statement with its parameters, as a network between the two hears it. The
 * messages are those of the extended and the simple query protocol.
 */
import type { Socket } from 'node:net';
import { Network } from './network-proxy.js';

export interface SentStatement {
  readonly text: string;
  readonly parameters: readonly (string | null)[];
}

/** Behind a pooler, the settings in front of each transaction, and those that it gives a session of the server; they belong to no request. */
const OF_POOLER = /^(select set_config\('\w+', \$1, (true|false)\), set_config\(|SET \w+=|DISCARD ALL)/;

/** What asks whether the server speaks TLS, which no server of the tests with a recorder does; a connection begins behind it. */
const SSL_REQUEST = 80_877_103;

export class StatementRecorder {
  readonly #network: Network;
  readonly #clients = new WeakMap<Socket, ClientMessages>();
  #statements: SentStatement[] = [];

  private constructor(url: string) {
    this.#network = new Network(url);
    this.#network.onClientData = (bytes, client) => this.#hear(bytes, client);
  }

  static async open(url: string): Promise<StatementRecorder> {
    const recorder = new StatementRecorder(url);
    await recorder.#network.open();
    return recorder;
  }

  /** The address of the database behind it. */
  get url(): string {
    return this.#network.url;
  }

  /** The statements that were sent while the work was done, in the order in which they were sent. */
  async during(work: () => Promise<unknown>): Promise<readonly SentStatement[]> {
    this.#statements = [];
    await work();
    return process.env['TEST_POOLER'] ? this.#statements.filter(({ text }) => !OF_POOLER.test(text)) : this.#statements;
  }

  #hear(bytes: Buffer, client: Socket): void {
    const messages = this.#clients.get(client) ?? new ClientMessages((statement) => this.#statements.push(statement));
    this.#clients.set(client, messages);
    messages.take(bytes);
  }
}

/** The messages of one connection. */
class ClientMessages {
  readonly #sent: (statement: SentStatement) => void;
  readonly #texts = new Map<string, string>();
  #pending = Buffer.alloc(0);
  #hasStarted = false;

  constructor(sent: (statement: SentStatement) => void) {
    this.#sent = sent;
  }

  take(bytes: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, bytes]);
    for (;;) {
      // The first message of a connection has no type.
      const head = this.#hasStarted ? 1 : 0;
      if (this.#pending.length < head + 4) return;
      const end = head + this.#pending.readInt32BE(head);
      if (this.#pending.length < end) return;
      const body = new MessageBody(this.#pending.subarray(head + 4, end));
      if (this.#hasStarted) this.#handle(String.fromCharCode(this.#pending[0] ?? 0), body);
      else this.#hasStarted = this.#pending.readInt32BE(4) !== SSL_REQUEST;
      this.#pending = this.#pending.subarray(end);
    }
  }

  #handle(type: string, body: MessageBody): void {
    // Query
    if (type === 'Q') this.#sent({ text: body.string(), parameters: [] });
    // Parse
    if (type === 'P') this.#texts.set(body.string(), body.string());
    // Bind
    if (type === 'B') {
      body.string();
      const text = this.#texts.get(body.string()) ?? '';
      for (let formats = body.int16(); formats > 0; formats--) body.int16();
      this.#sent({ text, parameters: Array.from({ length: body.int16() }, () => body.value()) });
    }
  }
}

class MessageBody {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  string(): string {
    const end = this.#bytes.indexOf(0, this.#at);
    const text = this.#bytes.toString('utf8', this.#at, end);
    this.#at = end + 1;
    return text;
  }

  int16(): number {
    this.#at += 2;
    return this.#bytes.readInt16BE(this.#at - 2);
  }

  value(): string | null {
    const length = this.#bytes.readInt32BE(this.#at);
    this.#at += 4;
    if (length < 0) return null;
    this.#at += length;
    return this.#bytes.toString('utf8', this.#at - length, this.#at);
  }
}
