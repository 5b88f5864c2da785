/** A form for a new item, made from the fields of its collection. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, call, itemsPath, messageOf } from '../api';
import { type Collection, type Field, type Model, titleField, typeLabel } from '../model';
import { ErrorBox, FormDialog } from '../ui';
import { titleOf } from './cell';
import type { Row } from './edits';
import { ItemPicker } from './picker';
import { isLong, readEntered } from './values';

interface FormProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
  readonly onMade: () => void;
}

/** Fields that the database fills by itself are not asked for. */
function asksFor(field: Field): boolean {
  if (!field.column || field.readonly || field.column.has_auto_increment) return false;
  return !(field.isKey && field.column.default_value !== null);
}

function isRequired({ column }: Field): boolean {
  return column !== null && !column.is_nullable && column.default_value === null;
}

export function CreateForm({ collection, model, onClose, onMade }: FormProps): JSX.Element {
  const fields = [...collection.fields.values()].filter(asksFor);
  const [texts, setTexts] = useState<Readonly<Record<string, string>>>({});
  const [items, setItems] = useState<Readonly<Record<string, Row>>>({});
  const [errors, setErrors] = useState<Readonly<Record<string, string>>>({});
  const [failure, setFailure] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const payload = (): Record<string, unknown> | null => {
    const made: Record<string, unknown> = {};
    const wrong: Record<string, string> = {};
    for (const field of fields) {
      const { relation } = field;
      const item = items[field.name];
      const text = texts[field.name];
      if (relation?.kind === 'one' && item) made[field.name] = item[model.get(relation.to)?.key ?? 'id'];
      else if (text !== undefined && text !== '') {
        const entered = readEntered(text, field);
        if ('error' in entered) wrong[field.name] = entered.error;
        else made[field.name] = entered.value;
      } else if (isRequired(field)) wrong[field.name] = 'is required';
    }
    setErrors(wrong);
    return Object.keys(wrong).length === 0 ? made : null;
  };
  const save = async (): Promise<void> => {
    setFailure(null);
    const body = payload();
    if (!body) return;
    setBusy(true);
    try {
      await call('POST', itemsPath(collection.name), { body });
      onMade();
    } catch (error) {
      const field = error instanceof ApiError ? error.failures[0]?.extensions['field'] : undefined;
      if (typeof field === 'string' && collection.fields.has(field)) setErrors({ [field]: messageOf(error) });
      else setFailure(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={`New item in ${collection.name}`}
      kind="side"
      submit={busy ? 'Creating…' : 'Create'}
      disabled={busy}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {failure && <ErrorBox text={failure} />}
      {fields.map((field) => (
        <div class="field" key={field.name}>
          <label for={`new-${field.name}`}>
            {field.name}
            {isRequired(field) && <b title="required"> *</b>}
            <small>{typeLabel(field)}</small>
          </label>
          <FieldInput
            field={field}
            model={model}
            text={texts[field.name] ?? ''}
            item={items[field.name] ?? null}
            wrong={errors[field.name] !== undefined}
            onText={(text) => setTexts({ ...texts, [field.name]: text })}
            onItem={(item) => {
              const { [field.name]: _, ...rest } = items;
              setItems(item ? { ...rest, [field.name]: item } : rest);
            }}
          />
          {field.note && <small class="quiet">{field.note}</small>}
          {errors[field.name] && (
            <small class="bad" id={`error-${field.name}`} role="alert">
              {errors[field.name]}
            </small>
          )}
        </div>
      ))}
      {fields.length === 0 && <p class="quiet">The database fills every field of this collection.</p>}
    </FormDialog>
  );
}

interface InputProps {
  readonly field: Field;
  readonly model: Model;
  readonly text: string;
  readonly item: Row | null;
  readonly wrong: boolean;
  readonly onText: (text: string) => void;
  readonly onItem: (item: Row | null) => void;
}

function FieldInput({ field, model, text, item, wrong, onText, onItem }: InputProps): JSX.Element {
  const [picking, setPicking] = useState(false);
  const { relation, column } = field;
  const initial = column?.default_value;
  const common = {
    id: `new-${field.name}`,
    value: text,
    'aria-invalid': wrong,
    'aria-describedby': wrong ? `error-${field.name}` : undefined,
    placeholder: initial === null || initial === undefined ? '' : `default: ${String(initial)}`,
  };
  const target = relation?.kind === 'one' ? model.get(relation.to) : undefined;
  if (relation?.kind === 'one' && target && titleField(target))
    return picking ? (
      <ItemPicker
        collection={relation.to}
        model={model}
        nullable={column?.is_nullable ?? true}
        onPick={(picked) => {
          onItem(picked);
          setPicking(false);
        }}
        onCancel={() => setPicking(false)}
      />
    ) : (
      <button type="button" id={common.id} class="button field-pick" onClick={() => setPicking(true)}>
        {item ? titleOf(item, model, relation.to) : <span class="quiet">Choose from {relation.to}…</span>}
      </button>
    );
  if (field.type === 'boolean')
    return (
      <select {...common} onChange={(event) => onText(event.currentTarget.value)}>
        <option value="">
          {initial === null || initial === undefined ? 'not set' : `default: ${String(initial)}`}
        </option>
        <option value="true">true</option>
        <option value="false">false</option>
      </select>
    );
  if (isLong(field)) return <textarea {...common} rows={4} onInput={(event) => onText(event.currentTarget.value)} />;
  return <input {...common} spellcheck={false} onInput={(event) => onText(event.currentTarget.value)} />;
}
