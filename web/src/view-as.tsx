/** "View as": an administrator sees every page with the permissions of the public, a role or a user, and cannot change anything. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, messageOf } from './api';
import { me, stopViewing, viewAs, viewWith } from './state';
import { Button, Popover } from './ui';

interface Choice {
  /** The value of the header, or null if the administrator views as themselves. */
  readonly value: string | null;
  readonly label: string;
  readonly group: string;
  /** The name that the bar shows. */
  readonly name: string;
}

interface UserRow {
  readonly id: string;
  readonly email: string | null;
  readonly first_name: string | null;
  readonly last_name: string | null;
}

/** The number of entries of each kind; typing finds the others. */
const MOST = 20;

const YOURSELF: Choice = { value: null, label: 'Yourself', group: '', name: '' };
const PUBLIC: Choice = { value: 'public', label: 'The public', group: 'without a login', name: 'the public' };

async function findChoices(typed: string, signal: AbortSignal): Promise<Choice[]> {
  const matches = (...fields: readonly string[]): object =>
    typed === '' ? {} : { _or: fields.map((field) => ({ [field]: { _icontains: typed } })) };
  const search = <Row,>(path: string, query: object): Promise<{ readonly data: Row[] }> =>
    call<Row[]>('SEARCH', path, { body: { query: { ...query, limit: MOST } }, own: true, signal });
  const [roles, users] = await Promise.all([
    search<{ id: string; name: string }>('/roles', { fields: ['id', 'name'], filter: matches('name'), sort: ['name'] }),
    search<UserRow>('/users', {
      fields: ['id', 'email', 'first_name', 'last_name'],
      filter: { _and: [{ status: { _eq: 'active' } }, matches('email', 'first_name', 'last_name')] },
      sort: ['email'],
    }),
  ]);
  const fixed = [YOURSELF, PUBLIC].filter(({ label }) => label.toLowerCase().includes(typed.toLowerCase()));
  return [
    ...fixed,
    ...roles.data.map(({ id, name }) => ({
      value: `role:${id}`,
      label: name,
      group: 'role',
      name: `the role ${name}`,
    })),
    ...users.data.map(({ id, email, first_name, last_name }) => {
      const label = email ?? id;
      const called = [first_name, last_name].filter(Boolean).join(' ');
      return { value: `user:${id}`, label, group: called === '' ? 'user' : `user ${called}`, name: label };
    }),
  ];
}

/** In the header, for administrators. */
export function ViewAsChoice(): JSX.Element | null {
  const anchor = useRef<HTMLButtonElement>(null);
  const [open, setOpen] = useState(false);
  if (me.value?.administrator !== true) return null;
  return (
    <span class="view-as">
      <Button
        label="View as"
        icon="user"
        hint="See every page as the public, a role or a user does"
        anchor={anchor}
        expanded={open}
        pressed={viewAs.value !== null}
        onClick={() => setOpen(!open)}
      />
      {open && (
        <Popover anchor={anchor} label="View as" width={320} onClose={() => setOpen(false)}>
          <Choices
            onChoose={({ value, name }) => {
              setOpen(false);
              anchor.current?.focus();
              void (value === null ? stopViewing() : viewWith({ value, label: name }));
            }}
          />
        </Popover>
      )}
    </span>
  );
}

interface Search {
  readonly typed: string;
  readonly type: (text: string) => void;
  readonly found: readonly Choice[];
  /** Whether the results of the typed text are shown. */
  readonly isAnswered: () => boolean;
  readonly error: string | null;
  readonly at: number;
  readonly setAt: (at: number) => void;
  /** Chooses the first result when the results of the typed text arrive. */
  readonly hurry: () => void;
}

function useChoices(onChoose: (choice: Choice) => void): Search {
  const [typed, setTyped] = useState('');
  const [found, setFound] = useState<readonly Choice[]>([YOURSELF, PUBLIC]);
  const [error, setError] = useState<string | null>(null);
  /** The text whose results are shown. */
  const answered = useRef('');
  const isHurried = useRef(false);
  const [at, setAt] = useState(0);
  useEffect(() => {
    const request = new AbortController();
    const ask = (): void => {
      findChoices(typed.trim(), request.signal).then(
        (choices) => {
          setFound(choices);
          // The first answer continues the list that was shown before it, where an entry may be selected already.
          if (answered.current !== typed) setAt(0);
          setError(null);
          answered.current = typed;
          const [first] = choices;
          if (isHurried.current && first) onChoose(first);
          isHurried.current = false;
        },
        (failure: unknown) => {
          if (!request.signal.aborted) setError(messageOf(failure));
        },
      );
    };
    const wait = setTimeout(ask, typed === '' ? 0 : 150);
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [typed]);
  return {
    ...{ typed, found, isAnswered: () => answered.current === typed, error, at, setAt },
    type: (text) => {
      isHurried.current = false;
      setTyped(text);
    },
    hurry: () => {
      isHurried.current = true;
    },
  };
}

function Choices({ onChoose }: { readonly onChoose: (choice: Choice) => void }): JSX.Element {
  const { typed, type, found, isAnswered, error, at, setAt, hurry } = useChoices(onChoose);
  const list = useRef<HTMLUListElement>(null);
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    const choice = found[at];
    // The focus returns to the button, which the same key would press.
    if (event.key === 'Enter') event.preventDefault();
    if (event.key === 'Enter' && !isAnswered()) hurry();
    else if (event.key === 'Enter' && choice) onChoose(choice);
    if (step === 0) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(found.length - 1, at + step));
    setAt(next);
    list.current?.children[next]?.scrollIntoView({ block: 'nearest' });
  };
  return (
    <div class="palette">
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="view-as-list"
        aria-activedescendant={`view-as-${at}`}
        aria-label="Role or user"
        placeholder="Role or user"
        value={typed}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <ul id="view-as-list" role="listbox" aria-label="View as" ref={list}>
        {found.map((choice, index) => (
          <li
            key={choice.value ?? ''}
            id={`view-as-${index}`}
            role="option"
            aria-selected={index === at}
            onPointerMove={() => setAt(index)}
            onClick={() => onChoose(choice)}
          >
            <span>{choice.label}</span>
            <small>{choice.group}</small>
          </li>
        ))}
        {error && <li class="bad">{error}</li>}
        {!error && found.length === 0 && <li class="quiet">No role or active user has this name.</li>}
      </ul>
    </div>
  );
}

export function ViewAsBanner(): JSX.Element | null {
  const view = viewAs.value;
  if (!view) return null;
  return (
    <div class="viewing" role="status">
      <span>
        You see what <strong>{view.label}</strong> may see. Nothing can be changed.
      </span>
      <Button label="View as yourself" onClick={() => void stopViewing()} />
    </div>
  );
}
