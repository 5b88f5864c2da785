/** The form of a webhook: where changes are sent, and which. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import { FilterDraft } from '../filter/editor';
import { type FilterJson, fromJson, toJson } from '../filter/filter';
import type { Model } from '../model';
import { TextField } from '../schema/form';
import { model as modelSignal } from '../state';
import { ErrorBox, FormDialog } from '../ui';
import { changeWebhook, createWebhook, type Definition, EVENTS, MASK, type Webhook } from './webhooks';

interface WebhookFormProps {
  /** The webhook, or null if it is new. */
  readonly webhook: Webhook | null;
  readonly onClose: () => void;
  /** The secret is null if it was not shown. */
  readonly onSaved: (id: string, secret: string | null) => void;
}

interface Draft extends Omit<Definition, 'fields' | 'headers' | 'template'> {
  readonly fields: string;
  readonly headers: string;
  readonly template: string;
  readonly secret: string;
}

function draftOf(webhook: Webhook | null): Draft {
  return {
    name: webhook?.name ?? '',
    url: webhook?.url ?? '',
    collections: webhook?.collections ?? [],
    events: webhook?.events ?? EVENTS,
    filter: webhook?.filter ?? null,
    fields: (webhook?.fields ?? []).join(', '),
    headers: webhook?.headers ? MASK : '',
    template: webhook?.template ? JSON.stringify(webhook.template, null, 2) : '',
    secret: '',
  };
}

