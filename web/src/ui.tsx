/** The components that all pages use. */
import type { ComponentChildren, CSSProperties, JSX, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { dismiss, toast, toasts } from './state';

const ICONS = {
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.5-1.5L14 14',
  plus: 'M8 3v10M3 8h10',
  minus: 'M3 8h10',
  close: 'm4 4 8 8M12 4l-8 8',
  check: 'm3 8.5 3.2 3.2L13 5',
  down: 'm4 6 4 4 4-4',
  right: 'm6 4 4 4-4 4',
  left: 'm10 4-4 4 4 4',
  edit: 'M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3zM9 4.7 11.3 7',
  expand: 'M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  up: 'm4 10 4-4 4 4',
  filter: 'M2 4h12M4.5 8h7M7 12h2',
  columns: 'M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10',
  trash: 'M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5',
  redo: 'M10 3l3 3-3 3M13 6H7a4 4 0 0 0 0 8h2',
  calendar: 'M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.5V5M10.5 2.5V5',
  file: 'M4 2h5l3 3v9H4zM9 2v3h3',
  open: 'M6 3H3v10h10v-3M9 3h4v4M13 3 7.5 8.5',
  undo: 'M6 3 3 6l3 3M3 6h6a4 4 0 0 1 0 8H7',
  save: 'M8 2v8M4.5 6.5 8 10l3.5-3.5M3 13h10',
  folder: 'M1.5 3.5h4.6l1.4 1.8h7v8h-13z',
  upload: 'M8 10V2M4.5 5.5 8 2l3.5 3.5M3 13h10',
  copy: 'M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z',
  play: 'M5 3.2v9.6L12.5 8z',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z',
  user: 'M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8ZM2.8 14c.4-2.8 2.5-4.2 5.2-4.2s4.8 1.4 5.2 4.2',
  menu: 'M2 4h12M2 8h12M2 12h12',
  pulse: 'M1.5 8.5h3L6 4l3.5 9 2-4.5h3',
  bookmark: 'M4.5 2.5h7v11L8 10.8l-3.5 2.7z',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.8V8l2.2 1.6',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5L13 6M13 2.5V6H9.5',
  link: 'M6.5 9.5l3-3M5 7 3.2 8.8a2.8 2.8 0 0 0 4 4L9 11M11 9l1.8-1.8a2.8 2.8 0 0 0-4-4L7 5',
  warn: 'M8 2 1.5 13.5h13zM8 6.5v3.2M8 11.7h.01',
  table: 'M2.5 3h11v10h-11zM2.5 6.3h11M2.5 9.6h11M6.5 6.3V13',
  code: 'M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5',
  key: 'M10 9.5a3 3 0 1 0-2.7-1.7L2.5 12.5V14H4l.8-.8V12H6l1.8-1.8A3 3 0 0 0 10 9.5ZM10.5 6h.01',
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { readonly name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export interface ButtonProps {
  readonly label: string;
  readonly icon?: IconName;
  readonly onClick: (event: MouseEvent) => void;
  readonly kind?: 'plain' | 'primary' | 'danger' | 'quiet';
  /** Shows only the icon. */
  readonly compact?: boolean;
  readonly disabled?: boolean;
  readonly pressed?: boolean;
  readonly hint?: string;
  readonly count?: number;
  readonly anchor?: RefObject<HTMLButtonElement | null>;
  readonly expanded?: boolean;
}

export function Button(props: ButtonProps): JSX.Element {
  const { label, icon, onClick, kind = 'plain', compact, disabled, pressed, hint, count, anchor, expanded } = props;
  return (
    <button
      type="button"
      class={`button ${kind}${compact ? ' compact' : ''}`}
      onClick={onClick}
      disabled={disabled}
      aria-pressed={pressed}
      aria-expanded={expanded}
      aria-label={count ? `${label} ${count}` : label}
      title={hint ?? (compact ? label : undefined)}
      ref={anchor ?? null}
    >
      {icon && <Icon name={icon} />}
      {!compact && <span>{label}</span>}
      {count
        ? [
            ' ',
            <span class="badge" key="count">
              {count}
            </span>,
          ]
        : null}
    </button>
  );
}

interface PopoverProps {
  readonly anchor: RefObject<HTMLElement | null>;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly label: string;
  readonly width?: number;
}

/** A panel below the element that opened it; Escape and a click elsewhere close it. */
export function Popover({ anchor, onClose, children, label, width = 280 }: PopoverProps): JSX.Element {
  const panel = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState<CSSProperties>({ visibility: 'hidden' });
  const fit = (): void => {
    const rect = anchor.current?.getBoundingClientRect();
    const own = panel.current?.getBoundingClientRect();
    if (!rect || !own) return;
    const wide = Math.min(width, innerWidth - 16);
    const left = Math.max(8, Math.min(rect.left, innerWidth - wide - 8));
    const below = innerHeight - rect.bottom - 12;
    const isAbove = below < Math.min(own.height, 240) && rect.top > below;
    const height = Math.max(120, isAbove ? rect.top - 12 : below);
    setPlace({
      left: `${left}px`,
      width: `${wide}px`,
      maxHeight: `${height}px`,
      ...(isAbove ? { bottom: `${innerHeight - rect.top + 4}px` } : { top: `${rect.bottom + 4}px` }),
    });
  };
  useLayoutEffect(() => {
    fit();
    addEventListener('resize', fit);
    return () => removeEventListener('resize', fit);
  }, []);
  useEffect(() => {
    const close = (event: Event): void => {
      const target = event.target as Node;
      if (!target.isConnected || panel.current?.contains(target) || anchor.current?.contains(target)) return;
      if (target instanceof Element && target.closest('.popover, dialog')) return;
      onClose();
    };
    // The focus may still be on the element that opened it.
    const closeByKey = (event: KeyboardEvent): void => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      onClose();
      anchor.current?.focus();
    };
    document.addEventListener('pointerdown', close);
    document.addEventListener('keydown', closeByKey);
    return () => {
      document.removeEventListener('pointerdown', close);
      document.removeEventListener('keydown', closeByKey);
    };
  }, []);
  const isPlaced = place.visibility === undefined;
  // Before the next frame, as in a dialog.
  useLayoutEffect(() => {
    // A hidden element takes no focus.
    if (isPlaced)
      panel.current?.querySelector<HTMLElement>('input, select, textarea, button, a[href], [tabindex="0"]')?.focus();
  }, [isPlaced]);
  return (
    <div class="popover" role="dialog" aria-label={label} ref={panel} style={place}>
      {children}
    </div>
  );
}

export interface MenuEntry {
  readonly label: string;
  readonly icon?: IconName;
  readonly onClick: () => void;
  readonly danger?: boolean;
  readonly disabled?: boolean;
}

/** A button that opens a list of commands. */
export function Menu(
  props: Pick<ButtonProps, 'label' | 'kind' | 'compact' | 'icon' | 'disabled'> & { entries: readonly MenuEntry[] },
): JSX.Element {
  const { entries, ...button } = props;
  const anchor = useRef<HTMLButtonElement>(null);
  const [open, setOpen] = useState(false);
  const hasIcons = entries.some(({ icon }) => icon !== undefined);
  const move = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const items = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('button')];
    const at = items.indexOf(document.activeElement as HTMLElement);
    items[(at + step + items.length) % items.length]?.focus();
  };
  return (
    <>
      <Button {...button} anchor={anchor} expanded={open} onClick={() => setOpen(!open)} />
      {open && (
        <Popover anchor={anchor} label={props.label} onClose={() => setOpen(false)} width={220}>
          <div class="menu" onKeyDown={move}>
            {entries.map((entry, at) => (
              <button
                type="button"
                key={at}
                class={entry.danger ? 'danger' : ''}
                disabled={entry.disabled}
                onClick={() => {
                  setOpen(false);
                  anchor.current?.focus();
                  entry.onClick();
                }}
              >
                {entry.icon ? <Icon name={entry.icon} /> : hasIcons && <span class="no-icon" />}
                {entry.label}
              </button>
            ))}
          </div>
        </Popover>
      )}
    </>
  );
}

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly footer?: ComponentChildren;
  readonly kind?: 'center' | 'side' | 'top';
  /** Whether a click outside leaves it open, so that typed text is not lost. */
  readonly isForm?: boolean;
}

