/** Dates and times: text as PostgreSQL writes it, the picker of the browser, and a time zone for timestamps. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import type { Field } from '../model';
import { remember, remembered } from '../state';
import { Button } from '../ui';
import { attributesOf, type InputProps, useText } from './input-parts';
import { fromZone, inZone, isMomentText, LOCAL_ZONE, type Zone } from './moment';
import { type Entered, editText, readEntered } from './values';

const zone = signal<Zone>(remembered('zone') === 'local' ? 'local' : 'UTC');

function pickerOf({ type }: Field): 'date' | 'time' | 'datetime-local' {
  return type === 'date' || type === 'time' ? type : 'datetime-local';
}

export function MomentInput(props: InputProps): JSX.Element {
  const { field, value, onChange, disabled, id, typed: first } = props;
  const hasZone = field.type === 'timestamp';
  const toText = (moment: unknown): string =>
    hasZone ? inZone(editText(moment), zone.value) : editText(moment).replace('T', ' ');
  const read = (typed: string): Entered => {
    const entered = readEntered(typed, field);
    return hasZone && 'value' in entered && typeof entered.value === 'string'
      ? { value: fromZone(entered.value, zone.value) }
      : entered;
  };
  const [text, setText] = useText(value, toText, (typed) => normal(read(typed)), first ?? null);
  const picker = useRef<HTMLInputElement>(null);
  const type = (typed: string): void => {
    setText(typed);
    onChange(normal(read(typed)));
  };
  const change = (chosen: Zone): void => {
    const entered = read(text);
    zone.value = chosen;
    remember('zone', chosen);
    if ('value' in entered) setText(toText(entered.value));
  };
  const pick = (): void => {
    if (!picker.current) return;
    if (isMomentText(text.trim(), field.type)) picker.current.value = text.trim().replace(' ', 'T').slice(0, 19);
    picker.current.showPicker();
  };
  return (
    <div class="input-moment">
      <input
        {...attributesOf(props)}
        value={text}
        spellcheck={false}
        onInput={(event) => type(event.currentTarget.value)}
      />
      <span class="input-picker">
        <input
          ref={picker}
          type={pickerOf(field)}
          step={field.type === 'date' ? undefined : 1}
          tabIndex={-1}
          aria-hidden="true"
          onInput={(event) => {
            if (event.currentTarget.value !== '') type(event.currentTarget.value.replace('T', ' '));
          }}
        />
        <Button
          label={field.type === 'time' ? 'Choose a time' : 'Choose a date'}
          icon="calendar"
          compact
          disabled={disabled ?? false}
          onClick={pick}
        />
      </span>
      {hasZone && (
        <select
          aria-label={`Time zone of ${field.name}`}
          id={`zone-${id}`}
          value={zone.value}
          onChange={(event) => change(event.currentTarget.value as Zone)}
        >
          <option value="UTC">UTC</option>
          {LOCAL_ZONE !== 'UTC' && <option value="local">{LOCAL_ZONE}</option>}
        </select>
      )}
    </div>
  );
}

/** The picker leaves out seconds that are zero. */
function normal(entered: Entered): Entered {
  if (!('value' in entered) || typeof entered.value !== 'string') return entered;
  return {
    value: entered.value.replace(/^(\d{4,6}-\d\d-\d\d[T ]\d\d:\d\d)$/, '$1:00').replace(/^(\d\d:\d\d)$/, '$1:00'),
  };
}
