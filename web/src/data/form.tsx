/** The fields of an item with their inputs, and a form for a new item. */
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, messageOf } from '../api';
import { type Collection, type Field, type Model, typeLabel } from '../model';
import { ErrorBox, FormDialog } from '../ui';
import type { Row } from './edits';
import { ValueInput } from './inputs';
import { fieldsNamedBy, keyOf, targetOf } from './item';
import type { Entered } from './values';

/** The fields of a new item, without those that the database fills and columns that are part of a composite reference. */
export function askedFields(collection: Collection, without: readonly string[] = []): Field[] {
  const { fields } = collection;
  const held = new Set([...fields.values()].flatMap(({ columns }) => columns));
  const asked = [...fields.values()].filter((field) => asksFor(field, held) && !without.includes(field.name));
  // The collection of a many-to-any item is chosen first, then the item.
  const first = [
    ...asked.filter(({ name }) => fieldsNamedBy(collection, name).length > 0),
    ...asked.filter(({ relation }) => relation?.kind === 'any'),
  ];
  return [...first, ...asked.filter((field) => !first.includes(field))];
}

function asksFor(field: Field, held: ReadonlySet<string>): boolean {
  if (field.columns.length > 0) return true;
  if (!field.column || field.readonly || field.column.has_auto_increment) return false;
  if (held.has(field.name) && !field.isKey) return false;
  return !(field.isKey && field.column.default_value !== null);
}

/** Unless a trigger fills it: the service decides. */
export function isRequired({ column, columns }: Field, { fields }: Collection): boolean {
  if (columns.length > 0) return columns.every((name) => fields.get(name)?.column?.is_nullable === false);
  return column !== null && !column.is_nullable && column.default_value === null && !column.has_auto_increment;
}

/** The value in a payload: for a related item of the collection `to`, its key. */
export function payloadValue(value: unknown, model: Model, to: string | null): unknown {
  return to === null ? value : keyOf(value, model, to);
}

interface RowProps {
  readonly field: Field;
  readonly model: Model;
  readonly id: string;
  readonly value: unknown;
  /** The collection of a related item. */
  readonly to: string | null;
  readonly required?: boolean;
  readonly error: string | undefined;
  /** Shown below the input if there is no error. */
  readonly hint?: string | undefined;
  readonly disabled?: boolean;
  readonly isEdited?: boolean;
  readonly onChange: (entered: Entered) => void;
  /** Buttons next to the input. */
  readonly children?: ComponentChildren;
}

export function FieldRow(props: RowProps): JSX.Element {
  const { field, model, id, value, to, required, error, hint, disabled, isEdited, onChange, children } = props;
  return (
    <div class={`field${isEdited ? ' edited' : ''}`}>
      <label for={id}>
        {field.name}
        {required && <b title="required"> *</b>}
        <small>{typeLabel(field)}</small>
      </label>
      <div class="field-input">
        <ValueInput
          id={id}
          field={field}
          model={model}
          value={value}
          to={to}
          wrong={error !== undefined}
          disabled={disabled ?? false}
          onChange={onChange}
        />
        {children}
      </div>
      {field.note && <small class="quiet">{field.note}</small>}
      {hint !== undefined && error === undefined && <small class="quiet">{hint}</small>}
      {error !== undefined && (
        <small class="bad" id={`error-${id}`} role="alert">
          {error}
        </small>
      )}
    </div>
  );
}

type Texts = Readonly<Record<string, string>>;

interface FormProps {
  readonly collection: Collection;
  readonly model: Model;
  /** Fields whose values are already known. */
  readonly without?: readonly string[];
  readonly title: string;
  readonly submit: string;
  readonly onClose: () => void;
  /** Takes the item; for a reference, `shown` has the chosen item. */
  readonly onSubmit: (values: Row, shown: Row) => Promise<void>;
}

export function CreateForm(props: FormProps): JSX.Element {
  const { collection, model, without = [], title, submit, onClose, onSubmit } = props;
  const fields = askedFields(collection, without);
  const [shown, setShown] = useState<Row>({});
  const [wrong, setWrong] = useState<Texts>({});
  const [errors, setErrors] = useState<Texts>({});
  const [failure, setFailure] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const change = (field: Field, entered: Entered): void => {
    const { [field.name]: _, ...others } = wrong;
    const { [field.name]: __, ...rest } = errors;
    setErrors(rest);
    setWrong('error' in entered ? { ...others, [field.name]: entered.error } : others);
    if (!('value' in entered)) return;
    const stale = fieldsNamedBy(collection, field.name);
    setShown((now) =>
      stale.reduce((values, { name }) => withValue(values, name, null), withValue(now, field.name, entered.value)),
    );
  };
  const save = async (): Promise<void> => {
    setFailure(null);
    if (Object.keys(wrong).length > 0) return;
    setBusy(true);
    try {
      const values = fields.flatMap((field) =>
        field.name in shown
          ? [[field.name, payloadValue(shown[field.name], model, targetOf(field, shown))] as const]
          : [],
      );
      await onSubmit(Object.fromEntries(values), shown);
    } catch (error) {
      const placed = placeError(error, fields, collection, shown);
      if (placed) setErrors(placed);
      else setFailure(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={title}
      kind="side"
      submit={submit}
      disabled={busy || Object.keys(wrong).length > 0}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {failure && <ErrorBox text={failure} />}
      {fields.map((field) => (
        <FieldRow
          key={field.name}
          id={`new-${field.name}`}
          field={field}
          model={model}
          value={shown[field.name]}
          to={targetOf(field, shown)}
          required={isRequired(field, collection)}
          error={wrong[field.name] ?? errors[field.name]}
          onChange={(entered) => change(field, entered)}
        />
      ))}
      {fields.length === 0 && <p class="quiet">The database fills every field of this collection.</p>}
    </FormDialog>
  );
}

/** Without the field if nothing was entered: then the database fills it. */
export function withValue(values: Row, name: string, value: unknown): Row {
  const { [name]: _, ...rest } = values;
  return value === null || value === '' ? rest : { ...rest, [name]: value };
}

/**
 * The errors by field, or null if the error names none of them. The service names one missing field; the others would be refused next, so
 * all of them are marked.
 */
export function placeError(
  error: unknown,
  fields: readonly Field[],
  collection: Collection,
  values: Row,
): Texts | null {
  const name = error instanceof ApiError ? error.failures[0]?.extensions['field'] : undefined;
  if (typeof name !== 'string' || !fields.some((field) => field.name === name)) return null;
  const missing = fields.filter((field) => isRequired(field, collection) && !(field.name in values));
  return missing.some((field) => field.name === name)
    ? Object.fromEntries(missing.map((field) => [field.name, 'is required']))
    : { [name]: messageOf(error) };
}
