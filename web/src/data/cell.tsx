/** The content of a cell, and its editor. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Field, isMoment, isNumber, type Model } from '../model';
import { Icon } from '../ui';
import type { Row } from './edits';
import { titleOf } from './item';
import { ItemPicker } from './picker';
import { editText, isLong, readEntered, showValue } from './values';

export function cellValue(row: Row, field: Field): unknown {
  return field.relation?.kind === 'many' ? row[`${field.name}_count`] : row[field.name];
}

export function alignment(field: Field): string {
  return isNumber(field) && !field.relation ? ' number' : isMoment(field) ? ' moment' : '';
}

interface CellProps {
  readonly value: unknown;
  readonly field: Field;
  readonly model: Model;
  /** Whether its row is not saved yet and so cannot be opened. */
  readonly isNew: boolean;
  readonly isOpen: boolean;
  readonly onOpen: () => void;
}

export function CellContent({ value, field, model, isNew, isOpen, onOpen }: CellProps): JSX.Element {
  const { relation, column } = field;
  if (isNew && value === undefined) {
    const isFilled = column?.has_auto_increment || (column?.default_value ?? null) !== null;
    return <span class="null">{isFilled || relation?.kind === 'many' ? 'when saved' : 'null'}</span>;
  }
  if (relation?.kind === 'many') {
    const count = Number(value ?? 0);
    return (
      <OpenButton isOpen={isOpen} onOpen={onOpen} label={`${field.name}: ${count}`} quiet={count === 0}>
        {count}
      </OpenButton>
    );
  }
  if (value === null || value === undefined) return <span class="null">null</span>;
  if (relation?.kind === 'one') {
    const text = titleOf(value, model, relation.to);
    if (isNew || !model.get(relation.to)?.keys.length) return <>{text}</>;
    return (
      <OpenButton isOpen={isOpen} onOpen={onOpen} label={`${field.name}: ${text}`}>
        {text}
      </OpenButton>
    );
  }
  if (typeof value === 'boolean') return <span class={`bool ${value}`}>{String(value)}</span>;
  const text = showValue(value, field);
  if (text === '') return <span class="null">empty</span>;
  return <>{text.length > 300 ? `${text.slice(0, 300)}…` : text}</>;
}

function OpenButton(props: {
  readonly isOpen: boolean;
  readonly onOpen: () => void;
  readonly label: string;
  readonly quiet?: boolean;
  readonly children: JSX.Element | string | number;
}): JSX.Element {
  return (
    <button
      type="button"
      tabIndex={-1}
      class={`chip${props.quiet ? ' quiet' : ''}`}
      aria-expanded={props.isOpen}
      aria-label={`${props.label}, ${props.isOpen ? 'close' : 'open'}`}
      onClick={(event) => {
        event.stopPropagation();
        props.onOpen();
      }}
    >
      <Icon name={props.isOpen ? 'down' : 'right'} />
      <span>{props.children}</span>
    </button>
  );
}

/** The direction in which the selection moves after an edit. */
export type Direction = 'stay' | 'down' | 'right' | 'left';

interface EditorProps {
  readonly field: Field;
  readonly model: Model;
  readonly value: unknown;
  /** The typed character that opened the editor, or null to begin with the value. */
  readonly typed: string | null;
  readonly onDone: (value: unknown, then: Direction) => void;
  readonly onCancel: () => void;
}

export function CellEditor(props: EditorProps): JSX.Element {
  const { field, model, value, typed, onDone, onCancel } = props;
  const input = useRef<HTMLInputElement & HTMLTextAreaElement & HTMLSelectElement>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    input.current?.focus();
    if (typed === null && input.current instanceof HTMLInputElement) input.current.select();
  }, []);
  const { relation } = field;
  if (relation?.kind === 'one')
    return (
      <ItemPicker
        collection={relation.to}
        model={model}
        nullable={field.column?.is_nullable ?? true}
        onPick={(item) => onDone(item, 'stay')}
        onCancel={onCancel}
      />
    );
  const commit = (then: Direction): void => {
    if (!input.current) return;
    const entered = readEntered(input.current.value, field);
    if ('error' in entered) setError(entered.error);
    else onDone(entered.value, then);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    event.stopPropagation();
    if (event.key === 'Escape') onCancel();
    else if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      commit('down');
    } else if (event.key === 'Tab') {
      event.preventDefault();
      commit(event.shiftKey ? 'left' : 'right');
    }
  };
  const common = { ref: input, onKeyDown, 'aria-label': `New value of ${field.name}`, 'aria-invalid': error !== null };
  const initial = typed ?? editText(value);
  if (field.type === 'boolean')
    return (
      <select {...common} class="cell-editor" onChange={() => commit('stay')} onBlur={onCancel}>
        {['true', 'false', ...(field.column?.is_nullable ? [''] : [])].map((each) => (
          <option key={each} value={each} selected={each === initial}>
            {each === '' ? 'null' : each}
          </option>
        ))}
      </select>
    );
  return (
    <>
      {isLong(field) ? (
        <textarea {...common} class="cell-editor long" rows={8} onBlur={() => commit('stay')}>
          {initial}
        </textarea>
      ) : (
        <input
          {...common}
          class={`cell-editor${alignment(field)}`}
          defaultValue={initial}
          spellcheck={false}
          onBlur={() => commit('stay')}
        />
      )}
      {error && <span class="cell-error">{error}</span>}
    </>
  );
}
