/** Live queries over HTTP: server-sent events, or one answer that waits until it differs from the one that the client has. */
import type { Identities } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import type { MaybePromise } from '../../server/execute/pipeline.js';
import { isNotModified, tagOf, withoutRow } from '../../server/http/etag.js';
import type { Exchange } from '../../server/http/exchange.js';
import {
  DEFERRED,
  errorReply,
  JSON_TYPE,
  noContent,
  type OpenListener,
  type OpenResponse,
  type Reply,
} from '../../server/http/reply.js';
import { LastingCredentials } from './lasting-credentials.js';
import type { LiveQueries } from './live-queries.js';
import type { LiveAnswer, LiveListener, LiveSource } from './subscribers.js';

interface LiveServices {
  readonly live: LiveQueries;
  readonly identities: Identities;
}

/** Each answer has an id: its position and its tag. A client that returns with the last one gets an answer only if it differs. */
export function eventStream(
  exchange: Exchange,
  { live, identities }: LiveServices,
  parse: LiveSource['parse'],
  format: EventFormat = ITEM_EVENTS,
): Reply | typeof DEFERRED {
  if (exchange.method === 'HEAD') return eventReply(async () => {});
  new EventFeed(exchange, format, live).begin(new RequestCredentials(exchange, identities, parse));
  return DEFERRED;
}

export function eventReply(body: Reply['body']): Reply {
  // Proxies must pass each event on as it arrives.
  const headers = { 'X-Accel-Buffering': 'no' };
  return { status: 200, type: 'text/event-stream; charset=utf-8', body, headers };
}

/** Answers when the answer differs from the one that the client has, or with 304 after the given time. */
export async function waitForChange(
  exchange: Exchange,
  { live, identities }: LiveServices,
  parse: LiveSource['parse'],
  seconds: number,
): Promise<Reply> {
  const { ifNoneMatch } = exchange.headers;
  let settle: (reply: Reply) => void = () => {};
  let fail: (error: unknown) => void = () => {};
  const settled = new Promise<Reply>((resolve, reject) => {
    settle = resolve;
    fail = reject;
  });
  let tag = '';
  const unchanged = (): void => settle({ status: 304, type: '', body: '', ...(tag === '' ? {} : { tag }) });
  // It may fail before it is awaited.
  settled.catch(() => {});
  const close = await live.subscribe(new RequestCredentials(exchange, identities, parse), {
    answer: (answer) => {
      const { body, row } = withoutRow(answer.body);
      tag = tagOf(body, row);
      if (!isNotModified(ifNoneMatch, tag)) settle({ status: 200, type: JSON_TYPE, body, tag });
    },
    withdraw: () => false,
    end: (error) => (error === null ? unchanged() : fail(error)),
    ping: () => {},
  });
  exchange.applied(`wait=${seconds}`);
  const timer = setTimeout(unchanged, seconds * 1_000);
  exchange.onAbort(unchanged);
  try {
    return await settled;
  } finally {
    clearTimeout(timer);
    close();
  }
}

/** The credentials and the query of a subscription. The caller is identified again whenever users or permissions change. */
class RequestCredentials extends LastingCredentials implements LiveSource {
  constructor(
    private readonly exchange: Exchange,
    private readonly identities: Identities,
    readonly parse: LiveSource['parse'],
  ) {
    super(exchange);
  }

  /** A caller that a program names replaces that of the credentials. */
  identify(): MaybePromise<Identity> {
    return this.exchange.renewCaller?.() ?? this.identities.identify(this);
  }
}

export interface EventFormat {
  answer(answer: LiveAnswer): Buffer;
  /** The event of an error after the first answer. */
  failure(error: unknown): Buffer;
  /** The bytes before the first event and after the last. */
  readonly opening: Buffer;
  readonly ending: Buffer | null;
}

/**
 * Writes results to the response as events, each as soon as it arrives. While a client does not read, only the newest result waits: a slow
 * client misses those in between.
 */
