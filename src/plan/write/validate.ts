/**
 * Validations: filters of policies and fields that written values must meet. They are planned like any other filter, each
 * condition apart, so that an error can name the field and the operator that failed.
 */
import { forbidden } from '../../base/errors.js';
import type { Collection, Field, Model } from '../../mirror/model.js';
import type { Filter } from '../../request/ast.js';
import { planFilter } from '../filter.js';
import type { Condition } from '../plan.js';
import { readValidation } from '../rules.js';
import type { Validation } from './write.js';

export function planValidations(
  filters: readonly Filter[],
  collection: Collection,
  model: Model,
  on: Validation['on'],
): Validation[] {
  return filters.flatMap((filter) => {
    // A rule that does not fit the schema must not let everything pass.
    const planned = planAll(filter, collection, model, { on, message: null });
    if (!planned) throw forbidden();
    return planned;
  });
}

const ofFields = new WeakMap<Field, Filter | null>();

/** The validations of fields, which apply to all callers. One that cannot be parsed is ignored. */
export function planFieldValidations(fields: readonly Field[], collection: Collection, model: Model): Validation[] {
  return [...fields, ...heldBy(fields, collection)].flatMap((field) => {
    const filter = filterOf(field);
    const message = typeof field.meta?.['validation_message'] === 'string' ? field.meta['validation_message'] : null;
    return (filter && planAll(filter, collection, model, { on: null, message })) ?? [];
  });
}

/** Alias fields whose references these columns hold, alone or with others. */
function heldBy(columns: readonly Field[], collection: Collection): Field[] {
  return [...collection.fields.values()].filter(
    ({ column, relation }) =>
      !column &&
      relation?.kind === 'many-to-one' &&
      relation.columns.some((held) => columns.some(({ name }) => name === held.column)),
  );
}

function filterOf(field: Field): Filter | null {
  const cached = ofFields.get(field);
  if (cached !== undefined) return cached;
  const filter = readValidation(field.meta?.['validation']) ?? null;
  ofFields.set(field, filter);
  return filter;
}

function planAll(
  filter: Filter,
  collection: Collection,
  model: Model,
  { on, message }: Pick<Validation, 'on' | 'message'>,
): Validation[] | null {
  try {
    return conditionsOf(filter, collection).map((each) => {
      const { field, type } = describeFilter(each);
      return { on, condition: plan(each, collection, model), field, type, message };
    });
  } catch {
    return null;
  }
}

function plan(filter: Filter, collection: Collection, model: Model): Condition {
  return planFilter(filter, collection, { model, maxNodes: Number.MAX_SAFE_INTEGER, nodes: 0 }, 'validation');
}

/** The conditions one by one. Those on related rows of one list stay together: they apply to the same row. */
function conditionsOf(filter: Filter, collection: Collection): Filter[] {
  if (filter.kind === 'and') return filter.filters.flatMap((each) => conditionsOf(each, collection));
  if (filter.kind !== 'field' || filter.filter.kind !== 'and') return [filter];
  if (collection.fields.get(filter.name)?.relation?.kind === 'one-to-many') return [filter];
  return filter.filter.filters.flatMap((each) => conditionsOf({ ...filter, filter: each }, collection));
}

/** The first of several alternatives: all of them failed. */
function describeFilter(filter: Filter): { field: string | null; type: string } {
  switch (filter.kind) {
    case 'and':
    case 'or': {
      const [first] = filter.filters;
      return first ? describeFilter(first) : { field: null, type: 'check' };
    }
    case 'field':
      return { field: filter.name, type: describeFilter(filter.filter).type };
    case 'function':
      return { field: filter.expression.path[0] ?? null, type: describeFilter(filter.filter).type };
    case 'compare':
      return { field: null, type: filter.operator };
    case 'json':
      return { field: null, type: 'check' };
    default:
      return { field: null, type: describeFilter(filter.filter).type };
  }
}
