/** The elements of an array, one input each. Arrays with nulls, arrays or objects inside are edited as JSON. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Field } from '../model';
import { Button } from '../ui';
import type { InputProps } from './input-parts';
import { readEntered } from './values';

export function isListValue(value: unknown): boolean {
  if (value === null || value === undefined) return true;
  return Array.isArray(value) && value.length <= 50 && value.every((each) => each !== null && typeof each !== 'object');
}

/** By the name of the type in PostgreSQL, without its brackets. */
const TYPES: readonly (readonly [names: RegExp, type: string])[] = [
  [/^(smallint|integer)$/, 'integer'],
  [/^bigint$/, 'bigInteger'],
  [/^numeric$/, 'decimal'],
  [/^(real|double precision)$/, 'float'],
  [/^uuid$/, 'uuid'],
  [/^date$/, 'date'],
  [/^boolean$/, 'boolean'],
];

/** The field of one element. */
function elementOf(field: Field): Field {
  const name = field.column?.data_type.replace(/(\[\])+$/, '') ?? '';
  const type = TYPES.find(([names]) => names.test(name))?.[1] ?? 'string';
  const column = field.column && { ...field.column, data_type: name, max_length: null, numeric_precision: null };
  return { ...field, type, column, choices: [], allowsOther: true };
}

export function ListInput({ id, field, value, disabled, label, wrong, onChange }: InputProps): JSX.Element {
  const element = elementOf(field);
  const [texts, setTexts] = useState<readonly string[]>(() => textsOf(value));
  const [known, setKnown] = useState(JSON.stringify(value));
  if (known !== JSON.stringify(value)) {
    setKnown(JSON.stringify(value));
    if (JSON.stringify(readAll(texts, element)) !== JSON.stringify({ value: value ?? null })) setTexts(textsOf(value));
  }
  const change = (next: readonly string[]): void => {
    setTexts(next);
    onChange(readAll(next, element));
  };
  return (
    <div
      class="input-list"
      role="group"
      id={id}
      aria-label={label ?? field.name}
      aria-describedby={wrong ? `error-${id}` : undefined}
    >
      {texts.map((text, at) => (
        <div class="input-element" key={at}>
          <input
            aria-label={`${field.name}, element ${at + 1}`}
            value={text}
            disabled={disabled}
            spellcheck={false}
            aria-invalid={'error' in readEntered(text, element)}
            onInput={(event) => change(texts.with(at, event.currentTarget.value))}
          />
          <Button
            label={`Remove element ${at + 1}`}
            icon="minus"
            kind="quiet"
            compact
            disabled={disabled ?? false}
            onClick={() => change(texts.filter((_, index) => index !== at))}
          />
        </div>
      ))}
      <div class="adders">
        <Button
          label={
            value === null || value === undefined
              ? `Add an element (the list is ${value === null ? 'null' : 'not set'})`
              : 'Add an element'
          }
          icon="plus"
          kind="quiet"
          disabled={disabled ?? false}
          onClick={() => change([...texts, ''])}
        />
      </div>
    </div>
  );
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

function readAll(texts: readonly string[], element: Field): ReturnType<typeof readEntered> {
  const values: unknown[] = [];
  for (const [at, text] of texts.entries()) {
    const entered = readEntered(text, element);
    if ('error' in entered) return { error: `Element ${at + 1} ${entered.error}` };
    values.push(entered.value);
  }
  return { value: values };
}
