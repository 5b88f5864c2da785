/** Highlighted code, as text nodes: no part of the code becomes markup. */
import type { JSX } from 'preact';

export interface Language {
  /** A group for each kind of token. */
  readonly tokens: RegExp;
  /** The kinds, in the order of the groups. */
  readonly kinds: readonly ('name' | 'string' | 'value' | 'comment' | 'word')[];
}

const MOST_TEXT = 50_000;

/** A longer text is not highlighted, so that typing stays fast. */
export function highlighted(text: string, { tokens, kinds }: Language): (string | JSX.Element)[] {
  if (text.length > MOST_TEXT) return [text];
  const parts: (string | JSX.Element)[] = [];
  let at = 0;
  for (const match of text.matchAll(tokens)) {
    const kind = kinds[match.slice(1).findIndex((each) => each !== undefined)];
    parts.push(text.slice(at, match.index));
    parts.push(
      <span key={match.index} class={`code-${kind}`}>
        {match[0]}
      </span>,
    );
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)];
}

export const SQL: Language = {
  tokens:
    /("(?:[^"]|"")*")|('(?:[^']|'')*')|(\$\d+)|(--.*)|\b(select|from|where|left|join|lateral|on|true|order|by|group|having|limit|offset|as|and|or|not|is|null|case|when|then|else|end|with|union|all|asc|desc|nulls|last|first|any|in|exists|distinct)\b/gi,
  kinds: ['name', 'string', 'value', 'comment', 'word'],
};

export const JSON_TEXT: Language = {
  tokens: /("(?:[^"\\\n]|\\.)*"(?=\s*:))|("(?:[^"\\\n]|\\.)*")|(-?\b\d[\d.eE+-]*)|\b(true|false|null)\b/g,
  kinds: ['name', 'string', 'value', 'word'],
};

export const GRAPHQL: Language = {
  tokens:
    /("""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"?)|(#.*)|(\$\w+|-?\b\d[\d.]*\b|\b(?:true|false|null)\b)|(@\w+|\b(?:query|mutation|subscription|fragment|on)\b)/g,
  kinds: ['string', 'comment', 'value', 'word'],
};
