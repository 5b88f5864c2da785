/** The caller of a write, and where it comes from. */

import type { Scope, Turn } from '../../base/limiter.js';
import type { Access } from '../../compiler/plan/access.js';
import type { Author } from '../../compiler/plan/write/write.js';
import type { Parsed } from '../../compiler/request/ast.js';
import type { IdempotencyKey } from '../../compiler/request/write.js';
import { callerName, type Identity } from '../access/identity.js';
import type { RequestClient } from './stages.js';

export interface Writer {
  readonly caller: Identity;
  readonly author: Author;
  /** The caller as the database knows it, if the permissions of another one apply: by default the caller. */
  readonly inDatabase?: Identity;
  /** Permissions that replace those of the caller's policies. */
  readonly access?: Access;
}

/** The writer and the request of a write. */
export interface WrittenBy {
  readonly writer: Writer;
  readonly client: RequestClient;
  /** The running work that its transaction belongs to. */
  readonly scope?: Scope | undefined;
}

/** The caller that the database sees, whatever permissions apply. */
export function seenBy({ caller, inDatabase = caller }: Pick<Writer, 'caller' | 'inDatabase'>): Identity {
  return inDatabase;
}

/** Where the write waits for a connection. Calls of programs have no address, and wait in the turn of the service. */
export function turnOf({ writer: { caller, author }, client, scope }: WrittenBy, takesLocks = false): Turn {
  const address = author.ip ?? client.address;
  const isOwn = caller.user === null && address === '';
  return { caller: isOwn ? '' : callerName(caller, { address }), client, takesLocks, scope };
}

/** A call of a function that may write. */
export interface WritingCall extends WrittenBy {
  readonly query: Parsed;
  readonly idempotencyKey: IdempotencyKey | null;
}
