/** One item: its fields in inputs of their kinds, its lists, revisions, comments, versions, readers, and the requests behind it. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../../api';
import type { Collection, Model } from '../../model';
import { go, mayAdminister, route, toast, viewAs } from '../../state';
import { Button, Empty, ErrorBox, Menu } from '../../ui';
import { forgetCounts } from '../collections';
import { DeleteDialog } from '../delete';
import { deletionOf, type Edits, editsOf, keyColumns, type Row } from '../edits';
import { filterByKey, keyOfRow, titleOf } from '../item';
import { splitKey } from '../key';
import { PendingBar, useEditKeys } from '../pending';
import { saveEdits } from '../save';
import { recordFields } from '../source';
import { addressOfList, addressOfRecord, BackLink } from './address';
import { Comments } from './comments';
import { RecordFields } from './fields';
import './record.css';
import { RequestDialog } from './request';
import { Revisions } from './revisions';
import { saveVersion, useVersions, VersionChoice, Versions, versionEdits } from './versions';
import { Viewers } from './viewers';

interface RecordProps {
  readonly collection: Collection;
  readonly model: Model;
  /** The key as the API takes it. */
  readonly itemKey: string;
  readonly onList: () => void;
}

const TABS = [
  ['fields', 'Fields'],
  ['revisions', 'Revisions'],
  ['comments', 'Comments'],
  ['versions', 'Versions'],
  ['access', 'Readers'],
] as const;

type Tab = (typeof TABS)[number][0];

export function RecordPage(props: RecordProps): JSX.Element {
  const { collection, model, itemKey, onList } = props;
  const { parameters } = route.value;
  const chosen = parameters.get('version') ?? '';
  const versions = useVersions(collection, itemKey);
  const version = versions.list?.find(({ key }) => key === chosen) ?? null;
  const { row, error, load } = useRecord(props, chosen);
  const edits = useMemo((): Edits | null => {
    if (viewAs.value || !collection.isWritable) return null;
    return chosen === '' ? editsOf(collection.name, collection.keys) : versionEdits(collection, itemKey, chosen);
  }, [collection, itemKey, chosen]);
  const [wrong, setWrong] = useState<Readonly<Record<string, string>>>({});
  const [saving, setSaving] = useState(false);
  const [open, setOpen] = useState<'request' | 'delete' | null>(null);
  const [reloads, setReloads] = useState(0);
  const refresh = (): void => {
    setReloads((count) => count + 1);
    void load();
    void versions.load();
    forgetCounts(collection.name);
  };
  const mayComment = collection.keys.length > 0 && !collection.system;
  const tabs = TABS.filter(([name]) => {
    if (name === 'fields') return true;
    if (name === 'access') return mayAdminister.value && !collection.system;
    if (name === 'revisions') return collection.hasRevisions;
    return mayComment && !collection.singleton;
  });
  const tab = tabs.find(([name]) => name === parameters.get('tab'))?.[0] ?? 'fields';
  const addressOfTab = (name: Tab): string =>
    addressOfRecord(collection.name, itemKey, { tab: name === 'fields' ? '' : name, version: chosen });
  const save = async (): Promise<void> => {
    if (!edits || edits.count === 0 || saving || Object.keys(wrong).length > 0) return;
    setSaving(true);
    if (await (version ? saveVersion(version, edits) : saveEdits(collection, edits))) refresh();
    setSaving(false);
  };
  useEditKeys(edits, () => void save());
  const key = row ? keyOfRow(row, collection, model) : null;
  const remove = async (): Promise<void> => {
    setOpen(null);
    if (key === null) return;
    try {
      await call('DELETE', itemsPath(collection.name), { body: deletionOf([key], collection.keys) });
      toast('One item deleted');
      forgetCounts(collection.name);
      go(addressOfList(collection.name));
    } catch (failure) {
      toast(`Not deleted: ${messageOf(failure)}`, 'bad');
    }
  };
  const title = row ? titleOf(row, model, collection.name) : itemKey;
  return (
    <>
      <header class="toolbar record-bar">
        <Button label="Collections" icon="menu" kind="quiet" compact onClick={onList} />
        <BackLink collection={collection.name} />
        <h1 title={title}>{title}</h1>
        {title !== itemKey && <span class="quiet record-key">{itemKey}</span>}
        <span class="grow" />
        {row && <VersionChoice versions={versions} collection={collection} itemKey={itemKey} chosen={chosen} />}
        {row && (
          <Button label="As request" icon="code" hint="This item as REST and curl" onClick={() => setOpen('request')} />
        )}
        <Menu
          label="More"
          icon="more"
          compact
          entries={[
            { label: 'Reload', icon: 'refresh', onClick: refresh },
            {
              label: 'Delete',
              icon: 'trash',
              danger: true,
              disabled: !row || edits === null || collection.singleton || chosen !== '',
              onClick: () => setOpen('delete'),
            },
          ]}
        />
      </header>
      <PendingBar
        edits={edits}
        saving={saving}
        wrong={Object.keys(wrong).length}
        submit={version ? `Save to ${version.name ?? version.key}` : 'Save'}
        onSave={() => void save()}
        onDiscard={() => setWrong({})}
      />
      <nav class="tabs record-tabs" aria-label="Parts of the item">
        {tabs.map(([name, label]) => (
          <a key={name} href={addressOfTab(name)} aria-current={tab === name ? 'page' : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {error !== null && <ErrorBox text={error} onRetry={refresh} />}
      {row === undefined && (
        <Empty title={`There is no item ${itemKey}`} icon="table">
          {chosen === '' ? 'It was deleted, or you may not see it.' : `It has no version “${chosen}”.`}
        </Empty>
      )}
      {row && key !== null && (
        <div class="record-body" key={`${itemKey} ${chosen}`}>
          {tab === 'fields' && (
            <RecordFields
              collection={collection}
              model={model}
              row={row}
              path={[key]}
              edits={edits}
              wrong={wrong}
              onWrong={setWrong}
              reloads={reloads}
              version={chosen}
            />
          )}
          {tab === 'revisions' && (
            <Revisions
              collection={collection}
              model={model}
              row={row}
              itemKey={itemKey}
              reloads={reloads}
              onRestored={refresh}
            />
          )}
          {tab === 'comments' && <Comments collection={collection} itemKey={itemKey} />}
          {tab === 'versions' && (
            <Versions collection={collection} itemKey={itemKey} versions={versions} onPromoted={refresh} />
          )}
          {tab === 'access' && <Viewers collection={collection} keyValues={keyColumns(key, collection.keys)} />}
        </div>
      )}
      {open === 'request' && row && (
        <RequestDialog
          collection={collection}
          itemKey={itemKey}
          model={model}
          edits={edits}
          version={version}
          onClose={() => setOpen(null)}
        />
      )}
      {open === 'delete' && key !== null && (
        <DeleteDialog
          collection={collection}
          keys={[key]}
          onClose={() => setOpen(null)}
          onDelete={() => void remove()}
        />
      )}
    </>
  );
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
