/** Rows that leave a relation, as parts of a write chain: their reference is cleared, or they are deleted. */
import type { Collection, Field } from '../mirror/model.js';
import type { Unlink, WriteNode, WritePlan } from '../plan/write.js';
import { alias, type Fragment, identifier, integer, join, nothing, sql } from '../sql/fragment.js';
import type { Recorded } from './activity.js';
import { columnOf, DOCUMENT, input, present } from './chain.js';
import type { Scope } from './from-clause.js';
import { guardedRows } from './guard.js';
import { columnName, tableName, typeName } from './identifiers.js';

/** One statement per table and action: a row that leaves two relations is changed once, one that is deleted not at all. */
export function compileReleases(plan: WritePlan, action: Unlink['action'], scope: Scope): Fragment[] {
  const parts: Fragment[] = [];
  const releases = plan.releases
    .map((release, position) => ({ release, position }))
    .filter((each) => each.release.action === action);
  for (const collection of new Set(releases.map(({ release }) => release.collection))) {
    const members = releases.filter(({ release }) => release.collection === collection);
    const key = columnName(collection.primaryKey);
    const conditions = members.map(({ release, position }) =>
      action === 'delete'
        ? join([released(release, position), ...kept(plan, collection, release.field)], sql` and `)
        : released(release, position),
    );
    const staying = action === 'nullify' ? [...kept(plan, collection, null), ...deleted(plan, collection)] : [];
    // Found through the index on the reference first: the conditions alone would have the whole table read.
    const candidates = members.map(({ release, position }) =>
      release.guard ? sql`select ${key} from ${free(position)}` : tiedRows(release, position, scope),
    );
    const found = sql`${alias('t')}.${key} in (${join(candidates, sql` union `)})`;
    const where = join([found, sql`(${join(conditions, sql` or `)})`, ...staying], sql` and `);
    const name = releasing(plan, collection, action);
    const table = sql`${tableName(collection)} ${alias('t')}`;
    if (action === 'delete') {
      parts.push(sql`${name} as (delete from ${table} where ${where} returning ${alias('t')}.${key})`);
      continue;
    }
    const changes = members.map(({ release }, index) => {
      const column = columnName(release.field);
      return sql`${column} = case when ${conditions[index] as Fragment} then null else ${alias('t')}.${column} end`;
    });
    parts.push(
      sql`${name} as (update ${table} set ${join(changes, sql`, `)} where ${where} returning ${alias('t')}.${key})`,
    );
  }
  return parts;
}

/** Rows that may leave, where not all may: whichever statement lets them go asks here. */
function free(position: number): Fragment {
  return alias(`g${position}`);
}

function tiedRows(release: Unlink, position: number, scope: Scope): Fragment {
  const { collection, field, guard } = release;
  const row = alias('c');
  const tied = sql`${row}.${columnName(field)} in (select parent from ${alias(`x${position}`)})`;
  return sql`select ${row}.${columnName(collection.primaryKey)} from ${guardedRows(collection, row, guard, scope, tied)}`;
}

/** The statement that lets the rows go. */
function releasing(plan: WritePlan, collection: Collection, action: Unlink['action']): Fragment {
  const first = plan.releases.findIndex((release) => release.action === action && release.collection === collection);
  return alias(`${action === 'delete' ? 'd' : 'u'}${first}`);
}

/** One entry for each statement that lets rows go. */
export function recordedReleases(plan: WritePlan): Recorded[] {
  return plan.releases.flatMap(({ collection, action }, position): Recorded[] => {
    const first = plan.releases.findIndex((each) => each.action === action && each.collection === collection);
    if (first !== position) return [];
    const rows = releasing(plan, collection, action);
    return [{ action: action === 'delete' ? 'delete' : 'update', collection, rows, shown: false }];
  });
}

/** Rows that were named one by one have to be there and open to the caller; what else the payload says of them is checked there. */
export function unreleased(plan: WritePlan): Fragment[] {
  return plan.releases.flatMap((release, position) => {
    if (!release.strict) return [];
    const key = columnName(release.collection.primaryKey);
    const child = sql`${alias('y')}.child`;
    const gone = sql`${child} in (select ${key} from ${releasing(plan, release.collection, release.action)})`;
    const named = plan.nodes.flatMap((node, place) => {
      if (node.collection !== release.collection) return [];
      const rows = sql`${child} in (select k from ${input(place)})`;
      if (!release.guard) return [rows];
      const settled = columnOf(node, release.field, 'update')
        ? sql` or ${child} in (select ${alias('k')}.k from ${input(place)} ${alias('k')} where true${settles(node, release.field)})`
        : nothing;
      return [sql`(${rows} and ${child} in (select ${key} from ${free(position)}))${settled}`];
    });
    const settled = join([gone, ...named], sql` or `);
    return [
      sql`case when exists (select from ${alias(`x${position}`)} ${alias('y')} where ${child} is not null and (${settled}) is not true) then service_raise('missing') end`,
    ];
  });
}

