/**
 * SQL as data. A fragment is made from template text, identifiers, parameters and other fragments; any other
 * interpolation throws, so a string that came with a request cannot become SQL. Only this file quotes.
 * `statement` builds the SQL text of a fragment.
 */
import { isLongerThan } from '../../base/utf8.js';
import { catalogOperator, withCatalog } from './catalog-names.js';
import type { Parameter } from './parameter.js';
import { verifyDefinition, vetExpression } from './verify.js';

type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'parameter'; readonly parameter: Parameter };

/** A class only so that `instanceof` distinguishes a fragment from data of the same shape: it has no behaviour. */
export class Fragment {
  private constructor(readonly parts: readonly Part[]) {}
  /** For the functions of this file. */
  static of(parts: readonly Part[]): Fragment {
    return new Fragment(parts);
  }
}

export function sql(strings: TemplateStringsArray, ...values: readonly Fragment[]): Fragment {
  const texts = textsOf(strings);
  const parts: Part[] = [];
  for (let position = 0; position < texts.length; position++) {
    append(parts, { kind: 'text', text: texts[position] ?? '' });
    if (position >= values.length) break;
    const value: unknown = values[position];
    if (!(value instanceof Fragment)) throw new Error(`only fragments may be put into SQL, not ${typeof value}`);
    for (const part of value.parts) append(parts, part);
  }
  return Fragment.of(parts);
}

/** Texts that meet become one: most of a statement is text, and each level of it is put together from the one below. */
function append(parts: Part[], part: Part): void {
  if (part.kind === 'text') {
    if (part.text === '') return;
    const last = parts.at(-1);
    if (last?.kind === 'text') {
      parts[parts.length - 1] = { kind: 'text', text: last.text + part.text };
      return;
    }
  }
  parts.push(part);
}

const normalized = new WeakMap<TemplateStringsArray, readonly string[]>();

/** Compiled statements join texts, for which no match can be better than PostgreSQL's own operator. */
const KEPT: ReadonlySet<string> = new Set(['||']);

/**
 * White space of our templates is for readers of the code; names and literals keep theirs. Operators and functions are PostgreSQL's
 * own. `:=` assigns, where `=` would compare.
 */
function textsOf(strings: TemplateStringsArray): readonly string[] {
  const cached = normalized.get(strings);
  if (cached) return cached;
  if (!Array.isArray(strings.raw)) throw new Error('sql is a template tag: text cannot be passed to it');
  const texts = strings.map((text) => withCatalog(text.replace(/\s+/g, ' '), KEPT));
  normalized.set(strings, texts);
  return texts;
}

export const nothing: Fragment = Fragment.of([]);

/** `identifier('public', 'articles')` is "public"."articles". */
export function identifier(...names: readonly string[]): Fragment {
  return Fragment.of([{ kind: 'text', text: names.map(quoteIdentifier).join('.') }]);
}

/** An operator of a schema other than `pg_catalog`, such as that of an extension. */
export function operatorIn(schema: string, symbol: string): Fragment {
  return Fragment.of([
    { kind: 'text', text: catalogOperator(symbol, schema === 'pg_catalog' ? schema : quoteIdentifier(schema)) },
  ]);
}

/** A name that no column and no table of the model has: the model refuses names that start with a percent sign. */
export function alias(name: string): Fragment {
  return identifier(`%${name}`);
}

/** A name of the model or of an output as a text constant. Values of requests are parameters, never literals. */
export function literal(name: string): Fragment {
  return Fragment.of([{ kind: 'text', text: quoteLiteral(name) }]);
}

export function quoteLiteral(name: string): string {
  if (name.includes('\0')) throw new Error('a literal cannot hold a NUL character');
  const quoted = `'${name.replaceAll("'", "''")}'`;
  return name.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted;
}

/** A number that the service chooses, such as a default limit: constants give the planner better estimates than parameters do. */
export function integerLiteral(value: number): Fragment {
  if (!Number.isSafeInteger(value)) throw new Error('not an integer');
  // In parentheses, since a minus sign behind another one would begin a comment.
  return Fragment.of([{ kind: 'text', text: value < 0 ? `(${value})` : String(value) }]);
}

/** An expression of the database's own catalog, such as a column's default: vetted by PostgreSQL's grammar, then taken as it is. */
export function expression(text: string): Fragment {
  vetExpression(text);
  return Fragment.of([{ kind: 'text', text: `(${text})` }]);
}

/** A statement that defines an object in PostgreSQL's words: the grammar reads it as one statement of this kind. */
export function definition(text: string, node: string): Fragment {
  verifyDefinition(text, node);
  return Fragment.of([{ kind: 'text', text }]);
}

export function parameter(value: Parameter): Fragment {
  return Fragment.of([{ kind: 'parameter', parameter: value }]);
}

/** The same text with something else in the place of each parameter. */
export function substitute(fragment: Fragment, replace: (parameter: Parameter) => Fragment): Fragment {
  const parts: Part[] = [];
  for (const part of fragment.parts) {
    if (part.kind === 'text') append(parts, part);
    else for (const each of replace(part.parameter).parts) append(parts, each);
  }
  return Fragment.of(parts);
}

const COMMA = sql`, `;

export function join(fragments: readonly Fragment[], separator = COMMA): Fragment {
  const parts: Part[] = [];
  fragments.forEach((each, position) => {
    if (position > 0) for (const part of separator.parts) append(parts, part);
    for (const part of each.parts) append(parts, part);
  });
  return Fragment.of(parts);
}

export function quoteIdentifier(name: string): string {
  if (name === '' || name.includes('\0')) throw new Error('an identifier cannot be empty or hold a NUL character');
  if (isLongerThan(name, 63)) throw new Error(`the identifier "${name}" is longer than 63 bytes`);
  return `"${name.replaceAll('"', '""')}"`;
}

export interface Statement {
  readonly text: string;
  readonly parameters: readonly Parameter[];
}

/** The text of a fragment with numbered parameters, and what each of them is bound to. */
/** `first`: parameters that have the first numbers. */
export function statement(fragment: Fragment, first: readonly Parameter[] = []): Statement {
  const parameters = [...first];
  const numbers = new Map(first.map((each, position) => [JSON.stringify(each), position + 1]));
  let text = '';
  for (const part of fragment.parts) {
    if (part.kind === 'text') {
      text += part.text;
      continue;
    }
    // The same parameter in two places is one parameter: fewer values travel, and the planner sees that they are equal.
    const key = JSON.stringify(part.parameter);
    let number = numbers.get(key);
    if (number === undefined) {
      parameters.push(part.parameter);
      number = parameters.length;
      numbers.set(key, number);
    }
    text += `$${number}`;
  }
  return Object.freeze({ text: text.trim(), parameters: Object.freeze(parameters) });
}
