/** Content versions of an item: drafts that are saved apart, compared with the item, and promoted. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, call, messageOf } from '../../api';
import { Confirm } from '../../forms';
import type { Collection } from '../../model';
import { go, mayAdminister, reloadModel, toast, viewAs } from '../../state';
import { Button, Empty, ErrorBox, FormDialog } from '../../ui';
import { type Edits, editsOf, type Row } from '../edits';
import { placed } from '../save';
import { addressOfRecord } from './address';
import { DifferenceTable, differences } from './difference';

export interface Version {
  readonly id: string;
  readonly key: string;
  readonly name: string | null;
}

export interface VersionList {
  /** Null until it is loaded. */
  readonly list: readonly Version[] | null;
  readonly error: string | null;
  readonly load: () => Promise<void>;
}

export function useVersions(collection: Collection, itemKey: string): VersionList {
  const [list, setList] = useState<readonly Version[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const load = async (): Promise<void> => {
    if (!collection.versioning) return setList([]);
    const filter = { collection: { _eq: collection.name }, item: { _eq: itemKey } };
    try {
      const query = { fields: ['id', 'key', 'name'], filter, sort: ['key'], limit: 200 };
      setList((await call<Version[]>('SEARCH', '/versions', { body: { query } })).data);
      setError(null);
    } catch (failure) {
      setList([]);
      // A caller without permission for versions sees none.
      if (!(failure instanceof ApiError && failure.status === 403)) setError(messageOf(failure));
    }
  };
  useEffect(() => {
    setList(null);
    void load();
  }, [collection, itemKey]);
  return { list, error, load };
}

/** Pending changes of a version, apart from those of the item. */
export function versionEdits(collection: Collection, itemKey: string, key: string): Edits {
  return editsOf(`${collection.name} ${itemKey} @${key}`, collection.keys);
}

export async function saveVersion(version: Version, edits: Edits): Promise<boolean> {
  edits.errors.value = new Map();
  const sent = edits.all.value;
  const payload = edits.payload()[0] ?? {};
  const changes = Object.fromEntries(Object.entries(payload).filter(([name]) => !edits.keyFields.includes(name)));
  try {
    await call('POST', `/versions/${version.id}/save`, { body: changes });
    edits.forgetSaved(sent);
    toast(`Saved to ${version.name ?? version.key}`);
    return true;
  } catch (error) {
    if (!placed(error, edits)) toast(`Not saved: ${messageOf(error)}`, 'bad');
    return false;
  }
}

interface ChoiceProps {
  readonly versions: VersionList;
  readonly collection: Collection;
  readonly itemKey: string;
  readonly chosen: string;
}

/** The version that the page shows and changes. */
export function VersionChoice({ versions, collection, itemKey, chosen }: ChoiceProps): JSX.Element | null {
  if (!versions.list || versions.list.length === 0) return null;
  return (
    <select
      aria-label="Version"
      value={chosen}
      onChange={(event) => go(addressOfRecord(collection.name, itemKey, { version: event.currentTarget.value }))}
    >
      <option value="">Published item</option>
      {versions.list.map(({ id, key, name }) => (
        <option key={id} value={key}>
          {name ?? key}
        </option>
      ))}
    </select>
  );
}

interface VersionsProps {
  readonly collection: Collection;
  readonly itemKey: string;
  readonly versions: VersionList;
  readonly onPromoted: () => void;
}

export function Versions({ collection, itemKey, versions, onPromoted }: VersionsProps): JSX.Element {
  const [creating, setCreating] = useState(false);
  if (!collection.versioning)
    return (
      <Empty title="Versions are off" icon="copy">
        <p>A version stores changes of an item until you promote them.</p>
        {mayAdminister.value && (
          <Button label={`Turn on versions for ${collection.name}`} onClick={() => void turnOn(collection)} />
        )}
      </Empty>
    );
  if (versions.error) return <ErrorBox text={versions.error} onRetry={() => void versions.load()} />;
  if (!versions.list) return <p class="boot">Loading…</p>;
  return (
    <>
      {!viewAs.value && (
        <div class="row">
          <Button label="New version" icon="plus" kind="primary" onClick={() => setCreating(true)} />
        </div>
      )}
      {versions.list.length === 0 && (
        <p class="quiet">No versions yet. A version stores changes until you promote them.</p>
      )}
      {versions.list.map((version) => (
        <VersionEntry
          key={version.id}
          collection={collection}
          itemKey={itemKey}
          version={version}
          onChanged={() => void versions.load()}
          onPromoted={onPromoted}
        />
      ))}
      {creating && (
        <CreateVersion
          collection={collection}
          itemKey={itemKey}
          onClose={() => setCreating(false)}
          onMade={async (key) => {
            setCreating(false);
            await versions.load();
            go(addressOfRecord(collection.name, itemKey, { version: key }));
          }}
        />
      )}
    </>
  );
}

async function turnOn(collection: Collection): Promise<void> {
  try {
    await call('PATCH', `/collections/${encodeURIComponent(collection.name)}`, {
      body: { meta: { versioning: true } },
    });
    await reloadModel();
  } catch (error) {
    toast(`Not turned on: ${messageOf(error)}`, 'bad');
  }
}

interface CreateProps {
  readonly collection: Collection;
  readonly itemKey: string;
  readonly onClose: () => void;
  readonly onMade: (key: string) => Promise<void>;
}

function CreateVersion({ collection, itemKey, onClose, onMade }: CreateProps): JSX.Element {
  const [key, setKey] = useState('draft');
  const [name, setName] = useState('');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const create = async (): Promise<void> => {
    setBusy(true);
    try {
      const body = {
        key: key.trim(),
        name: name.trim() === '' ? null : name.trim(),
        collection: collection.name,
        item: itemKey,
      };
      await call('POST', '/versions', { body });
      await onMade(body.key);
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title="New version"
      submit="Create"
      disabled={busy || key.trim() === ''}
      onClose={onClose}
      onSubmit={() => void create()}
    >
      {error && <ErrorBox text={error} />}
      <div class="field">
        <label for="version-key">
          Key <small>as in ?version=draft</small>
        </label>
        <input id="version-key" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </div>
      <div class="field">
        <label for="version-name">Name</label>
        <input id="version-name" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </div>
    </FormDialog>
  );
}

interface Comparison {
  readonly outdated: boolean;
  readonly mainHash: string;
  readonly current: Row;
  readonly main: Row;
}

interface EntryProps {
  readonly collection: Collection;
  readonly itemKey: string;
  readonly version: Version;
  readonly onChanged: () => void;
  readonly onPromoted: () => void;
}

function VersionEntry({ collection, itemKey, version, onChanged, onPromoted }: EntryProps): JSX.Element {
  const [comparison, setComparison] = useState<Comparison | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [busy, setBusy] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const compare = async (): Promise<void> => {
    try {
      setComparison((await call<Comparison>('GET', `/versions/${version.id}/compare`)).data);
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void compare(), [version.id]);
  const list = comparison ? differences(comparison.main, comparison.current) : [];
  const fields = list.map(({ field }) => field).filter((field) => !left.has(field));
  const promote = async (): Promise<void> => {
    setBusy(true);
    try {
      await call('POST', `/versions/${version.id}/promote`, { body: { mainHash: comparison?.mainHash, fields } });
      toast('Version promoted');
      onPromoted();
      await compare();
    } catch (failure) {
      setError(messageOf(failure));
    }
    setBusy(false);
  };
  const toggle = (field: string): void =>
    setLeft(new Set(left.has(field) ? [...left].filter((each) => each !== field) : [...left, field]));
  const title = version.name ?? version.key;
  return (
    <section class="version" aria-label={`Version ${title}`}>
      <header>
        <strong>{title}</strong>
        {title !== version.key && <code>{version.key}</code>}
        {comparison?.outdated && list.length > 0 && (
          <span class="warm">The item has changed since this version was created</span>
        )}
        <span class="actions">
          <a class="button" href={addressOfRecord(collection.name, itemKey, { version: version.key })}>
            Edit
          </a>
          {!viewAs.value && (
            <>
              <Button
                label="Promote"
                kind="primary"
                disabled={busy || fields.length === 0}
                onClick={() => void promote()}
              />
              <Button
                label="Delete"
                icon="trash"
                kind="quiet"
                compact
                disabled={busy}
                onClick={() => setDeleting(true)}
              />
            </>
          )}
        </span>
      </header>
      {error && <ErrorBox text={error} onRetry={() => void compare()} />}
      {comparison && list.length === 0 && <p class="quiet">It has no changes. Choose Edit to make some.</p>}
      {list.length > 0 && (
        <DifferenceTable
          list={list}
          collection={collection}
          before="Published"
          after={title}
          lead={({ field }) => (
            <input
              type="checkbox"
              aria-label={`Promote ${field}`}
              checked={!left.has(field)}
              onChange={() => toggle(field)}
            />
          )}
        />
      )}
      {deleting && <DeleteVersion version={version} onClose={() => setDeleting(false)} onDeleted={onChanged} />}
    </section>
  );
}

interface DeleteProps {
  readonly version: Version;
  readonly onClose: () => void;
  readonly onDeleted: () => void;
}

function DeleteVersion({ version, onClose, onDeleted }: DeleteProps): JSX.Element {
  return (
    <Confirm
      title={`Delete the version ${version.name ?? version.key}?`}
      submit="Delete"
      onClose={onClose}
      onConfirm={async () => {
        await call('DELETE', `/versions/${version.id}`);
        onDeleted();
        return 'Version deleted';
      }}
    >
      <p>Its changes that are not promoted are lost.</p>
    </Confirm>
  );
}