/** Rows that the payload names and, where a field is given, whose reference it settles. */
function kept(plan: WritePlan, collection: Collection, field: Field | null): Fragment[] {
  return plan.nodes.flatMap((node, position) => {
    if (node.verb === 'insert' || node.collection !== collection) return [];
    if (field && !columnOf(node, field, 'update')) return [];
    return [
      sql`not exists (select from ${input(position)} ${alias('k')} where ${alias('k')}.k = ${alias('t')}.${columnName(collection.primaryKey)}${settles(node, field)})`,
    ];
  });
}

function settles(node: WriteNode, field: Field | null): Fragment {
  const column = columnOf(node, field, 'update');
  return column?.mixed ? sql` and ${alias('k')}.${identifier(`p${node.columns.indexOf(column)}`)}` : nothing;
}

function deleted(plan: WritePlan, collection: Collection): Fragment[] {
  return plan.releases.flatMap((release, position) =>
    release.action === 'delete' && release.collection === collection
      ? [sql`not (${join([released(release, position), ...kept(plan, collection, release.field)], sql` and `)})`]
      : [],
  );
}

/** Releases of a collection's rows, each with the condition that it concerns the row at hand. */
export function leaving(
  plan: WritePlan,
  collection: Collection,
  action: Unlink['action'],
): { release: Unlink; condition: Fragment }[] {
  return plan.releases.flatMap((release, position) =>
    release.collection === collection && release.action === action
      ? [{ release, condition: released(release, position) }]
      : [],
  );
}

export function cleared(plan: WritePlan, collection: Collection, field: Field): Fragment | null {
  const conditions = leaving(plan, collection, 'nullify').filter(({ release }) => release.field === field);
  return conditions.length === 0
    ? null
    : sql`(${join(
        conditions.map(({ condition }) => condition),
        sql` or `,
      )})`;
}

export function releaseInput(release: Unlink, position: number, scope: Scope): Fragment[] {
  const types = sql`parent ${typeName(release.from.primaryKey)}, child ${typeName(release.collection.primaryKey)}`;
  const rows = sql`json_to_recordset(${DOCUMENT} -> 'releases' -> ${integer(position)}) as ${alias('x')} (${types})`;
  const given = sql`${alias(`x${position}`)} as materialized (select ${parentOf(release)}, ${alias('x')}.child from ${rows})`;
  return release.guard ? [given, sql`${free(position)} as (${tiedRows(release, position, scope)})`] : [given];
}

/** What the rows that leave hold: the key of their parent, or what it has under the column that they refer to. */
function parentOf({ from, key }: Unlink): Fragment {
  const parent = sql`${alias('x')}.parent`;
  if (key === from.primaryKey) return parent;
  const row = alias('o');
  return sql`(select ${row}.${columnName(key)} from ${tableName(from)} ${row} where ${row}.${columnName(from.primaryKey)} = ${parent}) as parent`;
}

function released(release: Unlink, position: number): Fragment {
  const key = sql`${alias('t')}.${columnName(release.collection.primaryKey)}`;
  const parent = sql`${alias('y')}.parent = ${alias('t')}.${columnName(release.field)}`;
  const concerned = sql`exists (select from ${alias(`x${position}`)} ${alias('y')} where ${parent} and (${alias('y')}.child is null or ${alias('y')}.child = ${key}))`;
  if (!release.guard) return concerned;
  return sql`(${concerned} and ${key} in (select ${columnName(release.collection.primaryKey)} from ${free(position)}))`;
}

/** Where the payload does not say what the row of a list refers to. */
export function unlessPresent(node: WriteNode, field: Field): Fragment {
  const column = columnOf(node, field, 'update');
  if (!column) return nothing;
  return column.mixed ? sql` and ${present(node, column)} is not true` : sql` and false`;
}
