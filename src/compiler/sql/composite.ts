/** Values of composite types: PostgreSQL ignores attributes that the type does not have, so they are looked for here. */
import { isObject } from '../../base/exact-json.js';

export interface Composite {
  /** As `format_type` names it. */
  readonly type: string;
  /** In their order; with the composite type of an attribute's values, or of their elements. */
  readonly attributes: ReadonlyMap<string, Composite | null>;
}

/** The complaint about the first unknown attribute of a value or of its elements; null if all are known. */
export function strayAttribute(value: unknown, composite: Composite, path: string): string | null {
  const isList = Array.isArray(value);
  if (!isList && !isObject(value)) return null;
  const { type, attributes } = composite;
  for (const [name, each] of Object.entries(value)) {
    const location = `${path}.${name}`;
    if (!isList && !attributes.has(name)) {
      const known = [...attributes.keys()].map((attribute) => `"${attribute}"`).join(', ');
      return `"${location}" is not an attribute of the type "${type}", which has ${known || 'none'}`;
    }
    const inner = isList ? composite : attributes.get(name);
    const stray = inner ? strayAttribute(each, inner, location) : null;
    if (stray !== null) return stray;
  }
  return null;
}
