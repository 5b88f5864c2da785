/** Triggers, rules and privileges of a table: the part of the model that decides how the table can be written. */
export type WriteEvent = 'insert' | 'update' | 'delete';

export interface Trigger {
  readonly name: string;
  readonly timing: 'before' | 'after' | 'instead of';
  readonly level: 'row' | 'statement';
  readonly events: readonly (WriteEvent | 'truncate')[];
}

/** `create rule`: PostgreSQL rewrites the statement. */
export interface RewriteRule {
  readonly name: string;
  readonly event: WriteEvent;
  readonly instead: boolean;
}

export interface ColumnPrivileges {
  readonly select: boolean;
  readonly insert: boolean;
  readonly update: boolean;
}

export interface TablePrivileges extends ColumnPrivileges {
  readonly delete: boolean;
}

export const ALL_PRIVILEGES: TablePrivileges = Object.freeze({
  select: true,
  insert: true,
  update: true,
  delete: true,
});

/** A collection. */
interface Triggered {
  readonly triggers: readonly Trigger[];
}

/** Whether a trigger may change a row before it is written, or leave it out. */
export function isIntercepted({ triggers }: Triggered, event: WriteEvent): boolean {
  return triggers.some(({ timing, level, events }) => timing !== 'after' && level === 'row' && events.includes(event));
}

/** Whether a row that stayed as it was shows that a trigger left it out. A policy of row-level security may have hidden it as well. */
export function mayReportSkipped(
  collection: Triggered & { readonly hasRowSecurity: boolean },
  event: WriteEvent,
): boolean {
  return !collection.hasRowSecurity && isIntercepted(collection, event);
}

/**
 * Whether a caller may lock the rows that it deletes: PostgreSQL demands the privilege and the policies of an update for that. `privileges`
 * are those of the caller's database role, or null for all.
 */
export function isLockable(
  { hasRowSecurity }: { readonly hasRowSecurity: boolean },
  privileges: { readonly update: ReadonlySet<string> | null } | null,
): boolean {
  return !hasRowSecurity && privileges?.update?.size !== 0;
}

/** Whether the database may give a new row another key than the one it is inserted with. */
export function changesNewKeys(collection: Triggered & { readonly kind: string }): boolean {
  return collection.kind === 'view' || collection.kind === 'foreign' || isIntercepted(collection, 'insert');
}

/** Whether the service's role may read the columns behind the field. */
export function isReadable({ isUnreadable }: { readonly isUnreadable?: boolean }): boolean {
  return isUnreadable !== true;
}
