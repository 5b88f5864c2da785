/**
 * Documents that differ in the numbers and strings written into them alone are one document with variables: the text without these
 * is what it is kept by, and their values take the places of variables. Whatever does not fit is parsed and validated as a new
 * document, which says what is wrong with it.
 */
import {
  type ASTNode,
  type DocumentNode,
  type FloatValueNode,
  type GraphQLInputType,
  getLocation,
  type IntValueNode,
  Kind,
  Lexer,
  Source,
  type StringValueNode,
  TypeInfo,
  type ValueNode,
  type VariableNode,
  valueFromAST,
  visit,
  visitWithTypeInfo,
} from 'graphql';
import { elementAt } from '../base/narrow.js';
import type { Locate } from './failure.js';
import { JSON_SCALAR } from './scalars.js';
import { type Document, documentOf } from './validate-document.js';

type LiteralNode = IntValueNode | FloatValueNode | StringValueNode;

/** A number or a string of a text, and where it stands. */
interface Literal {
  readonly node: LiteralNode;
  readonly start: number;
  readonly end: number;
}

export interface LiteralsOfText {
  /** The text without its literals: of each there is its kind. Whitespace and comments stay, so that locations are right. */
  readonly rest: string;
  readonly literals: readonly Literal[];
}

/** Longer texts are rarely written by hand, and would keep the loop. */
const LONGEST_TEXT = 65_536;

/** Stands in no valid document outside of strings. */
const MARK = '\u0001';

const NAME = /[A-Za-z_][A-Za-z_0-9]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![A-Za-z_0-9.])/y;
/** What needs no decoding: no escapes, no halves of characters. */
const PLAIN_STRING = /"([^"\\\r\n\ud800-\udfff]*)"(?!")/y;
const ESCAPED_STRING = /"(?:[^"\\\r\n]|\\.)+"/y;
const BLOCK_STRING = /"""(?:[^"\\]|\\"""|\\|"(?!""))*"""/y;
const COMMENT = /#[^\r\n]*/y;

/** Null if there are none, or if what is there is better said by the parser. */
export function findLiterals(text: string): LiteralsOfText | null {
  if (text.length > LONGEST_TEXT || text.includes(MARK)) return null;
  const literals: Literal[] = [];
  let rest = '';
  let copied = 0;
  let position = 0;
  while (position < text.length) {
    const code = text.charCodeAt(position);
    if (isNameStart(code)) position = endOf(NAME, text, position);
    else if (code === HASH) position = endOf(COMMENT, text, position);
    else if (code === QUOTE || code === MINUS || isDigit(code)) {
      const literal = code === QUOTE ? readString(text, position) : readNumber(text, position);
      if (!literal) return null;
      literals.push(literal);
      rest += text.slice(copied, position) + MARK + MARKS[literal.node.kind];
      position = copied = literal.end;
    } else position++;
  }
  if (literals.length === 0) return null;
  return { rest: rest + text.slice(copied), literals };
}

const HASH = 0x23;
const QUOTE = 0x22;
const MINUS = 0x2d;
const MARKS = { [Kind.INT]: 'i', [Kind.FLOAT]: 'f', [Kind.STRING]: 's' } as const;

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

function isNameStart(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x41 && code <= 0x5a) || code === 0x5f;
}

function endOf(token: RegExp, text: string, start: number): number {
  token.lastIndex = start;
  token.test(text);
  return token.lastIndex;
}

function readNumber(text: string, start: number): Literal | null {
  NUMBER.lastIndex = start;
  const match = NUMBER.exec(text);
  if (!match) return null;
  const [value, fraction, exponent] = match;
  const kind = fraction === undefined && exponent === undefined ? Kind.INT : Kind.FLOAT;
  return { node: { kind, value }, start, end: start + value.length };
}

function readString(text: string, start: number): Literal | null {
  PLAIN_STRING.lastIndex = start;
  const match = PLAIN_STRING.exec(text);
  if (match) {
    const [all, value = ''] = match;
    return { node: { kind: Kind.STRING, value }, start, end: start + all.length };
  }
  const end = endOf(text.startsWith('"""', start) ? BLOCK_STRING : ESCAPED_STRING, text, start);
  if (end === 0) return null;
  return decodeString(text.slice(start, end), start);
}

/** By the library's own rules. */
function decodeString(text: string, start: number): Literal | null {
  try {
    const lexer = new Lexer(new Source(text));
    const { value, end } = lexer.advance();
    return value !== undefined && end === text.length
      ? { node: { kind: Kind.STRING, value }, start, end: start + end }
      : null;
  } catch {
    return null;
  }
}

