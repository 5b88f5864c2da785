/** A form for a new item, built from the fields of its collection. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, messageOf } from '../api';
import { type Collection, type Field, type Model, typeLabel } from '../model';
import { ErrorBox, FormDialog } from '../ui';
import type { Row } from './edits';
import { keyOf, titleOf } from './item';
import { ItemPicker } from './picker';
import { isLong, readEntered } from './values';

interface FormProps {
  readonly collection: Collection;
  readonly model: Model;
  /** Fields whose values are already known. */
  readonly without?: readonly string[];
  readonly submit: string;
  readonly onClose: () => void;
  /** Takes the item; for a reference, `shown` has the chosen item. */
  readonly onSubmit: (values: Row, shown: Row) => Promise<void>;
}

type Texts = Readonly<Record<string, string>>;

/** The form leaves out fields that the database fills, and columns that are part of a composite reference. */
function asksFor(field: Field, held: ReadonlySet<string>): boolean {
  if (field.columns.length > 0) return true;
  if (!field.column || field.readonly || field.column.has_auto_increment) return false;
  if (held.has(field.name) && !field.isKey) return false;
  return !(field.isKey && field.column.default_value !== null);
}

/** Unless a trigger fills it: the service decides. */
function isRequired({ column, columns }: Field, { fields }: Collection): boolean {
  if (columns.length > 0) return columns.every((name) => fields.get(name)?.column?.is_nullable === false);
  return column !== null && !column.is_nullable && column.default_value === null;
}

export function CreateForm(props: FormProps): JSX.Element {
  const { collection, model, without = [], submit, onClose, onSubmit } = props;
  const held = new Set([...collection.fields.values()].flatMap(({ columns }) => columns));
  const fields = [...collection.fields.values()].filter(
    (field) => asksFor(field, held) && !without.includes(field.name),
  );
  const [texts, setTexts] = useState<Texts>({});
  const [items, setItems] = useState<Readonly<Record<string, Row>>>({});
  const [errors, setErrors] = useState<Texts>({});
  const [failure, setFailure] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const read = (): { readonly body: Row; readonly wrong: Texts; readonly missing: Texts } => {
    const body: Record<string, unknown> = {};
    const wrong: Record<string, string> = {};
    const missing: Record<string, string> = {};
    for (const field of fields) {
      const { relation } = field;
      const item = items[field.name];
      const text = texts[field.name];
      if (relation?.kind === 'one' && item) body[field.name] = keyOf(item, model, relation.to);
      else if (text !== undefined && text !== '') {
        const entered = readEntered(text, field);
        if ('error' in entered) wrong[field.name] = entered.error;
        else body[field.name] = entered.value;
      } else if (isRequired(field, collection)) missing[field.name] = 'is required';
    }
    return { body, wrong, missing };
  };
  const save = async (): Promise<void> => {
    setFailure(null);
    const { body, wrong, missing } = read();
    setErrors(wrong);
    if (Object.keys(wrong).length > 0) return;
    setBusy(true);
    try {
      await onSubmit(body, { ...body, ...items });
    } catch (error) {
      const field = error instanceof ApiError ? error.failures[0]?.extensions['field'] : undefined;
      const isPlaced = typeof field === 'string' && fields.some(({ name }) => name === field);
      // The service names one missing field. The others would be refused next, so mark them too.
      const isMissing = isPlaced && missing[field] !== undefined;
      if (isPlaced) setErrors(isMissing ? missing : { [field]: messageOf(error) });
      else setFailure(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={`New item in ${collection.name}`}
      kind="side"
      submit={submit}
      disabled={busy}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {failure && <ErrorBox text={failure} />}
      {fields.map((field) => (
        <div class="field" key={field.name}>
          <label for={`new-${field.name}`}>
            {field.name}
            {isRequired(field, collection) && <b title="required"> *</b>}
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
  if (relation?.kind === 'one' && target && target.keys.length > 0)
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
