/** Data: the collections, and the items of one of them in an editable grid. */
import type { JSX, RefObject } from 'preact';
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
import { type Edits, editsOf, type Key, type Row } from './edits';
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

type Opened = 'filter' | 'columns' | 'import' | 'edit' | 'delete' | ExportFormat | null;

function CollectionView({ collection, model, onList }: ViewProps): JSX.Element {
  const view = viewOf(collection);
  const { source, live, setLive } = useSource(view, model);
  const edits = useMemo(
    () => (!collection.isWritable || viewAs.value ? null : editsOf(collection.name, collection.keys)),
    [collection],
  );
  const [selected, setSelected] = useState<ReadonlySet<Key>>(new Set());
  const [open, setOpen] = useState<Opened>(null);
  const [saving, setSaving] = useState(false);
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
  const anchors = { filter: useRef<HTMLButtonElement>(null), columns: useRef<HTMLButtonElement>(null) };
  const shared = { collection, model, view, source, edits, selected, open, anchors, onShow: show, onOpen: setOpen };
  return (
    <>
      <header class="toolbar">
        <Button label="Collections" icon="menu" kind="quiet" compact onClick={onList} />
        <ListTitle {...shared} />
        <SearchBox value={view.search} onChange={(search) => show({ search })} />
        <ViewButtons {...shared} />
        <Commands {...shared} live={live} onLive={setLive} onReload={refresh} />
      </header>
      <Popovers {...shared} />
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
      <Items {...shared} onSelect={setSelected} />
      {source.loading.value && <div class="loading" role="progressbar" aria-label="Loading" />}
      <Dialogs {...shared} onChanged={refresh} onDeselect={() => setSelected(new Set())} />
    </>
  );
}

/** The rows of the view, which follow the database while `live` is on. */
function useSource(view: View, model: Model) {
  const source = useMemo(() => new RowSource(view, model), [JSON.stringify(view), model]);
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
  return { source, live, setLive };
}

/** The parts of the page share these. */
interface Shared {
  readonly collection: Collection;
  readonly model: Model;
  readonly view: View;
  readonly source: RowSource;
  readonly edits: Edits | null;
  readonly selected: ReadonlySet<Key>;
  readonly open: Opened;
  /** The buttons that open the popovers. */
  readonly anchors: Readonly<Record<'filter' | 'columns', RefObject<HTMLButtonElement | null>>>;
  readonly onShow: (changed: Partial<View>) => void;
  readonly onOpen: (opened: Opened) => void;
}

function ListTitle({ collection, source, edits }: Shared): JSX.Element {
  const count = source.count.value;
  return (
    <>
      <h1 title={collection.note ?? undefined}>{collection.name}</h1>
      <span class="quiet count" aria-live="polite">
        {count !== null && `${describeCount(count)} ${count === 1 ? 'item' : 'items'}`}
      </span>
      {edits && !collection.system && <span class="quiet small tip">Double-click to edit</span>}
      <span class="grow" />
    </>
  );
}

/** Outside the toolbar, whose buttons have no labels on a phone. */
function Popovers(props: Shared): JSX.Element | null {
  const { collection, model, view, open, anchors, onShow, onOpen } = props;
  if (open === 'filter')
    return (
      <Popover anchor={anchors.filter} label="Filter" width={640} onClose={() => onOpen(null)}>
        <FilterDraft
          model={model}
          collection={collection.name}
          group={fromJson(view.filter)}
          onChange={(next) => onShow({ filter: toJson(next) })}
        />
      </Popover>
    );
  if (open !== 'columns') return null;
  return (
    <Popover anchor={anchors.columns} label="Columns" width={340} onClose={() => onOpen(null)}>
      <ColumnChooser
        collection={collection}
        columns={view.columns}
        onChange={(columns) => onShow({ columns })}
        onReset={() => onShow({ columns: initialColumns(collection) })}
        mayAdd={mayAdminister.value && !collection.system}
      />
    </Popover>
  );
}

function ViewButtons({ view, open, anchors, onOpen }: Shared): JSX.Element {
  return (
    <>
      <Button
        label="Filter"
        icon="filter"
        anchor={anchors.filter}
        count={countRules(fromJson(view.filter))}
        expanded={open === 'filter'}
        onClick={() => onOpen(open === 'filter' ? null : 'filter')}
      />
      <Button
        label="Columns"
        icon="columns"
        anchor={anchors.columns}
        expanded={open === 'columns'}
        onClick={() => onOpen(open === 'columns' ? null : 'columns')}
      />
    </>
  );
}

