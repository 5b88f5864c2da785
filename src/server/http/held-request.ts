/** A request that waits for its body: its reply may be in memory, found by the URL, the headers and the body. */
import type { ServerRequest, ServerResponse } from './transport.js';

/** The name and the value of each header, one after the other. */
type HeaderList = readonly string[];

/** A request as it came. uWebSockets keeps its own only until the handler returns. */
export class HeldRequest implements ServerRequest {
  readonly #method: string;
  readonly #query: string;

  constructor(
    request: ServerRequest,
    private readonly path: string,
    private readonly headers: HeaderList,
  ) {
    this.#method = request.getCaseSensitiveMethod();
    this.#query = request.getQuery() ?? '';
  }

  getCaseSensitiveMethod(): string {
    return this.#method;
  }

  getUrl(): string {
    return this.path;
  }

  getQuery(): string {
    return this.#query;
  }

  getHeader(lowerCaseName: string): string {
    const { headers } = this;
    for (let index = 0; index < headers.length; index += 2)
      if (headers[index] === lowerCaseName) return headers[index + 1] ?? '';
    return '';
  }

  forEach(read: (name: string, value: string) => void): void {
    const { headers } = this;
    for (let index = 0; index < headers.length; index += 2) read(headers[index] ?? '', headers[index + 1] ?? '');
  }
}

type TakeChunk = Parameters<ServerResponse['onData']>[0];

/** The body of a request, of which a part may have come. */
export class HeldBody {
  #take: TakeChunk | null = null;

  constructor(
    private readonly begun: ArrayBuffer,
    private readonly isWhole: boolean,
  ) {}

  /** Whether the rest comes after the request was passed on. */
  get isLate(): boolean {
    return !this.isWhole;
  }

  onData(take: TakeChunk): void {
    this.#take = take;
    if (this.isWhole || this.begun.byteLength > 0) take(this.begun, this.isWhole);
  }

  /** Another part has come. */
  next(chunk: ArrayBuffer, isLast: boolean): void {
    this.#take?.(chunk, isLast);
  }
}

/** Milliseconds to wait for a body. A later one passes through the stages, which have a limit of their own. */
const WAIT_MS = 1_000;

/**
 * Waits for the body, which mostly comes with the head. `answer` replies if its reply is in memory. Otherwise `serve` goes on with the
 * request. `onEnd` is called when the request is answered, was passed on or will not come.
 */
export function holdBody(
  response: ServerResponse,
  answer: (body: Buffer) => boolean,
  serve: (body: HeldBody) => void,
  onEnd: () => void,
): void {
  let begun = new ArrayBuffer(0);
  let held: HeldBody | null = null;
  let isOver = false;
  const end = (): void => {
    isOver = true;
    clearTimeout(timer);
    onEnd();
  };
  const pass = (isWhole: boolean): void => {
    held = new HeldBody(begun, isWhole);
    serve(held);
    end();
  };
  const timer = setTimeout(() => pass(false), WAIT_MS);
  response.onAborted(() => {
    if (!isOver) end();
  });
  response.onData((chunk, isLast) => {
    if (held !== null) held.next(chunk, isLast);
    if (isOver) return;
    begun = isLast && begun.byteLength === 0 ? chunk : joined(begun, chunk);
    if (!isLast) return;
    if (answer(Buffer.from(begun))) end();
    else pass(true);
  });
}

/** A copy of both, as a chunk is only borrowed. */
function joined(begun: ArrayBuffer, chunk: ArrayBuffer): ArrayBuffer {
  const both = new Uint8Array(begun.byteLength + chunk.byteLength);
  both.set(new Uint8Array(begun));
  both.set(new Uint8Array(chunk), begun.byteLength);
  return both.buffer;
}
