/**
 * Documents that differ only in their numbers and strings are one document with variables: it is cached by its text without them, and
 * their values become those of the variables. A document that does not fit is parsed and validated as a new one, which reports
 * its errors.
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

/**
 * Comments, which stay; strings that need no decoding, other strings, numbers. The last alternatives begin a token that is none of these.
 * Digits behind a letter are part of a name.
 */
const TOKEN =
  /(#[^\r\n]*)|"([^"\\\r\n\ud800-\udfff]*)"(?!")|"""(?:[^"\\]|\\"""|\\|"(?!""))*"""|"(?:[^"\\\r\n]|\\.)+"|((?:-|(?<!\w))(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])|["-]|(?<!\w)\d/g;

/** The groups of a token: a comment, a string without its quotes, a number. Then its position. */
type TokenMatch = [...groups: [string | undefined, string | undefined, string | undefined], start: number];

const MARKS = { [Kind.INT]: 'i', [Kind.FLOAT]: 'f', [Kind.STRING]: 's' } as const;

/** Returns null if there are none, or if the text has a syntax error, which the parser reports better. */
export function findLiterals(text: string): LiteralsOfText | null {
  if (text.length > LONGEST_TEXT || text.includes(MARK)) return null;
  const literals: Literal[] = [];
  let isReadable = true;
  const rest = text.replace(TOKEN, (token: string, ...[comment, plain, number, start]: TokenMatch) => {
    if (comment !== undefined) return token;
    const value = plain ?? number ?? (token.length > 1 ? decodeString(token) : null);
    if (value === null) isReadable = false;
    const kind = number === undefined ? Kind.STRING : /[.eE]/.test(number) ? Kind.FLOAT : Kind.INT;
    literals.push({ node: { kind, value: value ?? '' }, start, end: start + token.length });
    return MARK + MARKS[kind];
  });
  return isReadable && literals.length > 0 ? { rest, literals } : null;
}

/** By the library's own rules. */
function decodeString(token: string): string | null {
  try {
    const { value, end } = new Lexer(new Source(token)).advance();
    return value !== undefined && end === token.length ? value : null;
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

/** Expects a validated document with `count` literals. Returns null if a literal is not a value. */
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

/** Returns null if one of the literals does not fit its slot. */
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
