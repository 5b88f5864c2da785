/** The related items of a row, below that row. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Collection, Relation } from '../model';
import { go, href } from '../state';
import { Button, ErrorBox } from '../ui';
import { type ItemPath, type Key, keyColumns, newKeyOf, type Row } from './edits';
import { CreateForm } from './form';
import { Grid, type NestedProps } from './grid';
import { filterByKey, keyOf, keyOfRow, targetOf, titleOf } from './item';
import { addressOfRecord } from './record/address';
import { farOf, nestedColumns, RowSource } from './source';

export function NestedGrid(props: NestedProps): JSX.Element | null {
  const { model, collection, field, row, value, parent, edits, depth, isNew = false, onClose } = props;
  const { relation } = field;
  const target = relation && relation.kind !== 'any' ? model.get(relation.to) : undefined;
  const [sort, setSort] = useState<readonly string[]>([]);
  const [selected, setSelected] = useState<ReadonlySet<Key>>(NOTHING);
  const [creating, setCreating] = useState(false);
  const source = useMemo(() => {
    if (!target || !relation || relation.kind === 'any') return null;
    const of = relation.kind === 'many' ? { item: row, among: collection } : { item: value as Row, among: target };
    const key = keyOfRow(of.item, of.among, model);
    const own = key === null ? {} : filterByKey(keyColumns(key, of.among.keys));
    const filter = relation.kind === 'many' ? { [relation.by]: own } : own;
    const far = relation.kind === 'many' ? farOf(relation, model) : null;
    const columns = nestedColumns(target, relation.kind === 'many' ? relation.by : null, far);
    return new RowSource({ collection: target.name, columns, sort, filter, search: '' }, model);
  }, [row, field, sort, keyOf(value, model, target?.name ?? '')]);
  useEffect(() => {
    if (isNew) source?.settle();
    else void source?.load();
    return () => source?.stop();
  }, [source]);
  if (!source || !target || !relation || relation.kind === 'any') return null;
  const pathOf = (nested: Row): ItemPath | null => {
    const made = newKeyOf(nested);
    const key = made ?? keyOfRow(nested, target, model);
    if (!parent || key === null) return null;
    const keyFields = made === null ? target.keys : [];
    return [...parent, { field: field.name, kind: relation.kind, key, keyFields }];
  };
  const mayAdd = edits !== null && parent !== null && relation.kind === 'many' && !target.isView;
  const added = mayAdd ? edits.created(parent, field.name) : [];
  const removal = mayAdd && target.keys.length > 0 ? removalOf(relation, target) : null;
  const remove = (): void => {
    for (const item of [...added, ...source.rows.value]) {
      const path = pathOf(item);
      if (path && selected.has(newKeyOf(item) ?? keyOfRow(item, target, model) ?? '')) edits?.remove(path);
    }
    setSelected(NOTHING);
  };
  const heading = `${field.name} of ${isNew ? 'the new item' : titleOf(row, model, collection.name)}`;
  const far = relation.kind === 'many' ? farOf(relation, model) : null;
  const through = relation.kind === 'many' && far ? (relation.farTo ?? 'items') : null;
  const described = [
    ...(through !== null ? [`${through}, through ${target.name}`] : target.name === field.name ? [] : [target.name]),
    ...(source.count.value !== null && relation.kind === 'many' ? [source.count.value] : []),
  ];
  // Through a junction, the item of the other side is the one to open.
  const addressOf = (item: Row): string | null => {
    const to = far ? (targetOf(far, item) ?? '') : target.name;
    const key = keyOf(far ? item[far.name] : item, model, to);
    const isOpened = model.get(to)?.hasItems && key !== undefined && key !== null && newKeyOf(item) === null;
    return isOpened ? addressOfRecord(to, key) : null;
  };
  return (
    <section class="nested" aria-label={heading}>
      <header>
        <strong>{field.name}</strong>
        <span class="quiet">{described.join(' · ')}</span>
        <span class="grow" />
        {removal && selected.size > 0 && (
          <Button
            label={`${removal.label} ${selected.size}`}
            icon="trash"
            kind="danger"
            hint={removal.hint}
            onClick={remove}
          />
        )}
        {mayAdd && <Button label="Add" icon="plus" onClick={() => setCreating(true)} />}
        {!isNew && (
          <Button
            label={`Open in ${target.name}`}
            icon="link"
            kind="quiet"
            onClick={() => go(href('data', [target.name], { filter: JSON.stringify(source.view.filter) }))}
          />
        )}
        {onClose && <Button label="Close" icon="close" kind="quiet" compact onClick={onClose} />}
      </header>
      {source.error.value ? (
        <ErrorBox text={source.error.value} onRetry={() => void source.load()} />
      ) : source.rows.value.length + added.length === 0 && !source.loading.value ? (
        <p class="quiet nested-empty">No items.</p>
      ) : (
        <Grid
          source={source}
          added={added}
          model={model}
          edits={edits}
          pathOf={pathOf}
          Nested={NestedGrid}
          onSort={setSort}
          selected={selected}
          onSelect={removal ? setSelected : null}
          label={heading}
          addressOf={addressOf}
          depth={depth}
        />
      )}
      {creating && mayAdd && (
        <CreateForm
          collection={target}
          title={through === null ? `New item in ${target.name}` : `Add to ${field.name}`}
          model={model}
          without={[relation.by, ...(target.fields.get(relation.by)?.columns ?? [])]}
          submit="Add"
          onClose={() => setCreating(false)}
          onSubmit={async (values, shown) => {
            edits.create(parent, field.name, values, shown);
            setCreating(false);
          }}
        />
      )}
    </section>
  );
}

type ToMany = Extract<Relation, { kind: 'many' }>;

/** Describes what happens to items that are removed from their relation, or null if they cannot be removed. */
function removalOf({ deletes, by }: ToMany, target: Collection): { label: string; hint: string } | null {
  if (deletes) return { label: 'Delete', hint: 'They are deleted when you save' };
  const reference = target.fields.get(by);
  const columns = reference?.columns.length ? reference.columns : [by];
  const mayBeNull = columns.every((name) => target.fields.get(name)?.column?.is_nullable);
  return mayBeNull ? { label: 'Unlink', hint: `They stay in ${target.name}: ${by} becomes null when you save` } : null;
}

const NOTHING: ReadonlySet<Key> = new Set();