/** A modal: the browser keeps the focus inside and closes it with Escape. */
export function Dialog({ title, onClose, children, footer, kind = 'center', isForm }: DialogProps): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  // Before the next frame: what a fast user types at once belongs to the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const dialog = ref.current;
    dialog?.showModal();
    // Focus the first input of a form, not the button that closes it.
    dialog?.querySelector<HTMLElement>('.dialog-body :is(input, select, textarea, .field-pick)')?.focus();
    return () => {
      // The rest of the page takes no focus while the dialog is open.
      dialog?.close();
      before?.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => !isForm && event.target === ref.current && onClose()}
    >
      <div class="dialog-box">
        {kind !== 'top' && (
          <header>
            <h2>{title}</h2>
            <Button label="Close" icon="close" kind="quiet" compact onClick={onClose} />
          </header>
        )}
        <div class="dialog-body">{children}</div>
        {footer && <footer>{footer}</footer>}
      </div>
    </dialog>
  );
}

interface FormDialogProps {
  readonly title: string;
  readonly kind?: 'center' | 'side';
  readonly cancel?: string;
  /** The label of the submit button. */
  readonly submit: string;
  readonly icon?: IconName;
  readonly danger?: boolean;
  readonly disabled: boolean;
  readonly onClose: () => void;
  readonly onSubmit: () => void;
  readonly children: ComponentChildren;
}

