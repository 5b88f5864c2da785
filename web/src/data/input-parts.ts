/** The parts that all inputs of values share: their properties, their attributes and the text that the user types. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Field, Model } from '../model';
import type { Entered } from './values';

export interface InputProps {
  readonly id: string;
  /** The name for screen readers, if no label is visible. */
  readonly label?: string;
  readonly field: Field;
  readonly model: Model;
  /** Undefined if the item has no value yet. A related item has its key and title. */
  readonly value: unknown;
  /** The collection of the item of a many-to-any relation, or null if none is chosen yet. */
  readonly to?: string | null;
  /** Whether an error is shown; its element has the id `error-{id}`. */
  readonly wrong: boolean;
  readonly disabled?: boolean;
  /** The text that begins instead of the value: the key that opened the editor of a cell. */
  readonly typed?: string | null;
  readonly onChange: (entered: Entered) => void;
}

/** Attributes that all inputs share. */
export function attributesOf({ id, label, wrong, disabled, field, value }: InputProps) {
  const initial = field.column?.default_value ?? null;
  const placeholder =
    value === null ? 'null' : value === undefined && initial !== null ? `default: ${String(initial)}` : '';
  return {
    id,
    disabled,
    'aria-label': label,
    'aria-invalid': wrong,
    'aria-describedby': wrong ? `error-${id}` : undefined,
    placeholder,
  };
}

/** The typed text. It follows the value if something else changes it, such as undo. */
export function useText(
  value: unknown,
  toText: (value: unknown) => string,
  read: (text: string) => Entered,
  first: string | null = null,
): [string, (text: string) => void] {
  const [text, setText] = useState(() => first ?? toText(value));
  const isMounted = useRef(false);
  useEffect(() => {
    if (!isMounted.current) {
      isMounted.current = true;
      return;
    }
    const entered = read(text);
    if (!('value' in entered) || textOf(entered.value) !== textOf(value)) setText(toText(value));
  }, [textOf(value)]);
  return [text, setText];
}

function textOf(value: unknown): string {
  if (value === undefined) return 'undefined';
  return value === null || value === '' ? '' : JSON.stringify(value);
}
