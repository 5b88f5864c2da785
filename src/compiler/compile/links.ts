/**
 * The links of an answer as a column next to its cell: the values of each set of `LinkPlan`, separated by commas, and the sets by
 * semicolons. Each level hands the links of its rows up through its lateral join, in a column per set.
 */
import { elementAt } from '../../base/narrow.js';
import type { LinkSet } from '../plan/links.js';
import type { RowLevel } from '../plan/plan.js';
import { alias, type Fragment, join, nothing, sql } from '../sql/fragment.js';
import type { FromClause, Scope } from './from-clause.js';
import { concatenate } from './json.js';

/** A set with its number in the plan. */
export interface NumberedSet extends LinkSet {
  readonly number: number;
}

/** The values of a set, in a row or of several rows. */
export interface LinkColumn {
  readonly set: number;
  readonly value: Fragment;
}

/** The sets whose values the rows of a level have. */
export function linksOf({ links }: Scope, level: RowLevel): readonly NumberedSet[] {
  return (links?.sets ?? []).flatMap((set, number) => (set.level === level ? [{ ...set, number }] : []));
}

/** The values in a row of the page. */
export function ownLinks(sets: readonly NumberedSet[], page: FromClause): readonly LinkColumn[] {
  return sets.map(({ number, columns, reference }) => {
    const values = reference ? page.reference([], reference) : columns.map((field) => page.raw([], field));
    // A reference of a many-to-any relation may be any text. Only such text can be a key of the kinds that are compared.
    if (reference?.kind === 'any') {
      const text = sql`${elementAt(values, 0)}::text`;
      return { set: number, value: sql`case when ${text} ~* '^[0-9a-f-]{1,36}$' then ${text} end` };
    }
    const texts = values.flatMap((value, position) => [...(position > 0 ? [sql`' '`] : []), sql`${value}::text`]);
    return { set: number, value: concatenate(texts) };
  });
}

/** The columns of a row that has the links of the rows below it. */
export function linksBelow(sets: readonly number[], row: Fragment): readonly LinkColumn[] {
  return sets.map((set) => ({ set, value: sql`${row}.${nameOf(set)}` }));
}

/** The links of all rows of a level. */
export function combined({
  links,
  row,
}: {
  readonly links: readonly number[];
  readonly row: Fragment;
}): readonly LinkColumn[] {
  return links.map((set) => ({ set, value: sql`string_agg(${row}.${nameOf(set)}, ',')` }));
}

/** Behind other columns of a select. */
export function linkColumns(links: readonly LinkColumn[]): Fragment {
  return join(
    links.map(({ set, value }) => sql`, ${value} as ${nameOf(set)}`),
    nothing,
  );
}

/** The column before the cell, or nothing if the links are not wanted. */
export function linksBefore(scope: Scope, links: readonly LinkColumn[]): Fragment {
  if (scope.links === null) return nothing;
  const texts = scope.links.sets.flatMap((_, number) => {
    const values = links.filter(({ set }) => set === number).map(({ value }) => value);
    const text = values.length === 1 ? elementAt(values, 0) : sql`concat_ws(',', ${join(values, sql`, `)})`;
    return [...(number > 0 ? [sql`';'`] : []), values.length === 0 ? sql`''` : sql`coalesce(${text}, '')`];
  });
  return sql`${concatenate(texts)}, `;
}

function nameOf(set: number): Fragment {
  return alias(`x${set}`);
}