class EventFeed implements LiveListener, OpenListener {
  /** The open response, or null before the first answer. An error before it is an ordinary error reply. */
  #response: OpenResponse | null = null;
  #close: (() => void) | null = null;
  #waiting: Buffer | null = null;
  /** The generation of rights with which the waiting answer was read. */
  #generation = 0;
  /** Whether the client's buffer is full. */
  #isFull = false;
  #isOver = false;
  #end: { readonly error: unknown } | null = null;

  constructor(
    private readonly exchange: Exchange,
    private readonly format: EventFormat,
    private readonly live: LiveQueries,
  ) {}

  begin(source: LiveSource): void {
    this.exchange.onAbort(() => {
      if (this.#isOver) return;
      this.#leave();
      // Nobody reads it: it is counted.
      if (this.#response === null) this.exchange.respond(noContent);
      else this.#response.end();
    });
    this.live.subscribe(source, this).then(
      (close) => {
        this.#close = close;
        if (this.#isOver) close();
      },
      (error: unknown) => this.end(error),
    );
  }

  answer(answer: LiveAnswer): void {
    const isKnown = this.#response === null && answer.tag === tagIn(this.exchange.headers.lastEventId);
    if (this.#waiting !== null) this.live.stats.dropped++;
    this.#waiting = isKnown ? UNCHANGED : this.format.answer(answer);
    this.#generation = this.live.generation;
    if (!this.#isFull) this.#writeWaiting();
  }

  withdraw(isSame: boolean): boolean {
    if (isSame || this.#waiting === null) return false;
    this.#waiting = null;
    return true;
  }

  end(error: unknown): void {
    this.#end ??= { error };
    // A caller who has lost access does not get what was read before.
    if (error !== null) this.withdraw(false);
    if (!this.#isFull) this.#finish(this.#end.error);
  }

  ping(): void {
    if (this.#response !== null && !this.#isFull) this.#write(PING);
  }

  writable(): void {
    this.#write(PING);
    if (this.#isFull) return;
    this.#writeWaiting();
    if (this.#end !== null && !this.#isFull) this.#finish(this.#end.error);
  }

  #write(piece: Buffer): void {
    if (this.#isOver) return;
    const { opening } = this.format;
    const whole = this.#response === null ? Buffer.concat([opening, piece]) : piece;
    // An empty piece would be the end of the response.
    if (whole.length === 0) return;
    this.#response ??= this.exchange.openResponse(eventReply(''), this);
    this.#isFull = !this.#response.write(whole);
  }

  /** An answer that was read with former rights stays until it is withdrawn. */
  #writeWaiting(): void {
    const piece = this.#waiting;
    if (piece === null || this.#generation !== this.live.generation) return;
    this.#waiting = null;
    this.#write(piece);
  }

  #finish(error: unknown): void {
    if (this.#isOver) return;
    if (error !== null && this.#response === null) {
      this.#leave();
      this.exchange.respondError(error);
      return;
    }
    const ending = this.format.ending ?? NOTHING;
    this.#write(error === null ? ending : Buffer.concat([this.format.failure(error), ending]));
    this.#leave();
    this.#response?.end();
  }

  #leave(): void {
    this.#isOver = true;
    this.#close?.();
  }
}

const NOTHING = Buffer.alloc(0);
const PING = Buffer.from(':\n\n');
const UNCHANGED = Buffer.from(': unchanged\n\n');

/** All subscribers of an answer get the same bytes. */
const events = new WeakMap<LiveAnswer, Buffer>();

export function sharedEvent(answer: LiveAnswer, head: string): Buffer {
  const known = events.get(answer);
  if (known) return known;
  const event = Buffer.concat([Buffer.from(`${head}data: `), onOneLine(answer.body), ENDING]);
  events.set(answer, event);
  return event;
}

const ITEM_EVENTS: EventFormat = {
  // Milliseconds after which a client connects again.
  opening: Buffer.from('retry: 1000\n'),
  answer: (answer) => sharedEvent(answer, `id: ${answer.position}.${answer.tag.slice(1, -1)}\n`),
  // Then the stream ends: a client that connects again gets the error as the answer of its request.
  failure: (error) => Buffer.from(`event: failed\ndata: ${String(errorReply(error).body)}\n\n`),
  ending: null,
};

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
