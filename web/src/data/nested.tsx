/** What a relation of a row leads to, below that row. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Collection, Field, Model } from '../model';
import { go, href } from '../state';
import { Button, ErrorBox } from '../ui';
import { type Edits, type ItemPath, type Key, keyColumns, type Row } from './edits';
import { Grid } from './grid';
import { filterByKey, keyOf, keyOfRow, titleOf } from './item';
import { initialColumns, RowSource } from './source';

interface NestedProps {
  readonly model: Model;
  readonly collection: Collection;
  readonly field: Field;
  readonly row: Row;
  /** What the relation holds now, also where that is not saved yet. */
  readonly value: unknown;
  /** Null where the row cannot be changed. */
  readonly parent: ItemPath | null;
  readonly edits: Edits | null;
  readonly depth: number;
  readonly onClose: () => void;
}

export function NestedGrid(props: NestedProps): JSX.Element | null {
  const { model, collection, field, row, value, parent, edits, depth, onClose } = props;
  const { relation } = field;
  const target = relation && relation.kind !== 'any' ? model.get(relation.to) : undefined;
  const [sort, setSort] = useState<readonly string[]>([]);
  const source = useMemo(() => {
    if (!target || !relation || relation.kind === 'any') return null;
    const of = relation.kind === 'many' ? { item: row, among: collection } : { item: value as Row, among: target };
    const key = keyOfRow(of.item, of.among, model);
    const own = key === null ? {} : filterByKey(keyColumns(key, of.among.keys));
    const filter = relation.kind === 'many' ? { [relation.by]: own } : own;
    const columns = initialColumns(target).filter((name) => relation.kind === 'one' || name !== relation.by);
    return new RowSource({ collection: target.name, columns, sort, filter, search: '' }, model);
  }, [row, field, sort, keyOf(value, model, target?.name ?? '')]);
  useEffect(() => {
    void source?.load();
    return () => source?.stop();
  }, [source]);
  if (!source || !target || !relation || relation.kind === 'any') return null;
  const pathOf = (nested: Row): ItemPath | null => {
    const key = keyOfRow(nested, target, model);
    if (!parent || key === null) return null;
    return [...parent, { field: field.name, kind: relation.kind, key, keyFields: target.keys }];
  };
  const heading = `${field.name} of ${titleOf(row, model, collection.name)}`;
  return (
    <section class="nested" aria-label={heading}>
      <header>
        <strong>{field.name}</strong>
        <span class="quiet">
          {target.name}
          {source.count.value !== null && relation.kind === 'many' && ` · ${source.count.value}`}
        </span>
        <span class="grow" />
        <Button
          label={`Open in ${target.name}`}
          icon="link"
          kind="quiet"
          onClick={() => go(href('data', [target.name], { filter: JSON.stringify(source.view.filter) }))}
        />
        <Button label="Close" icon="close" kind="quiet" compact onClick={onClose} />
      </header>
      {source.error.value ? (
        <ErrorBox text={source.error.value} onRetry={() => void source.load()} />
      ) : source.rows.value.length === 0 && !source.loading.value ? (
        <p class="quiet nested-empty">No items.</p>
      ) : (
        <Grid
          source={source}
          model={model}
          edits={edits}
          pathOf={pathOf}
          onSort={setSort}
          selected={NOTHING}
          onSelect={null}
          label={heading}
          depth={depth}
        />
      )}
    </section>
  );
}

const NOTHING: ReadonlySet<Key> = new Set();
