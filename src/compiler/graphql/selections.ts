/** Selection sets → selections of the request AST. Fragments and directives are resolved here; nothing behind knows of them. */

import {
  type ASTNode,
  BREAK,
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLField,
  GraphQLIncludeDirective,
  type GraphQLObjectType,
  type GraphQLSchema,
  GraphQLSkipDirective,
  getArgumentValues,
  getDirectiveValues,
  getNamedType,
  isAbstractType,
  isUnionType,
  Kind,
  type OperationDefinitionNode,
  type SelectionNode,
  type SelectionSetNode,
  visit,
} from 'graphql';
import { assertNever } from '../../base/assert-never.js';
import { tooManyRelations } from '../../base/errors.js';
import type { Aggregate, GroupSelection, Query, ShapedSelection } from '../request/ast.js';
import { parseExpression, parseJsonPath } from '../request/expression.js';
import { type Arguments, type DocumentContext, parseQueryArguments } from './arguments.js';
import { type FieldPosition, type Locate, withPosition } from './failure.js';
import { bindingOf, collectionOfType, fieldOfType, objectTypeOf } from './field-binding.js';
import { BIG_INT_SCALAR } from './scalars.js';
import { writtenName } from './schema-names.js';

type Path = readonly (string | number)[];

interface SelectionSource {
  readonly schema: GraphQLSchema;
  readonly fragments: ReadonlyMap<string, FragmentDefinitionNode>;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly locate: Locate;
  readonly fixed: FixedSelections;
}

/**
 * Selections of a document that do not depend on the values of variables: they are parsed once, and apply only at the depth and to
 * the type that they were parsed for.
 */
export type FixedSelections = WeakMap<FieldNode, FixedSelection>;

interface FixedSelection {
  readonly type: GraphQLObjectType;
  readonly depth: number;
  /** The selection, or null if it depends on values. */
  readonly selection: ShapedSelection | null;
}

/** Fields by the key they have in the answer, in the order of the document. */
type Collected = Map<string, [FieldNode, ...FieldNode[]]>;

/** The nodes of one field: a document may select it several times. */
export type FieldNodes = readonly [FieldNode, ...FieldNode[]];

export class Selections {
  #depth = 0;

  constructor(
    private readonly source: SelectionSource,
    readonly context: DocumentContext,
  ) {}

  /** The fields that nodes of the document, which belong together, select of one type. */
  collect(type: GraphQLObjectType, nodes: readonly (FieldNode | OperationDefinitionNode)[]): Collected {
    const collected: Collected = new Map();
    const seen = new Set<string>();
    for (const { selectionSet } of nodes) if (selectionSet) this.#collect(type, selectionSet, collected, seen);
    return collected;
  }

  position(node: FieldNode, path: Path): FieldPosition {
    return { path, locations: this.source.locate(node) };
  }

  arguments(field: GraphQLField<unknown, unknown>, node: FieldNode, path: Path): Arguments {
    return withPosition(
      () => this.position(node, path),
      () => getArgumentValues(field, node, this.source.variables),
    );
  }

