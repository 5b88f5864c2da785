/** What a subscription reads, who asks, and where its answers go. */
import type { Identity } from '../access/identity.js';
import type { MaybePromise } from '../engine/pipeline.js';
import type { ReadQuery } from '../engine/reads/compiled-read.js';

export interface LiveSource {
  /** Of the client; for limits. */
  readonly address: string;
  /** Who asks now: a token may have expired, or its owner may have lost rights. */
  identify(): MaybePromise<Identity>;
  parse(caller: Identity): MaybePromise<ReadQuery>;
}

/** An answer as it goes to all who read the same. */
export interface LiveAnswer {
  readonly body: Buffer;
  readonly tag: string;
  /** Everything that was committed up to here is in it; as PostgreSQL writes it. */
  readonly position: string;
}

/** What tells whether rights are still those of some moment. */
export interface Rights {
  /** Grows when users, policies or the schema change. */
  readonly generation: number;
}

/** A generation in which nobody may read anything. */
export const NOBODY = -1;

export interface LiveListener {
  /** The newest answer takes the place of one that was not sent yet. */
  answer(answer: LiveAnswer): void;
  /** An answer that was not sent yet is dropped, unless rights are the same as they were. Answers whether one was. */
  withdraw(isSame: boolean): boolean;
  /** The last that is heard: the caller may not read it any more, or, with null, the service stops. */
  end(error: unknown): void;
  /** Some time has passed. */
  beat(): void;
}
