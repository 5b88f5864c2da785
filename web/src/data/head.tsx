/** The head of a column: its name, its order, and its width. */
import type { JSX } from 'preact';
import type { Field } from '../model';
import { Icon } from '../ui';
import { alignment } from './cell';
import type { Row } from './edits';
import { showValue } from './values';

/** The width of a column before the user changes it. */
export function initialWidth(field: Field, isTitle: boolean, rows: readonly Row[]): number {
  const name = 34 + 7.5 * field.name.length;
  if (field.isKey && !field.relation)
    return field.type === 'uuid'
      ? 130
      : field.type === 'date'
        ? 112
        : Math.max(66, field.type === 'integer' ? 46 + 6 * field.name.length : name);
  // A list through a junction shows names.
  if (field.relation?.kind === 'many') return Math.max(field.relation.far === null ? 84 : 200, name);
  if (field.relation?.kind === 'any') return Math.max(280, name);
  if (field.relation?.kind === 'one') return Math.max(160, name);
  if (field.type === 'boolean') return Math.max(80, name);
  if (field.type === 'timestamp' || field.type === 'dateTime') {
    // With or without fractions of seconds.
    const longest = Math.max(...rows.slice(0, 20).map((row) => showValue(row[field.name], field).length), 20);
    return Math.max(name, 24 + 7.4 * longest);
  }
  if (field.type === 'date' || field.type === 'time') return Math.max(104, name);
  if (['integer', 'bigInteger', 'float', 'decimal'].includes(field.type)) return Math.max(88, name);
  if (field.type === 'text' || field.type === 'unknown') return 220;
  return isTitle ? 240 : Math.max(130, name);
}

interface HeadProps {
  readonly field: Field;
  readonly sort: readonly string[];
  readonly onSort: (field: Field, add: boolean) => void;
  readonly width: number;
  readonly onWidth: (width: number) => void;
}

export function HeadCell({ field, sort, onSort, width, onWidth }: HeadProps): JSX.Element {
  const sorted = sort.find((each) => each.replace(/^-/, '') === field.name);
  const direction = sorted === undefined ? 'none' : sorted.startsWith('-') ? 'descending' : 'ascending';
  const drag = (event: PointerEvent): void => {
    event.preventDefault();
    const handle = event.currentTarget as HTMLElement;
    handle.setPointerCapture(event.pointerId);
    const resize = (moved: PointerEvent): void => onWidth(Math.max(60, width + moved.clientX - event.clientX));
    handle.addEventListener('pointermove', resize);
    handle.addEventListener('pointerup', () => handle.removeEventListener('pointermove', resize), { once: true });
  };
  return (
    <div role="columnheader" aria-sort={direction} class={`head-cell${alignment(field)}`}>
      <button
        type="button"
        tabIndex={-1}
        title={field.note ?? `${field.name}: click to sort, with Shift by several columns`}
        onClick={(event) => onSort(field, event.shiftKey)}
      >
        {field.isKey && <Icon name="key" />}
        <span>{field.name}</span>
        {direction !== 'none' && <Icon name={direction === 'ascending' ? 'up' : 'down'} />}
      </button>
      <span class="resize" onPointerDown={drag} />
    </div>
  );
}
