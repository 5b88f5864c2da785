/** A text field for GraphQL documents that suggests names of the schema at the cursor. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { GRAPHQL, highlighted } from '../../highlight';
import { type Completion, completionsAt, placeAt } from './complete';
import type { Types } from './types';

interface EditorProps {
  readonly value: string;
  readonly types: Types;
  readonly onInput: (text: string) => void;
  readonly onRun: () => void;
}

interface Offer {
  readonly entries: readonly Completion[];
  readonly chosen: number;
  readonly prefix: string;
  readonly left: number;
  readonly top: number;
}

/** From the style sheet: the position of the list is computed from them. */
const LINE = 19;
const PAD = 10;

export function Editor({ value, types, onInput, onRun }: EditorProps): JSX.Element {
  const area = useRef<HTMLTextAreaElement>(null);
  const ruler = useRef<HTMLSpanElement>(null);
  const [offer, setOffer] = useState<Offer | null>(null);
  const latest = useRef(0);
  const colours = useRef<HTMLPreElement>(null);
  /** The highlighted text is behind the input, whose own text is transparent. */
  const align = (): void => {
    const [from, to] = [area.current, colours.current];
    if (from && to) to.style.transform = `translate(${-from.scrollLeft}px, ${-from.scrollTop}px)`;
  };
  useLayoutEffect(align, [value]);

  const look = async (force: boolean): Promise<void> => {
    const element = area.current;
    if (!element) return;
    const turn = ++latest.current;
    const before = element.value.slice(0, element.selectionStart);
    const typed = placeAt(before);
    if (!force && typed.prefix === '') {
      setOffer(null);
      return;
    }
    const entries = await completionsAt(typed, types).catch(() => []);
    if (turn !== latest.current) return;
    const lines = before.split('\n');
    const character = (ruler.current?.getBoundingClientRect().width ?? 80) / 10;
    const column = (lines.at(-1)?.length ?? 0) - typed.prefix.length;
    setOffer(
      entries.length === 0
        ? null
        : {
            entries,
            chosen: 0,
            prefix: typed.prefix,
            left: Math.max(0, Math.min(PAD + column * character - element.scrollLeft, element.clientWidth - 270)),
            top: PAD + lines.length * LINE - element.scrollTop,
          },
    );
  };

  const put = (text: string, from: number, to: number, cursor: number): void => {
    const element = area.current;
    if (!element) return;
    element.setRangeText(text, from, to);
    element.setSelectionRange(cursor, cursor);
    onInput(element.value);
  };

  const accept = ({ name, after }: Completion, prefix: string): void => {
    const element = area.current;
    if (!element) return;
    const end = element.selectionStart;
    const rest = element.value.slice(end);
    // Existing text is not inserted twice.
    const tail = /^\s*[{(:]/.test(rest) ? '|' : indented(after, element.value.slice(0, end));
    const start = end - prefix.length;
    put(name + tail.replace('|', ''), start, end, start + name.length + tail.indexOf('|'));
    setOffer(null);
    element.focus();
    if (tail !== '|') void look(true);
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    const isControl = event.ctrlKey || event.metaKey;
    if (isControl && event.key === 'Enter') {
      event.preventDefault();
      setOffer(null);
      onRun();
    } else if (isControl && event.key === ' ') {
      event.preventDefault();
      void look(true);
    } else if (offer && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      event.preventDefault();
      const step = event.key === 'ArrowDown' ? 1 : -1;
      const count = offer.entries.length;
      setOffer({ ...offer, chosen: (offer.chosen + step + count) % count });
    } else if (offer && (event.key === 'Enter' || event.key === 'Tab') && !event.shiftKey) {
      event.preventDefault();
      const entry = offer.entries[offer.chosen];
      if (entry) accept(entry, offer.prefix);
    } else if (offer && event.key === 'Escape') {
      event.preventDefault();
      setOffer(null);
    } else if (event.key === 'Enter') newLine(event);
  };

  const newLine = (event: KeyboardEvent): void => {
    const element = area.current;
    if (!element || element.selectionStart !== element.selectionEnd) return;
    event.preventDefault();
    const at = element.selectionStart;
    const before = element.value.slice(0, at);
    const indent = indentOf(before);
    const opens = /[{([]\s*$/.test(before);
    const closes = opens && /^\s*[})\]]/.test(element.value.slice(at));
    const first = `\n${indent}${opens ? '  ' : ''}`;
    const skipped = closes ? (/^ */.exec(element.value.slice(at))?.[0].length ?? 0) : 0;
    put(closes ? `${first}\n${indent}` : first, at, at + skipped, at + first.length);
  };

  return (
    <div class="graphql-editor">
      <div class="graphql-colours" aria-hidden="true">
        <pre ref={colours}>{highlighted(value, GRAPHQL)}</pre>
      </div>
      <textarea
        ref={area}
        class="mono"
        aria-label="GraphQL document"
        aria-autocomplete="list"
        aria-controls="graphql-offer"
        aria-activedescendant={offer ? `graphql-offer-${offer.chosen}` : undefined}
        spellcheck={false}
        autocapitalize="off"
        wrap="off"
        value={value}
        onInput={(event) => {
          onInput(event.currentTarget.value);
          void look(false);
        }}
        onKeyDown={onKeyDown}
        onScroll={align}
        onBlur={() => setOffer(null)}
        onClick={() => setOffer(null)}
      />
      <span class="mono graphql-ruler" ref={ruler} aria-hidden="true">
        0000000000
      </span>
      <ul
        class="offers"
        id="graphql-offer"
        role="listbox"
        aria-label="Completions"
        hidden={!offer}
        {...(offer ? { style: { left: `${offer.left}px`, top: `${offer.top}px` } } : {})}
      >
        {offer?.entries.map((entry, at) => (
          <li
            key={entry.name}
            id={`graphql-offer-${at}`}
            role="option"
            aria-selected={at === offer.chosen}
            onPointerDown={(event) => {
              event.preventDefault();
              accept(entry, offer.prefix);
            }}
          >
            <span>{entry.name}</span>
            <small>{entry.detail}</small>
          </li>
        ))}
      </ul>
    </div>
  );
}

function indentOf(before: string): string {
  return /^ */.exec(before.slice(before.lastIndexOf('\n') + 1))?.[0] ?? '';
}

function indented(text: string, before: string): string {
  return text.replaceAll('\n', `\n${indentOf(before)}`);
}
