/** The content of a cell, and its editor. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { type Field, isMoment, isNumber, isRange, type Model, type Relation } from '../model';
import { Icon } from '../ui';
import type { Row } from './edits';
import { isFiles } from './file-input';
import { ValueInput } from './inputs';
import { targetOf, titleOf } from './item';
import { ItemPicker } from './picker';
import { farOf } from './source';
import { type Entered, isLong, isStructured, readEntered, showValue } from './values';

export function cellValue(row: Row, field: Field): unknown {
  return field.relation?.kind === 'many' ? row[`${field.name}_count`] : row[field.name];
}

export function alignment(field: Field): string {
  return isNumber(field) && !field.relation ? ' number' : isMoment(field) ? ' moment' : '';
}

interface CellProps {
  readonly value: unknown;
  readonly row: Row;
  readonly field: Field;
  readonly model: Model;
  /** Whether its row is not saved yet and so cannot be opened. */
  readonly isNew: boolean;
  readonly isOpen: boolean;
  readonly onOpen: () => void;
  /** The collection of the item of a many-to-any relation. */
  readonly to: string | null;
}

export function CellContent({ value, row, field, model, isNew, isOpen, onOpen, to }: CellProps): JSX.Element {
  const { relation, column } = field;
  if (isNew && value === undefined) {
    const isFilled = column?.has_auto_increment || (column?.default_value ?? null) !== null;
    return <span class="null">{isFilled || relation?.kind === 'many' ? 'when saved' : 'null'}</span>;
  }
  if (relation?.kind === 'many') {
    const count = Number(value ?? 0);
    const names = farTitles(row[field.name], relation, model, count);
    const label = `${field.name}: ${count}${names === null ? '' : `, ${names}`}`;
    return (
      <OpenButton isOpen={isOpen} onOpen={onOpen} label={label} quiet={count === 0}>
        {names ?? count}
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
  if (relation?.kind === 'any') return <>{to === null ? showValue(value, field) : titleOf(value, model, to)}</>;
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

/** The names of the first items of a list through a junction, or null for other lists. */
function farTitles(
  value: unknown,
  relation: Extract<Relation, { kind: 'many' }>,
  model: Model,
  count: number,
): string | null {
  const far = farOf(relation, model);
  if (!Array.isArray(value) || value.length === 0 || !far) return null;
  const names = value.map((link: Row) =>
    link[far.name] ? titleOf(link[far.name], model, targetOf(far, link) ?? '') : 'null',
  );
  return `${names.join(', ')}${count > names.length ? ` +${count - names.length}` : ''}`;
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

/** Enter, Tab and leaving the editor take the value, if it is one; Escape does not. */
export function CellEditor(props: EditorProps): JSX.Element {
  const { field, model, typed, onCancel } = props;
  const box = useRef<HTMLDivElement>(null);
  const isDone = useRef(false);
  /** Once: the editor loses the focus when it is removed. */
  const onDone = (done: unknown, then: Direction): void => {
    if (isDone.current) return;
    isDone.current = true;
    props.onDone(done, then);
  };
  const { isText, shown, entered, enter } = useEntered(props);
  const [isTried, setTried] = useState(false);
  // Before the next frame: a second letter typed at once belongs to the input.
  useLayoutEffect(() => focusInput(box.current, typed === null), []);
  const { relation } = field;
  if (relation?.kind === 'one' && !isFileField(field, model))
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
    setTried(true);
    if ('value' in entered) onDone(entered.value, then);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // Ctrl-S belongs to the page: it applies the typed value and saves it.
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 's') return;
    event.stopPropagation();
    const then = directionOf(event, box.current);
    if (event.key === 'Escape') {
      isDone.current = true;
      onCancel();
    } else if (then) {
      event.preventDefault();
      commit(then);
    }
  };
  const change = (next: Entered): void => {
    enter(next);
    // A choice is complete as soon as it is made.
    if (isChoice(field) && 'value' in next) onDone(next.value, 'stay');
  };
  const error = 'error' in entered && (isTried || isLong(field) || isMoment(field)) ? entered.error : null;
  return (
    <div
      class={`cell-editor ${editorKind(field)}`}
      ref={box}
      onKeyDown={onKeyDown}
      onDblClick={(event) => event.stopPropagation()}
      onFocusOut={(event) => staysInside(event, box.current) || commit('stay')}
    >
      <ValueInput
        id="cell-input"
        label={`New value of ${field.name}`}
        field={field}
        model={model}
        value={shown}
        typed={isText ? typed : null}
        wrong={error !== null}
        onChange={change}
      />
      <EditorError text={error} />
    </div>
  );
}

function EditorError({ text }: { readonly text: string | null }): JSX.Element | null {
  if (text === null) return null;
  return (
    <span class="cell-error" id="error-cell-input" role="alert">
      {text}
    </span>
  );
}

interface EnteredValue {
  readonly isText: boolean;
  /** The last value that the input could read. */
  readonly shown: unknown;
  readonly entered: Entered;
  readonly enter: (next: Entered) => void;
}

function useEntered({ field, model, value, typed }: EditorProps): EnteredValue {
  const isText = !hasOwnInput(field, model);
  const initial = typed !== null && isText ? readEntered(typed, field) : { value };
  const [shown, setShown] = useState<unknown>('value' in initial ? initial.value : value);
  const [entered, setEntered] = useState<Entered>(initial);
  const enter = (next: Entered): void => {
    setEntered(next);
    if ('value' in next) setShown(next.value);
  };
  return { isText, shown, entered, enter };
}

function focusInput(box: HTMLElement | null, isSelected: boolean): void {
  const input = box?.querySelector<HTMLInputElement>('input:not([aria-hidden]), textarea, select, button');
  input?.focus();
  if (isSelected && input instanceof HTMLInputElement) input.select();
  keepInside(box);
}

/** The cell that a key leads to after it takes the value, or null if the key belongs to the input. */
function directionOf(event: KeyboardEvent, box: HTMLElement | null): Direction | null {
  if (event.key === 'Enter' && !event.shiftKey && !(event.target instanceof HTMLButtonElement)) return 'down';
  if (event.key === 'Tab' && !isInside(event, box)) return event.shiftKey ? 'left' : 'right';
  return null;
}

function staysInside({ relatedTarget }: FocusEvent, box: HTMLElement | null): boolean {
  if (box?.contains(relatedTarget as Node | null)) return true;
  // A file is chosen in a dialog, and a click on a button may leave the focus nowhere.
  return box?.querySelector('dialog') != null;
}

function isFileField({ relation }: Field, model: Model): boolean {
  const target = relation?.kind === 'one' ? model.get(relation.to) : undefined;
  return target !== undefined && isFiles(target);
}

function isChoice(field: Field): boolean {
  return field.type === 'boolean' || (field.choices.length > 0 && !field.allowsOther && !isStructured(field));
}

/** Whether the editor is more than one text, so that a typed letter cannot be its first. */
function hasOwnInput(field: Field, model: Model): boolean {
  return (
    isChoice(field) || isFileField(field, model) || isRange(field) || (isStructured(field) && field.choices.length > 0)
  );
}

/** The kinds differ in their size: a line, several inputs in a row, or a box. */
function editorKind(field: Field): string {
  if (isRange(field) || field.relation || (isStructured(field) && field.choices.length > 0)) return 'box';
  if (isLong(field)) return 'long';
  if (isMoment(field)) return 'wide';
  return alignment(field).trim();
}

/** Whether Tab stays inside the editor, because there is another input in that direction. */
function isInside(event: KeyboardEvent, box: HTMLElement | null): boolean {
  const inputs = [...(box?.querySelectorAll<HTMLElement>('input, select, textarea, button') ?? [])].filter(
    (each) => each.tabIndex >= 0 && !each.hidden,
  );
  const at = inputs.indexOf(document.activeElement as HTMLElement);
  return inputs[at + (event.shiftKey ? -1 : 1)] !== undefined;
}

/** Moves an editor that is larger than its cell so that the grid does not cut it off. */
function keepInside(box: HTMLElement | null): void {
  const grid = box?.closest('.grid');
  if (!box || !grid) return;
  const [own, around] = [box.getBoundingClientRect(), grid.getBoundingClientRect()];
  const right = Math.min(around.right, innerWidth) - 16;
  const left = Math.max(around.left + 4 - own.left, Math.min(0, right - own.right));
  const up = Math.max(around.top + 34 - own.top, Math.min(0, Math.min(around.bottom, innerHeight) - 8 - own.bottom));
  if (left !== 0 || up !== 0) box.style.transform = `translate(${Math.round(left)}px, ${Math.round(up)}px)`;
}
