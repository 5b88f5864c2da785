/** A text field for GraphQL documents that suggests names of the schema at the cursor. */
import type { JSX, RefObject } from 'preact';
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
  const colours = useRef<HTMLPreElement>(null);
  const { offer, setOffer, look, accept } = useOffer({ area, ruler, types, onInput });
  /** The highlighted text is behind the input, whose own text is transparent. */
  const align = (): void => {
    const [from, to] = [area.current, colours.current];
    if (from && to) to.style.transform = `translate(${-from.scrollLeft}px, ${-from.scrollTop}px)`;
  };
  useLayoutEffect(align, [value]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const act = actionOf(event, offer);
    if (act === null || (act === 'line' && !isCursor(area.current))) return;
    event.preventDefault();
    if (act === 'run' || act === 'close') setOffer(null);
    if (act === 'run') onRun();
    else if (act === 'complete') void look(true);
    else if (act === 'line' && area.current) put(area.current, newLine(area.current), onInput);
    else if (offer && (act === 'down' || act === 'up')) setOffer(moved(offer, act === 'down' ? 1 : -1));
    else if (offer && act === 'accept') accept(offer.entries[offer.chosen], offer.prefix);
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
      <Offers offer={offer} onAccept={accept} />
    </div>
  );
}

interface OfferInput extends Pick<EditorProps, 'types' | 'onInput'> {
  readonly area: RefObject<HTMLTextAreaElement | null>;
  readonly ruler: RefObject<HTMLElement | null>;
}

interface Offered {
  readonly offer: Offer | null;
  readonly setOffer: (offer: Offer | null) => void;
  /** Offers names at the cursor; without `force` only if a name has begun. */
  readonly look: (force: boolean) => Promise<void>;
  readonly accept: (entry: Completion | undefined, prefix: string) => void;
}

function useOffer({ area, ruler, types, onInput }: OfferInput): Offered {
  const [offer, setOffer] = useState<Offer | null>(null);
  const latest = useRef(0);
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
    const left = Math.max(0, Math.min(PAD + column * character - element.scrollLeft, element.clientWidth - 270));
    const top = PAD + lines.length * LINE - element.scrollTop;
    setOffer(entries.length === 0 ? null : { entries, chosen: 0, prefix: typed.prefix, left, top });
  };
  const accept = (entry: Completion | undefined, prefix: string): void => {
    const element = area.current;
    if (!element || !entry) return;
    const { name, after } = entry;
    const end = element.selectionStart;
    // Existing text is not inserted twice.
    const hasTail = /^\s*[{(:]/.test(element.value.slice(end));
    const tail = hasTail ? '|' : indented(after, element.value.slice(0, end));
    const start = end - prefix.length;
    const text = name + tail.replace('|', '');
    put(element, { text, from: start, to: end, cursor: start + name.length + tail.indexOf('|') }, onInput);
    setOffer(null);
    element.focus();
    if (tail !== '|') void look(true);
  };
  return { offer, setOffer, look, accept };
}

type Action = 'run' | 'complete' | 'down' | 'up' | 'accept' | 'close' | 'line';

/** The effect of a key, or null if it is the browser's. */
function actionOf({ key, ctrlKey, metaKey, shiftKey }: KeyboardEvent, offer: Offer | null): Action | null {
  if (ctrlKey || metaKey) {
    if (key === 'Enter') return 'run';
    if (key === ' ') return 'complete';
  }
  if (offer) {
    if (key === 'ArrowDown') return 'down';
    if (key === 'ArrowUp') return 'up';
    if ((key === 'Enter' || key === 'Tab') && !shiftKey) return 'accept';
    if (key === 'Escape') return 'close';
  }
  return key === 'Enter' ? 'line' : null;
}

function moved(offer: Offer, step: number): Offer {
  const count = offer.entries.length;
  return { ...offer, chosen: (offer.chosen + step + count) % count };
}

/** Whether no text is selected. */
function isCursor(area: HTMLTextAreaElement | null): boolean {
  return area !== null && area.selectionStart === area.selectionEnd;
}

interface Replacement {
  readonly text: string;
  readonly from: number;
  readonly to: number;
  readonly cursor: number;
}

function put(
  area: HTMLTextAreaElement,
  { text, from, to, cursor }: Replacement,
  onInput: (text: string) => void,
): void {
  area.setRangeText(text, from, to);
  area.setSelectionRange(cursor, cursor);
  onInput(area.value);
}

/** With the indentation of the line, and one level more after an opening bracket. */
function newLine({ value, selectionStart: at }: HTMLTextAreaElement): Replacement {
  const before = value.slice(0, at);
  const indent = indentOf(before);
  const opens = /[{([]\s*$/.test(before);
  const closes = opens && /^\s*[})\]]/.test(value.slice(at));
  const first = `\n${indent}${opens ? '  ' : ''}`;
  const skipped = closes ? (/^ */.exec(value.slice(at))?.[0].length ?? 0) : 0;
  return { text: closes ? `${first}\n${indent}` : first, from: at, to: at + skipped, cursor: at + first.length };
}

interface OffersProps {
  readonly offer: Offer | null;
  readonly onAccept: (entry: Completion, prefix: string) => void;
}

function Offers({ offer, onAccept }: OffersProps): JSX.Element {
  return (
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
            onAccept(entry, offer.prefix);
          }}
        >
          <span>{entry.name}</span>
          <small>{entry.detail}</small>
        </li>
      ))}
    </ul>
  );
}

function indentOf(before: string): string {
  return /^ */.exec(before.slice(before.lastIndexOf('\n') + 1))?.[0] ?? '';
}

function indented(text: string, before: string): string {
  return text.replaceAll('\n', `\n${indentOf(before)}`);
}
