/** One change for many items: the selected ones, or all that the list shows. The number of items is shown before anything is written. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../api';
import type { Collection, Field, Model } from '../model';
import { toast } from '../state';
import { Button, ErrorBox, FormDialog } from '../ui';
import { deletionOf, editsOf, type Key, keyColumns, type Row } from './edits';
import { FieldRow, payloadValue } from './form';
import { targetOf } from './item';
import { queryOf, type View } from './source';
import { type Entered, exactCount } from './values';

/** `selected`: the items with these keys. `shown`: all items of the list, also those that are not loaded. */
export type Scope = 'selected' | 'shown';

interface BulkProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly view: View;
  readonly keys: readonly Key[];
  readonly onClose: () => void;
  readonly onDone: () => void;
}

/** The items of a scope, as the body of a write names them. */
function queryFor(scope: Scope, { collection, model, view, keys }: BulkProps): Row {
  if (scope === 'selected') {
    const body = deletionOf(keys, collection.keys);
    return Array.isArray(body) ? { keys: body } : (body as Row);
  }
  const { filter, search } = queryOf(view, model) as { readonly filter?: unknown; readonly search?: unknown };
  return { query: { ...(filter ? { filter } : {}), ...(search ? { search } : {}), limit: -1 } };
}

/** The number of items that a list shows: exact, because it is the size of a change. */
function useCount({ view, model }: BulkProps): { readonly count: number | null; readonly error: string | null } {
  const [count, setCount] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const { filter, search } = queryOf(view, model);
    const query = { ...(filter ? { filter } : {}), ...(search ? { search } : {}), aggregate: { count: ['*'] } };
    call<{ count: number | string }[]>('SEARCH', itemsPath(view.collection), { body: { query } }).then(
      ({ data }) => setCount(Number(data[0]?.count ?? 0)),
      (failure: unknown) => setError(messageOf(failure)),
    );
  }, []);
  return { count, error };
}

function countText(count: number | null): string {
  return count === null ? '… items' : count === 1 ? 'one item' : `${exactCount(count)} items`;
}

interface ScopeProps {
  readonly scope: Scope;
  readonly selected: number;
  readonly shown: number | null;
  readonly isFiltered: boolean;
  readonly onChange: (scope: Scope) => void;
}

function ScopeChoice({ scope, selected, shown, isFiltered, onChange }: ScopeProps): JSX.Element {
  const entries: readonly (readonly [Scope, string, boolean])[] = [
    [
      'selected',
      selected === 0
        ? 'The selected items (none)'
        : `The selected ${exactCount(selected)} ${selected === 1 ? 'item' : 'items'}`,
      selected === 0,
    ],
    [
      'shown',
      `All ${shown === null ? '…' : exactCount(shown)} items ${isFiltered ? 'that match the filter and the search' : 'of the collection'}`,
      shown === null,
    ],
  ];
  return (
    <fieldset class="bulk-scope">
      <legend>Items</legend>
      {entries.map(([value, label, disabled]) => (
        <label key={value}>
          <input
            type="radio"
            name="bulk-scope"
            checked={scope === value}
            disabled={disabled}
            onChange={() => onChange(value)}
          />
          {label}
        </label>
      ))}
    </fieldset>
  );
}

export function BulkEdit(props: BulkProps): JSX.Element {
  const { collection, model, view, keys, onClose, onDone } = props;
  const [scope, setScope] = useState<Scope>(keys.length > 0 ? 'selected' : 'shown');
  const { count, error: countError } = useCount(props);
  const draft = useDraft();
  const { chosen, shown, wrong, setChosen } = draft;
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const all = [...collection.fields.values()].filter(isEditable);
  const fields = chosen.flatMap((name) => collection.fields.get(name) ?? []);
  const affected = scope === 'selected' ? keys.length : count;
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const data = Object.fromEntries(
        fields.map((field) => [field.name, payloadValue(shown[field.name], model, targetOf(field, shown))]),
      );
      await call('PATCH', itemsPath(collection.name), {
        body: { ...queryFor(scope, props), data },
        headers: { Prefer: 'return=minimal' },
      });
      toast(`Changed ${countText(affected)}`);
      onDone();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const isComplete = fields.length > 0 && fields.every(({ name }) => name in shown && !(name in wrong));
  const isReady = isComplete && affected !== null && affected > 0;
  return (
    <FormDialog
      title={`Edit items of ${collection.name}`}
      submit={`Change ${countText(affected)}`}
      disabled={busy || !isReady}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {(error ?? countError) && <ErrorBox text={error ?? countError ?? ''} />}
      <ScopeChoice
        scope={scope}
        selected={keys.length}
        shown={count}
        isFiltered={isFiltered(view)}
        onChange={setScope}
      />
      {fields.map((field) => (
        <FieldToChange key={field.name} {...{ field, model, draft }} />
      ))}
      <FieldToAdd
        names={all.map(({ name }) => name).filter((name) => !chosen.includes(name))}
        onAdd={(name) => setChosen([...chosen, name])}
      />
    </FormDialog>
  );
}

interface FieldToChangeProps {
  readonly field: Field;
  readonly model: Model;
  readonly draft: Draft;
}

