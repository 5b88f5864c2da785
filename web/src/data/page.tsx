/** Data: the collections, and the items of one of them in an editable grid. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { FilterDraft } from '../filter/editor';
import { countRules, fromJson, toJson } from '../filter/filter';
import type { Collection, Model } from '../model';
import { FIRST_LIMIT } from '../query/query';
import { go, href, keepModel, mayAdminister, me, model as modelSignal, route, toast, viewAs } from '../state';
import { Button, Empty, ErrorBox, Menu, Popover } from '../ui';
import { BulkDelete, BulkEdit } from './bulk';
import { CollectionList, forgetCounts } from './collections';
import { ColumnChooser } from './columns';
import './data.css';
import { editsOf, type Key, type Row } from './edits';
import { EXPORT_FORMATS, ExportDialog, type ExportFormat } from './export';
import { Grid } from './grid';
import { ImportDialog } from './import';
import { keyOf, keyOfRow } from './item';
import { NestedGrid } from './nested';
import { PendingBar, useEditKeys } from './pending';
import { addressOfRecord } from './record/address';
import { NewRecord } from './record/new';
import { RecordPage } from './record/page';
import { saveEdits } from './save';
import { initialColumns, questionOf, RowSource, type View } from './source';
import { describeCount } from './values';
import { addressOfView, rememberColumns, viewOf } from './view';

export function DataPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const [name = '', key] = route.value.rest;
  const collection = model.get(name);
  const [listOpen, setListOpen] = useState(false);
  const isNew = route.value.parameters.has('new');
  useEffect(() => setListOpen(false), [name, key, isNew]);
  const onList = (): void => setListOpen(true);
  useEffect(keepModel, []);
  useEffect(() => {
    const first = [...model.values()].find((each) => !each.system);
    if (name === '' && first && innerWidth >= 720) go(href('data', [first.name]), true);
  }, [name]);
  return (
    <div class={`data${listOpen || name === '' ? ' list-open' : ''}`}>
      <CollectionList model={model} current={name} />
      <section class="data-main">
        {collection && !collection.hasItems ? (
          <Empty title={`${name} has no items`} icon="table">
            The API does not serve this table of the service as items.
          </Empty>
        ) : collection && key !== undefined && key !== '' && collection.keys.length > 0 ? (
          <RecordPage key={`${name} ${key}`} collection={collection} model={model} itemKey={key} onList={onList} />
        ) : collection && isNew && mayCreate(collection) ? (
          <NewRecord key={name} collection={collection} model={model} onList={onList} />
        ) : collection ? (
          <CollectionView key={name} collection={collection} model={model} onList={onList} />
        ) : name === '' ? (
          <Empty title="Choose a collection" icon="table">
            {model.size === 0 && 'The database has no collection that you may see.'}
          </Empty>
        ) : (
          <Empty title={`There is no collection “${name}”`} icon="table">
            It was removed, or you may not see it. <a href="#/data">Go to the data</a>
          </Empty>
        )}
      </section>
    </div>
  );
}

/** Rows of a table without a key cannot be read back, so the API creates none. */
function mayCreate(collection: Collection): boolean {
  return collection.isWritable && !collection.singleton && !viewAs.value;
}

interface ViewProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onList: () => void;
}

