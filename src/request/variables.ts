/**
 * Dynamic variables of filters. They are values that are known only when the statement is bound: the time, and the caller.
 * `$CURRENT_USER.company` reads a field of the caller, so it is part of the statement.
 */
import { isOneOf } from '../narrow.js';
import { isNow } from '../sql/now.js';
import { CALLER_VARIABLES, type CallerVariable } from './ast.js';

export type FilterVariable =
  | { readonly kind: 'value'; readonly text: string }
  | { readonly kind: 'path'; readonly name: CallerVariable; readonly path: readonly string[] };

export function parseVariable(text: string): FilterVariable | null {
  if (!text.startsWith('$')) return null;
  if (isNow(text)) return { kind: 'value', text };
  const [name = '', ...path] = text.split('.');
  if (!isOneOf(CALLER_VARIABLES, name) || path.includes('')) return null;
  return path.length === 0 ? { kind: 'value', text } : { kind: 'path', name, path };
}
