/** The cells of a grid: their values with the pending edits, and the changes that they allow. */
import type { Collection, Field, Model } from '../model';
import { cellValue } from './cell';
import { type Edits, type ItemPath, type Key, newKeyOf, type Row } from './edits';
import type { GridProps } from './grid-props';
import { keyOf, keyOfRow, targetOf } from './item';

export class GridCells {
  readonly collection: Collection;
  readonly fields: readonly Field[];
  readonly pathOf: (row: Row) => ItemPath | null;
  readonly #model: Model;
  readonly #edits: Edits | null;

  constructor({ source, model, edits, pathOf }: Pick<GridProps, 'source' | 'model' | 'edits' | 'pathOf'>) {
    const { view } = source;
    this.collection = model.get(view.collection) as Collection;
    this.fields = view.columns.flatMap((name) => this.collection.fields.get(name) ?? []);
    this.pathOf = pathOf;
    this.#model = model;
    this.#edits = edits;
  }

  keyOf(row: Row): Key | null {
    return newKeyOf(row) ?? keyOfRow(row, this.collection, this.#model);
  }

  current(row: Row, field: Field): unknown {
    const path = this.pathOf(row);
    const edit = path && this.#edits?.find(path, field.name);
    return edit ? edit.shown : cellValue(row, field);
  }

  /** The collection of the item that a many-to-any relation of the row refers to. */
  targetIn(row: Row, field: Field): string | null {
    const named = field.relation?.kind === 'any' ? this.collection.fields.get(field.relation.by ?? '') : undefined;
    return named ? targetOf(field, { [named.name]: this.current(row, named) }) : null;
  }

  isRemoved(row: Row): boolean {
    const path = this.pathOf(row);
    return path !== null && (this.#edits?.isRemoved(path) ?? false);
  }

  mayEdit(field: Field, row: Row): boolean {
    return (
      this.#edits !== null &&
      !field.readonly &&
      (!field.isKey || (newKeyOf(row) !== null && !field.column?.has_auto_increment)) &&
      !this.isRemoved(row) &&
      field.relation?.kind !== 'many' &&
      field.relation?.kind !== 'any' &&
      (!field.relation || (this.#model.get(field.relation.to)?.keys.length ?? 0) > 0)
    );
  }

  /** Does nothing if the row has the value already. */
  change(row: Row, field: Field, value: unknown): void {
    const before = this.current(row, field);
    const isSame =
      JSON.stringify(this.#keyed(before, field)) === JSON.stringify(this.#keyed(value, field)) ||
      (before === null && value === '');
    if (!isSame) this.#put(row, field, value);
  }

  clear(row: Row, field: Field): void {
    if (this.mayEdit(field, row) && field.column?.is_nullable && this.current(row, field) !== null)
      this.#put(row, field, null);
  }

  #put(row: Row, field: Field, value: unknown): void {
    const path = this.pathOf(row);
    if (!path) return;
    if (newKeyOf(row) === null) this.#edits?.note(path, field.name, this.#keyed(cellValue(row, field), field));
    this.#edits?.set(path, field.name, this.#keyed(value, field), value);
  }

  #keyed(value: unknown, field: Field): unknown {
    return field.relation?.kind === 'one' ? keyOf(value, this.#model, field.relation.to) : value;
  }
}
