/** The common parts of the forms that change the schema: a dialog that saves with requests of the public API, and its inputs. */
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import { reloadModel, toast } from '../state';
import { ErrorBox, FormDialog } from '../ui';

interface FormProps {
  readonly title: string;
  readonly onClose: () => void;
  /** Throws the error. */
  readonly onSave: () => Promise<void>;
  readonly done: string;
  readonly saveLabel?: string;
  readonly danger?: boolean;
  readonly disabled?: boolean;
  readonly children: ComponentChildren;
}

export function ChangeForm(props: FormProps): JSX.Element {
  const { title, onClose, onSave, done, saveLabel = 'Save', danger = false, disabled = false, children } = props;
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
      submit={saveLabel}
      danger={danger}
      disabled={busy || disabled}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      {children}
    </FormDialog>
  );
}

interface InputProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
  readonly note?: string;
}

export function TextField({ label, value, onInput, note }: InputProps): JSX.Element {
  const id = `change-${label.replaceAll(' ', '-')}`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} value={value} spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />
      {note && <small>{note}</small>}
    </div>
  );
}

export function Choice(props: InputProps & { readonly among: readonly (readonly [string, string])[] }): JSX.Element {
  const { label, value, onInput, note, among } = props;
  const id = `change-${label.replaceAll(' ', '-')}`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onInput(event.currentTarget.value)}>
        {among.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
      {note && <small>{note}</small>}
    </div>
  );
}

export function Check(props: {
  readonly label: string;
  readonly checked: boolean;
  readonly onChange: (checked: boolean) => void;
}): JSX.Element {
  return (
    <label class="row">
      <input type="checkbox" checked={props.checked} onChange={() => props.onChange(!props.checked)} />
      <span>{props.label}</span>
    </label>
  );
}
