/**
 * Notifications of changes by others, on a separate connection. A connection that is lost or does not answer is opened again
 * until that works. Subscribers then read everything again, because notifications may have been missed, and also from time to
 * time until then.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import { quoteIdentifier } from '../../sql/fragment.js';
import type { Session } from './sessions.js';

type OpenListening = (onnotify: (channel: string, payload: string) => void, onLost: () => void) => Session;

export interface Subscriber {
  heard(payload: string): void;
  /** Notifications arrive again: some may have been missed. */
  missed(): void;
  /** No notifications have arrived for a while. */
  stale(): void;
}

interface ListenerOptions {
  /** Milliseconds that a change may go unnoticed. */
  readonly staleness: number;
  /** Milliseconds between two rounds of reading everything again, if LISTEN does not work; null if it does. */
  readonly poll?: number | null;
  readonly observe: Observer;
}

interface Loss {
  /** By the clock of `performance`. */
  readonly since: number;
  readonly error: unknown;
}

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 400;

/** Milliseconds. */
const MIN_STALENESS_MS = 1_000;
const MAX_BEAT_MS = 10_000;

export class Listener {
  readonly #observe: Observer;
  /** Milliseconds between two checks of the connection, that an answer may take, and between two rounds of reading everything. */
  readonly #beat: number;
  readonly #channels = new Map<string, Set<Subscriber>>();
  /** The channels that the connection listens to. */
  #heard = new Set<string>();
  readonly #poll: number | null;
  readonly #closing = new AbortController();
  #session: Session | null = null;
  #timer: NodeJS.Timeout | null = null;
  #loss: Loss | null = null;

  constructor(
    /** Opens another connection that listens. */
    readonly open: OpenListening,
    { staleness, poll = null, observe }: ListenerOptions,
  ) {
    this.#poll = poll;
    this.#observe = observe;
    this.#beat = Math.min(Math.max(staleness, MIN_STALENESS_MS) / 3, MAX_BEAT_MS);
  }

  /** Null while notifications arrive. */
  get loss(): Loss | null {
    return this.#loss;
  }

  /** Whether notifications arrive, if not now then later. */
  get canHear(): boolean {
    return this.#poll === null;
  }

  get channels(): number {
    return this.#channels.size;
  }

  /** Resolves when it listens, with a function that stops it. */
  async listen(channel: string, subscriber: Subscriber): Promise<() => Promise<void>> {
    const subscribers = this.#channels.get(channel) ?? new Set();
    this.#channels.set(channel, subscribers.add(subscriber));
    if (this.#poll !== null) this.#timer ??= setInterval(() => this.#tellAll(), Math.max(this.#poll, 1)).unref();
    else if (this.#session) {
      await this.#begin(this.#session, [channel]);
      this.#heard.add(channel);
    } else if (!this.#loss) await this.#connect();
    return async () => {
      subscribers.delete(subscriber);
    };
  }

  close(): void {
    this.#closing.abort();
    const session = this.#session;
    this.#session = null;
    if (this.#timer) clearInterval(this.#timer);
    session?.destroy();
  }

  async #connect(): Promise<void> {
    const session: Session = this.open(
      (channel, payload) => {
        for (const subscriber of this.#channels.get(channel) ?? []) subscriber.heard(payload);
      },
      () => this.#lose(session, new Error('the connection was closed')),
    );
    try {
      const heard = new Set<string>();
      // Another channel may be added meanwhile.
      while (heard.size < this.#channels.size) {
        const channels = [...this.#channels.keys()].filter((each) => !heard.has(each));
        await this.#begin(session, channels);
        for (const channel of channels) heard.add(channel);
      }
      this.#heard = heard;
    } catch (error) {
      session.destroy();
      throw error;
    }
    if (this.#closing.signal.aborted) return session.destroy();
    this.#session = session;
    this.#timer ??= setInterval(() => void this.#look(), this.#beat).unref();
  }

  async #begin(session: Session, channels: readonly string[]): Promise<void> {
    await within(session.query(channels.map((each) => `listen ${quoteIdentifier(each)}`).join('; ')), this.#beat);
    await this.#check(session, channels);
  }

  /** After the transaction of LISTEN, which takes effect at its end. */
  async #check(session: Session, channels: Iterable<string>): Promise<void> {
    const answer = session.query<{ channel: string }>('select pg_listening_channels() as channel');
    const heard = new Set((await within(answer, this.#beat)).map(({ channel }) => channel));
    for (const channel of channels) if (!heard.has(channel)) throw new Error(`nothing is heard on "${channel}"`);
  }

  /** A half-open connection reports nothing by itself. */
  async #look(): Promise<void> {
    const session = this.#session;
    if (!session) return;
    try {
      await this.#check(session, this.#heard);
    } catch (error) {
      this.#lose(session, error);
    }
  }

  #lose(session: Session, error: unknown): void {
    if (session !== this.#session || this.#closing.signal.aborted) return;
    this.#session = null;
    session.destroy();
    const since = performance.now();
    this.#loss = { since, error };
    this.#observe({ kind: 'listening-lost', error });
    void this.#return(since);
  }

  async #return(since: number): Promise<void> {
    let read = Number.NEGATIVE_INFINITY;
    for (let attempt = 0; !this.#closing.signal.aborted; attempt++) {
      try {
        await this.#connect();
        break;
      } catch (error) {
        this.#loss = { since, error };
      }
      if (performance.now() - read > this.#beat) {
        read = performance.now();
        for (const subscriber of this.#subscribers()) subscriber.stale();
      }
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS, this.#beat) * (0.5 + Math.random() / 2);
      await sleep(pause, null, { signal: this.#closing.signal, ref: false }).catch(() => {});
    }
    if (this.#closing.signal.aborted) return;
    this.#loss = null;
    this.#observe({ kind: 'listening-again', milliseconds: performance.now() - since });
    for (const subscriber of this.#subscribers()) subscriber.missed();
  }

  #tellAll(): void {
    for (const subscriber of this.#subscribers()) subscriber.missed();
  }

  #subscribers(): Subscriber[] {
    return [...this.#channels.values()].flatMap((subscribers) => [...subscribers]);
  }
}