interface CommandsProps extends Shared {
  readonly live: boolean;
  readonly onLive: (live: boolean) => void;
  readonly onReload: () => void;
}

function Commands(props: CommandsProps): JSX.Element {
  const { collection, model, view, live, onLive, onReload, onOpen } = props;
  const isFixed = collection.system || viewAs.value !== null;
  const mayBulk = collection.isWritable && !collection.singleton && !isFixed;
  const isWithout = { disabled: !mayBulk };
  const query = { ...questionOf(view, model), limit: FIRST_LIMIT };
  return (
    <>
      {!collection.system && (
        <Button
          label={me.value?.administrator ? 'SQL and API' : 'API'}
          icon="code"
          hint="This list as REST, GraphQL, SQL and plan"
          onClick={() => go(href('query', [collection.name], { q: JSON.stringify(query) }))}
        />
      )}
      {!collection.singleton && !isFixed && (
        <span class="live">
          <Button
            label="Live"
            icon="pulse"
            pressed={live}
            hint="Keep the rows up to date with the database"
            onClick={() => onLive(!live)}
          />
        </span>
      )}
      <Menu
        label="More"
        icon="more"
        compact
        entries={[
          { label: 'Reload', icon: 'refresh', onClick: onReload },
          { label: 'Import a file', icon: 'upload', onClick: () => onOpen('import'), disabled: isFixed },
          { label: 'Edit all shown items', icon: 'edit', onClick: () => onOpen('edit'), ...isWithout },
          ...EXPORT_FORMATS.map((format) => ({
            label: `Export as ${format.toUpperCase()}`,
            icon: 'save' as const,
            onClick: () => onOpen(format),
            disabled: collection.system,
          })),
          {
            label: 'Delete all shown items',
            icon: 'trash',
            danger: true,
            onClick: () => onOpen('delete'),
            ...isWithout,
          },
        ]}
      />
      {mayCreate(collection) && <Button label="New" icon="plus" kind="primary" onClick={() => openForm(collection)} />}
    </>
  );
}

function openForm({ name }: Collection): void {
  go(href('data', [name], { ...Object.fromEntries(route.value.parameters), new: '1' }));
}

interface ItemsProps extends Shared {
  readonly onSelect: (selected: ReadonlySet<Key>) => void;
}

function Items({ collection, model, view, source, edits, selected, onShow, onSelect }: ItemsProps): JSX.Element {
  const isNarrowed = Boolean(view.filter || view.search);
  if (source.rows.value.length === 0 && !source.loading.value && !source.error.value)
    return (
      <Empty title={isNarrowed ? 'No item matches' : 'No items yet'} icon="table">
        {isNarrowed ? (
          <Button label="Show all items" onClick={() => onShow({ filter: null, search: '' })} />
        ) : mayCreate(collection) ? (
          <Button label="Create the first one" icon="plus" kind="primary" onClick={() => openForm(collection)} />
        ) : null}
      </Empty>
    );
  const addressOf = (row: Row): string | null => {
    const key = keyOf(row, model, collection.name);
    return key === undefined ? null : addressOfRecord(collection.name, key);
  };
  return (
    <Grid
      source={source}
      model={model}
      edits={edits}
      pathOf={(row) => {
        const key = keyOfRow(row, collection, model);
        return key === null ? null : [key];
      }}
      onSort={(sort) => onShow({ sort })}
      selected={selected}
      onSelect={!collection.isWritable || collection.singleton || viewAs.value ? null : onSelect}
      label={collection.name}
      {...(collection.keys.length > 0 ? { addressOf } : {})}
      depth={0}
      Nested={NestedGrid}
    />
  );
}

interface DialogsProps extends Shared {
  readonly onChanged: () => void;
  readonly onDeselect: () => void;
}

function Dialogs(props: DialogsProps): JSX.Element | null {
  const { collection, model, view, source, selected, open, onOpen, onChanged, onDeselect } = props;
  const onClose = (): void => onOpen(null);
  const onDone = (): void => {
    onClose();
    onDeselect();
    onChanged();
  };
  const bulk = { collection, model, view, keys: [...selected], onClose, onDone };
  switch (open) {
    case null:
    case 'filter':
    case 'columns':
      return null;
    case 'import':
      return <ImportDialog collection={collection} onClose={onClose} onDone={onChanged} />;
    case 'edit':
      return <BulkEdit {...bulk} />;
    case 'delete':
      return <BulkDelete {...bulk} />;
    default:
      return <ExportDialog {...{ collection, model, view, onClose }} format={open} count={source.count.value} />;
  }
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
