/** One input for each kind of value. The record page, the editor of a cell, the form of a new item and bulk edits share them. */
import type { JSX, TargetedEvent } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { type Field, isArray, isMoment, isNumber, isRange } from '../model';
import { Button } from '../ui';
import type { Row } from './edits';
import { FileInput, isFiles } from './file-input';
import { attributesOf, type InputProps, useText } from './input-parts';
import './inputs.css';
import { titleOf } from './item';
import { isListValue, ListInput } from './list-input';
import { MomentInput } from './moment-input';
import { ItemPicker } from './picker';
import { RangeInput } from './range-input';
import { editText, isStructured, readEntered } from './values';

export function ValueInput(props: InputProps): JSX.Element {
  const { field, model, value } = props;
  const { relation } = field;
  const target = relation?.kind === 'one' ? model.get(relation.to) : undefined;
  if (target && isFiles(target)) return <FileInput {...props} collection={target} />;
  if (relation?.kind === 'any') return <AnyInput {...props} />;
  if (target && target.keys.length > 0 && relation?.kind === 'one') return <ItemInput {...props} to={relation.to} />;
  if (field.choices.length > 0 && isStructured(field)) return <ChoiceList {...props} />;
  if (field.choices.length > 0 && !field.allowsOther) return <ChoiceInput {...props} />;
  if (field.type === 'boolean') return <ChoiceInput {...props} />;
  if (isMoment(field)) return <MomentInput {...props} />;
  if (isRange(field)) return <RangeInput {...props} />;
  if (isArray(field) && isListValue(value) && props.typed === undefined) return <ListInput {...props} />;
  return <TextInput {...props} />;
}

/** Text, numbers and JSON. */
function TextInput(props: InputProps): JSX.Element {
  const { field, value, onChange, typed: first } = props;
  const [text, setText] = useText(value, editText, (entered) => readEntered(entered, field), first ?? null);
  const input = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const [position, setPosition] = useState<number | null>(null);
  const type = (typed: string): void => {
    setText(typed);
    const entered = readEntered(typed, field);
    setPosition('error' in entered ? (entered.position ?? null) : null);
    onChange(entered);
  };
  const common = {
    ...attributesOf(props),
    ref: input,
    value: text,
    spellcheck: field.type === 'text',
    onInput: (event: TargetedEvent<HTMLInputElement | HTMLTextAreaElement>) => type(event.currentTarget.value),
  };
  if (field.type === 'text' || isStructured(field)) {
    const rows = Math.max(3, Math.min(16, text.split('\n').length + 1));
    return (
      <div class="input-text">
        <textarea {...common} rows={rows} class={isStructured(field) ? 'mono' : ''} />
        {position !== null && (
          <Button
            label="Go to the error"
            kind="quiet"
            onClick={() => {
              input.current?.focus();
              input.current?.setSelectionRange(position, position + 1);
            }}
          />
        )}
      </div>
    );
  }
  if (field.choices.length === 0)
    return (
      <input {...common} inputMode={isNumber(field) ? 'decimal' : 'text'} class={isNumber(field) ? 'number' : ''} />
    );
  return (
    <>
      <input {...common} list={`list-${props.id}`} />
      <datalist id={`list-${props.id}`}>
        {field.choices.map((choice) => (
          <option key={String(choice.value)} value={String(choice.value)}>
            {choice.text}
          </option>
        ))}
      </datalist>
    </>
  );
}

/** One of the allowed values. A value that the list lacks stays until another one is chosen. */
function ChoiceInput(props: InputProps): JSX.Element {
  const { field, value, onChange } = props;
  const { placeholder, ...attributes } = attributesOf(props);
  const isBoolean = field.type === 'boolean';
  const choices = isBoolean ? BOOLEANS : field.choices;
  const current = value === null || value === undefined ? '' : String(value);
  const isUnknown = current !== '' && !choices.some((choice) => String(choice.value) === current);
  const hasNone = value === undefined || current === '' || (field.column?.is_nullable ?? true);
  return (
    <select
      {...attributes}
      value={current}
      onChange={({ currentTarget: { value: chosen } }) =>
        onChange(chosen === '' ? { value: null } : readEntered(chosen, asClosed(field)))
      }
    >
      {hasNone && <option value="">{value === undefined ? placeholder || 'not set' : 'null'}</option>}
      {isUnknown && <option value={current}>{current}</option>}
      {choices.map((choice) => (
        <option key={String(choice.value)} value={String(choice.value)}>
          {choice.text}
        </option>
      ))}
    </select>
  );
}

const BOOLEANS: Field['choices'] = ['true', 'false'].map((value) => ({ value, text: value }));

/** No choice is null, also in a field of texts. */
function asClosed(field: Field): Field {
  return field.type === 'string' || field.type === 'text' ? { ...field, type: 'choice' } : field;
}

/** Several of the allowed values, in a list. */
function ChoiceList({ id, field, value, disabled, onChange, label }: InputProps): JSX.Element {
  const chosen: readonly unknown[] = Array.isArray(value) ? value : [];
  return (
    <div class="input-choices" role="group" id={id} aria-label={label ?? field.name}>
      {field.choices.map((choice) => (
        <label key={String(choice.value)}>
          <input
            type="checkbox"
            disabled={disabled}
            checked={chosen.includes(choice.value)}
            onChange={() => {
              const others = chosen.filter((each) => each !== choice.value);
              onChange({ value: chosen.includes(choice.value) ? others : [...chosen, choice.value] });
            }}
          />
          {choice.text}
        </label>
      ))}
    </div>
  );
}

/** An item of one of several collections, which another field names. */
function AnyInput(props: InputProps): JSX.Element {
  const { id, field, model, value, to = null, label } = props;
  const by = field.relation?.kind === 'any' ? field.relation.by : null;
  if (to !== null && model.get(to)?.keys.length) return <ItemInput key={to} {...props} to={to} />;
  return (
    <button type="button" id={id} class="button field-pick" disabled aria-label={label}>
      <span class="quiet">{value === null || value === undefined ? `Choose ${by} first` : editText(value)}</span>
    </button>
  );
}

/** A related item. The value is the item with its key and title. */
function ItemInput(props: InputProps & { readonly to: string }): JSX.Element {
  const { id, field, model, value, to, disabled, onChange, label } = props;
  const [picking, setPicking] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setPicking(false);
    setTimeout(() => button.current?.focus());
  };
  if (picking)
    return (
      <ItemPicker
        collection={to}
        model={model}
        nullable={field.column?.is_nullable ?? true}
        onPick={(picked: Row | null) => {
          onChange({ value: picked });
          close();
        }}
        onCancel={() => setPicking(false)}
      />
    );
  return (
    <button
      type="button"
      id={id}
      ref={button}
      class="button field-pick"
      disabled={disabled}
      aria-label={label}
      onClick={() => setPicking(true)}
    >
      {value === null || value === undefined ? (
        <span class="quiet">Choose from {to}…</span>
      ) : (
        <span>{titleOf(value, model, to)}</span>
      )}
    </button>
  );
}
