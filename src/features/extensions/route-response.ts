/** The reply of an extension's route: its result as JSON, or its `Response`, whose body is read within the limits of responses. */
import { messageOf } from '../../base/narrow.js';
import { TimeSlice } from '../../base/time-slices.js';
import { jsonText, noContent, type Reply } from '../../server/http/reply.js';
import { encodeInSlices } from '../../server/node/turns.js';
import { type ResponseMemory, UNCOUNTED_BYTES } from '../../server/postgres/wire/response-memory.js';

/** `over` aborts when the route must have ended. */
export async function routeReply(result: unknown, memory: ResponseMemory, over: AbortSignal): Promise<Reply> {
  if (result instanceof Response) return replyOf(result, memory, over);
  if (typeof result === 'function' || typeof result === 'symbol')
    throw new TypeError(`a route cannot answer a ${typeof result}`);
  // A `toJSON` may answer undefined too.
  const text: string | undefined = JSON.stringify(result);
  if (text === undefined) return noContent;
  const json = `{"data":${text}}`;
  if (json.length <= UNCOUNTED_BYTES) return jsonText(json);
  if (json.length > memory.largest) throw tooLarge(memory);
  // The memory of a text that is being sent would not be counted.
  const body = await encodeInSlices(json);
  if (body.length > memory.largest) throw tooLarge(memory);
  const refused = memory.take(body.length);
  if (refused) throw refused;
  memory.release(body.length);
  return { ...jsonText(''), body };
}

async function replyOf(response: Response, memory: ResponseMemory, over: AbortSignal): Promise<Reply> {
  const { status, headers, type, body } = response;
  if (type === 'error') throw new TypeError('Response.error() has no status');
  const cache = headers.get('cache-control');
  return {
    status,
    type: headers.get('content-type') ?? '',
    body: body === null ? '' : await readAll(body, memory, over),
    headers: headersOf(response),
    ...(cache !== null && { cache }),
  };
}

/** The stream is cancelled if it does not end within the limits. One that never pauses leaves others their turns all the same. */
async function readAll(body: ReadableStream<Uint8Array>, memory: ResponseMemory, over: AbortSignal): Promise<Buffer> {
  const pieces = new Pieces(memory);
  const slice = new TimeSlice();
  const reader = body.getReader();
  const cancel = (reason: unknown): void => void reader.cancel(reason).catch(() => {});
  const end = (): void => cancel(over.reason);
  over.addEventListener('abort', end, { once: true });
  try {
    if (over.aborted) end();
    for (;;) {
      const { done, value } = await reader.read();
      over.throwIfAborted();
      if (done) return pieces.joined();
      pieces.add(value);
      if (slice.isOver()) await slice.rest();
    }
  } catch (error) {
    cancel(messageOf(error));
    throw error;
  } finally {
    over.removeEventListener('abort', end);
    pieces.release();
  }
}

/** The part of a body that was read, in the memory that large responses share. */
class Pieces {
  readonly #pieces: Uint8Array[] = [];
  #bytes = 0;
  #taken = 0;

  constructor(private readonly memory: ResponseMemory) {}

  add(piece: unknown): void {
    if (!(piece instanceof Uint8Array)) throw new TypeError('the body of its response must be a stream of bytes');
    if (piece.length === 0) return;
    this.#bytes += piece.length;
    if (this.#bytes > this.memory.largest) throw tooLarge(this.memory);
    const refused = this.memory.take(piece.length);
    if (refused) throw refused;
    this.#taken += piece.length;
    this.#pieces.push(piece);
  }

  joined(): Buffer {
    return Buffer.concat(this.#pieces, this.#bytes);
  }

  release(): void {
    this.memory.release(this.#taken);
    this.#taken = 0;
  }
}

function tooLarge({ largest }: ResponseMemory): Error {
  return new RangeError(`its response is larger than ${largest} bytes (MAX_RESPONSE_SIZE)`);
}

/** The service writes these itself, or they belong to one connection. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  ...['content-type', 'content-length', 'connection', 'transfer-encoding', 'keep-alive', 'upgrade', 'te', 'trailer'],
  ...['cache-control', 'date', 'set-cookie', 'x-request-id'],
]);

/** Cookies are the only header that cannot be one list. The response of a `fetch` is decoded already. */
function headersOf({ headers, url }: Response): NonNullable<Reply['headers']> {
  const isDecoded = url !== '';
  const others = [...headers].filter(([name]) => !OWN_HEADERS.has(name) && !(isDecoded && name === 'content-encoding'));
  return { ...Object.fromEntries(others), 'set-cookie': headers.getSetCookie() };
}
