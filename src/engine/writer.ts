/** Who writes, and from where. */
import type { Identity } from '../access/identity.js';
import type { Collection, Model } from '../mirror/model.js';
import type { Access } from '../plan/access.js';
import type { Author } from '../plan/write.js';
import type { Session } from '../postgres/sessions.js';
import type { Input } from '../request/parse-context.js';

export interface Writer {
  readonly caller: Identity;
  readonly author: Author;
  /** What may be written, in place of what the policies of the caller say. */
  readonly access?: Access;
}

/** A connection inside a transaction, and how rows are written through it. */
export interface WriteSession {
  readonly session: Session;
  readonly model: Model;
  readonly collection: Collection;
  /** Answers how many of them a trigger left out. */
  readonly write: (rows: readonly Input[]) => Promise<number>;
}
