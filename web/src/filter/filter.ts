/** A filter as a tree that the user can edit, and as the JSON of the API. */
import { type Field, isArray, isMoment } from '../model';

export interface Rule {
  readonly kind: 'rule';
  /** With dots: `author.name`, `comments._some.body`. */
  readonly path: string;
  readonly operator: string;
  readonly value: unknown;
}

export interface Group {
  readonly kind: 'group';
  readonly join: '_and' | '_or';
  readonly entries: readonly (Rule | Group)[];
}

export type FilterJson = Readonly<Record<string, unknown>>;

export const NO_FILTER: Group = { kind: 'group', join: '_and', entries: [] };

const QUANTIFIERS = new Set(['_some', '_none']);

export function toJson(group: Group): FilterJson | null {
  const entries = group.entries.flatMap((entry) => {
    const made = entry.kind === 'group' ? toJson(entry) : ruleJson(entry);
    return made === null ? [] : [made];
  });
  if (entries.length === 0) return null;
  if (entries.length === 1 && entries[0]) return entries[0];
  return { [group.join]: entries };
}

/** A rule without a value has no effect yet. */
function ruleJson({ path, operator, value }: Rule): FilterJson | null {
  if (path === '' || (takesValue(operator) && isBlank(value))) return null;
  const condition: FilterJson = operator === '' ? {} : { [operator]: value };
  return path.split('.').reduceRight<FilterJson>((inner, name) => ({ [name]: inner }), condition);
}

function isBlank(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && (value.length === 0 || value.some((each) => each === '')));
}

/** Invalid input becomes an empty group: the service explains the error. */
export function fromJson(json: unknown): Group {
  const entries = entriesOf(json);
  const [first] = entries;
  if (entries.length === 1 && first?.kind === 'group') return first;
  return { kind: 'group', join: '_and', entries };
}

function entriesOf(json: unknown): (Rule | Group)[] {
  if (!isObject(json)) return [];
  return Object.entries(json).flatMap(([name, value]): (Rule | Group)[] => {
    if ((name === '_and' || name === '_or') && Array.isArray(value)) {
      const entries = value.flatMap((each): (Rule | Group)[] => {
        const inner = entriesOf(each);
        return inner.length > 1 ? [{ kind: 'group', join: '_and', entries: inner }] : inner;
      });
      return [{ kind: 'group', join: name, entries }];
    }
    return rulesOf(name, value);
  });
}

function rulesOf(path: string, value: unknown): Rule[] {
  if (!isObject(value)) return [{ kind: 'rule', path, operator: '_eq', value }];
  return Object.entries(value).flatMap(([name, inner]) =>
    name.startsWith('_') && !QUANTIFIERS.has(name)
      ? [{ kind: 'rule' as const, path, operator: name, value: inner }]
      : rulesOf(`${path}.${name}`, inner),
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function countRules(group: Group): number {
  return group.entries.reduce((sum, entry) => sum + (entry.kind === 'group' ? countRules(entry) : 1), 0);
}

export const OPERATORS: Readonly<Record<string, string>> = {
  _eq: 'is',
  _neq: 'is not',
  _gt: 'is more than',
  _gte: 'is at least',
  _lt: 'is less than',
  _lte: 'is at most',
  _between: 'is between',
  _nbetween: 'is not between',
  _in: 'is one of',
  _nin: 'is none of',
  _icontains: 'contains',
  _contains: 'contains (case-sensitive)',
  _ncontains: 'does not contain',
  _istarts_with: 'starts with',
  _starts_with: 'starts with (case-sensitive)',
  _iends_with: 'ends with',
  _ends_with: 'ends with (case-sensitive)',
  _fts: 'matches the search',
  _empty: 'is empty',
  _nempty: 'is not empty',
  _null: 'has no value',
  _nnull: 'has a value',
  _json_contains: 'contains the JSON',
  _has_key: 'has the key',
  _contains_all: 'holds all of',
  _contains_any: 'holds one of',
  _contained_in: 'contains only',
};

const TEXTS = [
  '_icontains',
  '_eq',
  '_neq',
  '_istarts_with',
  '_iends_with',
  '_contains',
  '_starts_with',
  '_ends_with',
  '_in',
  '_nin',
  '_empty',
  '_nempty',
  '_fts',
  '_gt',
  '_lt',
];
const ORDERED = ['_eq', '_neq', '_gt', '_gte', '_lt', '_lte', '_between', '_in', '_nin'];

/** The operators for the type of a field, the most likely first. */
export function operatorsFor(field: Field | null): readonly string[] {
  const ends = ['_null', '_nnull'];
  if (!field) return [...ORDERED, ...ends];
  if (field.relation?.kind === 'many') return ends;
  if (isChosen(field)) return ['_eq', '_neq', '_in', '_nin', ...ends];
  if (field.type === 'string' || field.type === 'text') return [...TEXTS, ...ends];
  if (field.type === 'boolean') return ['_eq', '_neq', ...ends];
  if (field.type === 'json') return ['_json_contains', '_has_key', ...ends];
  if (field.type === 'uuid' || field.type === 'hash') return ['_eq', '_neq', '_in', '_nin', ...ends];
  if (isArray(field)) return ['_contains_all', '_contains_any', '_contained_in', ...ends];
  if (field.column?.data_type === 'tsvector') return ['_fts', ...ends];
  return [...ORDERED, ...ends];
}

/** Whether the field has one of a few known values, such as the labels of an enum. */
export function isChosen(field: Field): boolean {
  return field.choices.length > 0 && !field.allowsOther && !isArray(field);
}

/** A value that the user may begin with when a rule gets another field: the former value if it has the same type. */
export function valueFor(field: Field | null, former: Field | null, operator: string, value: unknown): unknown {
  if (!takesValue(operator) || field?.type === 'boolean') return true;
  const fits = field?.type === former?.type && !(field && isChosen(field)) && value !== true;
  return parseValue(operator, fits ? valueText(value) : '');
}

/** An example of a value, for an empty input. */
export function exampleOf(field: Field | null, operator: string): string {
  if (operator === '_between' || operator === '_nbetween') return 'from, to';
  if (LISTS.has(operator)) return 'a, b, c';
  return field && isMoment(field) && field.type !== 'time' ? 'such as 2025-01-31' : 'value';
}

const WITHOUT_VALUE = new Set(['_null', '_nnull', '_empty', '_nempty']);
const LISTS = new Set(['_in', '_nin', '_between', '_nbetween', '_contains_all', '_contains_any', '_contained_in']);

export function takesValue(operator: string): boolean {
  return !WITHOUT_VALUE.has(operator);
}

export function valueText(value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join(', ');
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

export function parseValue(operator: string, text: string): unknown {
  if (LISTS.has(operator)) return text.split(',').map((each) => each.trim());
  if (operator === '_json_contains') {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

/** Describes a rule. */
export function describeRule({ path, operator, value }: Rule): string {
  const words = OPERATORS[operator] ?? operator.replace(/^_/, '').replaceAll('_', ' ');
  return `${path} ${words}${takesValue(operator) ? ` ${valueText(value)}` : ''}`;
}
