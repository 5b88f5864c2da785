/**
 * A grid of items. Only the visible rows are in the document, and scrolling loads more. Relations open below their row, in a grid of the
 * same kind, whose changes belong to the same payload.
 */
import type { CSSProperties, JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { type Field, titleField } from '../model';
import type { Key, Row } from './edits';
import { GridCells } from './grid-cells';
import type { GridProps } from './grid-props';
import { cellId, GridRow } from './grid-row';
import { onGridKey, useCursor, usePanels, useVisibleRows } from './grid-state';
import { HeadCell, initialWidth } from './head';

const SELECT = 36;
const LINK = 28;

export function Grid(props: GridProps): JSX.Element {
  const { source, added = NONE, selected, onSelect, label, depth, addressOf } = props;
  const cells = new GridCells(props);
  const box = useRef<HTMLDivElement>(null);
  const [widths, setWidths] = useState<Readonly<Record<string, number>>>({});
  const saved = source.rows.value;
  const rows = useMemo(() => [...added, ...saved], [added.length, saved]);
  const panels = usePanels(cells, rows);
  const { first, last, rowsPerPage, onScroll } = useVisibleRows(box, panels, rows.length, source);
  const cursor = useCursor({ box, cells, panels, rows });
  const toggleSelect = (row: Row): void => {
    const key = cells.keyOf(row);
    if (key === null || !onSelect) return;
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect(next);
  };
  const title = titleField(cells.collection);
  const widthOf = (field: Field): number => widths[field.name] ?? initialWidth(field, field.name === title, rows);
  const lead = (onSelect ? SELECT : 0) + (addressOf ? LINK : 0);
  return (
    <div
      class="grid"
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-colcount={cells.fields.length}
      aria-activedescendant={rows.length > 0 ? cellId(depth, cells.collection.name, cursor.active) : undefined}
      tabIndex={0}
      ref={box}
      style={widthsAsStyle([...(lead > 0 ? [lead] : []), ...cells.fields.map(widthOf)])}
      onScroll={onScroll}
      onKeyDown={(event) =>
        onGridKey(event, { cells, panels, rows, cursor, rowsPerPage, addressOf, onSelect: toggleSelect })
      }
    >
      <Head
        {...props}
        {...{ cells, rows, widthOf }}
        hasLead={lead > 0}
        onWidth={(field, width) => setWidths({ ...widths, [field.name]: width })}
      />
      <div class="grid-body" role="presentation" style={{ height: `${panels.topOf(rows.length)}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const key = cells.keyOf(row);
          return (
            <GridRow
              key={key ?? first + offset}
              {...{ ...props, row, cells, panels, cursor }}
              at={first + offset}
              hasLead={lead > 0}
              isSelected={key !== null && selected.has(key)}
              onSelect={onSelect && (() => toggleSelect(row))}
              address={addressOf?.(row) ?? null}
            />
          );
        })}
      </div>
    </div>
  );
}

interface HeadProps extends GridProps {
  readonly cells: GridCells;
  readonly rows: readonly Row[];
  readonly hasLead: boolean;
  readonly widthOf: (field: Field) => number;
  readonly onWidth: (field: Field, width: number) => void;
}

function Head({ source: { view }, cells, rows, hasLead, selected, ...props }: HeadProps): JSX.Element {
  const { onSort, onSelect, widthOf, onWidth } = props;
  const allSelected =
    onSelect !== null && rows.length > 0 && rows.every((row) => selected.has(cells.keyOf(row) as Key));
  const sortBy = (field: Field, add: boolean): void => {
    if (!field.column) return;
    const was = view.sort.find((each) => each.replace(/^-/, '') === field.name);
    const next = was === undefined ? [field.name] : was.startsWith('-') ? [] : [`-${field.name}`];
    onSort(add ? [...view.sort.filter((each) => each !== was), ...next] : next);
  };
  return (
    <div class="grid-head" role="row" aria-rowindex={1}>
      {hasLead && (
        <div role="columnheader" class="grid-select" aria-label="Row">
          {onSelect && (
            <input
              type="checkbox"
              tabIndex={-1}
              aria-label="Select all loaded rows"
              checked={allSelected}
              onChange={() => onSelect(new Set(allSelected ? [] : rows.map((row) => cells.keyOf(row) as Key)))}
            />
          )}
        </div>
      )}
      {cells.fields.map((field) => (
        <HeadCell
          key={field.name}
          field={field}
          sort={view.sort}
          onSort={sortBy}
          width={widthOf(field)}
          onWidth={(width) => onWidth(field, width)}
        />
      ))}
    </div>
  );
}

function widthsAsStyle(widths: readonly number[]): CSSProperties {
  return {
    '--columns': widths.map((width) => `${width}px`).join(' '),
    '--width': `${widths.reduce((sum, width) => sum + width, 0)}px`,
  } as CSSProperties;
}

const NONE: readonly Row[] = [];
