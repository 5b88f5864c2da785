/** Triggers of the service that fire once per statement: their names, and the statements that create and drop them. */

import { createHash } from 'node:crypto';
import { parseOwnJson } from '../../base/narrow.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
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

type Query = <Row>(text: string, parameters: (string | null)[]) => Promise<readonly Row[]>;

/** Bytes that a name of PostgreSQL may have. */
const MAX_NAME_BYTES = 63;

/**
 * The triggers of one feature. Each installation in a database has its own, also on the same tables: `system` is the schema of its own
 * tables, which also has the function.
 */
export class TriggerSet {
  /** Held while triggers of the installation in schema $1 are changed. */
  readonly lock: string;
  /** Returns a row if the installation in schema $1 has some. */
  readonly any: string;
  readonly #installed: string;

  /** The names of the triggers begin with the prefix. `subject` names them in the lock. */
  constructor(
    readonly prefix: string,
    readonly routine: string,
    subject: string,
  ) {
    const own = `pg_trigger t join pg_proc f on f.oid = t.tgfoid and f.proname = '${this.routine}'
join pg_namespace s on s.oid = f.pronamespace and s.nspname = $1`;
    this.lock = withCatalog(
      `select pg_advisory_xact_lock(hashtextextended('lateral ${subject} triggers ' || $1::text, 0))`,
    );
    this.any = withCatalog(`select from ${own} limit 1`);
    this.#installed = withCatalog(`
select n.nspname as schema, c.relname as name, json_agg(t.tgname order by t.tgname)::text as triggers
from ${own} join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
group by 1, 2 order by 1, 2`);
  }

  /** The schema as the end of a name, or its digest if it is too long for the longest name. */
  ending(system: string): string {
    const most = MAX_NAME_BYTES - `${this.prefix}_truncate_`.length;
    return Buffer.byteLength(system) <= most ? system : createHash('md5').update(system).digest('hex');
  }

  names(system: string): string[] {
    return [...TRIGGERS.keys()].map((kind) => `${this.prefix}_${kind}_${this.ending(system)}`);
  }

  /** The statements that create them on a table. */
  create(system: string, table: TableName, given: readonly string[]): string[] {
    const call = `${quoteIdentifier(system)}.${this.routine}(${given.map(quoteLiteral).join(', ')})`;
    const names = this.names(system);
    return [...TRIGGERS.values()].map(
      (after, index) =>
        `create or replace trigger ${quoteIdentifier(names[index] ?? '')} after ${after.replace('%', () => nameOf(table))} for each statement execute function ${call}`,
    );
  }

  /** The tables that have some, also those that are not served, and the statements that drop them. */
  async installed(query: Query, system: string): Promise<readonly TriggerChange[]> {
    const rows = await query<TableName & { readonly triggers: string }>(this.#installed, [system]);
    return rows.map(({ schema, name, triggers }) => ({
      schema,
      name,
      statements: parseOwnJson<string[]>(triggers).map(
        (trigger) => `drop trigger if exists ${quoteIdentifier(trigger)} on ${nameOf({ schema, name })}`,
      ),
    }));
  }
}

function nameOf({ schema, name }: TableName): string {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;
}
