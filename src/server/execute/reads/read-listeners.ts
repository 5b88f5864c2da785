/** The listeners that wait for the results of reads: one replies to a request, one settles a promise, one runs a failed read again. */
import { callerName, type Identity, PUBLIC } from '../../access/identity.js';
import { copyBorrowed } from '../../postgres/wire/wire-query.js';
import type { RequestClient } from '../stages.js';
import type { KeptAnswer } from './kept-answer.js';
import type { ReadListener } from './read-executor.js';

/** A read that is replied to as soon as its body arrives, without a promise. */
export abstract class RepliedRead implements ReadListener {
  abstract readonly client: RequestClient;
  /** To be known before the read is sent. */
  protected identity: Identity = PUBLIC;

  /** The memory of the body is borrowed: see `WireQuery.row`. The body is null if there is no such item. */
  protected abstract reply(body: Buffer | null): void;
  abstract onError(error: unknown): void;

  get aborted(): boolean {
    return this.client.aborted;
  }

  get caller(): string {
    return callerName(this.identity, this.client);
  }

  onKept(answer: KeptAnswer, isRepeatable: boolean): void {
    this.client.staged('execute');
    this.client.cached(answer, this.identity, isRepeatable);
    this.reply(answer.body);
  }

  onResult(body: Buffer | null, reads: number): void {
    this.client.staged('execute');
    if (reads > 1) this.client.batched(reads);
    this.reply(body);
  }
}

/** Passes results on, and calls `onError` on a failure. */
export class RecoveringListener implements ReadListener {
  constructor(
    private readonly listener: ReadListener,
    readonly onError: (error: unknown) => void,
  ) {}

  get aborted(): boolean {
    return this.listener.aborted;
  }

  get caller(): string {
    return this.listener.caller ?? '';
  }

  onKept(answer: KeptAnswer, isRepeatable: boolean): void {
    this.listener.onKept?.(answer, isRepeatable);
  }

  onResult(cell: Buffer | null, reads: number, links?: string | null): void {
    this.listener.onResult(cell, reads, links);
  }
}

/** Settles a promise. */
export class PromiseListener implements ReadListener {
  constructor(
    private readonly request: { readonly aborted: boolean },
    readonly caller: string,
    private readonly resolve: (cell: Buffer | null) => void,
    readonly onError: (error: unknown) => void,
  ) {}

  get aborted(): boolean {
    return this.request.aborted;
  }

  onResult(cell: Buffer | null): void {
    this.resolve(copyBorrowed(cell));
  }
}
