/** Selects an item of another collection by a search. */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../api';
import type { Model } from '../model';
import type { Row } from './edits';
import { identifyingFields, keyOf, titleOf } from './item';

const MOST = 20;

interface PickerProps {
  readonly collection: string;
  readonly model: Model;
  readonly nullable: boolean;
  /** The item with its key and title, or null for none. */
  readonly onPick: (item: Row | null) => void;
  readonly onCancel: () => void;
}

export function ItemPicker({ collection, model, nullable, onPick, onCancel }: PickerProps): JSX.Element {
  const target = model.get(collection);
  const fields = target ? identifyingFields(target) : ['*'];
  const { typed, type, found, isAnswered, error, at, setAt, hurry } = useSearch(collection, fields, onPick);
  const input = useRef<HTMLInputElement>(null);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  useEffect(() => box.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' }), [at]);
  const choices: (Row | null)[] = [...found, ...(nullable && typed === '' ? [null] : [])];
  const onKeyDown = (event: KeyboardEvent): void => {
    event.stopPropagation();
    if (event.key === 'Escape') onCancel();
    else if (event.key === 'Enter') {
      event.preventDefault();
      const choice = choices[at];
      if (!isAnswered) hurry();
      else if (choice !== undefined) onPick(choice);
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      setAt(Math.max(0, Math.min(choices.length - 1, at + (event.key === 'ArrowDown' ? 1 : -1))));
    }
  };
  return (
    <div
      class="picker"
      ref={box}
      onFocusOut={(event) => !box.current?.contains(event.relatedTarget as Node | null) && onCancel()}
    >
      <input
        ref={input}
        role="combobox"
        aria-expanded="true"
        aria-controls="picker-list"
        aria-label={`Search in ${collection}`}
        placeholder={`Search in ${collection}`}
        value={typed}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <ul id="picker-list" role="listbox" aria-label={collection}>
        {choices.map((item, index) => (
          <li
            key={item === null ? 'null' : String(keyOf(item, model, collection))}
            role="option"
            aria-selected={index === at}
            onPointerDown={(event) => {
              event.preventDefault();
              onPick(item);
            }}
          >
            <span>{item === null ? 'No item (null)' : titleOf(item, model, collection)}</span>
            {item !== null && fields.length > (target?.keys.length ?? 0) && (
              <small>{String(keyOf(item, model, collection))}</small>
            )}
          </li>
        ))}
        {found.length === MOST && <li class="quiet">The first {MOST}. Type to find others.</li>}
        {error && <li class="bad">{error}</li>}
        {!error && choices.length === 0 && <li class="quiet">{isAnswered ? 'Nothing found' : 'Searching…'}</li>}
      </ul>
    </div>
  );
}

interface Search {
  readonly typed: string;
  readonly type: (text: string) => void;
  readonly found: readonly Row[];
  /** Whether the results of the typed text are shown. */
  readonly isAnswered: boolean;
  readonly error: string | null;
  readonly at: number;
  readonly setAt: (at: number) => void;
  /** Picks the first result when the results of the typed text arrive. */
  readonly hurry: () => void;
}

function useSearch(collection: string, fields: readonly string[], onPick: PickerProps['onPick']): Search {
  const [typed, setTyped] = useState('');
  const [found, setFound] = useState<readonly Row[]>([]);
  /** The text whose results are shown, or null before the first. */
  const [answered, setAnswered] = useState<string | null>(null);
  const isHurried = useRef(false);
  const [error, setError] = useState<string | null>(null);
  const [at, setAt] = useState(0);
  useEffect(() => {
    const request = new AbortController();
    const wait = setTimeout(
      () => {
        const query = { fields, limit: MOST, ...(typed === '' ? {} : { search: typed }) };
        call<Row[]>('SEARCH', itemsPath(collection), { body: { query }, signal: request.signal }).then(
          ({ data }) => {
            setFound(data);
            setAnswered(typed);
            setAt(0);
            setError(null);
            const [first] = data;
            if (isHurried.current && first) onPick(first);
            isHurried.current = false;
          },
          (failure: unknown) => {
            if (!request.signal.aborted) setError(messageOf(failure));
          },
        );
      },
      typed === '' ? 0 : 150,
    );
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [typed]);
  return {
    ...{ typed, found, isAnswered: answered === typed, error, at, setAt },
    type: (text) => {
      isHurried.current = false;
      setTyped(text);
    },
    hurry: () => {
      isHurried.current = true;
    },
  };
}
