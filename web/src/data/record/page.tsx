/** One item: its fields in inputs of their kinds, its lists, revisions, comments, versions, readers, and the requests behind it. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../../api';
import type { Collection, Model } from '../../model';
import { route, viewAs } from '../../state';
import { Button, Empty, ErrorBox, Menu } from '../../ui';
import { forgetCounts } from '../collections';
import { type Edits, editsOf, type Row } from '../edits';
import { filterByKey, keyOfRow, titleOf } from '../item';
import { splitKey } from '../key';
import { PendingBar, useEditKeys } from '../pending';
import { saveEdits } from '../save';
import { recordFields } from '../source';
import { BackLink } from './address';
import { Dialogs, type OpenDialog, Part, Tabs, tabsOf } from './parts';
import './record.css';
import { saveVersion, useVersions, VersionChoice, versionEdits } from './versions';

interface RecordProps {
  readonly collection: Collection;
  readonly model: Model;
  /** The key as the API takes it. */
  readonly itemKey: string;
  readonly onList: () => void;
}

export function RecordPage(props: RecordProps): JSX.Element {
  const { collection, model, itemKey, onList } = props;
  const { parameters } = route.value;
  const chosen = parameters.get('version') ?? '';
  const versions = useVersions(collection, itemKey);
  const version = versions.list?.find(({ key }) => key === chosen) ?? null;
  const { row, error, load } = useRecord(props, chosen);
  const edits = useRecordEdits(props, chosen);
  const [wrong, setWrong] = useState<Readonly<Record<string, string>>>({});
  const [saving, setSaving] = useState(false);
  const [open, setOpen] = useState<OpenDialog>(null);
  const [reloads, setReloads] = useState(0);
  const refresh = (): void => {
    setReloads((count) => count + 1);
    void load();
    void versions.load();
    forgetCounts(collection.name);
  };
  const tab = tabsOf(collection).find(([name]) => name === parameters.get('tab'))?.[0] ?? 'fields';
  const save = async (): Promise<void> => {
    if (!edits || edits.count === 0 || saving || Object.keys(wrong).length > 0) return;
    setSaving(true);
    if (await (version ? saveVersion(version, edits) : saveEdits(collection, edits))) refresh();
    setSaving(false);
  };
  useEditKeys(edits, () => void save());
  const rowKey = row ? keyOfRow(row, collection, model) : null;
  const mayDelete = row && edits !== null && !collection.singleton && chosen === '';
  const shared = { collection, model, itemKey, versions, version, chosen, tab, edits };
  return (
    <>
      <header class="toolbar record-bar">
        <Button label="Collections" icon="menu" kind="quiet" compact onClick={onList} />
        <BackLink collection={collection.name} />
        <Title text={row ? titleOf(row, model, collection.name) : itemKey} itemKey={itemKey} />
        {row && <VersionChoice {...shared} />}
        {row && (
          <Button label="As request" icon="code" hint="This item as REST and curl" onClick={() => setOpen('request')} />
        )}
        <More mayDelete={!!mayDelete} onReload={refresh} onDelete={() => setOpen('delete')} />
      </header>
      <PendingBar
        edits={edits}
        saving={saving}
        wrong={Object.keys(wrong).length}
        submit={version ? `Save to ${version.name ?? version.key}` : 'Save'}
        onSave={() => void save()}
        onDiscard={() => setWrong({})}
      />
      {row !== undefined && (row !== null || error === null) && <Tabs {...shared} />}
      {error !== null && <ErrorBox text={error} onRetry={refresh} />}
      {row === undefined && <NoItem itemKey={itemKey} version={chosen} />}
      {row && rowKey !== null && (
        <div class="record-body" key={`${itemKey} ${chosen}`}>
          <Part {...shared} {...{ row, rowKey, wrong, reloads }} onWrong={setWrong} onChanged={refresh} />
        </div>
      )}
      {rowKey !== null && <Dialogs {...shared} open={open} rowKey={rowKey} onClose={() => setOpen(null)} />}
    </>
  );
}

function Title({ text, itemKey }: { readonly text: string; readonly itemKey: string }): JSX.Element {
  return (
    <>
      <h1 title={text}>{text}</h1>
      {text !== itemKey && <span class="quiet record-key">{itemKey}</span>}
      <span class="grow" />
    </>
  );
}

interface MoreProps {
  readonly mayDelete: boolean;
  readonly onReload: () => void;
  readonly onDelete: () => void;
}

function More({ mayDelete, onReload, onDelete }: MoreProps): JSX.Element {
  return (
    <Menu
      label="More"
      icon="more"
      compact
      entries={[
        { label: 'Reload', icon: 'refresh', onClick: onReload },
        { label: 'Delete', icon: 'trash', danger: true, disabled: !mayDelete, onClick: onDelete },
      ]}
    />
  );
}

function NoItem({ itemKey, version }: { readonly itemKey: string; readonly version: string }): JSX.Element {
  return (
    <Empty title={`There is no item ${itemKey}`} icon="table">
      {version === '' ? 'It was deleted, or you may not see it.' : `It has no version “${version}”.`}
    </Empty>
  );
}

/** The pending changes of the item or of its version, or null if the caller may not write. */
function useRecordEdits({ collection, itemKey }: RecordProps, version: string): Edits | null {
  return useMemo(() => {
    if (viewAs.value || !collection.isWritable) return null;
    return version === '' ? editsOf(collection.name, collection.keys) : versionEdits(collection, itemKey, version);
  }, [collection, itemKey, version]);
}

/** The item: null until it is loaded, undefined if there is none. */
function useRecord(
  { collection, model, itemKey }: RecordProps,
  version: string,
): { readonly row: Row | null | undefined; readonly error: string | null; readonly load: () => Promise<void> } {
  const [row, setRow] = useState<Row | null | undefined>(null);
  const [error, setError] = useState<string | null>(null);
  const load = async (): Promise<void> => {
    try {
      setRow(await loadRecord(collection, model, itemKey, version));
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => {
    setRow(null);
    setError(null);
    void load();
  }, [collection, itemKey, version]);
  return { row, error, load };
}

async function loadRecord(
  collection: Collection,
  model: Model,
  itemKey: string,
  version: string,
): Promise<Row | undefined> {
  if (collection.singleton) return (await call<Row>('GET', itemsPath(collection.name))).data;
  const query = {
    fields: recordFields(collection, model),
    filter: filterByKey(splitKey(itemKey, collection.keys)),
    limit: 1,
    ...(version === '' ? {} : { version }),
  };
  const { data } = await call<Row[]>('SEARCH', itemsPath(collection.name), { body: { query } });
  return data[0];
}
