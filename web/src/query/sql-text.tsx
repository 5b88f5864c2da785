/** SQL with highlighted keywords. */
import type { JSX } from 'preact';
import { highlighted, SQL } from '../highlight';

export function SqlText({ text }: { readonly text: string }): JSX.Element {
  return (
    <pre tabIndex={0} role="region" aria-label="Statement">
      {highlighted(text, SQL)}
    </pre>
  );
}
