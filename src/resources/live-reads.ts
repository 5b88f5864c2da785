/** A live query as server-sent events: first the answer, then a new one whenever it changes. */
import type { Identities, Identity, RequestCredentials } from '../access/identity.js';
import type { MaybePromise } from '../engine/pipeline.js';
import type { Exchange } from '../http/exchange.js';
import { errorReply, type Produce, type Reply } from '../http/reply.js';
import type { LiveQueries } from '../live/live-queries.js';
import type { LiveStats } from '../live/live-stats.js';
import type { LiveAnswer, LiveListener, LiveSource } from '../live/subscriber.js';

/** What `EventSource` sends. */
export function wantsEvents({ headers: { accept } }: Exchange): boolean {
  return accept.startsWith('text/event-stream');
}

/** Each answer has an id, its position and its tag: who comes back with the last one gets it again only if it is another. */
export function eventStream(
  exchange: Exchange,
  live: LiveQueries,
  identities: Identities,
  parse: LiveSource['parse'],
): Reply {
  const produce: Produce = async (sink) => {
    const feed = new EventFeed(tagIn(exchange.headers.lastEventId), live.stats);
    const close = await live.subscribe(sourceOf(exchange, identities, parse), feed);
    sink.onAbort(() => feed.end(null));
    try {
      for (let piece = await feed.next(); piece !== null; piece = await feed.next())
        if (!(await sink.write(piece))) break;
    } finally {
      close();
    }
  };
  // Proxies must hand on each event as it comes.
  const headers = { 'X-Accel-Buffering': 'no' };
  return { status: 200, type: 'text/event-stream; charset=utf-8', body: produce, headers };
}

/** The same credentials are presented again and again, as a client would with each request. */
export function sourceOf(exchange: Exchange, identities: Identities, parse: LiveSource['parse']): LiveSource {
  const { headers, accessToken, address } = exchange;
  const credentials: RequestCredentials = {
    headers,
    accessToken,
    address,
    get begun() {
      return performance.now();
    },
    cookie: (name) => exchange.cookie(name),
    cookieRefused: false,
    viewedAs: () => {},
  };
  return { address, identify: (): MaybePromise<Identity> => identities.identify(credentials), parse };
}

/** The newest answer that was not sent yet: a client that reads slowly misses those in between. */
class EventFeed implements LiveListener {
  readonly #known: string;
  readonly #stats: LiveStats;
  #piece: Buffer | null = null;
  #isAnswer = false;
  #isOpen = false;
  #over: { readonly error: unknown } | null = null;
  #wake: (() => void) | null = null;

  /** `known`: the tag of the answer that the client has; '' for none. */
  constructor(known: string, stats: LiveStats) {
    this.#known = known;
    this.#stats = stats;
  }

  /** Null at the end. Fails where there is an error before the first answer. */
  async next(): Promise<Buffer | null> {
    if (this.#piece === null && this.#over === null)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    const piece = this.#piece;
    this.#piece = null;
    this.#isAnswer = false;
    if (piece !== null) return piece;
    const error = this.#over?.error ?? null;
    this.#over = { error: null };
    if (error === null) return null;
    if (!this.#isOpen) throw error;
    return failureEvent(error);
  }

  answer(answer: LiveAnswer): void {
    const isKnown = !this.#isOpen && answer.tag === this.#known;
    const event = isKnown ? UNCHANGED : eventOf(answer);
    if (this.#isAnswer) this.#stats.dropped++;
    this.#put(this.#isOpen ? event : Buffer.concat([RETRY, event]), true);
    this.#isOpen = true;
  }

  end(error: unknown): void {
    this.#over ??= { error };
    this.#waken();
  }

  beat(): void {
    if (this.#isOpen && this.#piece === null) this.#put(BEAT, false);
  }

  #put(piece: Buffer, isAnswer: boolean): void {
    this.#piece = piece;
    this.#isAnswer = isAnswer;
    this.#waken();
  }

  #waken(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }
}

/** Milliseconds after which a client comes back. */
const RETRY = Buffer.from('retry: 1000\n');
const BEAT = Buffer.from(':\n\n');
const UNCHANGED = Buffer.from(': unchanged\n\n');

/** All subscribers of an answer get the same bytes. */
const events = new WeakMap<LiveAnswer, Buffer>();

function eventOf(answer: LiveAnswer): Buffer {
  const known = events.get(answer);
  if (known) return known;
  const { body, tag, position } = answer;
  const event = Buffer.concat([Buffer.from(`id: ${position}.${tag.slice(1, -1)}\ndata: `), onOneLine(body), ENDING]);
  events.set(answer, event);
  return event;
}

const ENDING = Buffer.from('\n\n');
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;

/** A line break in JSON is never part of a string. */
function onOneLine(json: Buffer): Buffer {
  if (!json.includes(LINE_FEED) && !json.includes(CARRIAGE_RETURN)) return json;
  return Buffer.from(json.map((byte) => (byte === LINE_FEED || byte === CARRIAGE_RETURN ? SPACE : byte)));
}

function tagIn(lastEventId: string): string {
  const at = lastEventId.indexOf('.');
  return at < 0 ? '' : `"${lastEventId.slice(at + 1)}"`;
}

/** Then the stream ends: a client that comes back gets the error as the answer of its request. */
function failureEvent(error: unknown): Buffer {
  return Buffer.from(`event: failed\ndata: ${String(errorReply(error).body)}\n\n`);
}
