/** A range: two bounds, and whether each belongs to it. An empty bound is open. */
import type { JSX } from 'preact';
import type { Field } from '../model';
import { attributesOf, type InputProps, useText } from './input-parts';
import { type Entered, editText, readEntered } from './values';

const TYPES: Readonly<Record<string, string>> = {
  int4range: 'integer',
  int8range: 'bigInteger',
  numrange: 'decimal',
  daterange: 'date',
  tsrange: 'dateTime',
  tstzrange: 'timestamp',
};
const PARTS = /^([[(])([^,]*),([^,]*)([\])])$/;

interface Parts {
  readonly open: string;
  readonly from: string;
  readonly to: string;
  readonly close: string;
}

function partsOf(text: string): Parts {
  const [, open = '[', from = '', to = '', close = ')'] = PARTS.exec(text.trim()) ?? [];
  return { open, from: bare(from), to: bare(to), close };
}

function bare(bound: string): string {
  return bound.replace(/^"(.*)"$/, '$1');
}

function textOf({ open, from, to, close }: Parts): string {
  const quoted = (bound: string): string => (/[\s"]/.test(bound) ? `"${bound}"` : bound);
  return `${open}${quoted(from)},${quoted(to)}${close}`;
}

/** Checks each bound as a value of its type, and their order. */
export function readRange(text: string, field: Field): Entered {
  const entered = readEntered(text, field);
  if ('error' in entered || !PARTS.test(text.trim())) return entered;
  const { from, to } = partsOf(text);
  const type = TYPES[field.column?.data_type ?? ''] ?? 'string';
  const bound: Field = { ...field, type, column: null, choices: [] };
  for (const [name, value] of [
    ['The lower bound', from],
    ['The upper bound', to],
  ] as const) {
    const read = value === '' ? { value } : readEntered(value, bound);
    if ('error' in read) return { error: `${name} ${read.error}` };
  }
  const isOrdered = /^(integer|bigInteger|decimal)$/.test(type) ? Number(from) <= Number(to) : from <= to;
  return from !== '' && to !== '' && !isOrdered
    ? { error: 'The lower bound must not be above the upper bound' }
    : entered;
}

export function RangeInput(props: InputProps): JSX.Element {
  const { field, value, onChange, disabled } = props;
  const [text, setText] = useText(value, editText, (typed) => readRange(typed, field));
  const { placeholder, ...attributes } = attributesOf(props);
  const parts = partsOf(text);
  const change = (changed: Partial<Parts>): void => {
    const next = { ...parts, ...changed };
    const typed = next.from === '' && next.to === '' && text === '' ? '' : textOf(next);
    setText(typed);
    onChange(readRange(typed, field));
  };
  const side = (name: 'open' | 'close', marks: readonly [included: string, excluded: string]): JSX.Element => (
    <select
      aria-label={`${name === 'open' ? 'Lower' : 'Upper'} bound of ${field.name} is`}
      value={parts[name]}
      disabled={disabled}
      onChange={(event) => change({ [name]: event.currentTarget.value })}
    >
      <option value={marks[0]}>included</option>
      <option value={marks[1]}>excluded</option>
    </select>
  );
  return (
    <div class="input-range">
      <span>from</span>
      <input
        {...attributes}
        placeholder={placeholder || 'open'}
        value={parts.from}
        onInput={(event) => change({ from: event.currentTarget.value })}
      />
      {side('open', ['[', '('])}
      <span>to</span>
      <input
        aria-label={`Upper bound of ${field.name}`}
        placeholder={placeholder || 'open'}
        disabled={disabled}
        value={parts.to}
        onInput={(event) => change({ to: event.currentTarget.value })}
      />
      {side('close', [']', ')'])}
    </div>
  );
}
