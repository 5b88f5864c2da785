/** Data: the collections, and the items of one of them in an editable grid. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, call, download, itemsPath, messageOf } from '../api';
import { FilterDraft } from '../filter/editor';
import { countRules, fromJson, toJson } from '../filter/filter';
import type { Collection, Model } from '../model';
import { FIRST_LIMIT } from '../query/query';
import { go, href, mayAdminister, me, model as modelSignal, route, toast, viewAs } from '../state';
import { Button, Empty, ErrorBox, Menu, Popover } from '../ui';
import { CollectionList, forgetCounts } from './collections';
import { ColumnChooser } from './columns';
import './data.css';
import { DeleteDialog } from './delete';
import { deletionOf, type Edits, editsOf, type Key } from './edits';
import { CreateForm } from './form';
import { Grid } from './grid';
import { keyOfRow } from './item';
import { initialColumns, queryOf, questionOf, RowSource, type View } from './source';
import { EXPORT_FORMATS, ImportDialog } from './transfer';
import { describeCount } from './values';
import { addressOfView, rememberColumns, viewOf } from './view';

export function DataPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const [name = ''] = route.value.rest;
  const collection = model.get(name);
  const [listOpen, setListOpen] = useState(false);
  useEffect(() => setListOpen(false), [name]);
  useEffect(() => {
    const first = [...model.values()].find((each) => !each.system);
    if (name === '' && first && innerWidth >= 720) go(href('data', [first.name]), true);
  }, [name]);
  return (
    <div class={`data${listOpen || name === '' ? ' list-open' : ''}`}>
      <CollectionList model={model} current={name} />
      <section class="data-main">
        {collection ? (
          <CollectionView key={name} collection={collection} model={model} onList={() => setListOpen(true)} />
        ) : name === '' ? (
          <Empty title="Choose a collection" icon="table">
            {model.size === 0 && 'The database has no collection that you may see.'}
          </Empty>
        ) : (
          <Empty title={`There is no collection “${name}”`} icon="table">
            It was removed, or you may not see it.
          </Empty>
        )}
      </section>
    </div>
  );
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
    () => (collection.keys.length === 0 || viewAs.value ? null : editsOf(collection.name, collection.keys)),
    [collection],
  );
  const [selected, setSelected] = useState<ReadonlySet<Key>>(new Set());
  const [open, setOpen] = useState<'filter' | 'columns' | 'create' | 'import' | 'delete' | null>(null);
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
    edits.errors.value = new Map();
    const changes = edits.count;
    try {
      const payload = edits.payload();
      await (collection.singleton
        ? call('PATCH', itemsPath(collection.name), { body: payload[0] })
        : call('PATCH', `${itemsPath(collection.name)}?fields=${collection.keys.join(',')}`, { body: payload }));
      edits.clear();
      toast(changes === 1 ? 'One change saved' : `${changes} changes saved, in one statement`);
      refresh();
    } catch (error) {
      if (!placed(error, edits)) toast(`Not saved: ${messageOf(error)}`, 'bad');
    }
    setSaving(false);
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey)) return;
      const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
      if (event.key === 's') {
        event.preventDefault();
        (document.activeElement as HTMLElement | null)?.blur();
        setTimeout(() => void save());
      } else if (event.key === 'z' && !isTyping) {
        event.preventDefault();
        edits?.undo();
      }
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
  const remove = async (): Promise<void> => {
    setOpen(null);
    try {
      await call('DELETE', itemsPath(collection.name), { body: deletionOf([...selected], collection.keys) });
      toast(selected.size === 1 ? 'One item deleted' : `${selected.size} items deleted`);
      setSelected(new Set());
      refresh();
    } catch (error) {
      toast(`Not deleted: ${messageOf(error)}`, 'bad');
    }
  };
  const exportAs = (format: string): void => {
    const path = `/utils/export/${encodeURIComponent(collection.name)}`;
    const query = { ...queryOf(view, model), fields: exportedFields(view, collection), limit: -1 };
    download('POST', path, { format, query }, `${collection.name}.${format}`).catch((error: unknown) =>
      toast(`Not exported: ${messageOf(error)}`, 'bad'),
    );
  };

  const group = fromJson(view.filter);
  const isFixed = collection.system || viewAs.value !== null;
  const count = source.count.value;
  const changed = edits?.count ?? 0;
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
            ...EXPORT_FORMATS.map((format) => ({
              label: `Export as ${format.toUpperCase()}`,
              icon: 'save' as const,
              onClick: () => exportAs(format),
              disabled: collection.system,
            })),
          ]}
        />
        {!collection.singleton && !viewAs.value && (
          <Button label="New" icon="plus" kind="primary" onClick={() => setOpen('create')} />
        )}
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
      {(changed > 0 || selected.size > 0) && (
        <div class="pending" role="region" aria-label="Pending">
          {changed > 0 && (
            <>
              <strong>{changed === 1 ? 'One change' : `${changed} changes`} not saved</strong>
              <Button label="Undo" icon="undo" hint="Ctrl Z" onClick={() => edits?.undo()} />
              <Button label="Discard" onClick={() => edits?.clear()} />
              <Button
                label={saving ? 'Saving…' : 'Save'}
                icon="check"
                kind="primary"
                hint="Ctrl S"
                disabled={saving}
                onClick={() => void save()}
              />
            </>
          )}
          <span class="grow" />
          {selected.size > 0 && (
            <>
              <span>{selected.size === 1 ? 'One item' : `${selected.size} items`} selected</span>
              <Button label="Delete" icon="trash" kind="danger" onClick={() => setOpen('delete')} />
              <Button
                label="Clear selection"
                icon="close"
                kind="quiet"
                compact
                onClick={() => setSelected(new Set())}
              />
            </>
          )}
        </div>
      )}
      {source.error.value && <ErrorBox text={source.error.value} onRetry={() => void source.load()} />}
      {source.rows.value.length === 0 && !source.loading.value && !source.error.value ? (
        <Empty title={view.filter || view.search ? 'No item matches' : 'No items yet'} icon="table">
          {view.filter || view.search ? (
            <Button label="Show all items" onClick={() => show({ filter: null, search: '' })} />
          ) : viewAs.value ? null : (
            <Button label="Create the first one" icon="plus" kind="primary" onClick={() => setOpen('create')} />
          )}
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
          onSelect={collection.keys.length === 0 || collection.singleton || viewAs.value ? null : setSelected}
          label={collection.name}
          depth={0}
        />
      )}
      {source.loading.value && <div class="loading" role="progressbar" aria-label="Loading" />}
      {open === 'create' && (
        <CreateForm
          collection={collection}
          model={model}
          submit="Create"
          onClose={() => setOpen(null)}
          onSubmit={async (body) => {
            await call('POST', itemsPath(collection.name), { body });
            setOpen(null);
            toast('Item created');
            refresh();
          }}
        />
      )}
      {open === 'import' && (
        <ImportDialog collection={collection.name} onClose={() => setOpen(null)} onDone={refresh} />
      )}
      {open === 'delete' && (
        <DeleteDialog
          collection={collection}
          keys={[...selected]}
          onClose={() => setOpen(null)}
          onDelete={() => void remove()}
        />
      )}
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

/** A file contains the fields that an import accepts: keys of related items. */
function exportedFields(view: View, collection: Collection): string[] {
  return view.columns.filter((name) => collection.fields.get(name)?.column);
}

/** Whether the error could be shown at its cell. */
function placed(error: unknown, edits: Edits): boolean {
  if (!(error instanceof ApiError)) return false;
  const results = error.failures.map(({ message, extensions }) => {
    const { path } = extensions;
    // If a type refuses a value, only the message names the field.
    const field = extensions['field'] ?? edits.fields.find((name) => message.includes(`"${name}"`));
    return typeof field === 'string' && edits.placeError(field, Array.isArray(path) ? path : [], message);
  });
  return results.length > 0 && results.every(Boolean);
}
