/** The addresses of an item and of the list that it was opened from. */
import type { JSX } from 'preact';
import { href, route } from '../../state';

/** The sort, the filter and the columns of the list stay in the address, so that the way back leads to the same list. */
export function addressOfRecord(collection: string, key: unknown, changed: Record<string, string> = {}): string {
  const { page, rest, parameters } = route.value;
  const kept = page === 'data' && rest[0] === collection ? Object.fromEntries(parameters) : {};
  return href('data', [collection, String(key)], { ...kept, tab: '', version: '', new: '', ...changed });
}

export function addressOfList(collection: string): string {
  return href('data', [collection], { ...Object.fromEntries(route.value.parameters), tab: '', version: '', new: '' });
}

export function BackLink({ collection }: { readonly collection: string }): JSX.Element {
  return (
    <a
      class="record-back"
      href={addressOfList(collection)}
      aria-label={`Back to ${collection}`}
      title={`Back to ${collection}`}
    >
      ‹ <span>{collection}</span>
    </a>
  );
}
