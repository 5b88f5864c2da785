/** Creates a relation with its column, or changes one: the effect of deletions, and the list on the other side. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call } from '../api';
import type { Collection, Field, Model } from '../model';
import { ChangeForm, Choice, TextField } from './form';

const ON_DELETE: readonly (readonly [string, string])[] = [
  ['SET NULL', 'empty the field'],
  ['CASCADE', 'delete this item too'],
  ['NO ACTION', 'refuse to delete it'],
  ['RESTRICT', 'refuse to delete it, at once'],
  ['SET DEFAULT', 'set the default'],
];

interface CreateProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
}

export function CreateRelation({ collection, model, onClose }: CreateProps): JSX.Element {
  const targets = [...model.values()].filter((each) => !each.system && each.key !== null);
  const [to, setTo] = useState(targets[0]?.name ?? '');
  const [field, setField] = useState('');
  const [back, setBack] = useState('');
  const [onDelete, setOnDelete] = useState('SET NULL');
  const save = async (): Promise<void> => {
    const target = model.get(to);
    const type = (target?.key && target.fields.get(target.key)?.type) || 'integer';
    const path = `/fields/${encodeURIComponent(collection.name)}`;
    await call('POST', path, { body: { field, type, meta: { special: ['m2o'] } } });
    const meta = back === '' ? {} : { meta: { one_field: back } };
    try {
      await call('POST', '/relations', {
        body: { collection: collection.name, field, related_collection: to, schema: { on_delete: onDelete }, ...meta },
      });
    } catch (error) {
      // The column was created only for the relation.
      await call('DELETE', `${path}/${encodeURIComponent(field)}`);
      throw error;
    }
  };
  return (
    <ChangeForm
      title={`New relation of ${collection.name}`}
      onClose={onClose}
      onSave={save}
      done={`${field} was added`}
    >
      <TextField
        label="Name"
        value={field}
        onInput={setField}
        note={`A new column of ${collection.name} with the key of an item`}
      />
      <Choice label="Related collection" value={to} onInput={setTo} among={targets.map(({ name }) => [name, name])} />
      <RelationOptions onDelete={onDelete} setOnDelete={setOnDelete} back={back} setBack={setBack} />
    </ChangeForm>
  );
}

interface RelationObject {
  readonly schema: { readonly on_delete: string } | null;
  readonly meta: { readonly one_field: string | null };
}

interface ChangeProps {
  readonly field: Field;
  readonly onClose: () => void;
}

export function ChangeRelation({ field, onClose }: ChangeProps): JSX.Element | null {
  const path = `/relations/${encodeURIComponent(field.collection)}/${encodeURIComponent(field.name)}`;
  const [before, setBefore] = useState<RelationObject | null>(null);
  const [onDelete, setOnDelete] = useState('');
  const [back, setBack] = useState('');
  useEffect(() => {
    call<RelationObject>('GET', path).then(({ data }) => {
      setBefore(data);
      setOnDelete(data.schema?.on_delete ?? '');
      setBack(data.meta.one_field ?? '');
    }, onClose);
  }, []);
  if (!before) return null;
  const save = async (): Promise<void> => {
    const list = back === '' ? null : back;
    await call('PATCH', path, {
      body: {
        ...(before.schema && before.schema.on_delete !== onDelete ? { schema: { on_delete: onDelete } } : {}),
        ...(before.meta.one_field === list ? {} : { meta: { one_field: list } }),
      },
    });
  };
  return (
    <ChangeForm title={`Relation ${field.name}`} onClose={onClose} onSave={save} done={`${field.name} was changed`}>
      <RelationOptions {...(before.schema ? { onDelete, setOnDelete } : {})} back={back} setBack={setBack} />
    </ChangeForm>
  );
}

function RelationOptions(props: {
  readonly onDelete?: string;
  readonly setOnDelete?: (action: string) => void;
  readonly back: string;
  readonly setBack: (name: string) => void;
}): JSX.Element {
  return (
    <>
      {props.setOnDelete && (
        <Choice
          label="When the other item is deleted"
          value={props.onDelete ?? ''}
          onInput={props.setOnDelete}
          among={ON_DELETE}
        />
      )}
      <TextField
        label="List on the other side"
        value={props.back}
        onInput={props.setBack}
        note="Optional: the name of a field there, with the items that lead to it"
      />
    </>
  );
}
