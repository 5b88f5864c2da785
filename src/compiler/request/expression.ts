/**
 * Fields as clients write them: `title`, `author.name`, `comments.*`, `year(author.born)`, `json(meta, a.b[0])`. A name between double
 * quotes stands for itself: `"a.b"`, `author."x(y)"`, `year("born.on")`; a quote inside it is written twice.
 */
import { LRUCache } from 'lru-cache';
import { invalidQuery, tooManyRelations } from '../../base/errors.js';
import { DATE_FUNCTIONS, type Expression, type FunctionCall, type Selection } from './ast.js';
import type { ParseContext } from './parse-context.js';

/** `a,b.c` and lists of such texts become a flat list; commas inside parentheses do not separate. */
export function parseList(input: unknown, parameter: string): string[] {
  const list: string[] = [];
  for (const entry of Array.isArray(input) ? input : [input]) {
    if (typeof entry !== 'string') throw invalidQuery(`"${parameter}" must be a string or a list of strings`);
    for (const piece of splitOutside(entry, ',', parameter)) {
      const trimmed = piece.trim();
      if (trimmed !== '') list.push(trimmed);
    }
  }
  return list;
}

export function parseExpression(text: string, parameter: string, context: ParseContext): Expression {
  context.values.count(1);
  const path = splitOutside(text, '.', parameter);
  const last = path.at(-1) ?? '';
  const match = isQuoted(last) ? null : /^([^()]*)\((.*)\)$/s.exec(last);
  let call: FunctionCall | null = null;
  if (match) {
    const [, name = '', inside = ''] = match;
    const [argument = '', ...rest] = splitOutside(inside, ',', parameter);
    call = parseCall(name, rest.join(',').trim(), text, context);
    path.splice(-1, 1, ...splitOutside(argument.trim(), '.', parameter));
  }
  if (path.some((segment) => segment === '' || (!isQuoted(segment) && /[()]/.test(segment)))) {
    throw invalidQuery(`"${text}" in "${parameter}" is not a path to a field`);
  }
  if ((context.depth ?? 0) + path.length > context.limits.relationalDepth) {
    throw tooManyRelations(context.limits.relationalDepth);
  }
  return { path: text.includes('"') ? path.map((segment) => unquoteName(segment, parameter)) : path, call, text };
}

export function isQuoted(name: string): boolean {
  return name.startsWith('"');
}

/** The name that stands between quotes; others stand for themselves. */
export function unquoteName(name: string, parameter: string): string {
  if (!isQuoted(name)) return name;
  if (!/^"(?:[^"]|"")+"$/.test(name))
    throw invalidQuery(`${name} in "${parameter}" has a double quote without its pair`);
  const own = name.slice(1, -1).replaceAll('""', '"');
  if (own === '*') throw invalidQuery(`${name} in "${parameter}": a field called "*" cannot be named`);
  return own;
}

