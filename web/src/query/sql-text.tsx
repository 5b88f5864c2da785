/** SQL with highlighted keywords. */
import type { JSX } from 'preact';

const SQL_WORDS =
  /("(?:[^"]|"")*")|('(?:[^']|'')*')|(\$\d+)|(--.*)|\b(select|from|where|left|join|lateral|on|true|order|by|group|having|limit|offset|as|and|or|not|is|null|case|when|then|else|end|with|union|all|asc|desc|nulls|last|first|any|in|exists|distinct)\b/gi;
const SQL_CLASSES = ['name', 'string', 'value', 'comment', 'word'] as const;

/** Highlighted as text nodes: no part of the SQL becomes markup. */
export function SqlText({ text }: { readonly text: string }): JSX.Element {
  const parts: (string | JSX.Element)[] = [];
  let at = 0;
  for (const match of text.matchAll(SQL_WORDS)) {
    const kind = SQL_CLASSES[match.slice(1).findIndex((each) => each !== undefined)];
    parts.push(text.slice(at, match.index));
    parts.push(
      <span key={match.index} class={`sql-${kind}`}>
        {match[0]}
      </span>,
    );
    at = match.index + match[0].length;
  }
  return (
    <pre tabIndex={0} role="region" aria-label="Statement">
      {parts}
      {text.slice(at)}
    </pre>
  );
}
