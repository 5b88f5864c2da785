/**
 * A grid of items. Only the visible rows are in the document, and scrolling loads more. Relations open below their row, in a grid of the
 * same kind, whose changes belong to the same payload.
 */
import type { CSSProperties, JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { type Collection, type Field, type Model, titleField } from '../model';
import { go, toast } from '../state';
import { Button, copyText, Icon } from '../ui';
import { alignment, CellContent, CellEditor, cellValue, type Direction } from './cell';
import { type Edits, type ItemPath, type Key, newKeyOf, type Row } from './edits';
import { HeadCell, initialWidth } from './head';
import { keyOf, keyOfRow, targetOf } from './item';
import type { RowSource } from './source';
import { showValue } from './values';

const ROW = 34;
const PANEL = 264;
const PANEL_ONE = 122;
const SELECT = 36;
const LINK = 28;

export interface GridProps {
  readonly source: RowSource;
  /** New rows, above the others. */
  readonly added?: readonly Row[];
  readonly model: Model;
  readonly edits: Edits | null;
  /** The position of a row in the payload, or null if it cannot be changed. */
  readonly pathOf: (row: Row) => ItemPath | null;
  readonly onSort: (sort: readonly string[]) => void;
  readonly selected: ReadonlySet<Key>;
  readonly onSelect: ((selected: ReadonlySet<Key>) => void) | null;
  readonly label: string;
  /** The address of the page of a row, or null if it has none. */
  readonly addressOf?: (row: Row) => string | null;
  readonly depth: number;
  /** Shows the related items of an opened cell, in a grid of its own. */
  readonly Nested: (props: NestedProps) => JSX.Element | null;
}

export interface NestedProps {
  readonly model: Model;
  readonly collection: Collection;
  readonly field: Field;
  readonly row: Row;
  /** The current value of the relation, including unsaved changes. */
  readonly value: unknown;
  /** The position of the row in the payload, or null if it cannot be changed. */
  readonly parent: ItemPath | null;
  readonly edits: Edits | null;
  readonly depth: number;
  /** Whether the item of the list is not saved yet, so that there is nothing to load. */
  readonly isNew?: boolean;
  /** Absent if the list always stays open. */
  readonly onClose?: () => void;
}

interface Place {
  readonly row: number;
  readonly column: number;
}

export function Grid(props: GridProps): JSX.Element {
  const {
    source,
    added = NONE,
    model,
    edits,
    pathOf,
    onSort,
    selected,
    onSelect,
    label,
    depth,
    addressOf,
    Nested,
  } = props;
  const { view } = source;
  const collection = model.get(view.collection) as Collection;
  const fields = view.columns.flatMap((name) => collection.fields.get(name) ?? []);
  const title = titleField(collection);
  const box = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 600 });
  const [place, setPlace] = useState<Place>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<(Place & { readonly typed: string | null }) | null>(null);
  /** By the key of the row, so that it stays open below the same item if order or rows change. */
  const [opened, setOpened] = useState<ReadonlyMap<Key, string>>(new Map());
  const [widths, setWidths] = useState<Readonly<Record<string, number>>>({});
  const saved = source.rows.value;
  const rows = useMemo(() => [...added, ...saved], [added.length, saved]);
  const active = { row: Math.min(place.row, rows.length - 1), column: Math.min(place.column, fields.length - 1) };
  const rowKey = (row: Row): Key | null => newKeyOf(row) ?? keyOfRow(row, collection, model);
  const panels = useMemo((): (readonly [row: number, field: string])[] => {
    if (opened.size === 0) return [];
    return rows.flatMap((row, at) => {
      const field = opened.get(rowKey(row) ?? at);
      return field === undefined ? [] : [[at, field] as const];
    });
  }, [opened, rows]);
  const panelHeight = (field: string): number =>
    collection.fields.get(field)?.relation?.kind === 'one' ? PANEL_ONE : PANEL;
  const topOf = (row: number): number =>
    row * ROW + panels.reduce((sum, [at, field]) => sum + (at < row ? panelHeight(field) : 0), 0);
  const total = topOf(rows.length);

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

  const first = rowAt(scroll.top - 5 * ROW);
  const last = Math.min(rows.length, rowAt(scroll.top + scroll.height) + 6);
  function rowAt(y: number): number {
    let row = Math.max(0, Math.floor(y / ROW));
    while (row > 0 && topOf(row) > y) row--;
    return row;
  }

  const current = (row: Row, field: Field): unknown => {
    const path = pathOf(row);
    const edit = path && edits?.find(path, field.name);
    return edit ? edit.shown : cellValue(row, field);
  };
  const targetIn = (row: Row, field: Field): string | null => {
    const named = field.relation?.kind === 'any' ? collection.fields.get(field.relation.by ?? '') : undefined;
    return named ? targetOf(field, { [named.name]: current(row, named) }) : null;
  };
  const isRemoved = (row: Row): boolean => {
    const path = pathOf(row);
    return path !== null && (edits?.isRemoved(path) ?? false);
  };
  const mayEdit = (field: Field, row: Row): boolean =>
    edits !== null &&
    !field.readonly &&
    (!field.isKey || (newKeyOf(row) !== null && !field.column?.has_auto_increment)) &&
    !isRemoved(row) &&
    field.relation?.kind !== 'many' &&
    field.relation?.kind !== 'any' &&
    (!field.relation || (model.get(field.relation.to)?.keys.length ?? 0) > 0);
  const startEdit = (place: Place, typed: string | null): void => {
    const [row, field] = [rows[place.row], fields[place.column]];
    if (row && field && mayEdit(field, row) && pathOf(row)) setEditing({ ...place, typed });
  };
  const put = (row: Row, field: Field, path: ItemPath, value: unknown): void => {
    if (newKeyOf(row) === null) edits?.note(path, field.name, keyed(cellValue(row, field), field, model));
    edits?.set(path, field.name, keyed(value, field, model), value);
  };
  const finish = (value: unknown, then: Direction): void => {
    if (!editing) return;
    const [row, field] = [rows[editing.row], fields[editing.column]];
    const path = row && pathOf(row);
    if (row && field && path) {
      const before = current(row, field);
      const isSame =
        JSON.stringify(keyed(before, field, model)) === JSON.stringify(keyed(value, field, model)) ||
        (before === null && value === '');
      if (!isSame) put(row, field, path, value);
    }
    setEditing(null);
    box.current?.focus();
    move({
      row: editing.row + (then === 'down' ? 1 : 0),
      column: editing.column + (then === 'right' ? 1 : then === 'left' ? -1 : 0),
    });
  };
  const move = (to: Place): void => {
    const next = {
      row: Math.max(0, Math.min(rows.length - 1, to.row)),
      column: Math.max(0, Math.min(fields.length - 1, to.column)),
    };
    setPlace(next);
    const element = box.current;
    if (!element) return;
    const top = topOf(next.row);
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * ROW - element.clientHeight;
    const cell = element.querySelector<HTMLElement>(`[data-column="${next.column}"][data-row="${next.row}"]`);
    cell?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  };
  const toggleOpen = (row: Row, at: number, field: string): void => {
    const key = rowKey(row) ?? at;
    const next = new Map(opened);
    if (next.get(key) === field) next.delete(key);
    else next.set(key, field);
    setOpened(next);
  };
  const toggleSelect = (row: Row): void => {
    const key = rowKey(row);
    if (key === null || !onSelect) return;
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect(next);
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target !== box.current) return;
    const { row, column } = active;
    const page = Math.max(1, Math.floor(scroll.height / ROW) - 2);
    const moves: Readonly<Record<string, Place>> = {
      ArrowDown: { row: row + 1, column },
      ArrowUp: { row: row - 1, column },
      ArrowRight: { row, column: column + 1 },
      ArrowLeft: { row, column: column - 1 },
      PageDown: { row: row + page, column },
      PageUp: { row: row - page, column },
      Home: { row: event.ctrlKey ? 0 : row, column: 0 },
      End: { row: event.ctrlKey ? rows.length - 1 : row, column: fields.length - 1 },
    };
    const to = moves[event.key];
    const [item, field] = [rows[row], fields[column]];
    if (!item || !field) return;
    const address = event.key === 'Enter' && event.shiftKey ? (addressOf?.(item) ?? null) : null;
    if (to) move(to);
    else if (address !== null) go(address);
    else if (event.key === 'Enter' && (event.ctrlKey || field.relation?.kind === 'many')) {
      if (field.relation && newKeyOf(item) === null) toggleOpen(item, row, field.name);
    } else if (event.key === 'Enter' || event.key === 'F2') startEdit(active, null);
    else if (event.key === ' ') toggleSelect(item);
    else if (event.key === 'Delete') {
      const path = pathOf(item);
      if (path && mayEdit(field, item) && field.column?.is_nullable && current(item, field) !== null)
        put(item, field, path, null);
    } else if ((event.ctrlKey || event.metaKey) && event.key === 'c')
      void copyText(showValue(current(item, field), field), 'Cell copied');
    else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) startEdit(active, event.key);
    else return;
    event.preventDefault();
  };

  const sortBy = (field: Field, add: boolean): void => {
    if (!field.column) return;
    const was = view.sort.find((each) => each.replace(/^-/, '') === field.name);
    const next = was === undefined ? [field.name] : was.startsWith('-') ? [] : [`-${field.name}`];
    onSort(add ? [...view.sort.filter((each) => each !== was), ...next] : next);
  };
  const widthOf = (field: Field): number => widths[field.name] ?? initialWidth(field, field.name === title, rows);
  const lead = (onSelect ? SELECT : 0) + (addressOf ? LINK : 0);
  const columns = [...(lead > 0 ? [lead] : []), ...fields.map(widthOf)];
  const style = {
    '--columns': columns.map((width) => `${width}px`).join(' '),
    '--width': `${columns.reduce((sum, width) => sum + width, 0)}px`,
  };
  const allSelected = onSelect !== null && rows.length > 0 && rows.every((row) => selected.has(rowKey(row) as Key));

  return (
    <div
      class="grid"
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-colcount={fields.length}
      aria-activedescendant={rows.length > 0 ? cellId(depth, view.collection, active) : undefined}
      tabIndex={0}
      ref={box}
      style={style as CSSProperties}
      onScroll={(event) => {
        const { scrollTop: top, clientHeight: height } = event.currentTarget;
        setScroll({ top, height });
      }}
      onKeyDown={onKeyDown}
    >
      <div class="grid-head" role="row" aria-rowindex={1}>
        {lead > 0 && (
          <div role="columnheader" class="grid-select" aria-label="Row">
            {onSelect && (
              <input
                type="checkbox"
                tabIndex={-1}
                aria-label="Select all loaded rows"
                checked={allSelected}
                onChange={() => onSelect(new Set(allSelected ? [] : rows.map((row) => rowKey(row) as Key)))}
              />
            )}
          </div>
        )}
        {fields.map((field) => (
          <HeadCell
            key={field.name}
            field={field}
            sort={view.sort}
            onSort={sortBy}
            width={widthOf(field)}
            onWidth={(width) => setWidths({ ...widths, [field.name]: width })}
          />
        ))}
      </div>
      <div class="grid-body" role="presentation" style={{ height: `${total}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const at = first + offset;
          const key = rowKey(row);
          const path = pathOf(row);
          const open = opened.get(key ?? at);
          const removed = isRemoved(row);
          const address = addressOf?.(row) ?? null;
          return (
            <div key={key ?? at} class="grid-place" role="presentation" style={{ top: `${topOf(at)}px` }}>
              <div
                class={`grid-row${key !== null && selected.has(key) ? ' selected' : ''}${removed ? ' removed' : ''}`}
                role="row"
                aria-rowindex={at + 2}
                aria-selected={onSelect ? key !== null && selected.has(key) : undefined}
              >
                {lead > 0 && (
                  <div role="gridcell" class="grid-select">
                    {removed && path ? (
                      <Button
                        label={`Keep row ${at + 1}`}
                        icon="undo"
                        kind="quiet"
                        compact
                        onClick={() => edits?.keep(path)}
                      />
                    ) : (
                      onSelect && (
                        <input
                          type="checkbox"
                          tabIndex={-1}
                          aria-label={`Select row ${at + 1}`}
                          checked={key !== null && selected.has(key)}
                          onChange={() => toggleSelect(row)}
                        />
                      )
                    )}
                    {address !== null && !removed && (
                      <a
                        class="grid-open"
                        tabIndex={-1}
                        href={address}
                        aria-label={`Open row ${at + 1}`}
                        title="Open this item (Shift Enter)"
                      >
                        <Icon name="open" />
                      </a>
                    )}
                  </div>
                )}
                {fields.map((field, column) => {
                  const isActive = active.row === at && active.column === column;
                  const isEdited = path !== null && edits?.find(path, field.name) !== undefined;
                  const error = path === null ? undefined : edits?.errorAt(path, field.name);
                  const isEditing = editing?.row === at && editing.column === column;
                  return (
                    <div
                      key={field.name}
                      id={cellId(depth, view.collection, { row: at, column })}
                      role="gridcell"
                      data-row={at}
                      data-column={column}
                      aria-colindex={column + 1}
                      aria-readonly={!mayEdit(field, row)}
                      aria-invalid={error !== undefined}
                      class={`cell${alignment(field)}${isActive ? ' active' : ''}${isEdited ? ' edited' : ''}${error ? ' wrong' : ''}${isEditing ? ' editing' : ''}${field.isKey ? ' key' : ''}`}
                      title={error}
                      onPointerDown={() => setPlace({ row: at, column })}
                      onDblClick={() => {
                        startEdit({ row: at, column }, null);
                        if (edits && field.isKey && !mayEdit(field, row))
                          toast('The key of an item cannot be changed', 'bad');
                      }}
                    >
                      {isEditing ? (
                        <CellEditor
                          field={field}
                          model={model}
                          value={current(row, field)}
                          typed={editing.typed}
                          onDone={finish}
                          onCancel={() => {
                            setEditing(null);
                            box.current?.focus();
                          }}
                        />
                      ) : (
                        <CellContent
                          value={current(row, field)}
                          row={row}
                          field={field}
                          model={model}
                          isNew={newKeyOf(row) !== null}
                          isOpen={open === field.name}
                          onOpen={() => toggleOpen(row, at, field.name)}
                          to={targetIn(row, field)}
                        />
                      )}
                      {error && !isEditing && <span class="cell-error">{error}</span>}
                    </div>
                  );
                })}
              </div>
              {open !== undefined && (
                <div class="grid-panel" role="row" style={{ height: `${panelHeight(open)}px` }}>
                  <div role="gridcell">
                    <Nested
                      model={model}
                      collection={collection}
                      field={collection.fields.get(open) as Field}
                      row={row}
                      value={current(row, collection.fields.get(open) as Field)}
                      parent={path}
                      edits={edits}
                      depth={depth + 1}
                      onClose={() => toggleOpen(row, at, open)}
                    />
                  </div>
                </div>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const NONE: readonly Row[] = [];

function keyed(value: unknown, field: Field, model: Model): unknown {
  return field.relation?.kind === 'one' ? keyOf(value, model, field.relation.to) : value;
}

function cellId(depth: number, collection: string, { row, column }: Place): string {
  return `cell-${depth}-${collection}-${row}-${column}`;
}
