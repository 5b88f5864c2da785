/** Search in the fields of a collection, and full text search: its configuration, and the search that a rank belongs to. */
import { invalidQuery } from '../../base/errors.js';
import {
  type Collection,
  type Field,
  isSecretField,
  type Model,
  type TextSearchConfiguration,
} from '../model/model.js';
import { isReadable } from '../model/write-facts.js';
import type { Expression, Operator, Slot } from '../request/ast.js';
import { ALWAYS, type Condition, type OperandPlan, type OperatorSource, type ToOneJoin } from './plan.js';
import { resolveExpression } from './resolve-names.js';

/** Operators of extensions and of full text search need to know where, or how. */
export function textSourceOf(
  operator: Operator,
  { field }: { readonly field: Field },
  named: string | undefined,
  model: Model,
): OperatorSource | null {
  switch (operator) {
    case 'similar': {
      const schema = model.extensions.get('pg_trgm');
      if (schema === undefined)
        throw invalidQuery(
          `"_similar" of "${field.name}" needs the extension pg_trgm, which is not installed: create extension pg_trgm`,
        );
      return { kind: 'extension', schema };
    }
    case 'fts':
      return { kind: 'configuration', configuration: configurationOf(field, named, model) };
    default:
      return null;
  }
}

/** The named one, that of the expression which fills the column, or the default of the database. */
function configurationOf(field: Field, named: string | undefined, model: Model): TextSearchConfiguration {
  const written = named ?? GENERATED.exec(field.column?.generation_expression ?? '')?.[1]?.replaceAll('"', '');
  const textSearch =
    written === undefined
      ? (model.textSearch.find(({ isDefault }) => isDefault) ?? find('simple', model))
      : find(written, model);
  if (textSearch) return textSearch;
  throw invalidQuery(`"_fts" of "${field.name}": there is no text search configuration "${written ?? 'simple'}"`);
}

/** `to_tsvector('english'::regconfig, ...)`, as the catalog prints it. */
const GENERATED = /'([^']+)'::regconfig/;

function find(name: string, { textSearch }: Model): TextSearchConfiguration | undefined {
  return textSearch.find((each) => each.name === name || `${each.schema}.${each.name}` === name);
}

/** `rank(field)` in a sort: the rank in the first search of the field among the conditions of the rows. */
export function planRank(
  expression: Expression,
  where: Condition,
  collection: Collection,
  { model, location }: { readonly model: Model; readonly location: string },
): OperandPlan {
  const operand = resolveExpression({ ...expression, call: null }, collection, { model, location, many: false });
  const search = operand.kind === 'field' ? findSearch(where, operand.field, operand.through) : null;
  if (operand.kind !== 'field' || !search)
    throw invalidQuery(`${location}: "rank" needs a filter "_fts" of the same field`);
  return { kind: 'rank', through: operand.through, field: operand.field, ...search };
}

type Search = Pick<Extract<OperandPlan, { kind: 'rank' }>, 'slot' | 'configuration'>;

function findSearch(condition: Condition, field: Field, through: readonly ToOneJoin[]): Search | null {
  switch (condition.kind) {
    case 'and':
    case 'or': {
      const search = condition.conditions.map((each) => findSearch(each, field, through));
      return search.find((each) => each !== null) ?? null;
    }
    case 'compare': {
      const { operand, value, using } = condition;
      if (operand.kind !== 'field' || value?.kind !== 'slot' || using?.kind !== 'configuration') return null;
      const isSame = operand.field === field && pathOf(operand.through) === pathOf(through);
      return isSame ? { slot: value.slot, configuration: using.configuration } : null;
    }
    case 'search': {
      const { slot, vector } = condition;
      return vector?.field === field && through.length === 0 ? { slot, configuration: vector.configuration } : null;
    }
    default:
      return null;
  }
}

function pathOf(through: readonly ToOneJoin[]): string {
  return JSON.stringify(through.map(({ field, target }) => [field.name, target.name]));
}

const SEARCHED = new Set(['string', 'text', 'integer', 'bigInteger', 'float', 'decimal', 'uuid']);

/** Callers who may not see the search field search all fields that they may see. */
export function planSearch(slot: Slot | null, collection: Collection, model: Model): Condition {
  if (slot === null) return ALWAYS;
  const field = collection.searchField === null ? undefined : collection.fields.get(collection.searchField);
  if (field && !isSecretField(field)) {
    const vector = { field, configuration: configurationOf(field, undefined, model) };
    return { kind: 'search', slot, fields: [], vector };
  }
  return { kind: 'search', slot, fields: [...collection.fields.values()].filter(isSearched), vector: null };
}

/** A computed field would make each search read all rows. */
function isSearched(field: Field): boolean {
  if (field.computed || !isReadable(field)) return false;
  return (
    field.column !== null && SEARCHED.has(field.type) && !isSecretField(field) && field.meta?.['searchable'] !== false
  );
}
