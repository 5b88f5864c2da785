/**
 * The text of a document and its variables become a `ParsedDocument`. Documents are kept by their text and the schema they were
 * read with, those with literals by the rest of their text too; queries are kept with their values from the second time on, as
 * URLs are: most values never come again.
 */
import {
  type ASTNode,
  type DocumentNode,
  type FloatValueNode,
  type GraphQLInputType,
  getLocation,
  getVariableValues,
  type IntValueNode,
  Kind,
  Lexer,
  type OperationDefinitionNode,
  Source,
  type StringValueNode,
  TypeInfo,
  type ValueNode,
  type VariableNode,
  valueFromAST,
  visit,
  visitWithTypeInfo,
} from 'graphql';
import { LRUCache } from 'lru-cache';
import { writeJson } from '../../base/exact-json.js';
import { elementAt } from '../../base/narrow.js';
import { oneStep, runInSlices, runSteps, type Steps } from '../../base/time-slices.js';
import { ParseCache } from '../request/parse-cache.js';
import type { ParseLimits } from '../request/parse-context.js';
import type { CompleteSchema } from './complete-schema.js';
import { DocumentFailure, type Locate } from './failure.js';
import type { DocumentLimits } from './limits.js';
import { parseMutationOperation } from './mutation.js';
import type { ParsedDocument, ParsedQueryDocument } from './parsed-document.js';
import { introspectSchema, parseEvents, parseQueryOperation, type QueryOperation } from './query.js';
import type { Variables } from './root-fields.js';
import { JSON_SCALAR } from './scalars.js';
import { type LazySchema, type Schemas, schemaKey } from './schema.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { asksForSchema, chooseOperation, type Document, documentOf, parseDocument } from './validate-document.js';

export interface GraphqlRequest {
  readonly text: string;
  readonly operationName: string | null;
  readonly variables: Record<string, unknown>;
  /** By GET nothing may be changed. */
  readonly safe: boolean;
}

interface PreparedDocument {
  readonly number: number;
  readonly document: Document;
  /** For documents that ask about the schema. */
  readonly completeSchema: CompleteSchema | null;
  /** The answers to `__schema`. */
  readonly introspected: ReadonlyMap<string, string> | null;
  readonly operation: OperationDefinitionNode;
  /** For a query without variables. */
  parsed: ParsedQueryDocument | null;
  /** With variables in the places of its literals; undefined until a second document differs in these alone. */
  lifted: LiftedDocument | null | undefined;
}

/** The memory of a document that was parsed and validated: an object per token, and the request that was parsed from it. */
const BYTES_PER_DOCUMENT = 8_192;
const BYTES_PER_CHARACTER = 100;

/** Does what takes time in proportion to the size of a document: it may refuse to, or do it later. */
export type RunInBudget = <Result>(size: number, work: () => Steps<Result>) => Result | Promise<Result>;

const AT_ONCE: RunInBudget = (_, work) => runSteps(work());

/** A mutation by GET. */
export class UnsafeMethod extends Error {}

export class Operations {
  readonly #prepared: LRUCache<string, PreparedDocument>;
  readonly #parsedQueries = new ParseCache<ParsedQueryDocument>();
  #count = 0;