/** Throws an error about a line that is no header, and about a body that is no JSON. */
function definitionOf({ secret: _, ...draft }: Draft): Definition {
  const fields = draft.fields.split(',').flatMap((each) => (each.trim() === '' ? [] : [each.trim()]));
  const lines = draft.headers.split('\n').filter((line) => line.trim() !== '');
  const isKept = draft.headers.trim() === MASK;
  const headers = (isKept ? [] : lines).map((line): [string, string] => {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`"${line}" is no header. Write one per line, such as "Authorization: Bearer …".`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return {
    ...draft,
    name: draft.name.trim(),
    url: draft.url.trim(),
    fields: fields.length === 0 ? null : fields,
    headers: isKept ? MASK : headers.length === 0 ? null : Object.fromEntries(headers),
    template: templateOf(draft.template),
  };
}

function templateOf(text: string): unknown {
  if (text.trim() === '') return null;
  try {
    return JSON.parse(text);
  } catch (failure) {
    throw new Error(`The body is not valid JSON: ${messageOf(failure)}`);
  }
}

export function WebhookForm({ webhook, onClose, onSaved }: WebhookFormProps): JSX.Element {
  const model = modelSignal.value as Model;
  const [draft, setDraft] = useState(() => draftOf(webhook));
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const set = (change: Partial<Draft>): void => setDraft((before) => ({ ...before, ...change }));
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const definition = definitionOf(draft);
      if (webhook) {
        await changeWebhook(webhook.id, definition);
        onSaved(webhook.id, null);
      } else {
        const { id, secret } = await createWebhook(definition, draft.secret.trim());
        onSaved(id, secret);
      }
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const isReady =
    draft.name.trim() !== '' && draft.url.trim() !== '' && draft.collections.length > 0 && draft.events.length > 0;
  return (
    <FormDialog
      title={webhook ? 'Edit the webhook' : 'New webhook'}
      kind="side"
      submit={webhook ? 'Save' : 'Create'}
      disabled={busy || !isReady}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      <TextField label="Name" value={draft.name} onInput={(name) => set({ name })} />
      <TextField
        label="URL"
        value={draft.url}
        note="Each change is posted here as JSON"
        onInput={(url) => set({ url })}
      />
      <Collections model={model} chosen={draft.collections} onChange={(collections) => set({ collections })} />
      <fieldset class="board-fieldset">
        <legend>Events</legend>
        <div class="row hook-checks">
          {EVENTS.map((event) => (
            <CheckOf
              key={event}
              label={event}
              chosen={draft.events}
              onChange={(events) => set({ events: EVENTS.filter((each) => events.includes(each)) })}
            />
          ))}
        </div>
      </fieldset>
      <Filter model={model} draft={draft} onChange={(filter) => set({ filter })} />
      <TextField
        label="Fields"
        value={draft.fields}
        note="Separated by commas, such as id, title, author.name. All fields if it is empty"
        onInput={(fields) => set({ fields })}
      />
      <Texts draft={draft} onChange={set} />
      {!webhook && (
        <TextField
          label="Secret"
          value={draft.secret}
          note="Signs the deliveries. The service creates one if it is empty"
          onInput={(secret) => set({ secret })}
        />
      )}
    </FormDialog>
  );
}

interface TextsProps {
  readonly draft: Draft;
  readonly onChange: (change: Partial<Draft>) => void;
}

function Texts({ draft, onChange }: TextsProps): JSX.Element {
  return (
    <>
      <div class="field">
        <label for="hook-headers">Headers</label>
        <textarea
          id="hook-headers"
          rows={2}
          spellcheck={false}
          value={draft.headers}
          onInput={(event) => onChange({ headers: event.currentTarget.value })}
        />
        <small>
          One per line, such as Authorization: Bearer …. Stored headers are not shown: leave {MASK} to keep them
        </small>
      </div>
      <div class="field">
        <label for="hook-template">Body</label>
        <textarea
          id="hook-template"
          class="mono"
          rows={3}
          spellcheck={false}
          placeholder={'{"text": "New article {{data.title}}"}'}
          value={draft.template}
          onInput={(event) => onChange({ template: event.currentTarget.value })}
        />
        <small>A JSON template for receivers such as chats. If it is empty, the change itself is sent</small>
      </div>
    </>
  );
}

interface CheckOfProps {
  readonly label: string;
  readonly chosen: readonly string[];
  readonly onChange: (chosen: readonly string[]) => void;
}

function CheckOf({ label, chosen, onChange }: CheckOfProps): JSX.Element {
  const isChosen = chosen.includes(label);
  return (
    <label class="row nowrap">
      <input
        type="checkbox"
        checked={isChosen}
        onChange={() => onChange(isChosen ? chosen.filter((each) => each !== label) : [...chosen, label])}
      />
      <span>{label}</span>
    </label>
  );
}

interface CollectionsProps {
  readonly model: Model;
  readonly chosen: readonly string[];
  readonly onChange: (chosen: readonly string[]) => void;
}

/** More names than a form can show at once. */
const MANY = 12;

function Collections({ model, chosen, onChange }: CollectionsProps): JSX.Element {
  const [typed, setTyped] = useState('');
  const names = [...model.values()].filter(({ system, isView }) => !system && !isView).map(({ name }) => name);
  const all = [...new Set([...chosen, ...names])];
  const shown = all.filter((name) => chosen.includes(name) || name.toLowerCase().includes(typed.trim().toLowerCase()));
  return (
    <fieldset class="board-fieldset">
      <legend>Collections</legend>
      {all.length > MANY && (
        <input
          class="hook-search"
          type="search"
          aria-label="Search collections"
          placeholder={`Search ${all.length} collections`}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      )}
      <div class="hook-collections">
        {shown.map((name) => (
          <CheckOf key={name} label={name} chosen={chosen} onChange={onChange} />
        ))}
      </div>
    </fieldset>
  );
}

interface FilterProps {
  readonly model: Model;
  readonly draft: Draft;
  readonly onChange: (filter: FilterJson | null) => void;
}

/** The fields of the first collection are offered. The service checks the filter for all of them. */
function Filter({ model, draft, onChange }: FilterProps): JSX.Element {
  const [collection] = draft.collections;
  return (
    <fieldset class="board-fieldset builder">
      <legend>Filter</legend>
      {collection !== undefined && model.has(collection) ? (
        <FilterDraft
          key={collection}
          atOnce
          model={model}
          collection={collection}
          group={fromJson(draft.filter ?? {})}
          onChange={(group) => onChange(toJson(group))}
        />
      ) : (
        <p class="quiet">Choose a collection first.</p>
      )}
      {draft.collections.length > 1 && <small>Every collection needs the fields of the filter.</small>}
    </fieldset>
  );
}
