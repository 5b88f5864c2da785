/**
 * Dynamic variables of filters. They are values that are known only when the statement is bound: the time, and the caller.
 * `$CURRENT_USER.company` reads a field of the caller, so it is part of the statement.
 */
import { isNow } from '../sql/now.js';

export type FilterVariable =
  | { readonly kind: 'value'; readonly text: string }
  | { readonly kind: 'path'; readonly name: string; readonly path: readonly string[] };

export function parseVariable(text: string): FilterVariable | null {
  if (!text.startsWith('$')) return null;
  if (isNow(text)) return { kind: 'value', text };
  const match = /^(\$CURRENT_(?:USER|ROLES?|POLICIES))((?:\.[^.]+)*)$/.exec(text);
  if (!match) return null;
  const path = (match[2] as string).split('.').slice(1);
  return path.length === 0 ? { kind: 'value', text } : { kind: 'path', name: match[1] as string, path };
}