function CollectionView({ collection, model, onList }: ViewProps): JSX.Element {
  const view = viewOf(collection);
  const source = useMemo(() => new RowSource(view, model), [JSON.stringify(view), model]);
  const edits = useMemo(
    () => (!collection.isWritable || viewAs.value ? null : editsOf(collection.name, collection.keys)),
    [collection],
  );
  const [selected, setSelected] = useState<ReadonlySet<Key>>(new Set());
  const [open, setOpen] = useState<'filter' | 'columns' | 'import' | 'edit' | 'delete' | null>(null);
  const [format, setFormat] = useState<ExportFormat | null>(null);
  const [saving, setSaving] = useState(false);
  const filterButton = useRef<HTMLButtonElement>(null);
  const columnsButton = useRef<HTMLButtonElement>(null);
  const [live, setLive] = useState(false);
  useEffect(() => {
    void source.load();
    return () => source.stop();
  }, [source]);
  const isLoaded = !source.loading.value;
  useEffect(() => {
    if (!live || !isLoaded) return;
    source.follow((message) => {
      setLive(false);
      toast(`Live updates stopped: ${message}`, 'bad');
    });
  }, [source, live, isLoaded, source.outgrown]);
  useEffect(() => {
    if (!live) source.unfollow();
  }, [source, live]);

  const show = (changed: Partial<View>): void => {
    // Reads the current address: a search or a filter applies shortly after it is typed.
    const next = { ...viewOf(collection), ...changed };
    if (changed.columns) rememberColumns(collection, next.columns);
    go(addressOfView(collection, next), true);
  };
  const refresh = (): void => {
    void source.load(source.rows.value.length);
    forgetCounts(collection.name);
  };
  const save = async (): Promise<void> => {
    if (!edits || edits.count === 0 || saving) return;
    setSaving(true);
    if (await saveEdits(collection, edits)) refresh();
    setSaving(false);
  };
  useEditKeys(edits, () => void save());
  const create = (): void =>
    go(href('data', [collection.name], { ...Object.fromEntries(route.value.parameters), new: '1' }));
  const isFixed = collection.system || viewAs.value !== null;
  const mayBulk = collection.isWritable && !collection.singleton && !isFixed;
  const bulk = {
    collection,
    model,
    view,
    keys: [...selected],
    onClose: () => setOpen(null),
    onDone: () => {
      setOpen(null);
      setSelected(new Set());
      refresh();
    },
  };
  const group = fromJson(view.filter);
  const count = source.count.value;
  return (
    <>
      <header class="toolbar">
        <Button label="Collections" icon="menu" kind="quiet" compact onClick={onList} />
        <h1 title={collection.note ?? undefined}>{collection.name}</h1>
        <span class="quiet count" aria-live="polite">
          {count !== null && `${describeCount(count)} ${count === 1 ? 'item' : 'items'}`}
        </span>
        {edits && !collection.system && <span class="quiet small tip">Double-click to edit</span>}
        <span class="grow" />
        <SearchBox value={view.search} onChange={(search) => show({ search })} />
        <Button
          label="Filter"
          icon="filter"
          anchor={filterButton}
          count={countRules(group)}
          expanded={open === 'filter'}
          onClick={() => setOpen(open === 'filter' ? null : 'filter')}
        />
        <Button
          label="Columns"
          icon="columns"
          anchor={columnsButton}
          expanded={open === 'columns'}
          onClick={() => setOpen(open === 'columns' ? null : 'columns')}
        />
        {!collection.system && (
          <Button
            label={me.value?.administrator ? 'SQL and API' : 'API'}
            icon="code"
            hint="This list as REST, GraphQL, SQL and plan"
            onClick={() => {
              const query = { ...questionOf(view, model), limit: FIRST_LIMIT };
              go(href('query', [collection.name], { q: JSON.stringify(query) }));
            }}
          />
        )}
        {!collection.singleton && !collection.system && !viewAs.value && (
          <span class="live">
            <Button
              label="Live"
              icon="pulse"
              pressed={live}
              hint="Keep the rows up to date with the database"
              onClick={() => setLive(!live)}
            />
          </span>
        )}
        <Menu
          label="More"
          icon="more"
          compact
          entries={[
            { label: 'Reload', icon: 'refresh', onClick: refresh },
            { label: 'Import a file', icon: 'upload', onClick: () => setOpen('import'), disabled: isFixed },
            { label: 'Edit all shown items', icon: 'edit', onClick: () => setOpen('edit'), disabled: !mayBulk },
            ...EXPORT_FORMATS.map((format) => ({
              label: `Export as ${format.toUpperCase()}`,
              icon: 'save' as const,
              onClick: () => setFormat(format),
              disabled: collection.system,
            })),
            {
              label: 'Delete all shown items',
              icon: 'trash',
              danger: true,
              onClick: () => setOpen('delete'),
              disabled: !mayBulk,
            },
          ]}
        />
        {mayCreate(collection) && <Button label="New" icon="plus" kind="primary" onClick={create} />}
      </header>
      {open === 'filter' && (
        <Popover anchor={filterButton} label="Filter" width={560} onClose={() => setOpen(null)}>
          <FilterDraft
            model={model}
            collection={collection.name}
            group={group}
            onChange={(next) => show({ filter: toJson(next) })}
          />
        </Popover>
      )}
      {open === 'columns' && (
        <Popover anchor={columnsButton} label="Columns" width={340} onClose={() => setOpen(null)}>
          <ColumnChooser
            collection={collection}
            columns={view.columns}
            onChange={(columns) => show({ columns })}
            onReset={() => show({ columns: initialColumns(collection) })}
            mayAdd={mayAdminister.value && !collection.system}
          />
        </Popover>
      )}
      <PendingBar edits={edits} saving={saving} onSave={() => void save()} />
      {selected.size > 0 && (
        <div class="selection" role="region" aria-label="Selection">
          <strong>{selected.size === 1 ? 'One item' : `${selected.size} items`} selected</strong>
          <Button label="Edit" icon="edit" onClick={() => setOpen('edit')} />
          <Button label="Delete" icon="trash" kind="danger" onClick={() => setOpen('delete')} />
          <Button label="Clear selection" icon="close" kind="quiet" compact onClick={() => setSelected(new Set())} />
        </div>
      )}
      {source.error.value && <ErrorBox text={source.error.value} onRetry={() => void source.load()} />}
      {source.rows.value.length === 0 && !source.loading.value && !source.error.value ? (
        <Empty title={view.filter || view.search ? 'No item matches' : 'No items yet'} icon="table">
          {view.filter || view.search ? (
            <Button label="Show all items" onClick={() => show({ filter: null, search: '' })} />
          ) : mayCreate(collection) ? (
            <Button label="Create the first one" icon="plus" kind="primary" onClick={create} />
          ) : null}
        </Empty>
      ) : (
        <Grid
          source={source}
          model={model}
          edits={edits}
          pathOf={(row) => {
            const key = keyOfRow(row, collection, model);
            return key === null ? null : [key];
          }}
          onSort={(sort) => show({ sort })}
          selected={selected}
          onSelect={!collection.isWritable || collection.singleton || viewAs.value ? null : setSelected}
          label={collection.name}
          {...(collection.keys.length > 0
            ? {
                addressOf: (row: Row) => {
                  const key = keyOf(row, model, collection.name);
                  return key === undefined ? null : addressOfRecord(collection.name, key);
                },
              }
            : {})}
          depth={0}
          Nested={NestedGrid}
        />
      )}
      {source.loading.value && <div class="loading" role="progressbar" aria-label="Loading" />}
      {open === 'import' && <ImportDialog collection={collection} onClose={() => setOpen(null)} onDone={refresh} />}
      {format && (
        <ExportDialog
          collection={collection}
          model={model}
          view={view}
          format={format}
          count={count}
          onClose={() => setFormat(null)}
        />
      )}
      {open === 'edit' && <BulkEdit {...bulk} />}
      {open === 'delete' && <BulkDelete {...bulk} />}
    </>
  );
}

function SearchBox({
  value,
  onChange,
}: {
  readonly value: string;
  readonly onChange: (text: string) => void;
}): JSX.Element {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const wait = setTimeout(() => onChange(text), 250);
    return () => clearTimeout(wait);
  }, [text]);
  return (
    <input
      class="search"
      type="search"
      aria-label="Search items"
      placeholder="Search"
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
    />
  );
}