  /** `memory` in bytes. */
  constructor(
    readonly schemas: Schemas,
    private readonly limits: DocumentLimits,
    private readonly parseLimits: ParseLimits,
    memory: number,
  ) {
    this.#prepared = new LRUCache({
      max: 2_000,
      maxSize: memory,
      sizeCalculation: (_, key) => BYTES_PER_DOCUMENT + key.length * BYTES_PER_CHARACTER,
    });
  }

  /** After a change of the schema: what was read with a former schema would only keep that schema, and its model, alive. */
  forget(): void {
    this.#prepared.clear();
    this.#parsedQueries.clear();
    this.schemas.clear();
  }

  /** Answers at once for a known text. */
  parse(
    request: GraphqlRequest,
    access: SchemaAccess,
    scope: RootScope,
    run: RunInBudget = AT_ONCE,
  ): ParsedDocument | Promise<ParsedDocument> {
    const key = `${schemaKey(access, scope)}\n${request.operationName ?? ''}\n${request.text}`;
    const cached = this.#prepared.get(key);
    if (cached) return cached.completeSchema ? this.#introspect(cached, request) : this.#finish(cached, request);
    const literals = findLiterals(request.text);
    const keys = [key];
    if (literals) {
      const common = `${schemaKey(access, scope)}\n${request.operationName ?? ''}\n${literals.rest}`;
      const alike = this.#prepared.get(common);
      const parsed = alike && this.#finishAlike(alike, literals, request);
      if (parsed) return parsed;
      keys.push(common);
    }
    return this.#prepare(keys, request, this.schemas.get(access, scope), run);
  }

  /** Returns null if the text has to be parsed, to understand it or to report its error. */
  #finishAlike(alike: PreparedDocument, textLiterals: LiteralsOfText, request: GraphqlRequest): ParsedDocument | null {
    // Introspection is executed by graphql-js, with variables as they were sent.
    if (alike.lifted === undefined)
      alike.lifted = alike.completeSchema ? null : liftLiterals(alike.document, textLiterals.literals.length);
    if (!alike.lifted) return null;
    const literals = bindLiterals(alike.lifted, textLiterals, request.text);
    if (!literals) return null;
    const document = { ...alike.lifted.document, locate: literals.locate };
    try {
      const operation = chooseOperation(document, request.operationName);
      return this.#finish({ ...alike, document, operation, parsed: null }, request, literals.variables);
    } catch {
      return null;
    }
  }

  async #prepare(
    keys: readonly string[],
    request: GraphqlRequest,
    schema: LazySchema,
    run: RunInBudget,
  ): Promise<ParsedDocument> {
    const { length } = request.text;
    const document = await run(length, () => parseDocument(request.text, schema, this.limits));
    const operation = chooseOperation(document, request.operationName);
    const completeSchema = asksForSchema(request.text) ? await schema.complete() : null;
    const prepared: PreparedDocument = {
      number: ++this.#count,
      document,
      completeSchema,
      introspected: null,
      operation,
      parsed: null,
      lifted: undefined,
    };
    for (const key of keys) this.#prepared.set(key, prepared);
    if (completeSchema) return this.#introspect(prepared, request);
    return run(length, () => oneStep(() => this.#finish(prepared, request)));
  }

  /** The answer about a schema may be made of ten thousand types: others have their turn in between. */
  async #introspect(prepared: PreparedDocument, request: GraphqlRequest): Promise<ParsedDocument> {
    const { operation: node } = prepared;
    if (prepared.parsed || node.operation !== 'query') return this.#finish(prepared, request);
    const operation = this.#queryOperation(prepared, request, this.#coerce(prepared, request));
    const introspected = await runInSlices(introspectSchema(operation));
    const parsed = this.#finish({ ...prepared, introspected }, request);
    if (parsed.kind === 'query' && (node.variableDefinitions ?? []).length === 0 && sizeOf(parsed) < SMALL)
      prepared.parsed = parsed;
    return parsed;
  }

  /** `literals` are the values that took the places of literals. */
  #finish(prepared: PreparedDocument, request: GraphqlRequest, literals: Variables | null = null): ParsedDocument {
    const { document, operation: node } = prepared;
    if (node.operation === 'mutation' && request.safe) throw new UnsafeMethod();
    if (node.operation === 'query') return this.#query(prepared, request, literals);
    const variables = { ...this.#coerce(prepared, request), ...literals };
    const operation = { document, node, variables, limits: this.parseLimits };
    if (node.operation === 'mutation') return parseMutationOperation(operation);
    return parseEvents(operation) ?? { kind: 'live', query: this.#query(prepared, request, literals) };
  }

  #query(prepared: PreparedDocument, request: GraphqlRequest, literals: Variables | null): ParsedQueryDocument {
    if (prepared.parsed) return prepared.parsed;
    const parse = (): ParsedQueryDocument => {
      const variables = { ...this.#coerce(prepared, request), ...literals };
      return parseQueryOperation(this.#queryOperation(prepared, request, variables));
    };
    const { number, operation } = prepared;
    const definitions = operation.variableDefinitions ?? [];
    const sent = definitions.length > 0 ? writeJson(request.variables) : '';
    // The whole text: places depend on how literals are written.
    if (literals) return this.#parsedQueries.get(`${number}\n${request.text}\n${sent}`, parse);
    if (definitions.length > 0) return this.#parsedQueries.get(`${number} ${sent}`, parse);
    const parsed = parse();
    if (sizeOf(parsed) < SMALL) prepared.parsed = parsed;
    return parsed;
  }

  #queryOperation(prepared: PreparedDocument, request: GraphqlRequest, variables: Variables): QueryOperation {
    const { document, operation: node, completeSchema, introspected } = prepared;
    const sentVariables = request.variables;
    return { document, node, variables, limits: this.parseLimits, sentVariables, completeSchema, introspected };
  }

  #coerce({ document, operation }: PreparedDocument, { variables }: GraphqlRequest): Variables {
    const definitions = operation.variableDefinitions ?? [];
    const values = getVariableValues(document.schema, definitions, variables, { maxErrors: 20 });
    if (values.errors) throw DocumentFailure.of(values.errors, this.limits.introspection);
    return values.coerced;
  }
}

const SMALL = 65_536;

/** Introspection answers a short text with a very long one. */
function sizeOf({ parsed }: ParsedQueryDocument): number {
  return parsed.values.reduce<number>(
    (size, value) => size + (typeof value === 'string' ? value.length : 8),
    parsed.shape.length,
  );
}

type LiteralNode = IntValueNode | FloatValueNode | StringValueNode;

/** A number or a string of a text, and where it stands. */
interface Literal {
  readonly node: LiteralNode;
  readonly start: number;
  readonly end: number;
}

/**
 * Documents that differ only in their numbers and strings are one document with variables: it is cached by its text without them, and
 * their values become those of the variables. A document that does not fit is parsed and validated as a new one, which reports
 * its errors.
 */
interface LiteralsOfText {
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
interface LiftedDocument {
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
function liftLiterals(document: Document, count: number): LiftedDocument | null {
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
function bindLiterals(
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
