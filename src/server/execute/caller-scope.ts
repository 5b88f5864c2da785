/** Which statements carry the settings of their caller (DATABASE_CALLER), by the tables and functions that they use. */

import type { Collection } from '../../compiler/model/model.js';
import { collectionsIn } from '../../compiler/statements/used-tables.js';
import type { CallerSettings, DatabaseCaller } from '../access/database-caller.js';
import type { Identity } from '../access/identity.js';
import type { Session } from '../postgres/pools/sessions.js';
import { factOf } from './reads/compiled-read.js';
import type { RequestOrigin } from './stages.js';
import { seenBy, type WrittenBy } from './writer.js';

/**
 * `system`: only tables of the service, which runs the statement as itself. `plain`: only tables without row-level security, so that
 * claims cannot change the result. `secured`: row-level security, a view, a trigger or a function may read the settings.
 */
type CallerScope = 'system' | 'plain' | 'secured';

/** The scope of a read. A function that it calls may read anything. */
export const readScope = factOf<CallerScope>(({ statement, calls, model }) => {
  if (calls.length > 0) return 'secured';
  const used = collectionsIn(statement.text, model);
  if (used.every((collection) => collection?.system)) return 'system';
  return used.every((collection) => collection && isPlain(collection)) ? 'plain' : 'secured';
});

/** The scope of a write. Triggers and defaults of tables that are not the service's may read the settings. */
export function writeScope(collections: Iterable<Collection>): CallerScope {
  for (const { system } of collections) if (!system) return 'secured';
  return 'system';
}

function isPlain({ system, kind, hasRowSecurity, fields }: Collection): boolean {
  if (system) return true;
  if (hasRowSecurity || (kind !== 'table' && kind !== 'partitioned')) return false;
  return [...fields.values()].every(({ computed }) => computed === undefined);
}

/** The settings that a statement of this scope needs, or null if it needs none. `callers` is null with DATABASE_CALLER=service. */
export function settingsFor(
  callers: DatabaseCaller | null,
  scope: () => CallerScope,
  caller: Identity,
  origin: RequestOrigin,
): CallerSettings | null {
  if (callers === null) return null;
  const needed = scope();
  if (needed === 'system' || (needed === 'plain' && callers.mode === 'claims')) return null;
  return callers.settingsOf(caller, origin);
}

/** The settings that the transaction of a write begins with, or null if it needs none. */
export function writeSettings(
  callers: DatabaseCaller | null,
  { writer, client }: WrittenBy,
  collections: () => Iterable<Collection>,
): CallerSettings | null {
  return settingsFor(callers, () => writeScope(collections()), seenBy(writer), client);
}

/**
 * Runs a write in an open transaction: as the service if it writes only tables of the service, otherwise with the settings of its caller,
 * which a transaction that began with tables of the service does not have yet.
 */
export function runInScope<Result>(
  session: Session,
  callers: DatabaseCaller | null,
  write: WrittenBy & { readonly collections: Iterable<Collection> },
  work: () => Promise<Result>,
): Promise<Result> {
  if (callers === null) return work();
  const settings = writeSettings(callers, write, () => write.collections);
  return settings === null ? session.asService(work) : session.asCaller(settings, work);
}
