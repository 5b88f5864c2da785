/** The state of a grid: opened panels, visible rows, the active and the edited cell, and the keys that change them. */
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useState } from 'preact/hooks';
import type { Collection } from '../model';
import { go } from '../state';
import { copyText } from '../ui';
import type { Direction } from './cell';
import { type Key, newKeyOf, type Row } from './edits';
import type { GridCells } from './grid-cells';
import type { GridProps } from './grid-props';
import type { RowSource } from './source';
import { showValue } from './values';

const ROW = 34;
const PANEL = 264;
const PANEL_ONE = 122;

export interface Place {
  readonly row: number;
  readonly column: number;
}

/** The panels of related items below the rows. */
export interface Panels {
  /** The field whose panel is open below the row. */
  readonly openIn: (row: Row, at: number) => string | undefined;
  readonly toggle: (row: Row, at: number, field: string) => void;
  readonly heightOf: (field: string) => number;
  readonly topOf: (row: number) => number;
}

export function usePanels(cells: GridCells, rows: readonly Row[]): Panels {
  /** By the key of the row, so that it stays open below the same item if order or rows change. */
  const [opened, setOpened] = useState<ReadonlyMap<Key, string>>(new Map());
  const keyOf = (row: Row, at: number): Key => cells.keyOf(row) ?? at;
  const panels = useMemo((): (readonly [row: number, field: string])[] => {
    if (opened.size === 0) return [];
    return rows.flatMap((row, at) => {
      const field = opened.get(keyOf(row, at));
      return field === undefined ? [] : [[at, field] as const];
    });
  }, [opened, rows]);
  const heightOf = (field: string): number => panelHeight(cells.collection, field);
  return {
    heightOf,
    topOf: (row) => row * ROW + panels.reduce((sum, [at, field]) => sum + (at < row ? heightOf(field) : 0), 0),
    openIn: (row, at) => opened.get(keyOf(row, at)),
    toggle: (row, at, field) => {
      const next = new Map(opened);
      const key = keyOf(row, at);
      if (next.get(key) === field) next.delete(key);
      else next.set(key, field);
      setOpened(next);
    },
  };
}

function panelHeight({ fields }: Collection, field: string): number {
  return fields.get(field)?.relation?.kind === 'one' ? PANEL_ONE : PANEL;
}

type Box = RefObject<HTMLDivElement | null>;

interface VisibleRows {
  readonly first: number;
  readonly last: number;
  readonly rowsPerPage: number;
  readonly onScroll: (event: { readonly currentTarget: HTMLElement }) => void;
}

/** The rows around the visible part. Loads more rows before the last one is visible. */
export function useVisibleRows(box: Box, { topOf }: Panels, count: number, source: RowSource): VisibleRows {
  const [scroll, setScroll] = useState({ top: 0, height: 600 });
  const total = topOf(count);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setScroll((now) => ({ ...now, height: element.clientHeight })));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (scroll.top + scroll.height > total - 20 * ROW) void source.more();
  }, [scroll, total, source.loading.value]);
  const rowAt = (y: number): number => {
    let row = Math.max(0, Math.floor(y / ROW));
    while (row > 0 && topOf(row) > y) row--;
    return row;
  };
  return {
    first: rowAt(scroll.top - 5 * ROW),
    last: Math.min(count, rowAt(scroll.top + scroll.height) + 6),
    rowsPerPage: Math.max(1, Math.floor(scroll.height / ROW) - 2),
    onScroll: ({ currentTarget: { scrollTop: top, clientHeight: height } }) => setScroll({ top, height }),
  };
}

export interface Cursor {
  readonly active: Place;
  /** The edited cell, with the letter that began the edit. */
  readonly editing: (Place & { readonly typed: string | null }) | null;
  readonly choose: (place: Place) => void;
  readonly move: (to: Place) => void;
  readonly startEdit: (place: Place, typed: string | null) => void;
  readonly finish: (value: unknown, then: Direction) => void;
  readonly cancel: () => void;
}

