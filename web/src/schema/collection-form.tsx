/** Creates a collection, edits its metadata, or deletes it. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../api';
import type { Collection } from '../model';
import { ChangeForm, Check, Choice, TextField } from './form';

const KEYS: readonly (readonly [string, string])[] = [
  ['integer', 'a number that increments'],
  ['uuid', 'a random UUID'],
];

export function CreateCollection(props: {
  readonly onClose: () => void;
  readonly onMade: (name: string) => void;
}): JSX.Element {
  const [name, setName] = useState('');
  const [key, setKey] = useState('integer');
  const save = async (): Promise<void> => {
    const schema = { is_primary_key: true, default_value: 'gen_random_uuid()' };
    const fields = key === 'uuid' ? { fields: [{ field: 'id', type: 'uuid', schema }] } : {};
    await call('POST', '/collections', { body: { collection: name, schema: {}, ...fields } });
    props.onMade(name);
  };
  return (
    <ChangeForm
      title="New collection"
      saveLabel="Create"
      disabled={name.trim() === ''}
      onClose={props.onClose}
      onSave={save}
      done={`${name} was created`}
    >
      <TextField label="Name" value={name} onInput={setName} note="Fields are added afterwards" />
      <Choice label="Key (id)" value={key} onInput={setKey} among={KEYS} />
    </ChangeForm>
  );
}

interface FormProps {
  readonly collection: Collection;
  readonly onClose: () => void;
}

export function ChangeCollection({ collection, onClose }: FormProps): JSX.Element {
  const [note, setNote] = useState(collection.note ?? '');
  const [singleton, setSingleton] = useState(collection.singleton);
  const save = async (): Promise<void> => {
    const meta = { note: note === '' ? null : note, singleton };
    await call('PATCH', `/collections/${encodeURIComponent(collection.name)}`, { body: { meta } });
  };
  return (
    <ChangeForm
      title={`Change ${collection.name}`}
      onClose={onClose}
      onSave={save}
      done={`${collection.name} was changed`}
    >
      <TextField label="Note" value={note} onInput={setNote} note="Shown wherever the collection is" />
      <Check label="one item only (singleton), such as settings" checked={singleton} onChange={setSingleton} />
    </ChangeForm>
  );
}

export function DeleteCollection({
  collection: { name },
  onClose,
  onDone,
}: FormProps & { readonly onDone: () => void }): JSX.Element {
  const [typed, setTyped] = useState('');
  const remove = async (): Promise<void> => {
    await call('DELETE', `/collections/${encodeURIComponent(name)}`);
    onDone();
  };
  return (
    <ChangeForm
      title={`Delete ${name}?`}
      onClose={onClose}
      onSave={remove}
      done={`${name} was deleted`}
      saveLabel="Delete"
      danger
      disabled={typed !== name}
    >
      <p>This deletes the table, all of its items, and the fields of other collections that refer to them.</p>
      <TextField label={`Type ${name} to delete it`} value={typed} onInput={setTyped} />
    </ChangeForm>
  );
}