function FieldToChange({ field, model, draft: { shown, wrong, change, remove } }: FieldToChangeProps): JSX.Element {
  const { name } = field;
  const isNull = shown[name] === null;
  return (
    <FieldRow
      id={`bulk-${name}`}
      field={withoutDefault(field)}
      model={model}
      value={shown[name]}
      to={targetOf(field, shown)}
      error={wrong[name]}
      hint={hintOf(field, shown[name])}
      onChange={(entered) => change(field, entered)}
    >
      {isNullable(field) && (
        <Button
          label={`Set ${name} to null`}
          kind="quiet"
          pressed={isNull}
          onClick={() => change(field, isNull ? { value: null, isEmpty: true } : { value: null })}
        />
      )}
      <Button label={`Leave ${name} out`} icon="close" kind="quiet" compact onClick={() => remove(name)} />
    </FieldRow>
  );
}

function isNullable({ column }: Field): boolean {
  return column?.is_nullable ?? true;
}

/** Items that exist do not get the default. */
function withoutDefault(field: Field): Field {
  return field.column === null ? field : { ...field, column: { ...field.column, default_value: null } };
}

function hintOf(field: Field, value: unknown): string | undefined {
  if (value === undefined) return isNullable(field) ? 'Enter a value, or set the field to null.' : 'Enter a value.';
  if (value === null) return 'The field will be null.';
  return value === '' ? 'The field will be an empty text.' : undefined;
}

interface Draft {
  /** The names of the fields to change. */
  readonly chosen: readonly string[];
  /** The values of the fields that have one. Null is only a value if the user has chosen it: an empty input may be a mistake. */
  readonly shown: Row;
  readonly wrong: Readonly<Record<string, string>>;
  readonly setChosen: (chosen: readonly string[]) => void;
  readonly change: (field: Field, entered: Entered) => void;
  readonly remove: (name: string) => void;
}

function useDraft(): Draft {
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [shown, setShown] = useState<Row>({});
  const [wrong, setWrong] = useState<Readonly<Record<string, string>>>({});
  const forget = (name: string): void => setShown(({ [name]: _, ...others }) => others);
  const change = (field: Field, entered: Entered): void => {
    const { [field.name]: _, ...others } = wrong;
    setWrong('error' in entered ? { ...others, [field.name]: entered.error } : others);
    if (!('value' in entered)) return;
    if (entered.isEmpty) forget(field.name);
    else setShown((now) => ({ ...now, [field.name]: entered.value }));
  };
  const remove = (name: string): void => {
    const { [name]: _, ...others } = wrong;
    setWrong(others);
    forget(name);
    setChosen(chosen.filter((each) => each !== name));
  };
  return { chosen, shown, wrong, setChosen, change, remove };
}

interface FieldToAddProps {
  readonly names: readonly string[];
  readonly onAdd: (name: string) => void;
}

function FieldToAdd({ names, onAdd }: FieldToAddProps): JSX.Element {
  return (
    <div class="field">
      <label for="bulk-field">Field to change</label>
      <select
        id="bulk-field"
        value=""
        onChange={(event) => {
          const name = event.currentTarget.value;
          event.currentTarget.value = '';
          if (name !== '') onAdd(name);
        }}
      >
        <option value="">Choose a field…</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </div>
  );
}

function isEditable({ column, columns, readonly, isKey, relation }: Field): boolean {
  if (isKey || readonly || relation?.kind === 'any' || relation?.kind === 'many') return false;
  return column !== null || columns.length > 0;
}

function isFiltered({ filter, search }: View): boolean {
  return filter !== null || search !== '';
}

const MOST_SHOWN = 10;

export function BulkDelete(props: BulkProps): JSX.Element {
  const { collection, view, keys, onClose, onDone } = props;
  const [scope, setScope] = useState<Scope>(keys.length > 0 ? 'selected' : 'shown');
  const { count, error: countError } = useCount(props);
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const affected = scope === 'selected' ? keys.length : count;
  const isConfirmed = scope === 'selected' || typed.trim() === collection.name;
  const remove = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const body = queryFor(scope, props);
      await call('DELETE', itemsPath(collection.name), { body: 'keys' in body ? body['keys'] : body });
      const edits = editsOf(collection.name, collection.keys);
      if (scope === 'selected') edits.forgetItems(keys);
      else if (!isFiltered(view)) edits.clear();
      toast(affected === 1 ? 'One item deleted' : `${exactCount(affected ?? 0)} items deleted`);
      onDone();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const names = keys.slice(0, MOST_SHOWN).map((key) => Object.values(keyColumns(key, collection.keys)).join('~'));
  return (
    <FormDialog
      title={`Delete items of ${collection.name}`}
      submit={`Delete ${countText(affected)}`}
      danger
      disabled={busy || affected === null || affected === 0 || !isConfirmed}
      onClose={onClose}
      onSubmit={() => void remove()}
    >
      {(error ?? countError) && <ErrorBox text={error ?? countError ?? ''} />}
      <ScopeChoice
        scope={scope}
        selected={keys.length}
        shown={count}
        isFiltered={isFiltered(view)}
        onChange={setScope}
      />
      {scope === 'selected' ? (
        <p>
          The {keys.length === 1 ? 'item' : 'items'} with the key {names.join(', ')}
          {keys.length > MOST_SHOWN && ` and ${keys.length - MOST_SHOWN} more`} cannot be restored.
        </p>
      ) : (
        <div class="field">
          <label for="bulk-name">
            Type <code>{collection.name}</code> to delete {countText(affected)}
          </label>
          <input
            id="bulk-name"
            value={typed}
            autocomplete="off"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </div>
      )}
    </FormDialog>
  );
}