interface Slot extends Literal {
  readonly type: GraphQLInputType;
  /** Whether it has to be as it was: what it says is part of the document. */
  readonly isFixed: boolean;
}

/** A document whose literals have become variables. */
export interface LiftedDocument {
  readonly document: Document;
  readonly slots: readonly Slot[];
  /** Pairs that have to be equal: fields of one key are one field only if their arguments are the same. */
  readonly pairs: readonly (readonly [number, number])[];
}

interface BoundLiterals {
  readonly variables: Readonly<Record<string, unknown>>;
  readonly locate: Locate;
}

/** Of a validated document with as many literals; null for one that has literals where no value stands. */
export function liftLiterals(document: Document, count: number): LiftedDocument | null {
  const slots: Slot[] = [];
  const locations = new Map<ASTNode, number>();
  const types = new TypeInfo(document.schema);
  let fixed = 0;
  const fix = { enter: () => void fixed++, leave: () => void fixed-- };
  const add = (node: LiteralNode): void => {
    locations.set(node, slots.length);
    const { start = 0, end = 0 } = node.loc ?? {};
    // A value without a type of its own is part of one that may be any JSON.
    slots.push({ node, start, end, type: types.getInputType() ?? JSON_SCALAR, isFixed: fixed > 0 });
  };
  visit(
    document.node,
    visitWithTypeInfo(types, {
      VariableDefinition: fix,
      Directive: fix,
      IntValue: add,
      FloatValue: add,
      StringValue: add,
    }),
  );
  if (slots.length !== count) return null;
  const replace = (node: LiteralNode): VariableNode | undefined => {
    const position = locations.get(node);
    if (position === undefined || elementAt(slots, position).isFixed) return undefined;
    return { kind: Kind.VARIABLE, name: { kind: Kind.NAME, value: nameOf(position) } };
  };
  const node = visit(document.node, { IntValue: replace, FloatValue: replace, StringValue: replace });
  return { document: documentOf(node, document.schema), slots, pairs: findPairs(document.node, locations) };
}

function findPairs(document: DocumentNode, places: ReadonlyMap<ASTNode, number>): [number, number][] {
  const first = new Map<string, number>();
  const pairs: [number, number][] = [];
  const walk = (node: ValueNode, path: string): void => {
    if (node.kind === Kind.LIST) for (const [index, each] of node.values.entries()) walk(each, `${path} ${index}`);
    if (node.kind === Kind.OBJECT) for (const each of node.fields) walk(each.value, `${path} ${each.name.value}`);
    const position = places.get(node);
    if (position === undefined || !('value' in node)) return;
    const key = `${path} ${node.kind} ${node.value}`;
    const other = first.get(key);
    if (other === undefined) first.set(key, position);
    else pairs.push([other, position]);
  };
  visit(document, {
    Field: ({ alias, name, arguments: list = [] }) => {
      for (const each of list) walk(each.value, `${(alias ?? name).value} ${each.name.value}`);
    },
  });
  return pairs;
}

/** Null if one of the literals does not suit its place. */
export function bindLiterals(
  { slots, pairs }: LiftedDocument,
  { literals }: LiteralsOfText,
  text: string,
): BoundLiterals | null {
  if (pairs.some(([one, other]) => valueAt(literals, one) !== valueAt(literals, other))) return null;
  const variables: Record<string, unknown> = {};
  for (const [position, slot] of slots.entries()) {
    const { node } = elementAt(literals, position);
    if (slot.isFixed) {
      if (node.value !== slot.node.value) return null;
      continue;
    }
    const value = valueFromAST(node, slot.type);
    if (value === undefined) return null;
    variables[nameOf(position)] = value;
  }
  const source = new Source(text);
  // Literals are longer or shorter than those that the document was parsed with; the rest of the text is the same.
  const shifted = (start: number): number => {
    const before = slots.findLastIndex((slot) => slot.end <= start);
    return before < 0 ? start : elementAt(literals, before).end + start - elementAt(slots, before).end;
  };
  return { variables, locate: ({ loc }) => (loc ? [getLocation(source, shifted(loc.start))] : []) };
}

function valueAt(literals: readonly Literal[], position: number): string {
  return elementAt(literals, position).node.value;
}

/** No name that a document could have. */
function nameOf(position: number): string {
  return `%${position}`;
}
