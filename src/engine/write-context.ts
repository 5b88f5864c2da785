/** Who writes, and what is shown of what was written. */
import type { Identity } from '../access/identity.js';
import type { Collection, Model } from '../mirror/model.js';
import type { Access } from '../plan/access.js';
import type { Author } from '../plan/write.js';
import type { Session } from '../postgres/sessions.js';
import type { Parsed } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';
import type { Key } from '../request/write.js';

/** Who writes, and from where. */
export interface Writer {
  readonly caller: Identity;
  readonly author: Author;
  /** What may be written, in place of what the policies of the caller say. */
  readonly access?: Access;
}

/** What is shown of the items that were written. */
export interface WriteContext extends Writer {
  /** What to read of the items with these keys, or of those that the write leaves; null for nothing. */
  readonly read: (collection: string, keys: readonly Key[] | null, one: boolean) => Parsed | null;
}

/** A connection inside a transaction, and how rows are written through it. */
export interface WriteSession {
  readonly session: Session;
  readonly model: Model;
  readonly collection: Collection;
  /** Answers how many of them a trigger left out. */
  readonly write: (rows: readonly Input[]) => Promise<number>;
}
