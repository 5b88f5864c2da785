/** One row of a grid: the box that selects it, its cells, and the panel of related items below it. */
import type { JSX } from 'preact';
import type { Field, Model } from '../model';
import { toast } from '../state';
import { Button, Icon } from '../ui';
import { alignment, CellContent, CellEditor } from './cell';
import { type Edits, newKeyOf, type Row } from './edits';
import type { GridCells } from './grid-cells';
import type { NestedProps } from './grid-props';
import type { Cursor, Panels, Place } from './grid-state';

export interface RowProps {
  readonly row: Row;
  readonly at: number;
  readonly cells: GridCells;
  readonly panels: Panels;
  readonly cursor: Cursor;
  readonly model: Model;
  readonly edits: Edits | null;
  readonly depth: number;
  /** Whether the first column is for selections and links. */
  readonly hasLead: boolean;
  readonly isSelected: boolean;
  /** Selects the row, or null if rows cannot be selected. */
  readonly onSelect: (() => void) | null;
  readonly address: string | null;
  readonly Nested: (props: NestedProps) => JSX.Element | null;
}

export function GridRow(props: RowProps): JSX.Element {
  const { row, at, cells, panels, model, edits, depth, hasLead, isSelected, onSelect, Nested } = props;
  const opened = panels.openIn(row, at);
  const openedField = cells.collection.fields.get(opened ?? '');
  const removed = cells.isRemoved(row);
  return (
    <div class="grid-place" role="presentation" style={{ top: `${panels.topOf(at)}px` }}>
      <div
        class={`grid-row${isSelected ? ' selected' : ''}${removed ? ' removed' : ''}`}
        role="row"
        aria-rowindex={at + 2}
        aria-selected={onSelect ? isSelected : undefined}
      >
        {hasLead && <Lead {...props} />}
        {cells.fields.map((field, column) => (
          <GridCell key={field.name} {...props} field={field} column={column} />
        ))}
      </div>
      {openedField && (
        <div class="grid-panel" role="row" style={{ height: `${panels.heightOf(openedField.name)}px` }}>
          <div role="gridcell">
            <Nested
              model={model}
              collection={cells.collection}
              field={openedField}
              row={row}
              value={cells.current(row, openedField)}
              parent={cells.pathOf(row)}
              edits={edits}
              depth={depth + 1}
              onClose={() => panels.toggle(row, at, openedField.name)}
            />
          </div>
        </div>
      )}
    </div>
  );
}

function Lead({ row, at, cells, edits, isSelected, onSelect, address }: RowProps): JSX.Element {
  const path = cells.pathOf(row);
  const removed = cells.isRemoved(row);
  return (
    <div role="gridcell" class="grid-select">
      {removed && path ? (
        <Button label={`Keep row ${at + 1}`} icon="undo" kind="quiet" compact onClick={() => edits?.keep(path)} />
      ) : (
        onSelect && (
          <input
            type="checkbox"
            tabIndex={-1}
            aria-label={`Select row ${at + 1}`}
            checked={isSelected}
            onChange={onSelect}
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
  );
}

interface CellProps extends RowProps {
  readonly field: Field;
  readonly column: number;
}

function GridCell(props: CellProps): JSX.Element {
  const { row, at, field, column, cells, panels, cursor, model, edits, depth } = props;
  const { active, editing } = cursor;
  const path = cells.pathOf(row);
  const error = path === null ? undefined : edits?.errorAt(path, field.name);
  const isEditing = editing?.row === at && editing.column === column;
  const classes = [
    ['active', active.row === at && active.column === column],
    ['edited', path !== null && edits?.find(path, field.name) !== undefined],
    ['wrong', error],
    ['editing', isEditing],
    ['key', field.isKey],
  ] as const;
  return (
    <div
      id={cellId(depth, cells.collection.name, { row: at, column })}
      role="gridcell"
      data-row={at}
      data-column={column}
      aria-colindex={column + 1}
      aria-readonly={!cells.mayEdit(field, row)}
      aria-invalid={error !== undefined}
      class={`cell${alignment(field)}${classes.map(([name, isShown]) => (isShown ? ` ${name}` : '')).join('')}`}
      title={error}
      onPointerDown={() => cursor.choose({ row: at, column })}
      onDblClick={() => {
        cursor.startEdit({ row: at, column }, null);
        if (edits && field.isKey && !cells.mayEdit(field, row)) toast('The key of an item cannot be changed', 'bad');
      }}
    >
      {isEditing ? (
        <CellEditor
          field={field}
          model={model}
          value={cells.current(row, field)}
          typed={editing.typed}
          onDone={cursor.finish}
          onCancel={cursor.cancel}
        />
      ) : (
        <CellContent
          value={cells.current(row, field)}
          row={row}
          field={field}
          model={model}
          isNew={newKeyOf(row) !== null}
          isOpen={panels.openIn(row, at) === field.name}
          onOpen={() => panels.toggle(row, at, field.name)}
          to={cells.targetIn(row, field)}
        />
      )}
      {error && !isEditing && <span class="cell-error">{error}</span>}
    </div>
  );
}

export function cellId(depth: number, collection: string, { row, column }: Place): string {
  return `cell-${depth}-${collection}-${row}-${column}`;
}
