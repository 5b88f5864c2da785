/** Reads and writes of a program or a hook inside of an open transaction. */
import type { ParseLimits } from '../../../compiler/request/parse-context.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import type { Identity } from '../../access/identity.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { Reads } from '../reads/reads.js';
import type { RequestClient } from '../stages.js';
import type { Writer } from '../writer.js';

/** The writes of a transaction, as far as its calls need them. */
export interface JoinedWrites {
  run(request: WriteRequest, writer: Writer, client: RequestClient): Promise<Buffer | null>;
  isSingleton(name: string, caller: Identity): boolean;
  /** The same writes without the hooks of users. */
  withoutHooks(): JoinedWrites;
}

export interface TransactionScope {
  readonly session: Session;
  readonly writes: JoinedWrites;
  readonly reads: Reads;
  readonly parseLimits: ParseLimits;
  /** The caller of the transaction. */
  readonly writer: Writer;
  readonly client: RequestClient;
  /** The error as the caller of a write gets it. */
  readonly asError: (error: unknown) => unknown;
}

/** How hooks of users take part in a write. */
export interface HookCalls {
  /** Counts from 1: after a conflict the write runs again, with its hooks. */
  readonly attempt: number;
  /** The names of the hooks that are running: a hook that is among them triggers itself. */
  readonly running: readonly string[];
  /** The transaction for the calls of the hook with this name, which is running from then on. */
  readonly scopeOf: (hook: string, session: Session) => TransactionScope;
}
