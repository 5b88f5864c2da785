/** The differences between two states of an item, field by field. */
import type { ComponentChildren, JSX } from 'preact';
import type { Collection } from '../../model';
import type { Row } from '../edits';
import { editText } from '../values';

export interface Difference {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** The fields of `after` whose values differ from those of `before`. */
export function differences(before: Row, after: Row): Difference[] {
  return Object.entries(after).flatMap(([field, value]) => {
    const now = plainOf(before[field]);
    return isSame(now, plainOf(value)) ? [] : [{ field, before: now, after: value }];
  });
}

/** The key of a related item that was read with its title. */
export function plainOf(value: unknown): unknown {
  return value ?? null;
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === 'string' && typeof other === 'string') return one === other || isSameMoment(one, other);
  if (typeof one !== 'object' && typeof other !== 'object') return String(one) === String(other);
  return sorted(one) === sorted(other);
}

/** Revisions write moments as PostgreSQL prints them in JSON, with an offset. */
function isSameMoment(one: string, other: string): boolean {
  const form = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/;
  if (!form.test(one) || !form.test(other)) return false;
  const [first, second] = [one, other].map((text) => Date.parse(/Z|[-+]\d\d(:?\d\d)?$/.test(text) ? text : `${text}Z`));
  return first === second && !Number.isNaN(first);
}

/** JSON with the keys of objects in one order. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
      : each,
  );
}

interface TableProps {
  readonly list: readonly Difference[];
  readonly collection: Collection;
  readonly before: string;
  readonly after: string;
  /** A cell in front of each row, such as a checkbox. */
  readonly lead?: (difference: Difference) => ComponentChildren;
}

export function DifferenceTable({ list, before, after, lead }: TableProps): JSX.Element {
  return (
    <div class="difference" role="region" aria-label="Difference" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {lead && <td />}
            <th scope="col">Field</th>
            <th scope="col">{before}</th>
            <th scope="col">{after}</th>
          </tr>
        </thead>
        <tbody>
          {list.map((each) => (
            <tr key={each.field}>
              {lead && <td>{lead(each)}</td>}
              <th scope="row">{each.field}</th>
              <td>
                <Value value={each.before} kind="before" />
              </td>
              <td>
                <Value value={each.after} kind="after" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const LONGEST = 2_000;

function Value({ value, kind }: { readonly value: unknown; readonly kind: 'before' | 'after' }): JSX.Element {
  if (value === null || value === undefined) return <span class="null">null</span>;
  const text = editText(value);
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return kind === 'before' ? <del>{shown}</del> : <ins>{shown}</ins>;
}
