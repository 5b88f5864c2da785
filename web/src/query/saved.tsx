/** Saved queries: presets of the API with a name. They belong to a user, or to all users. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import type { Model } from '../model';
import { Check, TextField } from '../schema/form';
import { go, mayAdminister, me, toast } from '../state';
import { Button, Dialog, ErrorBox } from '../ui';
import { fromQueryJson, objectOf, type Query, toQueryJson } from './query';
import { toUrl } from './rest';
import { addressOf } from './session';

interface Preset {
  readonly id: number;
  readonly bookmark: string;
  readonly user: string | null;
  readonly role: string | null;
  readonly collection: string;
  readonly layout_query: unknown;
}

/** Distinguishes saved queries from views of other programs. */
const LAYOUT = 'query';

async function listSaved(): Promise<Preset[]> {
  const query = {
    fields: ['id', 'bookmark', 'user', 'role', 'collection', 'layout_query'],
    filter: { layout: { _eq: LAYOUT }, bookmark: { _nnull: true } },
    sort: ['bookmark', 'id'],
    limit: -1,
  };
  const { data } = await call<Preset[]>('SEARCH', '/presets', { body: { query } });
  // An administrator reads the presets of all users.
  return data.filter(({ user }) => user === null || user === me.value?.id);
}

interface SavedProps {
  readonly model: Model;
  readonly query: Query;
  readonly onClose: () => void;
}

export function SavedQueries({ model, query, onClose }: SavedProps): JSX.Element {
  const [saved, setSaved] = useState<readonly Preset[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  /** Runs a change, and reads the list again. */
  const change = async (run: () => Promise<unknown>, done?: string): Promise<boolean> => {
    try {
      await run();
      setSaved(await listSaved());
      setError(null);
      if (done !== undefined) toast(done);
      return true;
    } catch (failure) {
      setError(messageOf(failure));
      return false;
    }
  };
  useEffect(() => void change(async () => {}), []);
  const own = saved?.filter(({ user }) => user !== null) ?? [];
  const shared = saved?.filter(({ user }) => user === null) ?? [];
  const list = (title: string, presets: readonly Preset[]): JSX.Element | false =>
    presets.length > 0 && (
      <section aria-label={title}>
        <h3>{title}</h3>
        <ul class="saved-list">
          {presets.map((preset) => (
            <SavedEntry key={preset.id} model={model} preset={preset} onClose={onClose} onChange={change} />
          ))}
        </ul>
      </section>
    );
  return (
    <Dialog title="Saved queries" kind="side" isForm onClose={onClose}>
      <div class="form">
        {error && <ErrorBox text={error} />}
        <SaveForm query={query} onChange={change} />
        {saved?.length === 0 && <p class="quiet">No query is saved yet.</p>}
        {list('Yours', own)}
        {list('Shared with all users', shared)}
      </div>
    </Dialog>
  );
}

type Change = (run: () => Promise<unknown>, done?: string) => Promise<boolean>;

function SaveForm({ query, onChange }: { readonly query: Query; readonly onChange: Change }): JSX.Element {
  const [name, setName] = useState('');
  const [isShared, setShared] = useState(false);
  const save = async (): Promise<void> => {
    const body = {
      bookmark: name.trim(),
      collection: query.collection,
      user: isShared ? null : (me.value?.id ?? null),
      layout: LAYOUT,
      layout_query: { [LAYOUT]: toQueryJson(query) },
    };
    if (await onChange(() => call('POST', '/presets?fields=id', { body }), 'Query saved')) setName('');
  };
  return (
    <form
      class="form saved-new"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== '') void save();
      }}
    >
      <TextField label="Name of this query" value={name} onInput={setName} />
      {mayAdminister.value && <Check label="Share with all users" checked={isShared} onChange={setShared} />}
      <div class="row">
        <Button
          label="Save this query"
          icon="save"
          kind="primary"
          disabled={name.trim() === ''}
          onClick={() => void save()}
        />
      </div>
    </form>
  );
}

interface EntryProps {
  readonly model: Model;
  readonly preset: Preset;
  readonly onClose: () => void;
  readonly onChange: Change;
}

function SavedEntry({ model, preset, onClose, onChange }: EntryProps): JSX.Element {
  const [name, setName] = useState<string | null>(null);
  const isKnown = model.has(preset.collection);
  const query = fromQueryJson(preset.collection, objectOf(objectOf(preset.layout_query)[LAYOUT]), model);
  const mayChange = preset.user !== null || mayAdminister.value;
  const rename = async (): Promise<void> => {
    const bookmark = (name ?? '').trim();
    if (bookmark === '') return;
    const path = `/presets/${preset.id}?fields=id`;
    if (await onChange(() => call('PATCH', path, { body: { bookmark } }), 'Query renamed')) setName(null);
  };
  if (name !== null)
    return (
      <li>
        <form
          class="row nowrap"
          onSubmit={(event) => {
            event.preventDefault();
            void rename();
          }}
        >
          <input
            class="grow"
            aria-label="New name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <Button label="Save the name" icon="check" compact onClick={() => void rename()} />
          <Button label="Keep the old name" icon="close" kind="quiet" compact onClick={() => setName(null)} />
        </form>
      </li>
    );
  return (
    <li>
      <button
        type="button"
        class="saved-open"
        disabled={!isKnown}
        onClick={() => {
          onClose();
          go(addressOf(query));
        }}
      >
        <strong>{preset.bookmark}</strong>
        <code>{isKnown ? toUrl(query) : `${preset.collection} does not exist, or you may not see it`}</code>
      </button>
      {mayChange && (
        <>
          <Button
            label={`Rename ${preset.bookmark}`}
            icon="edit"
            kind="quiet"
            compact
            onClick={() => setName(preset.bookmark)}
          />
          <Button
            label={`Delete ${preset.bookmark}`}
            icon="trash"
            kind="quiet"
            compact
            onClick={() => void onChange(() => call('DELETE', `/presets/${preset.id}`), 'Query deleted')}
          />
        </>
      )}
    </li>
  );
}
