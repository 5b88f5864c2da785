/** The related items of a row, below that row. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Collection, Field, Model, Relation } from '../model';
import { go, href } from '../state';
import { Button, ErrorBox } from '../ui';
import { type Edits, type ItemPath, type Key, keyColumns, newKeyOf, type Row } from './edits';
import { CreateForm } from './form';
import { Grid } from './grid';
import type { NestedProps } from './grid-props';
import { filterByKey, keyOf, keyOfRow, targetOf, titleOf } from './item';
import { addressOfRecord } from './record/address';
import { farOf, nestedColumns, RowSource } from './source';

export function NestedGrid(props: NestedProps): JSX.Element | null {
  const { model, collection, field, row, parent, edits, depth, isNew = false, onClose } = props;
  const { relation } = field;
  const [sort, setSort] = useState<readonly string[]>([]);
  const [selected, setSelected] = useState<ReadonlySet<Key>>(NOTHING);
  const [creating, setCreating] = useState(false);
  const source = useNestedRows(props, sort);
  const target = relation && relation.kind !== 'any' ? model.get(relation.to) : undefined;
  if (!source || !target || !relation || relation.kind === 'any') return null;
  const keyOfItem = (item: Row): Key | null => newKeyOf(item) ?? keyOfRow(item, target, model);
  const pathOf = (item: Row): ItemPath | null => {
    const key = keyOfItem(item);
    if (!parent || key === null) return null;
    const keyFields = newKeyOf(item) === null ? target.keys : [];
    return [...parent, { field: field.name, kind: relation.kind, key, keyFields }];
  };
  const mayAdd = edits !== null && parent !== null && relation.kind === 'many' && !target.isView;
  const added = mayAdd ? edits.created(parent, field.name) : [];
  const removal = mayAdd && target.keys.length > 0 ? removalOf(relation, target) : null;
  const remove = (): void => {
    for (const item of [...added, ...source.rows.value]) {
      const path = pathOf(item);
      if (path && selected.has(keyOfItem(item) ?? '')) edits?.remove(path);
    }
    setSelected(NOTHING);
  };
  const heading = `${field.name} of ${isNew ? 'the new item' : titleOf(row, model, collection.name)}`;
  return (
    <section class="nested" aria-label={heading}>
      <header>
        <strong>{field.name}</strong>
        <Described {...{ model, field, relation, target, source }} />
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
        {!isNew && <OpenIn source={source} />}
        {onClose && <Button label="Close" icon="close" kind="quiet" compact onClick={onClose} />}
      </header>
      {source.error.value ? (
        <ErrorBox text={source.error.value} onRetry={() => void source.load()} />
      ) : source.rows.value.length + added.length === 0 && !source.loading.value ? (
        <p class="quiet nested-empty">No items.</p>
      ) : (
        <Grid
          {...{ source, added, model, edits, pathOf, selected, depth }}
          Nested={NestedGrid}
          onSort={setSort}
          onSelect={removal ? setSelected : null}
          label={heading}
          addressOf={(item) => addressOfItem(item, { relation, target, model })}
        />
      )}
      {creating && mayAdd && (
        <AddForm {...{ model, field, relation, target, edits, parent }} onClose={() => setCreating(false)} />
      )}
    </section>
  );
}

/** The related items, or null if the relation has no collection of its own. */
function useNestedRows(
  { model, collection, field, row, value, isNew }: NestedProps,
  sort: readonly string[],
): RowSource | null {
  const { relation } = field;
  const target = relation && relation.kind !== 'any' ? model.get(relation.to) : undefined;
  const source = useMemo(() => {
    if (!target || !relation || relation.kind === 'any') return null;
    const of = relation.kind === 'many' ? { item: row, among: collection } : { item: value as Row, among: target };
    const key = keyOfRow(of.item, of.among, model);
    const own = key === null ? {} : filterByKey(keyColumns(key, of.among.keys));
    const filter = relation.kind === 'many' ? { [relation.by]: own } : own;
    const columns = nestedColumns(target, relation.kind === 'many' ? relation.by : null, farField(relation, model));
    return new RowSource({ collection: target.name, columns, sort, filter, search: '' }, model);
  }, [row, field, sort, keyOf(value, model, target?.name ?? '')]);
  useEffect(() => {
    if (isNew) source?.settle();
    else void source?.load();
    return () => source?.stop();
  }, [source]);
  return source;
}

/** The relation of a junction to the items of the other side, or null. */
function farField(relation: Relation, model: Model): Field | null {
  return relation.kind === 'many' ? farOf(relation, model) : null;
}

interface TargetProps {
  readonly model: Model;
  readonly relation: Relation;
  readonly target: Collection;
}

/** Through a junction, the item of the other side is the one to open. */
function addressOfItem(item: Row, { relation, target, model }: TargetProps): string | null {
  const far = farField(relation, model);
  const to = far ? (targetOf(far, item) ?? '') : target.name;
  const key = keyOf(far ? item[far.name] : item, model, to);
  const isOpened = model.get(to)?.hasItems && key !== undefined && key !== null && newKeyOf(item) === null;
  return isOpened ? addressOfRecord(to, key) : null;
}

/** The collection on the other side of a junction, or null if there is no junction. */
function throughOf(relation: Relation, model: Model): string | null {
  return relation.kind === 'many' && farField(relation, model) ? (relation.farTo ?? 'items') : null;
}

interface DescribedProps extends TargetProps {
  readonly field: Field;
  readonly source: RowSource;
}

function Described({ model, field, relation, target, source }: DescribedProps): JSX.Element {
  const through = throughOf(relation, model);
  const described = [
    ...(through !== null ? [`${through}, through ${target.name}`] : target.name === field.name ? [] : [target.name]),
    ...(source.count.value !== null && relation.kind === 'many' ? [source.count.value] : []),
  ];
  return (
    <>
      <span class="quiet">{described.join(' · ')}</span>
      <span class="grow" />
    </>
  );
}

function OpenIn({ source: { view } }: { readonly source: RowSource }): JSX.Element {
  return (
    <Button
      label={`Open in ${view.collection}`}
      icon="link"
      kind="quiet"
      onClick={() => go(href('data', [view.collection], { filter: JSON.stringify(view.filter) }))}
    />
  );
}

interface AddProps extends TargetProps {
  readonly field: Field;
  readonly relation: ToMany;
  readonly edits: Edits;
  readonly parent: ItemPath;
  readonly onClose: () => void;
}

function AddForm({ model, field, relation, target, edits, parent, onClose }: AddProps): JSX.Element {
  const isDirect = throughOf(relation, model) === null;
  return (
    <CreateForm
      collection={target}
      title={isDirect ? `New item in ${target.name}` : `Add to ${field.name}`}
      model={model}
      without={[relation.by, ...(target.fields.get(relation.by)?.columns ?? [])]}
      submit="Add"
      onClose={onClose}
      onSubmit={async (values, shown) => {
        edits.create(parent, field.name, values, shown);
        onClose();
      }}
    />
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
