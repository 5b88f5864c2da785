/** Whether a filter says something in each of its parts: an empty one holds of all rows, which a read may mean and a rule or a write must not. */
import type { Filter, JsonFilter } from '../request/ast.js';

export function restrictsRows(filter: Filter): boolean {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return filter.filters.length > 0 && filter.filters.every(restrictsRows);
    case 'compare':
      return true;
    case 'json':
      return saysOfDocument(filter.filter);
    case 'some':
    case 'none':
      return isEmpty(filter.filter) || restrictsRows(filter.filter);
    default:
      return restrictsRows(filter.filter);
  }
}

function saysOfDocument(filter: JsonFilter): boolean {
  return filter.kind === 'path' || (filter.filters.length > 0 && filter.filters.every(saysOfDocument));
}

/** `{_some: {}}` asks whether there is a related row at all; without a quantifier an empty filter asks nothing. */
export function isEmpty(filter: Filter): boolean {
  return filter.kind === 'and' && filter.filters.length === 0;
}
