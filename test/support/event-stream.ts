/** A client of server-sent events that keeps everything it was sent. */
import { type ClientRequest, type IncomingMessage, request as openRequest } from 'node:http';
import { ADMIN_TOKEN, waitFor } from './service.js';

const MAX_TEXT = 100_000;

export interface ServerEvent {
  readonly id: string;
  /** 'message' where it has no name. */
  readonly name: string;
  readonly data: string;
}

export interface EventStreamOptions {
  readonly token?: string | null;
  readonly method?: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Hears of each event; then only the last one is kept. */
  readonly onEvent?: (event: ServerEvent) => void;
}

export class EventStream {
  readonly events: ServerEvent[] = [];
  status = 0;
  /** How the body begins, also of an answer that is no stream. */
  text = '';
  isEnded = false;
  response: IncomingMessage | null = null;
  readonly #request: ClientRequest;
  readonly #onEvent: ((event: ServerEvent) => void) | null;
  #pieces: string[] = [];

  constructor(
    service: { readonly url: string },
    path: string,
    { token = ADMIN_TOKEN, method = 'GET', body, headers = {}, onEvent }: EventStreamOptions = {},
  ) {
    this.#onEvent = onEvent ?? null;
    const { hostname, port } = new URL(service.url);
    const authorization: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
    this.#request = openRequest({
      hostname,
      port,
      path,
      method,
      agent: false,
      headers: { accept: 'text/event-stream', ...authorization, ...headers },
    });
    this.#request.on('response', (response) => {
      this.response = response;
      this.status = response.statusCode ?? 0;
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => this.#take(chunk));
      response.on('close', () => {
        this.isEnded = true;
      });
    });
    this.#request.on('error', () => {
      this.isEnded = true;
    });
    this.#request.end(body);
  }

  #take(chunk: string): void {
    if (this.text.length < MAX_TEXT) this.text += chunk;
    // Only what came last may end an event: to search all of a large one each time would take long.
    const last = this.#pieces.at(-1) ?? '';
    this.#pieces.push(chunk);
    if (!`${last.slice(-1)}${chunk}`.includes('\n\n')) return;
    const blocks = this.#pieces.join('').split('\n\n');
    this.#pieces = [blocks.pop() ?? ''];
    for (const block of blocks) this.#add(block.split('\n'));
  }

  #add(lines: readonly string[]): void {
    const fieldOf = (field: string): string | undefined =>
      lines.find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2);
    const data = fieldOf('data');
    if (data === undefined) return;
    const event = { id: fieldOf('id') ?? '', name: fieldOf('event') ?? 'message', data };
    if (this.#onEvent) this.events.length = 0;
    this.events.push(event);
    this.#onEvent?.(event);
  }

  /** The answer of the last event. */
  get last(): unknown {
    const event = this.events.at(-1);
    return event && JSON.parse(event.data);
  }

  /** Resolves when so many events have come. */
  async count(events: number, within = 5_000): Promise<void> {
    await waitFor(async () => this.events.length >= events || (this.isEnded && this.status !== 200), within);
  }

  async ended(within = 5_000): Promise<void> {
    await waitFor(async () => this.isEnded, within);
  }

  close(): void {
    this.#request.destroy();
  }
}
