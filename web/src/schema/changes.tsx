/** Forms that change the schema, each by requests of the public API. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import type { Collection, Model } from '../model';
import { reloadModel, toast } from '../state';
import { ErrorBox, FormDialog } from '../ui';

const TYPES = [
  'string',
  'text',
  'integer',
  'bigInteger',
  'decimal',
  'float',
  'boolean',
  'date',
  'dateTime',
  'timestamp',
  'uuid',
  'json',
];

interface FormProps {
  readonly title: string;
  readonly onClose: () => void;
  /** Throws what is wrong. */
  readonly onSave: () => Promise<void>;
  readonly done: string;
  readonly children: JSX.Element;
}

function ChangeForm({ title, onClose, onSave, done, children }: FormProps): JSX.Element {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await onSave();
      await reloadModel();
      toast(done);
      onClose();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={title}
      submit={busy ? 'Saving…' : 'Save'}
      disabled={busy}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      {children}
    </FormDialog>
  );
}

function TextField(props: {
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
  readonly note?: string;
}): JSX.Element {
  const id = `change-${props.label.replaceAll(' ', '-')}`;
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        value={props.value}
        spellcheck={false}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
      {props.note && <small>{props.note}</small>}
    </div>
  );
}

export function CreateField({
  collection,
  onClose,
}: {
  readonly collection: Collection;
  readonly onClose: () => void;
}): JSX.Element {
  const [field, setField] = useState('');
  const [type, setType] = useState('string');
  const [initial, setInitial] = useState('');
  const [options, setOptions] = useState({ required: false, unique: false, indexed: false });
  const save = async (): Promise<void> => {
    const schema = {
      is_nullable: !options.required,
      is_unique: options.unique,
      is_indexed: options.indexed,
      ...(initial === '' ? {} : { default_value: initial }),
    };
    await call('POST', `/fields/${encodeURIComponent(collection.name)}`, { body: { field, type, schema } });
  };
  return (
    <ChangeForm title={`New field of ${collection.name}`} onClose={onClose} onSave={save} done={`${field} was added`}>
      <>
        <TextField label="Name" value={field} onInput={setField} />
        <div class="field">
          <label for="change-type">Type</label>
          <select id="change-type" value={type} onChange={(event) => setType(event.currentTarget.value)}>
            {TYPES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </div>
        <TextField
          label="Default"
          value={initial}
          onInput={setInitial}
          note="A value, or an expression such as now()"
        />
        <div class="row">
          {(['required', 'unique', 'indexed'] as const).map((name) => (
            <label class="row" key={name}>
              <input
                type="checkbox"
                checked={options[name]}
                onChange={() => setOptions({ ...options, [name]: !options[name] })}
              />
              {name}
            </label>
          ))}
        </div>
      </>
    </ChangeForm>
  );
}

interface RelationProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
}

export function CreateRelation({ collection, model, onClose }: RelationProps): JSX.Element {
  const targets = [...model.values()].filter((each) => !each.system && each.key !== null);
  const [to, setTo] = useState(targets[0]?.name ?? '');
  const [field, setField] = useState('');
  const [back, setBack] = useState('');
  const save = async (): Promise<void> => {
    const target = model.get(to);
    const type = (target?.key && target.fields.get(target.key)?.type) || 'integer';
    const path = `/fields/${encodeURIComponent(collection.name)}`;
    await call('POST', path, { body: { field, type, meta: { special: ['m2o'] } } });
    await call('POST', '/relations', {
      body: {
        collection: collection.name,
        field,
        related_collection: to,
        schema: { on_delete: 'SET NULL' },
        ...(back === '' ? {} : { meta: { one_field: back } }),
      },
    });
  };
  return (
    <ChangeForm
      title={`New relation of ${collection.name}`}
      onClose={onClose}
      onSave={save}
      done={`${field} was added`}
    >
      <>
        <TextField
          label="Name"
          value={field}
          onInput={setField}
          note={`A column of ${collection.name} with the key of an item`}
        />
        <div class="field">
          <label for="change-target">Leads to</label>
          <select id="change-target" value={to} onChange={(event) => setTo(event.currentTarget.value)}>
            {targets.map((each) => (
              <option key={each.name}>{each.name}</option>
            ))}
          </select>
        </div>
        <TextField
          label="List on the other side"
          value={back}
          onInput={setBack}
          note="Optional: the name of the list there"
        />
      </>
    </ChangeForm>
  );
}

export function CreateCollection(props: {
  readonly onClose: () => void;
  readonly onMade: (name: string) => void;
}): JSX.Element {
  const [name, setName] = useState('');
  const save = async (): Promise<void> => {
    await call('POST', '/collections', { body: { collection: name, schema: {} } });
    props.onMade(name);
  };
  return (
    <ChangeForm title="New collection" onClose={props.onClose} onSave={save} done={`${name} was created`}>
      <TextField
        label="Name"
        value={name}
        onInput={setName}
        note="It gets a numeric key, id. Fields are added afterwards."
      />
    </ChangeForm>
  );
}
