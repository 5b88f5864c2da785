/** Selects the visible columns and their order. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { type Collection, typeLabel } from '../model';
import { go, href } from '../state';
import { Button } from '../ui';

interface ColumnsProps {
  readonly collection: Collection;
  readonly columns: readonly string[];
  readonly onChange: (columns: readonly string[]) => void;
  readonly onReset: () => void;
  /** Whether the caller may add fields to the collection. */
  readonly mayAdd: boolean;
}

export function ColumnChooser({ collection, columns, onChange, onReset, mayAdd }: ColumnsProps): JSX.Element {
  const [typed, setTyped] = useState('');
  const wanted = typed.trim().toLowerCase();
  const isFound = (name: string): boolean => name.toLowerCase().includes(wanted);
  const others = [...collection.fields.values()].filter(
    (field) => !columns.includes(field.name) && isFound(field.name) && (field.column || field.relation),
  );
  const swap = (at: number, to: number): void => {
    const [one, other] = [columns[at], columns[to]];
    if (one !== undefined && other !== undefined) onChange(columns.with(at, other).with(to, one));
  };
  return (
    <div class="columns">
      <input
        type="search"
        aria-label="Search columns"
        placeholder={`Search ${collection.fields.size} fields`}
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      {columns.map((name, at) => {
        if (!isFound(name)) return null;
        const field = collection.fields.get(name);
        return (
          <div class="columns-row" key={name}>
            <label>
              <input
                type="checkbox"
                checked
                disabled={columns.length === 1}
                onChange={() => onChange(columns.filter((each) => each !== name))}
              />
              <span>{name}</span>
              <small>{field && typeLabel(field)}</small>
            </label>
            <Button
              label={`Move ${name} up`}
              icon="up"
              kind="quiet"
              compact
              disabled={at === 0}
              onClick={() => swap(at, at - 1)}
            />
            <Button
              label={`Move ${name} down`}
              icon="down"
              kind="quiet"
              compact
              disabled={at === columns.length - 1}
              onClick={() => swap(at, at + 1)}
            />
          </div>
        );
      })}
      {others.length > 0 && <hr />}
      {others.length === 0 && !columns.some(isFound) && <p class="quiet">No field has this name.</p>}
      {others.map((field) => (
        <div class="columns-row" key={field.name}>
          <label>
            <input type="checkbox" checked={false} onChange={() => onChange([...columns, field.name])} />
            <span>{field.name}</span>
            <small>{typeLabel(field)}</small>
          </label>
        </div>
      ))}
      <hr />
      <Button label="Show the default columns" kind="quiet" onClick={onReset} />
      {mayAdd && (
        <Button
          label="Add a field in the model"
          icon="plus"
          kind="quiet"
          onClick={() => go(href('model', [collection.name]))}
        />
      )}
    </div>
  );
}
