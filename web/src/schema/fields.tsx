/** The fields of a collection with their properties, and forms for administrators to change them. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { type Collection, type Field, type Model, typeLabel } from '../model';
import { mayAdminister, reloadModel, toast } from '../state';
import { Button, Dialog, Menu } from '../ui';
import { FieldForm } from './field-form';
import { ChangeRelation, CreateRelation } from './relation-form';

interface ListProps {
  readonly collection: Collection;
  readonly model: Model;
}

export function FieldList({ collection, model }: ListProps): JSX.Element {
  const [open, setOpen] = useState<'field' | 'relation' | null>(null);
  const [changed, setChanged] = useState<{ readonly field: Field; readonly what: 'field' | 'relation' } | null>(null);
  const [doomed, setDoomed] = useState<Field | null>(null);
  const mayChange = mayAdminister.value && !collection.system;
  const change = async (field: Field, schema: Record<string, unknown>): Promise<void> => {
    try {
      await call('PATCH', `/fields/${encodeURIComponent(collection.name)}/${encodeURIComponent(field.name)}`, {
        body: { schema },
      });
      await reloadModel();
      toast(`${field.name} was changed`);
    } catch (error) {
      toast(messageOf(error), 'bad');
    }
  };
  const remove = async (field: Field): Promise<void> => {
    setDoomed(null);
    try {
      await call('DELETE', `/fields/${encodeURIComponent(collection.name)}/${encodeURIComponent(field.name)}`);
      await reloadModel();
      toast(`${field.name} was deleted`);
    } catch (error) {
      toast(messageOf(error), 'bad');
    }
  };
  return (
    <>
      {mayChange && (
        <div class="row">
          <Button label="Add field" icon="plus" onClick={() => setOpen('field')} />
          <Button label="Add relation" icon="plus" onClick={() => setOpen('relation')} />
        </div>
      )}
      <ul class="field-list">
        {[...collection.fields.values()].map((field) => (
          <li key={field.name}>
            <div>
              <strong>{field.name}</strong>
              <small>{field.relation?.kind === 'one' ? `→ ${field.relation.to}` : sizedType(field)}</small>
              {field.note && <small>{field.note}</small>}
            </div>
            <span class="flags">
              {flagsOf(field).map((flag) => (
                <span class="tag plain" key={flag}>
                  {flag}
                </span>
              ))}
            </span>
            {mayChange && field.column && !field.isKey && (
              <Menu
                label={`Change ${field.name}`}
                icon="more"
                kind="quiet"
                compact
                entries={[
                  { label: 'Type, default, note', onClick: () => setChanged({ field, what: 'field' }) },
                  ...(field.relation
                    ? [{ label: 'Relation', onClick: () => setChanged({ field, what: 'relation' }) }]
                    : []),
                  field.column.is_indexed
                    ? { label: 'Drop its index', onClick: () => void change(field, { is_indexed: false }) }
                    : { label: 'Add an index', onClick: () => void change(field, { is_indexed: true }) },
                  field.column.is_unique
                    ? { label: 'Allow duplicate values', onClick: () => void change(field, { is_unique: false }) }
                    : { label: 'Make it unique', onClick: () => void change(field, { is_unique: true }) },
                  field.column.is_nullable
                    ? { label: 'Require a value', onClick: () => void change(field, { is_nullable: false }) }
                    : { label: 'Allow null', onClick: () => void change(field, { is_nullable: true }) },
                  { label: 'Delete the field', icon: 'trash', danger: true, onClick: () => setDoomed(field) },
                ]}
              />
            )}
          </li>
        ))}
      </ul>
      {open === 'field' && <FieldForm collection={collection} onClose={() => setOpen(null)} />}
      {open === 'relation' && <CreateRelation collection={collection} model={model} onClose={() => setOpen(null)} />}
      {changed?.what === 'field' && (
        <FieldForm collection={collection} field={changed.field} onClose={() => setChanged(null)} />
      )}
      {changed?.what === 'relation' && <ChangeRelation field={changed.field} onClose={() => setChanged(null)} />}
      {doomed && (
        <Dialog
          title={`Delete ${doomed.name}?`}
          onClose={() => setDoomed(null)}
          footer={
            <>
              <Button label="Cancel" onClick={() => setDoomed(null)} />
              <Button label="Delete" kind="danger" onClick={() => void remove(doomed)} />
            </>
          }
        >
          <p>
            The column <strong>{doomed.name}</strong> of {collection.name} and all of its values will be deleted.
          </p>
        </Dialog>
      )}
    </>
  );
}

function flagsOf({ isKey, column, relation }: Field): string[] {
  if (!column) return relation ? [relation.kind === 'one' ? 'reference' : 'list'] : ['computed'];
  return [
    ...(isKey ? ['key'] : []),
    ...(column.is_generated ? ['generated'] : []),
    ...(!column.is_nullable && !isKey ? ['required'] : []),
    ...(column.is_unique && !isKey ? ['unique'] : []),
    ...(column.is_indexed ? ['index'] : []),
  ];
}

function sizedType(field: Field): string {
  const { max_length: length, numeric_precision: precision, numeric_scale: scale } = field.column ?? {};
  const label = typeLabel(field);
  if (field.relation || !field.column) return label;
  if (length) return `${label}(${length})`;
  return label === 'numeric' && precision ? `${label}(${precision}, ${scale ?? 0})` : label;
}
