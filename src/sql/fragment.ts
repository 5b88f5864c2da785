/**
 * SQL as data. A fragment is made from template text, identifiers, parameters and other fragments; any other
 * interpolation throws, so a string that came with a request cannot become SQL. Quoting lives in this file alone.
 */
import type { Parameter } from './parameter.js';
import { vetExpression } from './verify.js';

type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'parameter'; readonly parameter: Parameter };

/** A class only so that `instanceof` tells a fragment from data of the same shape: it has no behaviour. */
export class Fragment {
  readonly parts: readonly Part[];
  private constructor(parts: readonly Part[]) {
    this.parts = parts;
  }
  /** For the functions of this file. */
  static of(parts: readonly Part[]): Fragment {
    return new Fragment(parts);
  }
}

export function sql(strings: TemplateStringsArray, ...values: readonly Fragment[]): Fragment {
  if (!Array.isArray(strings.raw)) throw new Error('sql is a template tag: text cannot be passed to it');
  const parts: Part[] = [];
  strings.forEach((text, position) => {
    // White space of our templates is for readers of the code; names and literals keep theirs.
    if (text !== '') parts.push({ kind: 'text', text: text.replace(/\s+/g, ' ') });
    if (position >= values.length) return;
    const value: unknown = values[position];
    if (!(value instanceof Fragment)) throw new Error(`only fragments may be put into SQL, not ${typeof value}`);
    parts.push(...value.parts);
  });
  return Fragment.of(parts);
}

export const nothing: Fragment = Fragment.of([]);

/** `identifier('public', 'articles')` is "public"."articles". */
export function identifier(...names: readonly string[]): Fragment {
  return Fragment.of([{ kind: 'text', text: names.map(quoteIdentifier).join('.') }]);
}

/** A name that no column and no table of the model has: the model refuses names that start with a percent sign. */
export function alias(name: string): Fragment {
  return identifier(`%${name}`);
}

/** A name of the model as a text constant. Values of requests are parameters, never literals. */
export function literal(name: string): Fragment {
  if (name.includes('\0')) throw new Error('a literal cannot hold a NUL character');
  const quoted = `'${name.replaceAll("'", "''")}'`;
  return Fragment.of([{ kind: 'text', text: name.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted }]);
}

/** A number of ours (a default limit, a position): constants give the planner better estimates than parameters do. */
export function integer(value: number): Fragment {
  if (!Number.isSafeInteger(value)) throw new Error('not an integer');
  // In parentheses, since a minus sign behind another one would begin a comment.
  return Fragment.of([{ kind: 'text', text: value < 0 ? `(${value})` : String(value) }]);
}

/** An expression of the database's own catalog, such as a column's default: vetted by PostgreSQL's grammar, then taken as it is. */
export function expression(text: string): Fragment {
  vetExpression(text);
  return Fragment.of([{ kind: 'text', text: `(${text})` }]);
}

export function parameter(value: Parameter): Fragment {
  return Fragment.of([{ kind: 'parameter', parameter: value }]);
}

/** The same text with something else in the place of each parameter. */
export function substitute(fragment: Fragment, replace: (parameter: Parameter) => Fragment): Fragment {
  return Fragment.of(fragment.parts.flatMap((part) => (part.kind === 'text' ? [part] : replace(part.parameter).parts)));
}

export function join(fragments: readonly Fragment[], separator: Fragment): Fragment {
  return Fragment.of(
    fragments.flatMap((each, position) => (position === 0 ? each.parts : [...separator.parts, ...each.parts])),
  );
}

export function quoteIdentifier(name: string): string {
  if (name === '' || name.includes('\0')) throw new Error('an identifier cannot be empty or hold a NUL character');
  if (Buffer.byteLength(name) > 63) throw new Error(`the identifier "${name}" is longer than 63 bytes`);
  return `"${name.replaceAll('"', '""')}"`;
}
