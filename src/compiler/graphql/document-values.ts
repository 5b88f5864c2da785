/** The values of a GraphQL document by their positions, so that others can replace them. */
import { type ASTNode, type DocumentNode, Kind, parse, print, visit } from 'graphql';

/**
 * The position of a value: the field, the argument, and the names inside of it. That of a directive begins with its name and `@`, that of a
 * variable's default is the name and `$`.
 */
export type ValuePosition = readonly string[];

interface DocumentValue {
  readonly kind: 'number' | 'string' | 'enum';
  readonly text: string;
  readonly position: ValuePosition;
}

export interface ReadDocument {
  /** The names of its operations. */
  readonly operations: readonly string[];
  /** The positions at which each variable is used. */
  readonly uses: ReadonlyMap<string, readonly ValuePosition[]>;
  /** Returns the document with other values, without comments. */
  rewrite(replace: (value: DocumentValue) => string): string;
}

const MAX_TOKENS = 20_000;
const MAX_DOCUMENTS = 1_000;
const documents = new Map<string, ReadDocument>();

/** Returns null if it is not valid. Clients send the same documents again and again. */
export function readDocument(text: string): ReadDocument | null {
  const known = documents.get(text);
  if (known) return known;
  if (documents.size >= MAX_DOCUMENTS) documents.clear();
  try {
    const read = describe(parse(text, { noLocation: true, maxTokens: MAX_TOKENS }));
    documents.set(text, read);
    return read;
  } catch {
    return null;
  }
}

function describe(document: DocumentNode): ReadDocument {
  const uses = new Map<string, ValuePosition[]>();
  visitValues(document, (node, position) => {
    if (node.kind !== Kind.VARIABLE || position[0]?.startsWith('$')) return undefined;
    const name = node.name.value;
    uses.set(name, [...(uses.get(name) ?? []), position]);
    return undefined;
  });
  return {
    operations: document.definitions.flatMap((each) =>
      each.kind === Kind.OPERATION_DEFINITION && each.name ? [each.name.value] : [],
    ),
    uses,
    rewrite: (replace) => print(visitValues(document, (node, position) => replaced(node, position, replace))),
  };
}

function replaced(
  node: ASTNode,
  position: ValuePosition,
  replace: (value: DocumentValue) => string,
): ASTNode | undefined {
  switch (node.kind) {
    case Kind.INT:
    case Kind.FLOAT: {
      const value = replace({ kind: 'number', text: node.value, position });
      return /^-?\d+$/.test(value) ? { kind: Kind.INT, value } : { kind: Kind.FLOAT, value };
    }
    case Kind.STRING:
      return { kind: Kind.STRING, value: replace({ kind: 'string', text: node.value, position }) };
    case Kind.ENUM:
      return { kind: Kind.ENUM, value: replace({ kind: 'enum', text: node.value, position }) };
    default:
      return undefined;
  }
}

/** Calls back for each node below the root, which it may replace. */
function visitValues(
  document: DocumentNode,
  replace: (node: ASTNode, position: ValuePosition) => ASTNode | undefined,
): DocumentNode {
  const positions: ValuePosition[] = [];
  const outer = (): ValuePosition => positions.at(-1) ?? [];
  return visit(document, {
    enter: (node) => {
      const inner = innerPosition(node, outer());
      if (inner === null) return replace(node, outer());
      positions.push(inner);
      return undefined;
    },
    leave: (node) => {
      if (innerPosition(node, outer()) !== null) positions.pop();
    },
  });
}

/** Returns null for a node that is not a position of its own. */
function innerPosition(node: ASTNode, outer: ValuePosition): ValuePosition | null {
  switch (node.kind) {
    case Kind.FIELD:
      return [node.name.value];
    case Kind.DIRECTIVE:
      return [`@${node.name.value}`];
    case Kind.ARGUMENT:
    case Kind.OBJECT_FIELD:
      return [...outer, node.name.value];
    case Kind.VARIABLE_DEFINITION:
      return [`$${node.variable.name.value}`];
    default:
      return null;
  }
}
