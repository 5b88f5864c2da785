/**
 * How large a document may be, counted before it is validated: validation itself takes longer than in proportion, and
 * fragments let a short text select very much.
 */
import { type DocumentNode, type FragmentDefinitionNode, Kind, type SelectionSetNode } from 'graphql';
import { type DocumentFailure, documentFailure } from './failure.js';

export interface DocumentLimits {
  readonly tokens: number;
  readonly depth: number;
  readonly nodes: number;
  readonly aliases: number;
  readonly introspection: boolean;
}

interface Size {
  readonly depth: number;
  readonly nodes: number;
  readonly aliases: number;
}

const NOTHING: Size = { depth: 0, nodes: 0, aliases: 0 };

/** Fields that one selection set names more than once: validation compares each of them with each, and all that is below them. */
const MOST_REPEATED = 100;

export function checkSize(document: DocumentNode, limits: DocumentLimits): void {
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const each of document.definitions) {
    if (each.kind === Kind.FRAGMENT_DEFINITION) fragments.set(each.name.value, each);
  }
  const known = new Map<string, Size>();
  const measureFragment = (name: string): Size => {
    const before = known.get(name);
    if (before) return before;
    // Validation refuses a fragment that spreads itself. Until then it has no size.
    known.set(name, NOTHING);
    const fragment = fragments.get(name);
    const size = fragment ? measure(fragment.selectionSet) : NOTHING;
    known.set(name, size);
    return size;
  };
  let repeated = 0;
  const measure = ({ selections }: SelectionSetNode): Size => {
    let { depth, nodes, aliases } = NOTHING;
    const keys = new Set<string>();
    for (const each of selections) {
      let size = NOTHING;
      if (each.kind === Kind.FIELD) {
        const key = (each.alias ?? each.name).value;
        if (keys.has(key)) repeated++;
        keys.add(key);
      }
      if (each.kind === Kind.FRAGMENT_SPREAD) size = measureFragment(each.name.value);
      else if (each.kind === Kind.INLINE_FRAGMENT) size = measure(each.selectionSet);
      else if (!each.name.value.startsWith('__')) {
        // Introspection has its own limit on depth, a rule of graphql-js.
        const inner = each.selectionSet ? measure(each.selectionSet) : NOTHING;
        size = { depth: inner.depth + 1, nodes: inner.nodes + 1, aliases: inner.aliases + (each.alias ? 1 : 0) };
      }
      depth = Math.max(depth, size.depth);
      nodes += size.nodes;
      aliases += size.aliases;
    }
    return { depth, nodes, aliases };
  };
  let [nodes, aliases] = [0, 0];
  for (const each of document.definitions) {
    if (each.kind !== Kind.OPERATION_DEFINITION) continue;
    const size = measure(each.selectionSet);
    nodes += size.nodes;
    aliases += size.aliases;
    if (size.depth > limits.depth) throw tooDeep(limits);
  }
  check('fields', nodes, limits.nodes, 'GRAPHQL_QUERY_NODE_LIMIT');
  if (repeated > MOST_REPEATED)
    throw documentFailure(`The document repeats more than ${MOST_REPEATED} fields within the same selection sets`);
  check('aliases', aliases, limits.aliases, 'GRAPHQL_QUERY_ALIAS_LIMIT');
}

export function tooManyTokens({ tokens }: DocumentLimits): DocumentFailure {
  return tooLarge('tokens', tokens, 'GRAPHQL_QUERY_TOKEN_LIMIT');
}

export function tooDeep({ depth }: DocumentLimits): DocumentFailure {
  return tooLarge('levels', depth, 'GRAPHQL_QUERY_DEPTH_LIMIT');
}

function check(what: string, count: number, most: number, option: string): void {
  if (count > most) throw tooLarge(what, most, option);
}

function tooLarge(what: string, most: number, option: string): DocumentFailure {
  return documentFailure(`The document has more than ${most} ${what}`, { option, limit: most });
}
