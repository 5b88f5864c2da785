/** Parses a GraphQL document and validates it against the caller's schema. operations.ts caches the result. */
import {
  type ASTVisitor,
  type DocumentNode,
  type FragmentDefinitionNode,
  GraphQLError,
  type GraphQLSchema,
  getEnterLeaveForKind,
  Kind,
  KnownTypeNamesRule,
  NoSchemaIntrospectionCustomRule,
  type OperationDefinitionNode,
  parse,
  specifiedRules,
  type ValidationContext,
  validate,
} from 'graphql';
import type { Steps } from '../../base/time-slices.js';
import { DocumentFailure, documentFailure, type Locate, locate } from './failure.js';
import { checkSize, type DocumentLimits, tooDeep, tooManyTokens } from './limits.js';
import type { FixedSelections } from './selections.js';

export interface Document {
  readonly schema: GraphQLSchema;
  readonly node: DocumentNode;
  readonly operations: readonly OperationDefinitionNode[];
  readonly fragments: ReadonlyMap<string, FragmentDefinitionNode>;
  readonly locate: Locate;
  readonly fixed: FixedSelections;
}

/** Whether the document is an introspection query, which needs the complete schema. */
export function asksForSchema(text: string): boolean {
  return /__(schema|type)\b/.test(text);
}

/** Errors in one response: more would not help. */
const MOST_ERRORS = 20;

const RULES = specifiedRules.map((rule) => (rule === KnownTypeNamesRule ? knownTypeNames : rule));

/** The rule of graphql-js lists the names of all types before it reads a document. Only its suggestions need them. */
function knownTypeNames(context: ValidationContext): ASTVisitor {
  return {
    NamedType: (node, ...place) => {
      if (context.getSchema().getType(node.name.value)) return undefined;
      return getEnterLeaveForKind(KnownTypeNamesRule(context), Kind.NAMED_TYPE).enter?.(node, ...place);
    },
  };
}

/** Other requests may run between the steps. */
export function* parseDocument(text: string, schema: GraphQLSchema, limits: DocumentLimits): Steps<Document> {
  const node = parseText(text, limits);
  yield;
  const rules = limits.introspection ? RULES : [...RULES, NoSchemaIntrospectionCustomRule];
  const errors = validate(schema, node, rules, { maxErrors: MOST_ERRORS });
  if (errors.length > 0) throw DocumentFailure.of(errors, limits.introspection);
  return documentOf(node, schema);
}

/** The document is known to fit the schema. */
export function documentOf(node: DocumentNode, schema: GraphQLSchema): Document {
  const fragments = new Map<string, FragmentDefinitionNode>();
  const operations: OperationDefinitionNode[] = [];
  for (const each of node.definitions) {
    if (each.kind === Kind.FRAGMENT_DEFINITION) fragments.set(each.name.value, each);
    if (each.kind === Kind.OPERATION_DEFINITION) operations.push(each);
  }
  return { schema, node, operations, fragments, locate, fixed: new WeakMap() };
}

export function chooseOperation({ operations, schema }: Document, name: string | null): OperationDefinitionNode {
  const named = name === null ? operations : operations.filter((each) => each.name?.value === name);
  const [only, ...others] = named;
  if (!only) {
    throw documentFailure(
      name === null ? 'The document has no operation' : `The document has no operation named "${name}"`,
    );
  }
  if (others.length > 0)
    throw documentFailure('The document has several operations: "operationName" must name one of them');
  if (!schema.getRootType(only.operation)) {
    throw DocumentFailure.of([new GraphQLError(`The schema has no ${only.operation}`, { nodes: only })], true);
  }
  return only;
}

/** The size of the text is known to be within the limits. */
function parseText(text: string, limits: DocumentLimits): DocumentNode {
  try {
    const node = parse(text, { maxTokens: limits.tokens });
    checkSize(node, limits);
    return node;
  } catch (error) {
    // The stack ends long behind the limit, whether the parser met its end or what counts the levels.
    if (error instanceof RangeError || (error instanceof GraphQLError && error.originalError instanceof RangeError))
      throw tooDeep(limits);
    if (!(error instanceof GraphQLError)) throw error;
    // The parser has no code of its own for it.
    throw / tokens\. Parsing aborted/.test(error.message)
      ? tooManyTokens(limits)
      : DocumentFailure.of([error], limits.introspection);
  }
}
