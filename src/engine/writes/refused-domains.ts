/**
 * Which field of a payload a domain of the database refused. PostgreSQL names the domain and not the column. It checks a value of the
 * domain itself where the row is written, and one inside an array or composite value where that is read: the routine tells which.
 */
import { failedValidation, type ServiceError } from '../../base/errors.js';
import { onlyOf } from '../../base/narrow.js';
import { type RefusedByDomain, refusedByDomain } from '../../base/sqlstate.js';
import type { Column, Field } from '../../mirror/model.js';
import type { PlannedWrite } from '../../plan/write/write.js';

interface Candidate {
  readonly field: Field;
  readonly path: string;
}

/** The refusal that names the field, or null for other errors and if the payload has no value of the domain. */
export function domainRefusal(error: unknown, { plan, input, paths }: PlannedWrite): ServiceError | null {
  const refused = refusedByDomain(error);
  if (!refused) return null;
  const candidates = plan.nodes.flatMap((node, position) =>
    node.columns.flatMap(({ field, holdsValues }, index): Candidate[] => {
      if (!holdsValues || !field.column || !holds(field.column, refused)) return [];
      const rows = (input.nodes[position] ?? []).flatMap((row, number) => (row[`c${index}`] == null ? [] : [number]));
      const row = onlyOf(rows);
      return rows.length === 0
        ? []
        : [{ field, path: row === null ? '' : [paths[position]?.[row], field.name].filter((each) => each).join('.') }];
    }),
  );
  const [first] = candidates;
  if (!first) return null;
  const { type, constraint } = refused;
  const check = constraint === undefined ? {} : { constraint };
  const { collection, name } = first.field;
  if (candidates.length === 1) return failedValidation({ collection, name, ...check }, type, first.path || null);
  const names = [...new Set(candidates.map(({ field }) => `"${field.name}" of "${field.collection}"`))];
  return failedValidation(
    {
      collection: candidates.every(({ field }) => field.collection === collection) ? collection : null,
      name: null,
      ...check,
    },
    type,
    null,
    `Validation failed. A value for ${names.join(' or ')} is refused by the domain "${refused.domain}" of the database${constraint === undefined ? '' : ` (constraint "${constraint}")`}.`,
  );
}

/** Whether values of the column are checked by the domain, in the way in which it has refused one. */
function holds({ data_type, inner, composite }: Column, { domain, isInside }: RefusedByDomain): boolean {
  const own = data_type.split('.').at(-1)?.replace(/^"|"$/g, '') === domain;
  return isInside ? inner?.type === domain || composite !== null : own;
}
