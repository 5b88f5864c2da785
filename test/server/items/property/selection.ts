/** Selected fields as a tree: paths with a common beginning share their nodes, functions hang where their field is. */
import { readExpression } from './oracle-values.js';

export interface Tree {
  /** Whether a path ends here: the field itself is selected, maybe next to fields below it. */
  readonly isWhole: boolean;
  readonly fields: ReadonlyMap<string, Tree>;
  /** Functions of fields of this level, as `name(field, ...)`. */
  readonly calls: ReadonlySet<string>;
  /** What is selected of one target of a many-to-any relation, by `field:target`. */
  readonly scopes: ReadonlyMap<string, Tree>;
}

export function emptyTree(): Tree {
  return { isWhole: false, fields: new Map(), calls: new Set(), scopes: new Map() };
}

export function wholeTree(): Tree {
  return { ...emptyTree(), isWhole: true };
}

export function isOpened({ fields, calls, scopes }: Tree): boolean {
  return fields.size + calls.size + scopes.size > 0;
}

export function readFields(texts: readonly string[]): Tree {
  return texts.map(readField).reduce(mergeTrees, emptyTree());
}

function readField(text: string): Tree {
  const { path, call, inside } = readExpression(text);
  const steps = call === null ? path : path.slice(0, -1);
  const rest = inside.length > 0 ? `, ${inside.join('.')}` : '';
  const leaf: Tree =
    call === null ? wholeTree() : { ...emptyTree(), calls: new Set([`${call}(${path.at(-1)}${rest})`]) };
  return steps.reduceRight<Tree>((below, step) => ({ ...emptyTree(), fields: new Map([[step, below]]) }), leaf);
}

export function mergeTrees(left: Tree, right: Tree): Tree {
  return {
    isWhole: left.isWhole || right.isWhole,
    fields: mergeMaps(left.fields, right.fields),
    calls: new Set([...left.calls, ...right.calls]),
    scopes: mergeMaps(left.scopes, right.scopes),
  };
}

function mergeMaps(left: ReadonlyMap<string, Tree>, right: ReadonlyMap<string, Tree>): Map<string, Tree> {
  const merged = new Map(left);
  for (const [name, tree] of right) merged.set(name, mergeTrees(merged.get(name) ?? emptyTree(), tree));
  return merged;
}
