/** Ctrl-K: jump to any page or collection by typing a part of its name. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { shownPages } from './pages';
import { go, href, logOut, me, model, setTheme } from './state';
import { Dialog } from './ui';

export const paletteOpen = signal(false);

interface Command {
  readonly label: string;
  readonly group: string;
  readonly run: () => void;
}

function commands(): Command[] {
  const shown = shownPages();
  const all = [...(model.value?.values() ?? [])];
  const collections = [...all.filter(({ system }) => !system), ...all.filter(({ system }) => system)];
  return [
    ...shown.map((page) => ({ label: page.title, group: 'Page', run: () => go(href(page.name)) })),
    ...collections.map(({ name }) => ({ label: name, group: 'Collection', run: () => go(href('data', [name])) })),
    ...collections
      .filter(({ system }) => !system)
      .map(({ name }) => ({ label: `Query ${name}`, group: 'Query', run: () => go(href('query', [name])) })),
    { label: 'Use the light theme', group: 'Command', run: () => setTheme('light') },
    { label: 'Use the dark theme', group: 'Command', run: () => setTheme('dark') },
    { label: 'Use the theme of the system', group: 'Command', run: () => setTheme('system') },
    { label: 'Log out', group: 'Command', run: () => void logOut() },
  ];
}

/** Entries that contain all letters in this order, the closest first. */
function matching(all: readonly Command[], typed: string): Command[] {
  const wanted = typed.trim().toLowerCase();
  if (wanted === '') return all.slice(0, 60);
  const ranked = all.flatMap((command) => {
    const rank = rankOf(command.label.toLowerCase(), wanted);
    return rank === null ? [] : [{ command, rank }];
  });
  return ranked
    .sort((one, other) => one.rank - other.rank)
    .slice(0, 60)
    .map(({ command }) => command);
}

function rankOf(label: string, wanted: string): number | null {
  if (label === wanted) return 0;
  if (label.startsWith(wanted)) return 1;
  const at = label.indexOf(wanted);
  if (at >= 0) return 2 + at / 100;
  let position = 0;
  for (const letter of wanted) {
    position = label.indexOf(letter, position) + 1;
    if (position === 0) return null;
  }
  return 10 + label.length / 100;
}

export function Palette(): JSX.Element | null {
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const toggle = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
      event.preventDefault();
      paletteOpen.value = !paletteOpen.value && me.value !== null;
    };
    addEventListener('keydown', toggle, true);
    return () => removeEventListener('keydown', toggle, true);
  }, []);
  useEffect(() => {
    if (paletteOpen.value) {
      setTyped('');
      setAt(0);
    }
  }, [paletteOpen.value]);
  if (!paletteOpen.value) return null;
  const found = matching(commands(), typed);
  const close = (): void => {
    paletteOpen.value = false;
  };
  const run = (command: Command | undefined): void => {
    close();
    command?.run();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (event.key === 'Enter') run(found[at]);
    if (step === 0) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(found.length - 1, at + step));
    setAt(next);
    list.current?.children[next]?.scrollIntoView({ block: 'nearest' });
  };
  return (
    <Dialog title="Go to" kind="top" onClose={close}>
      <div class="palette">
        <input
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={`palette-${at}`}
          aria-label="Page, collection or command"
          placeholder="Page, collection or command"
          value={typed}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        <ul id="palette-list" role="listbox" aria-label="Found" ref={list}>
          {found.map((command, index) => (
            <li
              key={`${command.group} ${command.label}`}
              id={`palette-${index}`}
              role="option"
              aria-selected={index === at}
              onPointerMove={() => setAt(index)}
              onClick={() => run(command)}
            >
              <span>{command.label}</span>
              <small>{command.group}</small>
            </li>
          ))}
          {found.length === 0 && <li class="quiet">Nothing has this name.</li>}
        </ul>
      </div>
    </Dialog>
  );
}
