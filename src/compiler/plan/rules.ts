/** Filters that are kept with the model or a policy, parsed once: their values are part of them. */
import { isObject } from '../../base/exact-json.js';
import type { Collection, Field, Model } from '../model/model.js';
import { ARRAY_OPERATORS, type Filter, LIST_OPERATORS, type Operator, type Slot } from '../request/ast.js';
import { parseFilter } from '../request/filter.js';
import { CONSTANTS, type ParseContext } from '../request/parse-context.js';
import { bind, type Caller, type Parameter } from '../sql/parameter.js';
import { type Budget, planFilter, restrictsRows } from './filter.js';
import { ALWAYS, type Condition, isAlways, typedValue } from './plan.js';

const UNLIMITED: ParseContext = {
  values: CONSTANTS,
  typed: true,
  limits: {
    nodes: Number.MAX_SAFE_INTEGER,
    relationalDepth: 100,
    jsonDepth: 100,
    bracketDepth: 100,
    arrayLength: Number.MAX_SAFE_INTEGER,
    pageSize: null,
    wholeRows: Number.MAX_SAFE_INTEGER,
  },
};

/** The filter of a rule, null if there is none, or undefined if it cannot be parsed. */
export function readRuleFilter(input: unknown): Filter | null | undefined {
  return read(input, UNLIMITED);
}

/** About payloads, which have additional operators. */
export function readValidation(input: unknown): Filter | null | undefined {
  return read(input, { ...UNLIMITED, payload: true });
}

function read(input: unknown, context: ParseContext): Filter | null | undefined {
  if (input === null || input === undefined) return null;
  if (!isObject(input)) return undefined;
  if (Object.keys(input).length === 0) return null;
  try {
    const filter = parseFilter(input, context);
    return restrictsRows(filter) ? filter : undefined;
  } catch {
    return undefined;
  }
}

/** Returns null if the rule does not fit the schema: a name, an operator, or a value of another type. */
export function planRule(filter: Filter | null, collection: Collection, model: Model): Condition | null {
  const budget: Budget = { model, maxNodes: Number.MAX_SAFE_INTEGER, nodes: 0 };
  try {
    const condition = planFilter(filter, collection, budget, 'permissions');
    checkConstants(condition);
    return isAlways(condition) ? ALWAYS : condition;
  } catch {
    return null;
  }
}

const ANY_UUID = '00000000-0000-0000-0000-000000000000';
const SAMPLE_CALLER: Caller = { user: ANY_UUID, role: ANY_UUID, roles: [ANY_UUID], policies: [ANY_UUID] };
const LISTS: ReadonlySet<Operator> = new Set([...LIST_OPERATORS, ...ARRAY_OPERATORS]);
const VALUES: ReadonlySet<Operator> = new Set(['eq', 'neq', 'lt', 'lte', 'gt', 'gte']);

/** The values of a rule are known before any request, so they are checked early. */
function checkConstants(condition: Condition): void {
  if (condition.kind === 'and' || condition.kind === 'or') condition.conditions.forEach(checkConstants);
  if (condition.kind === 'exists') checkConstants(condition.where);
  if (condition.kind === 'key') checkKeys(condition.key, condition);
  if (condition.kind === 'reference' && condition.keyParameter)
    checkKeys(condition.toOne.columns, condition.keyParameter);
  if (condition.kind !== 'compare' || condition.value?.kind !== 'slot') return;
  const { operator, value } = condition;
  if (condition.operand.kind === 'field') checkNames(condition.operand.field, operator, value.slot);
  const origin = typedValue(value);
  if (operator === 'dwithin') bind([{ kind: 'entry', position: 0, ...origin }], [], SAMPLE_CALLER);
  else if (LISTS.has(operator)) bind([{ kind: 'list', ...origin }], [], SAMPLE_CALLER);
  else if (VALUES.has(operator) || value.operator !== undefined)
    bind([{ kind: 'value', ...origin }], [], SAMPLE_CALLER);
}

/** Operators that compare whole names, which a field with other names of collections understands. */
const WHOLE: ReadonlySet<Operator> = new Set(['eq', 'neq', 'in', 'nin']);

/**
 * A rule that was written with the other names of collections, or with a part of one, fits only while they are understood: without, one that
 * excludes them would exclude nothing.
 */
function checkNames({ isSystemName, synonyms }: Field, operator: Operator, slot: Slot): void {
  if (!isSystemName || typeof slot === 'number') return;
  const names = JSON.stringify(slot.constant ?? null);
  const isUnderstood = WHOLE.has(operator) && synonyms !== undefined;
  if (!isUnderstood && names.toLowerCase().includes('directus'))
    throw new Error('other names of collections are not understood');
}

function checkKeys(key: readonly Field[], { slot, many }: { readonly slot: Slot; readonly many: boolean }): void {
  const parts = key.map((field, position): Parameter => {
    const part = key.length === 1 ? {} : { part: { position, count: key.length } };
    const codec = field.column?.base_type ?? 'text';
    return { kind: many ? 'list' : 'value', slot, codec, field: field.name, use: 'filter', ...part };
  });
  bind(parts, [], SAMPLE_CALLER);
}
