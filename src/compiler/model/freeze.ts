/**
 * A model is shared by all requests, so nothing may change it. Object.freeze does not reach the entries of a Map: its
 * writing methods are replaced as well.
 */
export function freezeMap<Key, Value>(map: Map<Key, Value>): ReadonlyMap<Key, Value> {
  return Object.freeze(Object.defineProperties(map, SEALED));
}

/** For parsed JSON: trees of plain objects and arrays. */
export function freezeTree<Tree>(tree: Tree): Tree {
  if (typeof tree !== 'object' || tree === null) return tree;
  for (const key in tree) {
    const branch = tree[key];
    if (typeof branch === 'object' && branch !== null) freezeTree(branch);
  }
  return Object.freeze(tree);
}

const refusal = {
  value: (): never => {
    throw new TypeError('the model is frozen');
  },
};

const SEALED: PropertyDescriptorMap = { set: refusal, delete: refusal, clear: refusal };