interface CursorInput {
  readonly box: Box;
  readonly cells: GridCells;
  readonly panels: Panels;
  readonly rows: readonly Row[];
}

export function useCursor({ box, cells, panels, rows }: CursorInput): Cursor {
  const { fields } = cells;
  const [place, choose] = useState<Place>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<Cursor['editing']>(null);
  const move = (to: Place): void => {
    const next = {
      row: Math.max(0, Math.min(rows.length - 1, to.row)),
      column: Math.max(0, Math.min(fields.length - 1, to.column)),
    };
    choose(next);
    if (box.current) scrollTo(box.current, next, panels.topOf(next.row));
  };
  const cancel = (): void => {
    setEditing(null);
    box.current?.focus();
  };
  return {
    active: { row: Math.min(place.row, rows.length - 1), column: Math.min(place.column, fields.length - 1) },
    editing,
    choose,
    move,
    cancel,
    startEdit: (at, typed) => {
      const [row, field] = [rows[at.row], fields[at.column]];
      if (row && field && cells.mayEdit(field, row) && cells.pathOf(row)) setEditing({ ...at, typed });
    },
    finish: (value, then) => {
      if (!editing) return;
      const [row, field] = [rows[editing.row], fields[editing.column]];
      if (row && field) cells.change(row, field, value);
      cancel();
      move({
        row: editing.row + (then === 'down' ? 1 : 0),
        column: editing.column + (then === 'right' ? 1 : then === 'left' ? -1 : 0),
      });
    },
  };
}

function scrollTo(box: HTMLElement, { row, column }: Place, top: number): void {
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW - box.clientHeight;
  const cell = box.querySelector<HTMLElement>(`[data-column="${column}"][data-row="${row}"]`);
  cell?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

interface KeyInput extends Omit<CursorInput, 'box'> {
  readonly cursor: Cursor;
  readonly rowsPerPage: number;
  readonly addressOf: GridProps['addressOf'];
  readonly onSelect: (row: Row) => void;
}

export function onGridKey(event: KeyboardEvent, input: KeyInput): void {
  const { cells, panels, rows, cursor, addressOf, onSelect } = input;
  const { row, column } = cursor.active;
  const [item, field] = [rows[row], cells.fields[column]];
  if (event.target !== event.currentTarget || !item || !field) return;
  const to = placeOfKey(event, input);
  const { key } = event;
  const hasCommand = event.ctrlKey || event.metaKey;
  const address = key === 'Enter' && event.shiftKey ? (addressOf?.(item) ?? null) : null;
  if (to) cursor.move(to);
  else if (address !== null) go(address);
  else if (key === 'Enter' && (event.ctrlKey || field.relation?.kind === 'many')) {
    if (field.relation && newKeyOf(item) === null) panels.toggle(item, row, field.name);
  } else if (key === 'Enter' || key === 'F2') cursor.startEdit(cursor.active, null);
  else if (key === ' ') onSelect(item);
  else if (key === 'Delete') cells.clear(item, field);
  else if (hasCommand && key === 'c') void copyText(showValue(cells.current(item, field), field), 'Cell copied');
  else if (key.length === 1 && !hasCommand && !event.altKey) cursor.startEdit(cursor.active, key);
  else return;
  event.preventDefault();
}

/** The cell that a key of movement leads to. */
function placeOfKey({ key, ctrlKey }: KeyboardEvent, { cells, rows, cursor, rowsPerPage }: KeyInput): Place | null {
  const { row, column } = cursor.active;
  const moves: Readonly<Record<string, Place>> = {
    ArrowDown: { row: row + 1, column },
    ArrowUp: { row: row - 1, column },
    ArrowRight: { row, column: column + 1 },
    ArrowLeft: { row, column: column - 1 },
    PageDown: { row: row + rowsPerPage, column },
    PageUp: { row: row - rowsPerPage, column },
    Home: { row: ctrlKey ? 0 : row, column: 0 },
    End: { row: ctrlKey ? rows.length - 1 : row, column: cells.fields.length - 1 },
  };
  return moves[key] ?? null;
}
