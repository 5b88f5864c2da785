/** The caller of a write, and where it comes from. */

import type { Scope, Turn } from '../../base/limiter.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import { type Access, isKnownTo } from '../../compiler/plan/access.js';
import type { Author, PlannedWrite } from '../../compiler/plan/write/write.js';
import type { Parsed } from '../../compiler/request/ast.js';
import type { Input } from '../../compiler/request/parse-context.js';
import type { IdempotencyKey } from '../../compiler/request/write.js';
import { callerName, type Identity } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import type { Session } from '../postgres/pools/sessions.js';
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

/** The transaction of an import, and how rows are written in it. */
export interface ImportTransaction {
  readonly session: Session;
  readonly model: Model;
  readonly collection: Collection;
  readonly access: Access | null;
  readonly plan: (rows: readonly Input[]) => Promise<PlannedWrite>;
  /** Whether hooks of extensions change the rows before they are planned: nothing else may use the session then. */
  readonly isHooked: boolean;
  /** `rows` is the number of rows. Answers how many of them a trigger left out. */
  readonly write: (planned: PlannedWrite, rows: number) => Promise<number>;
}

/** False if the caller can neither see nor write anything of the collection. */
export function isKnownSingleton(
  name: string,
  caller: Identity,
  { mirror: { model }, policies }: { readonly mirror: Mirror; readonly policies: Policies },
): boolean {
  const collection = model.collections.get(name);
  if (!collection?.singleton) return false;
  return isKnownTo(collection, policies.accessOf(caller), model);
}
