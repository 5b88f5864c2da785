/** Triggers of the service that fire once per statement: their names, and the statements that create and drop them. */

import { createHash } from 'node:crypto';
import { quoteIdentifier, quoteLiteral } from '../../compiler/sql/fragment.js';
import type { TableName } from './change-source.js';

/** The event of each trigger. */
const TRIGGERS: ReadonlyMap<string, string> = new Map([
  ['insert', 'insert on % referencing new table as new_rows'],
  ['update', 'update on % referencing old table as old_rows new table as new_rows'],
  ['delete', 'delete on % referencing old table as old_rows'],
  ['truncate', 'truncate on %'],
]);

/** How many triggers a table has. */
export const TRIGGERS_PER_TABLE: number = TRIGGERS.size;

/** A table that gets triggers, or loses them, by these statements. */
export interface TriggerChange extends TableName {
  readonly statements: readonly string[];
}

/** The triggers of one feature in one installation. Other installations in the same database have their own, also on the same tables. */
export interface TriggerFamily {
  /** The names of its triggers begin with it. */
  readonly prefix: string;
  /** The function that they call, which is in the schema of the service's own tables. */
  readonly function: string;
  /** The schema of the service's own tables. */
  readonly system: string;
}

/** Bytes that a name of PostgreSQL may have. */
const MAX_NAME_BYTES = 63;

/** The schema as the end of a name, or its digest if it is too long for the longest name. */
export function nameEnding({ prefix, system }: Pick<TriggerFamily, 'prefix' | 'system'>): string {
  const most = MAX_NAME_BYTES - `${prefix}_truncate_`.length;
  return Buffer.byteLength(system) <= most ? system : createHash('md5').update(system).digest('hex');
}

function triggerName(kind: string, family: TriggerFamily): string {
  return `${family.prefix}_${kind}_${nameEnding(family)}`;
}

export function triggerNames(family: TriggerFamily): string[] {
  return [...TRIGGERS.keys()].map((kind) => triggerName(kind, family));
}

export function createTriggers(family: TriggerFamily, { schema, name }: TableName, given: readonly string[]): string[] {
  const table = `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;
  const call = `${quoteIdentifier(family.system)}.${family.function}(${given.map(quoteLiteral).join(', ')})`;
  return [...TRIGGERS].map(([kind, after]) => {
    const trigger = quoteIdentifier(triggerName(kind, family));
    return `create or replace trigger ${trigger} after ${after.replace('%', () => table)} for each statement execute function ${call}`;
  });
}

export function dropTriggers({ schema, name }: TableName, triggers: readonly string[]): string[] {
  return triggers.map(
    (trigger) =>
      `drop trigger if exists ${quoteIdentifier(trigger)} on ${quoteIdentifier(schema)}.${quoteIdentifier(name)}`,
  );
}
