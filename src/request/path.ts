/** Paths to fields as clients write them: `title`, `author.name`, `comments.*`, and lists of them. */
import { invalidQuery } from '../errors.js';
import type { Selection } from './ast.js';

/** `a,b.c` and arrays of such texts become a flat list of paths. */
export function parseList(input: unknown, parameter: string): string[] {
  const entries = Array.isArray(input) ? input : [input];
  const list: string[] = [];
  for (const entry of entries) {
    if (typeof entry !== 'string') throw invalidQuery(`"${parameter}" has to be a string or a list of strings`);
    for (const piece of entry.split(',')) {
      const trimmed = piece.trim();
      if (trimmed !== '') list.push(trimmed);
    }
  }
  return list;
}

export function parsePath(text: string, parameter: string, maxDepth: number): string[] {
  const path = text.split('.');
  if (path.some((segment) => segment === '')) throw invalidQuery(`"${text}" in "${parameter}" is not a path`);
  if (path.length > maxDepth) throw invalidQuery(`Max relational depth exceeded: "${text}" in "${parameter}"`);
  return path;
}

interface Node {
  readonly children: Map<string, Node>;
}

/** Paths that share a beginning share a node: `author.name,author.id` asks once for the author. */
export function selectionOf(paths: readonly string[][]): Selection[] {
  const root: Node = { children: new Map() };
  for (const path of paths) {
    let node = root;
    for (const segment of path) {
      let child = node.children.get(segment);
      if (!child) {
        child = { children: new Map() };
        node.children.set(segment, child);
      }
      node = child;
    }
  }
  return selections(root);
}

function selections(node: Node): Selection[] {
  return [...node.children].map(([name, child]) =>
    name === '*' ? { kind: 'wildcard', fields: selections(child) } : { kind: 'field', name, fields: selections(child) },
  );
}