  read(type: GraphQLObjectType, nodes: readonly FieldNode[], path: Path): ShapedSelection[] {
    if (++this.#depth > this.context.limits.relationalDepth)
      throw tooManyRelations(this.context.limits.relationalDepth);
    const selections: ShapedSelection[] = [];
    for (const [output, fields] of this.collect(type, nodes)) {
      const position = (): FieldPosition => this.position(fields[0], [...path, output]);
      selections.push(withPosition(position, () => this.#fixedField(type, output, fields, [...path, output])));
    }
    this.#depth--;
    return selections;
  }

  /** The query for groups. Its list of aggregates has each once, wherever they are selected. */
  groups(type: GraphQLObjectType, nodes: readonly FieldNode[], query: Query): Query {
    const aggregate: Aggregate[] = [];
    const groupFields = this.#groupFields(type, nodes, aggregate);
    // Rows that nothing is asked of are still one group.
    if (aggregate.length === 0 && !query.groupBy) aggregate.push({ function: 'countAll', field: null });
    return { ...query, aggregate, groupFields };
  }

  #groupFields(type: GraphQLObjectType, nodes: readonly FieldNode[], aggregates: Aggregate[]): GroupSelection[] {
    return [...this.collect(type, nodes)].map(([output, fields]): GroupSelection => {
      const [node] = fields;
      const name = node.name.value;
      if (name === '__typename') return { kind: 'constant', output, text: type.name };
      const field = fieldOfType(type, name);
      const binding = bindingOf(field);
      if (binding.kind === 'groups') return { kind: 'groups', output };
      if (binding.kind === 'rows') {
        const aggregate: Aggregate = { function: 'countAll', field: null };
        aggregates.push(aggregate);
        return { kind: 'aggregate', output, aggregate, as: 'default' };
      }
      if (binding.kind !== 'aggregates') throw new Error('groups show groups and aggregates');
      const inner = objectTypeOf(field);
      const members = [...this.collect(inner, fields)].map(([key, [member]]): GroupSelection => {
        if (member.name.value === '__typename') return { kind: 'constant', output: key, text: inner.name };
        const definition = fieldOfType(inner, member.name.value);
        const aggregated = bindingOf(definition);
        if (aggregated.kind !== 'aggregate') throw new Error(`an aggregate cannot be ${aggregated.kind}`);
        const expression = parseExpression(writtenName(aggregated.field), 'aggregate', this.context);
        const aggregate: Aggregate = { function: binding.function, field: expression };
        aggregates.push(aggregate);
        const returned = getNamedType(definition.type);
        return { kind: 'aggregate', output: key, aggregate, as: returned === BIG_INT_SCALAR ? 'default' : 'number' };
      });
      return { kind: 'object', output, fields: members };
    });
  }

  #collect(type: GraphQLObjectType, set: SelectionSetNode, collected: Collected, seen: Set<string>): void {
    for (const selection of set.selections) {
      if (!this.#isIncluded(selection)) continue;
      switch (selection.kind) {
        case Kind.FIELD: {
          const key = selection.alias?.value ?? selection.name.value;
          const before = collected.get(key);
          if (before) before.push(selection);
          else collected.set(key, [selection]);
          break;
        }
        case Kind.INLINE_FRAGMENT:
          if (this.#applies(selection.typeCondition?.name.value, type))
            this.#collect(type, selection.selectionSet, collected, seen);
          break;
        case Kind.FRAGMENT_SPREAD: {
          const name = selection.name.value;
          const fragment = this.source.fragments.get(name);
          if (!fragment || seen.has(name) || !this.#applies(fragment.typeCondition.name.value, type)) break;
          seen.add(name);
          this.#collect(type, fragment.selectionSet, collected, seen);
          break;
        }
        default:
          assertNever(selection);
      }
    }
  }

  #isIncluded(node: SelectionNode): boolean {
    if (!node.directives || node.directives.length === 0) return true;
    const { variables } = this.source;
    if (getDirectiveValues(GraphQLSkipDirective, node, variables)?.['if'] === true) return false;
    return getDirectiveValues(GraphQLIncludeDirective, node, variables)?.['if'] !== false;
  }

  #applies(condition: string | undefined, type: GraphQLObjectType): boolean {
    if (condition === undefined || condition === type.name) return true;
    const other = this.source.schema.getType(condition);
    return isAbstractType(other) && this.source.schema.isSubType(other, type);
  }

  #fixedField(type: GraphQLObjectType, output: string, nodes: FieldNodes, path: Path): ShapedSelection {
    const [node, ...others] = nodes;
    const depth = this.#depth;
    const cached = this.source.fixed.get(node);
    const isSame = others.length === 0 && cached?.type === type && cached.depth === depth;
    if (isSame && cached.selection) return cached.selection;
    const { size } = this.context.values;
    const selection = this.#field(type, output, nodes, path);
    if (isSame || others.length > 0) return selection;
    const isFixed = this.context.values.size === size && !hasVariables(node, this.source.fragments);
    this.source.fixed.set(node, { type, depth, selection: isFixed ? selection : null });
    return selection;
  }

  #field(type: GraphQLObjectType, output: string, nodes: FieldNodes, path: Path): ShapedSelection {
    const [node] = nodes;
    const name = node.name.value;
    if (name === '__typename') return { kind: 'constant', output, text: type.name };
    const field = fieldOfType(type, name);
    const binding = bindingOf(field);
    switch (binding.kind) {
      case 'value':
        return { kind: 'value', output, field: binding.field, as: binding.as };
      case 'tag':
        return { kind: 'tag', output };
      case 'functions':
        return { kind: 'object', output, fields: this.#functions(objectTypeOf(field), binding.field, nodes, path) };
      case 'related': {
        const context = { ...this.context, depth: this.#depth };
        const query = parseQueryArguments(field, this.arguments(field, node, path), context);
        const target = getNamedType(field.type);
        const common = { kind: 'related', output, field: binding.field, query } as const;
        if (!isUnionType(target)) return { ...common, fields: this.read(objectTypeOf(field), nodes, path), scopes: [] };
        const scopes = target.getTypes().map((each) => ({
          collection: collectionOfType(each),
          fields: this.read(each, nodes, path),
        }));
        return { ...common, fields: [], scopes };
      }
      default:
        throw new Error(`a field of an item cannot be ${binding.kind}`);
    }
  }

  #functions(type: GraphQLObjectType, field: string, nodes: readonly FieldNode[], path: Path): ShapedSelection[] {
    return [...this.collect(type, nodes)].map(([output, [node]]): ShapedSelection => {
      if (node.name.value === '__typename') return { kind: 'constant', output, text: type.name };
      const definition = fieldOfType(type, node.name.value);
      const binding = bindingOf(definition);
      if (binding.kind === 'function') return { kind: 'function', output, call: { kind: binding.call }, field };
      const { path: steps } = this.arguments(definition, node, [...path, output]);
      const slot = this.context.values.add(parseJsonPath(String(steps), this.context));
      return { kind: 'function', output, call: { kind: 'json', path: slot }, field };
    });
  }
}

/** The document is validated: fragments do not spread themselves. */
function hasVariables(node: ASTNode, fragments: SelectionSource['fragments']): boolean {
  let hasVariable = false;
  visit(node, {
    Variable: () => {
      hasVariable = true;
      return BREAK;
    },
    FragmentSpread: ({ name }) => {
      const fragment = fragments.get(name.value);
      hasVariable ||= fragment !== undefined && hasVariables(fragment, fragments);
      return hasVariable ? BREAK : undefined;
    },
  });
  return hasVariable;
}
