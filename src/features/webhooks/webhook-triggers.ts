/**
 * Triggers that write the changes of a table to service_webhook_changes (sql/features/webhooks/031_webhook_sizes.sql). The tables that webhooks name have
 * them, and so have their partitions: a statement fires the triggers of the table that it names, and no others.
 */

import { parseOwnJson } from '../../base/narrow.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { TableName } from '../../server/changes/change-source.js';
import { TRIGGERS_PER_TABLE, type TriggerChange, TriggerSet } from '../../server/changes/statement-triggers.js';

const SET = new TriggerSet('service_webhook', 'service_webhook_change', 'webhook');

/** Held while triggers of the installation in schema $1 are changed. */
export const TRIGGER_LOCK = SET.lock;

/** A table whose changes webhooks want. */
export interface WantedTable extends TableName {
  /** The columns of the item's key. */
  readonly key: readonly string[];
  /** The columns that webhooks need, or null for all. */
  readonly needed: readonly string[] | null;
  /** Columns that are recorded at any size, because more than their value in a delivery depends on them. */
  readonly whole: readonly string[];
}

/**
 * The tables in $1 and their partitions, whether each has the triggers in $3 of the installation in schema $2, whether somebody disabled
 * some of them, and whether they have the arguments that they should have. The part of the arguments that matches $4 is not compared.
 */
const TABLES = withCatalog(`
with wanted as (
  select c.oid, c.relkind, each.value -> 2 as arguments
  from json_array_elements($1::json) each (value)
  join pg_namespace n on n.nspname = (each.value ->> 0)
  join pg_class c on c.relnamespace = n.oid and c.relname = (each.value ->> 1)
), tables as (
  select oid, arguments from wanted
  union all
  select p.relid, w.arguments from wanted w cross join lateral pg_partition_tree(w.oid) p
  where w.relkind = 'p' and p.relid <> w.oid
), found as (
  select t.oid, (count(g.oid) filter (where g.tgenabled in ('O', 'A')))::int as triggers,
    (count(g.oid) filter (where g.tgenabled not in ('O', 'A')))::int as disabled,
    (count(g.oid) filter (where g.tgenabled in ('O', 'A') and
    regexp_replace(encode(g.tgargs, 'escape'), $4::text, '') = regexp_replace(encode((
      select string_agg(convert_to(a.value, getdatabaseencoding()) || '\\x00'::bytea, ''::bytea order by a.position)
      from json_array_elements_text(t.arguments) with ordinality a (value, position)), 'escape'), $4::text, '')))::int as exact
  from tables t
  left join (pg_trigger g join pg_proc f on f.oid = g.tgfoid and f.proname = '${SET.routine}'
    join pg_namespace h on h.oid = f.pronamespace and h.nspname = $2)
    on g.tgrelid = t.oid and g.tgname in (select json_array_elements_text($3::json))
  group by t.oid
)
select n.nspname as schema, c.relname as name, t.arguments::text as arguments,
  pg_has_role(c.relowner, 'usage') or has_table_privilege(c.oid, 'trigger') as may_install,
  f.triggers = ${TRIGGERS_PER_TABLE} as records, f.disabled > 0 as disabled, f.exact = ${TRIGGERS_PER_TABLE} as installed
from tables t join found f on f.oid = t.oid join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p')`);

/** The first argument: the limits. */
const LIMIT_ARGUMENT = '^[0-9]+/[0-9]+';

interface TableRow extends TableName {
  readonly arguments: string;
  readonly may_install: boolean;
  readonly records: boolean;
  readonly disabled: boolean;
  readonly installed: boolean;
}

type Query = <Row>(text: string, parameters: (string | null)[]) => Promise<Row[]>;

/** A table that gets triggers. */
interface MissingTriggers extends TriggerChange {
  readonly mayInstall: boolean;
  /** It has triggers with other arguments. */
  readonly records: boolean;
  /** It has triggers that somebody disabled. */
  readonly disabled: boolean;
}

export interface TriggerPlan {
  readonly missing: readonly MissingTriggers[];
  /** Tables that lose theirs. */
  readonly unwanted: readonly TriggerChange[];
}

/** How many changes may wait, the bytes of the largest payload, and whether triggers with other limits are replaced. */
interface TriggerLimits {
  readonly maxChanges: number;
  readonly maxBytes: number;
  readonly isRenewed: boolean;
}

/** Compares the triggers with the tables that need them. */
export async function planTriggers(
  query: Query,
  system: string,
  wanted: readonly WantedTable[],
  { maxChanges, maxBytes, isRenewed }: TriggerLimits,
): Promise<TriggerPlan> {
  const given = wanted.map(({ schema, name, key, needed, whole }) => {
    const columns = [arrayLiteral(key), needed === null ? '' : arrayLiteral(needed), arrayLiteral(whole)];
    return [schema, name, [`${maxChanges}/${maxBytes}`, ...columns]];
  });
  const names = JSON.stringify(SET.names(system));
  const ignored = isRenewed ? '' : LIMIT_ARGUMENT;
  const tables = await query<TableRow>(TABLES, [JSON.stringify(given), system, names, ignored]);
  const installed = await SET.installed(query, system);
  const isWanted = new Set(tables.map(({ schema, name }) => JSON.stringify([schema, name])));
  return {
    missing: tables
      .filter((table) => !table.installed)
      .map((table) => ({
        schema: table.schema,
        name: table.name,
        mayInstall: table.may_install,
        records: table.records,
        disabled: table.disabled,
        statements: SET.create(system, table, parseOwnJson<string[]>(table.arguments)),
      })),
    unwanted: installed.filter(({ schema, name }) => !isWanted.has(JSON.stringify([schema, name]))),
  };
}
