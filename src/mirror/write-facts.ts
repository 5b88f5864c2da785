/** Triggers, rules and privileges of a table: the part of the model that decides how the table can be written. Read from the catalog. */
import type { CatalogDocument, RuleEntry, TriggerEntry } from './catalog-document.js';

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

/** Whether the database may give a new row another key than the one it is inserted with. */
export function changesNewKeys(collection: Triggered & { readonly kind: string }): boolean {
  return collection.kind === 'view' || collection.kind === 'foreign' || isIntercepted(collection, 'insert');
}

/** Whether the service's role may read the columns behind the field. */
export function isReadable({ isUnreadable }: { readonly isUnreadable?: boolean }): boolean {
  return isUnreadable !== true;
}

export interface WriteFacts {
  /** All of these by table. */
  readonly triggers: ReadonlyMap<number, readonly Trigger[]>;
  readonly rules: ReadonlyMap<number, readonly RewriteRule[]>;
  readonly privileges: ReadonlyMap<number, TablePrivileges>;
  /** Tables with a trigger that may change a row before it is inserted. */
  readonly filled: ReadonlySet<number>;
  privilegesOf(table: number, column: number): ColumnPrivileges;
}

export function indexWriteFacts(document: CatalogDocument): WriteFacts {
  const privileges = new Map<number, TablePrivileges>();
  const ofColumns = new Map<number, ReadonlyMap<number, ColumnPrivileges>>();
  for (const [table, select, insert, update, remove, columns] of document.privileges ?? []) {
    privileges.set(table, Object.freeze({ select, insert, update, delete: remove }));
    ofColumns.set(
      table,
      new Map(
        (columns ?? []).map(([number, ...rights]) => {
          const [mayRead, mayInsert, mayUpdate] = rights;
          return [number, Object.freeze({ select: mayRead, insert: mayInsert, update: mayUpdate })];
        }),
      ),
    );
  }
  return {
    triggers: byTable(document.triggers ?? [], triggerOf),
    rules: byTable(document.rules ?? [], ruleOf),
    privileges,
    filled: new Set((document.triggers ?? []).flatMap(([table, , bits]) => (fills(bits) ? [table] : []))),
    privilegesOf: (table, column) => ofColumns.get(table)?.get(column) ?? ALL_PRIVILEGES,
  };
}

function byTable<Entry extends readonly [table: number, ...unknown[]], Fact>(
  entries: readonly Entry[],
  factOf: (entry: Entry) => Fact,
): ReadonlyMap<number, readonly Fact[]> {
  const facts = new Map<number, Fact[]>();
  for (const entry of entries) {
    const list = facts.get(entry[0]) ?? [];
    list.push(Object.freeze(factOf(entry)));
    facts.set(entry[0], list);
  }
  return facts;
}

/** `tgtype` of the catalog. */
const ROW = 1;
const BEFORE = 2;
const INSTEAD_OF = 64;
const EVENTS = [
  [4, 'insert'],
  [16, 'update'],
  [8, 'delete'],
  [32, 'truncate'],
] as const;

function triggerOf([, name, bits]: TriggerEntry): Trigger {
  const timing = bits & INSTEAD_OF ? 'instead of' : bits & BEFORE ? 'before' : 'after';
  return {
    name,
    timing,
    level: bits & ROW ? 'row' : 'statement',
    events: EVENTS.flatMap(([bit, event]) => (bits & bit ? [event] : [])),
  };
}

/** Before an insert, for each row. */
function fills(bits: number): boolean {
  return (bits & (ROW | BEFORE | 4)) === (ROW | BEFORE | 4);
}

const RULE_EVENTS: Readonly<Record<RuleEntry[2], RewriteRule['event']>> = { 2: 'update', 3: 'insert', 4: 'delete' };

function ruleOf([, name, event, instead]: RuleEntry): RewriteRule {
  return { name, event: RULE_EVENTS[event], instead };
}