/** A name as it is written in a path or in a filter. */
export function quoteName(name: string): string {
  return /^[\p{L}\p{N}$][\p{L}\p{N}_$]*$/u.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

function parseCall(name: string, rest: string, text: string, context: ParseContext): FunctionCall {
  if (name === 'json') return { kind: 'json', path: context.values.add(parseJsonPath(rest, context)) };
  if (rest !== '') throw invalidQuery(`Invalid function specified: "${text}"`);
  if (name === 'count' || name === 'rank') return { kind: name };
  const kind = DATE_FUNCTIONS.find((each) => each === name);
  if (!kind) throw invalidQuery(`Invalid function specified: "${text}"`);
  return { kind: kind };
}

/** `a`, `a.b`, `a[0].b`, `[0]`: as the list of steps that PostgreSQL's path operators take. */
export function parseJsonPath(text: string, context: ParseContext): string[] {
  if (
    !/^(\[\d+\]|[\p{L}\p{N}\p{Extended_Pictographic}_]+)(\.[\p{L}\p{N}\p{Extended_Pictographic}_]+|\[\d+\])*$/u.test(
      text,
    )
  ) {
    throw invalidQuery(`"${text}" is not a path into a JSON value`);
  }
  const steps = text.split(/[.[\]]+/).filter((step) => step !== '');
  const most = context.limits.jsonDepth;
  if (steps.length > most)
    throw invalidQuery(`The JSON path depth of "${text}" exceeds ${most} steps`, {
      option: 'MAX_JSON_QUERY_DEPTH',
      limit: most,
    });
  return steps;
}

/** The key under which a function shows its value: `date_year`, `kids_count`, `meta_color_json`. */
export function outputName(expression: Expression): string {
  const field = expression.path.at(-1) ?? '';
  if (!expression.call) return field;
  if (expression.call.kind !== 'json') return `${field}_${expression.call.kind}`;
  // A path into a JSON value has no comma.
  const own = `${field}${expression.text.slice(expression.text.lastIndexOf(','), -1)}`;
  return `${own.replace(/[.[\], ]+/g, '_').replace(/_+$/, '')}_json`;
}

interface Node {
  readonly children: Map<string, Node>;
  readonly calls: Map<string, Selection>;
  /** Whether a path ends here. */
  isEnd: boolean;
}

/** Lists of fields repeat: those without values are parsed once per text. */
const known = new LRUCache<string, KnownFields>({
  max: 2_000,
  maxSize: 16_777_216,
  // A path becomes several objects, each many times the size of its name.
  sizeCalculation: (_, text) => 16 * (text.length + 1),
});

interface KnownFields {
  readonly fields: Selection[];
  readonly paths: number;
}

const texts = new WeakMap<readonly Selection[], string>();

/** The text that a list of fields was parsed from, where it says the same as the list. */
export function textOf(fields: readonly Selection[]): string | undefined {
  return texts.get(fields);
}

export function parseFields(input: unknown, context: ParseContext): Selection[] | null {
  if (typeof input !== 'string' || input.includes('('))
    return readFields([...new Set(parseList(input, 'fields'))], context);
  const text = `${context.limits.relationalDepth} ${input}`;
  const before = known.get(text);
  if (before) {
    context.values.count(before.paths);
    return before.fields;
  }
  const list = [...new Set(parseList(input, 'fields'))];
  const fields = readFields(list, context);
  if (fields) {
    known.set(text, { fields, paths: list.length });
    texts.set(fields, text);
  }
  return fields;
}

/** Paths that share a beginning share a node: `author.name,author.id` asks once for the author. */
function readFields(list: readonly string[], context: ParseContext): Selection[] | null {
  if (list.length === 0) return null;
  const root: Node = { children: new Map(), calls: new Map(), isEnd: false };
  for (const text of list) {
    const expression = parseExpression(text, 'fields', context);
    const { path, call } = expression;
    let node = root;
    for (const segment of call ? path.slice(0, -1) : path) {
      let child = node.children.get(segment);
      if (!child) {
        child = { children: new Map(), calls: new Map(), isEnd: false };
        node.children.set(segment, child);
      }
      node = child;
    }
    if (call) {
      const output = outputName(expression);
      node.calls.set(output, { kind: 'function', output, call, field: path.at(-1) ?? '' });
    } else node.isEnd = true;
  }
  return selections(root);
}

function selections(node: Node): Selection[] {
  const fields = [...node.children].map(([name, child]): Selection => {
    const below = {
      fields: selections(child),
      ...(child.isEnd && child.children.size > 0 && { whole: true as const }),
    };
    return name === '*' ? { kind: 'wildcard', ...below } : { kind: 'field', name, ...below };
  });
  return [...fields, ...node.calls.values()];
}

/** Splits where no parenthesis and no quote is open; calls do not nest. A quote opens at the beginning of a name only. */
function splitOutside(text: string, separator: string, parameter: string): string[] {
  if (!/[()"]/.test(text)) return text.split(separator);
  const pieces: string[] = [];
  let depth = 0;
  let piece = '';
  let isOpen = false;
  for (const character of text) {
    if (character === '"' && (isOpen || /(^|[-,.(\s"])$/.test(piece))) isOpen = !isOpen;
    if (isOpen) {
      piece += character;
      continue;
    }
    if (character === '(') depth++;
    if (character === ')') depth--;
    if (depth < 0 || depth > 1) throw invalidQuery(`The parentheses in "${parameter}" do not match or are nested`);
    if (character === separator && depth === 0) {
      pieces.push(piece);
      piece = '';
    } else piece += character;
  }
  if (isOpen) throw invalidQuery(`A double quote in "${parameter}" is not closed`);
  if (depth !== 0) throw invalidQuery(`The parentheses in "${parameter}" do not match or are nested`);
  return [...pieces, piece];
}