export function FormDialog(props: FormDialogProps): JSX.Element {
  const {
    title,
    kind = 'center',
    cancel = 'Cancel',
    submit,
    icon,
    danger,
    disabled,
    onClose,
    onSubmit,
    children,
  } = props;
  return (
    <Dialog
      title={title}
      kind={kind}
      isForm
      onClose={onClose}
      footer={
        <>
          <Button label={cancel} onClick={onClose} />
          <Button
            label={submit}
            kind={danger ? 'danger' : 'primary'}
            disabled={disabled}
            onClick={onSubmit}
            {...(icon ? { icon } : {})}
          />
        </>
      }
    >
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!disabled) onSubmit();
        }}
      >
        {children}
        <button type="submit" hidden />
      </form>
    </Dialog>
  );
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, text, kind }) => (
        <div key={id} class={`toast ${kind}`}>
          <Icon name={kind === 'good' ? 'check' : 'warn'} />
          <span>{text}</span>
          <Button label="Dismiss" icon="close" kind="quiet" compact onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  );
}

/** A message for an empty list or page. */
export function Empty(props: {
  readonly title: string;
  readonly children?: ComponentChildren;
  readonly icon?: IconName;
}): JSX.Element {
  return (
    <div class="empty">
      {props.icon && <Icon name={props.icon} />}
      <h2>{props.title}</h2>
      {props.children && <div>{props.children}</div>}
    </div>
  );
}

export function ErrorBox({ text, onRetry }: { readonly text: string; readonly onRetry?: () => void }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // The button that failed is below a long form, and the error above it.
    if (box.current?.parentElement?.matches('.dialog-body, .dialog-body > form'))
      box.current.scrollIntoView({ block: 'nearest' });
  }, [text]);
  return (
    <div class="error-box" role="alert" ref={box}>
      <Icon name="warn" />
      <span>{text}</span>
      {onRetry && <Button label="Try again" onClick={onRetry} />}
    </div>
  );
}

export async function copyText(text: string, what = 'Copied'): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(what);
  } catch {
    toast('The browser does not allow copying here', 'bad');
  }
}

/** `1 argument`, `2 arguments`. */
export function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
