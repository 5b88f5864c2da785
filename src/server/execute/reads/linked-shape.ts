/** The form of a read whose rows bring links before the cell: values that say which rows the result depends on. */
import { linkedStatement } from '../../../compiler/statements/read.js';
import type { BoundRead, Shape } from './read-executor.js';

const forms = new WeakMap<Shape, Shape>();

/** Returns the shape itself if it has no such form. */
export function linkedShape({ shape, compiled }: Pick<BoundRead, 'shape' | 'compiled'>): Shape {
  const known = forms.get(shape);
  if (known) return known;
  const form = formOf(shape, compiled);
  forms.set(shape, form);
  return form;
}

function formOf(shape: Shape, compiled: BoundRead['compiled']): Shape {
  const plan = shape.plan ?? shape.linkedPlan ?? compiled.plan;
  try {
    const { statement } = compiled;
    const linked = linkedStatement({ plan, model: compiled.model, statement });
    if (linked === null) return shape;
    return { ...shape, statement: linked, linked: { ...linked, plainText: shape.statement.text } };
  } catch {
    // A statement that is just small enough may be too deep with links.
    return shape;
  }
}
