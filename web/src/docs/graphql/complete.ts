/** Completion in a GraphQL document: finds the context from the text before the cursor, and the fields of the schema that fit it. */
import { type InputValue, type NamedType, namedOf, type Operation, type Types, writtenType } from './types';

export interface Completion {
  readonly name: string;
  readonly detail: string;
  /** The text after the name; `|` marks the cursor. */
  readonly after: string;
}

interface Token {
  readonly text: string;
  readonly end: number;
}

const TOKENS = /"""[\s\S]*?(?:"""|$)|"(?:\\.|[^"\\\n])*(?:"|$)|#[^\n]*|\.\.\.|[A-Za-z_]\w*|-?\d[\w.+-]*|[^\s,]/g;
const IS_NAME = /^[A-Za-z_]/;

function tokensOf(text: string): Token[] {
  return [...text.matchAll(TOKENS)].map((match) => ({ text: match[0], end: match.index + match[0].length }));
}

/** A field by its name, or a condition on a type. */
type Step = { readonly field: string } | { readonly on: string };

type Level =
  | { readonly kind: 'selection'; readonly path: readonly Step[]; last: Step | null }
  | { readonly kind: 'arguments'; readonly path: readonly Step[]; name: string; isValue: boolean }
  | { readonly kind: 'object'; name: string; isValue: boolean }
  | { readonly kind: 'list' }
  /** Variables, and arguments of directives: there are no suggestions. */
  | { readonly kind: 'other' };

interface Place {
  readonly root: Operation | { readonly type: string };
  readonly levels: readonly Level[];
  readonly afterOn: boolean;
}

export interface Typed {
  /** The part of a name before the cursor. */
  readonly prefix: string;
  readonly place: Place | null;
}

export function placeAt(before: string): Typed {
  const tokens = tokensOf(before);
  const last = tokens.at(-1);
  if (
    last &&
    /^["#]/.test(last.text) &&
    last.end === before.length &&
    !/^("""[\s\S]*""""|"(\\.|[^"\\])*")$/.test(last.text)
  )
    return { prefix: '', place: null };
  const isTyping = last !== undefined && IS_NAME.test(last.text) && last.end === before.length;
  return { prefix: isTyping ? last.text : '', place: walk(isTyping ? tokens.slice(0, -1) : tokens) };
}

function walk(tokens: readonly Token[]): Place {
  let root: Place['root'] = 'query';
  let afterOn = false;
  const levels: Level[] = [];
  const finishValue = (): void => {
    const top = levels.at(-1);
    if (top?.kind === 'arguments' || top?.kind === 'object') top.isValue = false;
  };
  tokens.forEach(({ text }, at) => {
    if (text.startsWith('#')) return;
    const before = tokens[at - 1]?.text;
    const top = levels.at(-1);
    const isName = IS_NAME.test(text);
    if (text === '}' || text === ')' || text === ']') {
      levels.pop();
      finishValue();
      if (levels.length === 0 && text === '}') root = 'query';
    } else if (!top) {
      if (text === '{') levels.push({ kind: 'selection', path: [], last: null });
      else if (text === '(') levels.push({ kind: 'other' });
      else if (afterOn && isName) root = { type: text };
      else if (text === 'query' || text === 'mutation') root = text;
      afterOn = text === 'on';
    } else if (top.kind === 'selection') {
      if (text === '{')
        levels.push({ kind: 'selection', path: top.last ? [...top.path, top.last] : top.path, last: null });
      else if (text === '(' && tokens[at - 2]?.text === '@') levels.push({ kind: 'other' });
      else if (text === '(')
        levels.push({
          kind: 'arguments',
          path: top.last ? [...top.path, top.last] : top.path,
          name: '',
          isValue: false,
        });
      else if (afterOn && isName) top.last = { on: text };
      else if (isName && before !== '@' && before !== '...') top.last = { field: text };
      else if (text === '...') top.last = null;
      afterOn = text === 'on' && before === '...';
    } else if (text === '{') levels.push({ kind: 'object', name: '', isValue: false });
    else if (text === '[') levels.push({ kind: 'list' });
    else if (text === '(') levels.push({ kind: 'other' });
    else if (top.kind === 'arguments' || top.kind === 'object') {
      if (text === ':') top.isValue = true;
      else if (!top.isValue && isName) top.name = text;
      else if (text !== '$') top.isValue = false;
    }
  });
  return { root, levels, afterOn };
}

const KEYWORDS: readonly Completion[] = [
  { name: 'query', detail: 'reads', after: ' {\n  |\n}' },
  { name: 'mutation', detail: 'writes', after: ' {\n  |\n}' },
];

/** The number that is visible without scrolling. */
const MOST = 10;

export async function completionsAt({ prefix, place }: Typed, types: Types): Promise<Completion[]> {
  if (!place) return [];
  const all = await candidates(place, types);
  const wanted = prefix.toLowerCase();
  const matching = all.filter(
    ({ name, after }) => name.toLowerCase().includes(wanted) && (name !== prefix || after !== '|'),
  );
  const begins = ({ name }: Completion): number => (name.toLowerCase().startsWith(wanted) ? 0 : 1);
  return matching.sort((one, other) => begins(one) - begins(other)).slice(0, MOST);
}

async function candidates({ root, levels, afterOn }: Place, types: Types): Promise<readonly Completion[]> {
  const top = levels.at(-1);
  if (!top) return afterOn ? [] : KEYWORDS;
  if (top.kind === 'selection') {
    const type = await typeAt(root, top.path, types);
    if (!type) return [];
    if (afterOn)
      return [type, ...(type.possibleTypes ?? [])].map(({ name }) => ({ name, detail: '', after: ' { | }' }));
    return (type.fields ?? []).map((field) => ({
      name: field.name,
      detail: writtenType(field.type),
      after: isComposite(field.type) ? ' { | }' : '|',
    }));
  }
  return inArguments(root, levels, types);
}

async function inArguments(
  root: Place['root'],
  levels: readonly Level[],
  types: Types,
): Promise<readonly Completion[]> {
  const at = levels.findLastIndex(({ kind }) => kind === 'arguments' || kind === 'other');
  const own = levels[at];
  if (own?.kind !== 'arguments') return [];
  const last = own.path.at(-1);
  const owner = await typeAt(root, own.path.slice(0, -1), types);
  const field = owner?.fields?.find(({ name }) => last && 'field' in last && name === last.field);
  let names: readonly InputValue[] = field?.args ?? [];
  let isValue = own.isValue;
  let chosen = names.find(({ name }) => name === own.name);
  for (const level of levels.slice(at + 1)) {
    if (level.kind !== 'object') continue;
    const type = chosen && (await types.type(namedOf(chosen.type)));
    names = type?.inputFields ?? [];
    isValue = level.isValue;
    chosen = names.find(({ name }) => name === level.name);
  }
  if (!isValue && levels.at(-1)?.kind !== 'list')
    return names.map(({ name, type }) => ({ name, detail: writtenType(type), after: ': |' }));
  const type = chosen && (await types.type(namedOf(chosen.type)));
  if (type?.name === 'Boolean') return ['true', 'false'].map((name) => ({ name, detail: 'Boolean', after: '|' }));
  return (type?.enumValues ?? []).map(({ name }) => ({ name, detail: type?.name ?? '', after: '|' }));
}

async function typeAt(root: Place['root'], path: readonly Step[], types: Types): Promise<NamedType | null> {
  const first = typeof root === 'string' ? (await types.roots())[root] : root.type;
  let type = first === null ? null : await types.type(first);
  for (const step of path) {
    if (!type) return null;
    const field = 'field' in step ? type.fields?.find(({ name }) => name === step.field) : null;
    type = 'on' in step ? await types.type(step.on) : field ? await types.type(namedOf(field.type)) : null;
  }
  return type;
}

const COMPOSITE = new Set(['OBJECT', 'INTERFACE', 'UNION']);

function isComposite(type: InputValue['type']): boolean {
  let inner = type;
  while (inner.ofType) inner = inner.ofType;
  return COMPOSITE.has(inner.kind);
}
