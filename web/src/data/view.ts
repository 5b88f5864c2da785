/** The view of a collection. The address contains it, so that a link does too. The browser also remembers the columns. */
import type { FilterJson } from '../filter/filter';
import type { Collection } from '../model';
import { href, remember, remembered, route } from '../state';
import { initialColumns, type View } from './source';

/** The view in the address; if it names no columns, those that were chosen last. */
export function viewOf(collection: Collection): View {
  const { parameters } = route.value;
  const chosen = parameters.get('columns') ?? remembered(`columns.${collection.name}`) ?? '';
  const columns = chosen.split(',').filter((name) => collection.fields.has(name));
  return {
    collection: collection.name,
    columns: columns.length > 0 ? columns : initialColumns(collection),
    sort: (parameters.get('sort') ?? '').split(',').filter((each) => each !== ''),
    filter: readFilter(parameters.get('filter')),
    search: parameters.get('search') ?? '',
  };
}

function readFilter(text: string | null): FilterJson | null {
  try {
    const parsed: unknown = text === null ? null : JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? (parsed as FilterJson) : null;
  } catch {
    return null;
  }
}

export function addressOfView(collection: Collection, { sort, search, filter, columns }: View): string {
  return href('data', [collection.name], {
    sort: sort.join(','),
    search,
    filter: filter ? JSON.stringify(filter) : '',
    columns: columnsText(collection, columns),
  });
}

export function rememberColumns(collection: Collection, columns: readonly string[]): void {
  remember(`columns.${collection.name}`, columnsText(collection, columns));
}

/** Empty for the default columns. */
function columnsText(collection: Collection, columns: readonly string[]): string {
  return columns.join() === initialColumns(collection).join() ? '' : columns.join(',');
}
