/** The inputs of a grid of items, and of the grid that opens below one of its rows. */
import type { JSX } from 'preact';
import type { Collection, Field, Model } from '../model';
import type { Edits, ItemPath, Key, Row } from './edits';
import type { RowSource } from './source';

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
