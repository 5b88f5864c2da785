/** The common parts of dialogs: forms that save, questions, and secrets that are shown once. */
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from './api';
import { toast } from './state';
import { Button, copyText, Dialog, ErrorBox, FormDialog } from './ui';

interface SaveDialogProps {
  readonly title: string;
  readonly submit: string;
  readonly kind?: 'center' | 'side';
  readonly danger?: boolean;
  readonly disabled?: boolean;
  readonly onClose: () => void;
  /** Throws the error, which the dialog shows. Returns the message of success. */
  readonly onSave: () => Promise<string>;
  readonly children: ComponentChildren;
}

/** A form that stays open, with the error, if the service refuses it. */
export function SaveDialog({ onSave, onClose, disabled = false, children, ...props }: SaveDialogProps): JSX.Element {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      toast(await onSave());
      onClose();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog {...props} disabled={busy || disabled} onClose={onClose} onSubmit={() => void save()}>
      {error && <ErrorBox text={error} />}
      {children}
    </FormDialog>
  );
}

interface TextInputProps {
  readonly id: string;
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
  readonly type?: 'text' | 'email' | 'numeric';
  readonly note?: string;
}

export function TextInput({ id, label, value, onInput, type = 'text', note }: TextInputProps): JSX.Element {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        inputMode={type}
        autocomplete="off"
        value={value}
        aria-describedby={note ? `${id}-note` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {note && <small id={`${id}-note`}>{note}</small>}
    </div>
  );
}

export interface Option {
  readonly value: string;
  readonly label: string;
}

interface SelectProps {
  readonly id: string;
  readonly label: string;
  readonly value: string;
  readonly options: readonly Option[];
  readonly onChange: (value: string) => void;
  readonly note?: string;
}

export function Select({ id, label, value, options, onChange, note }: SelectProps): JSX.Element {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
      {note && <small>{note}</small>}
    </div>
  );
}

interface ChecksProps {
  readonly label: string;
  readonly options: readonly Option[];
  readonly chosen: readonly string[];
  readonly onChange: (chosen: readonly string[]) => void;
  readonly empty: string;
}

export function Checks({ label, options, chosen, onChange, empty }: ChecksProps): JSX.Element {
  return (
    <fieldset class="checks">
      <legend>{label}</legend>
      {options.length === 0 && <p class="quiet">{empty}</p>}
      <div class="checks-list">
        {options.map(({ value, label: name }) => (
          <label class="row" key={value}>
            <input
              type="checkbox"
              checked={chosen.includes(value)}
              onChange={() =>
                onChange(chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value])
              }
            />
            <span>{name}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

interface ConfirmProps {
  readonly title: string;
  readonly submit: string;
  readonly onClose: () => void;
  readonly onConfirm: () => Promise<string>;
  readonly children: ComponentChildren;
}

export function Confirm({ onConfirm, ...props }: ConfirmProps): JSX.Element {
  return <SaveDialog {...props} danger onSave={onConfirm} />;
}

interface SecretProps {
  readonly title: string;
  readonly label: string;
  readonly value: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly footer?: ComponentChildren;
}

/** A token or link that the page shows once. */
export function SecretDialog({ title, label, value, onClose, children, footer }: SecretProps): JSX.Element {
  return (
    <Dialog
      title={title}
      isForm
      onClose={onClose}
      footer={
        <>
          {footer}
          <span class="grow" />
          <Button label="Copy" icon="copy" onClick={() => void copyText(value)} />
          <Button label="Done" kind="primary" onClick={onClose} />
        </>
      }
    >
      <div class="form">
        {children}
        <div class="field">
          <label for="shown-once">{label}</label>
          <textarea
            id="shown-once"
            class="mono"
            readOnly
            rows={3}
            spellcheck={false}
            value={value}
            onFocus={(event) => event.currentTarget.select()}
          />
        </div>
      </div>
    </Dialog>
  );
}
