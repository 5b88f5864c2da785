/**
 * The indexes that could serve a read, from what its plan says about it: equality, ranges and order, references, patterns, arrays and
 * documents, words, rows without a value, and values of functions. Whether an index helps is for PostgreSQL to say: `lateral advise` tries
 * each candidate, and the others say where it may help. This is the only place that proposes indexes.
 */
import { compileCondition } from '../../compiler/compile/condition.js';
import { FromClause, Scope } from '../../compiler/compile/from-clause.js';
import { matchesWords } from '../../compiler/compile/full-text.js';
import { compileOperand } from '../../compiler/compile/operand.js';
import type { Collection, Field } from '../../compiler/model/model.js';
import { isMaskedOperand, restrictionOf, unrestrictedCollection } from '../../compiler/plan/access.js';
import { callOf } from '../../compiler/plan/call.js';
import {
  both,
  type Condition,
  type GroupLevel,
  type Level,
  type OperandPlan,
  type OperationPlan,
  type Order,
  type Output,
  type ReadPlan,
  type RowLevel,
  type ToManyJoin,
  type ToOneJoin,
  typedValue,
} from '../../compiler/plan/plan.js';
import { alias, quoteIdentifier, quoteLiteral, statement } from '../../compiler/sql/fragment.js';
import type { Parameter, Slot } from '../../compiler/sql/parameter.js';
import {
  BTREE,
  type CandidateKind,
  candidateStatement,
  definitionOf,
  type IndexCandidate,
} from '../../server/schema/index-statement.js';

/**
 * The value of a parameter as text, for indexes that hold for one value; null if it is not known, or if an index for the value alone makes
 * no sense. `field` is the column that is compared with it.
 */
export type KnownValue = (parameter: Parameter, field: Field | null) => string | null;

interface ProposedIndex extends Pick<IndexCandidate, 'kind' | 'schema' | 'table' | 'extension'> {
  /** The columns that it is for. */
  readonly columns: readonly string[];
  readonly statement: string;
}

/** For `Prefer: explain`. If an entry has several indexes, the read needs all of them. */
export function proposedIndexes(plan: ReadPlan | OperationPlan): readonly (readonly ProposedIndex[])[] {
  return indexCandidates(plan).map((group) =>
    group.map((candidate) => {
      const { kind, schema, table, extension, names: columns } = candidate;
      return { kind, schema, table, extension, columns, statement: candidateStatement(candidate) };
    }),
  );
}

/** Each entry is tried as a whole: some conditions need several indexes. */
export function indexCandidates(
  plan: ReadPlan | OperationPlan,
  known: KnownValue = () => null,
): readonly (readonly IndexCandidate[])[] {
  const plans = plan.kind === 'read' ? [plan] : plan.parts.flatMap((part) => (part.kind === 'read' ? [part.plan] : []));
  const groups = plans.flatMap(({ level }) => levelCandidates(level, [], known));
  // The first of equal ones has the plainest kind.
  const unique = new Map(groups.toReversed().map((group) => [group.map(definitionOf).join('; '), group]));
  unique.delete('');
  return [...unique.values()].reverse();
}

const GIN = { ...BTREE, method: 'gin' } as const;

type Group = readonly IndexCandidate[];

/** A column or an expression of a row. */
interface Key {
  readonly text: string;
  readonly name: string;
}

/** The conditions of a level on one table. */
interface Facts {
  readonly collection: Collection;
  readonly equal: Key[];
  readonly ranges: Key[];
  /** Conditions without a value, as SQL. */
  readonly nulls: { readonly text: string; readonly name: string }[];
  /** Conditions that a column equals one known value, as SQL. */
  readonly constants: { readonly text: string; readonly name: string }[];
  /** Candidates for single conditions, whatever the order of the page. */
  readonly single: Group[];
  /** Whether a key is not a plain column. */
  isComputed: boolean;
}

function levelCandidates(level: Level, joined: readonly Field[], known: KnownValue): Group[] {
  const { collection } = level;
  if (collection.kind === 'view' || collection.kind === 'foreign' || callOf(collection)) return [];
  const rows = restrictionOf(collection)?.rows;
  const facts = factsOf(rows ? both(level.where, rows) : level.where, collection, joined, known);
  const order = level.kind === 'rows' ? orderKeys(level.order, collection, known) : [];
  const isPaged = level.kind === 'groups' || level.limit.kind !== 'all';
  const kind = joined.length > 0 ? 'reference' : null;
  return [
    ...tableCandidates(facts, isPaged ? order : [], kind),
    ...coveringCandidates(level, facts),
    ...facts.single,
    ...(level.kind === 'rows' ? level.outputs.flatMap((output) => outputCandidates(output, known)) : []),
  ];
}

function outputCandidates(output: Output, known: KnownValue): Group[] {
  switch (output.kind) {
    case 'object':
      return output.outputs.flatMap((each) => outputCandidates(each, known));
    case 'one':
      return levelCandidates(output.level, output.toOne.kind === 'one' ? output.toOne.key : [], known);
    case 'many':
    case 'keys':
      return levelCandidates(output.level, output.toMany.columns, known);
    case 'any':
      return output.targets.flatMap(({ level }) => levelCandidates(level, level.collection.key, known));
    default:
      return [];
  }
}

/** Indexes of a table by its conditions and the order of its page. */
function tableCandidates(facts: Facts, order: readonly OrderKey[], kind: CandidateKind | null): Group[] {
  const { collection, equal, ranges } = facts;
  const make = (keys: readonly Key[], named: CandidateKind): Group[] =>
    isNew(keys, collection) ? [[candidate(collection, { keys, kind: named, where: null })]] : [];
  const usual = facts.isComputed ? 'expression' : (kind ?? (ranges.length > 0 ? 'range' : 'equality'));
  const sorted = order.filter(({ text }) => !equal.some((key) => key.text === text.replace(/ desc$/, '')));
  return [
    ...(equal.length > 0 ? make(equal, usual) : []),
    ...(equal.length > 1 ? equal.flatMap((key) => make([key], usual)) : []),
    ...ranges.flatMap((range) => make([...equal, range], usual === 'equality' ? 'range' : usual)),
    ...(sorted.length > 0 ? make([...equal, ...sorted], facts.isComputed ? 'expression' : (kind ?? 'range')) : []),
    ...partialCandidates(facts, sorted),
  ];
}

/** Indexes of the rows that meet a condition without a value, or with one value. */
function partialCandidates({ collection, equal, ranges, nulls, constants }: Facts, sorted: readonly Key[]): Group[] {
  const others = ranges.length > 0 ? ranges.slice(0, 1) : sorted;
  return [...nulls, ...constants].map(({ text, name }) => {
    const keys = [...equal.filter((key) => key.name !== name), ...others];
    const wanted = keys.length > 0 ? keys : keyOf(collection);
    return [candidate(collection, { keys: wanted, kind: 'partial', where: text, about: name })];
  });
}

/** Columns that an index can hold in addition, so that the table itself is not read. */
const MAX_INCLUDED = 4;

function coveringCandidates(level: Level, facts: Facts): Group[] {
  if (facts.isComputed) return [];
  const shown = level.kind === 'groups' ? groupColumns(level) : outputColumns(level);
  if (shown === null) return [];
  const { collection, equal, ranges } = facts;
  const order = level.kind === 'rows' ? orderKeys(level.order, collection, () => null) : [];
  const groups = level.kind === 'groups' ? shown.groups : [];
  const keys = distinct([...equal, ...ranges.slice(0, 1), ...groups, ...order]);
  const include = distinct(shown.values).filter(
    ({ text }) => !keys.some((key) => key.text.replace(/ desc$/, '') === text),
  );
  if (keys.length === 0 || include.length > MAX_INCLUDED || (include.length === 0 && level.kind === 'rows')) return [];
  return [[candidate(collection, { keys, kind: 'covering', where: null, include: include.map(({ text }) => text) })]];
}

interface Shown {
  readonly groups: readonly Key[];
  readonly values: readonly Key[];
}

/** The columns that it shows, or null if it shows more than columns. */
function outputColumns({ outputs }: RowLevel): Shown | null {
  const values = outputs.map((output) => (output.kind === 'value' ? plainKey(output.operand) : null));
  return values.every((key) => key !== null) ? { groups: [], values } : null;
}

function groupColumns({ groups, aggregates }: GroupLevel): Shown | null {
  const by = groups.map(({ operand }) => plainKey(operand));
  const of = aggregates.flatMap(({ operand }) => (operand ? [plainKey(operand)] : []));
  if (by.some((key) => key === null) || of.some((key) => key === null)) return null;
  return { groups: by.filter((key) => key !== null), values: of.filter((key) => key !== null) };
}

function plainKey(operand: OperandPlan): Key | null {
  if (operand.kind !== 'field' || operand.through.length > 0 || !operand.field.column || operand.field.computed)
    return null;
  return columnKey(operand.field);
}

function columnKey(field: Field): Key {
  const name = field.column?.name ?? field.name;
  return { text: quoteIdentifier(name), name };
}

interface OrderKey extends Key {
  readonly descending: boolean;
}

/** Without the key behind other columns: rows with equal values are few. If all are descending, the index is read backward. */
function orderKeys(order: readonly Order[], collection: Collection, known: KnownValue): OrderKey[] {
  const isKey = ({ operand }: Order): boolean =>
    operand.kind === 'key' || (operand.kind === 'field' && collection.key.includes(operand.field));
  const wanted = order.some((each) => !isKey(each)) ? order.filter((each) => !isKey(each)) : [];
  const keys = wanted.map(({ operand, descending }) => {
    const key = keyText(operand, collection, known);
    return key && { ...key, descending };
  });
  if (keys.some((key) => key === null)) return [];
  const all = keys.filter((key) => key !== null);
  const isMixed = all.some((key) => key.descending) && !all.every((key) => key.descending);
  return isMixed ? all.map((key) => (key.descending ? { ...key, text: `${key.text} desc` } : key)) : all;
}

function keyOf({ key }: Collection): Key[] {
  return key.map(columnKey);
}

/** Conditions that must all hold. */
function factsOf(condition: Condition, collection: Collection, joined: readonly Field[], known: KnownValue): Facts {
  const facts: Facts = {
    collection,
    equal: joined.map(columnKey),
    ranges: [],
    nulls: [],
    constants: [],
    single: [],
    isComputed: false,
  };
  collect(condition, facts, known);
  const equal = distinct(facts.equal);
  facts.equal.splice(0, facts.equal.length, ...equal);
  return facts;
}

function collect(condition: Condition, facts: Facts, known: KnownValue): void {
  const { collection } = facts;
  switch (condition.kind) {
    case 'and':
      for (const each of condition.conditions) collect(each, facts, known);
      return;
    case 'or': {
      // A branch without an index makes the others useless.
      const branches = condition.conditions.map((each) => levelBranch(each, collection, known));
      if (branches.every((group) => group.length > 0)) facts.single.push(branches.flat());
      return;
    }
    case 'rule':
      collect(condition.rule, facts, known);
      return;
    case 'reference':
      if (condition.through.length === 0 && condition.keyParameter && !condition.negated)
        facts.equal.push(...condition.toOne.columns.map(columnKey));
      return;
    case 'search':
      if (condition.vector) facts.single.push([wordsCandidate(collection, condition.vector.field, condition)].flat());
      else facts.single.push(condition.fields.filter(isText).map((field) => trigramCandidate(collection, field)));
      return;
    case 'exists':
      if (!condition.negated) facts.single.push(...existsCandidates(condition.toMany, condition.where, known));
      return;
    case 'compare':
      collectComparison(condition, facts, known);
      return;
    case 'key':
      return;
  }
}

function levelBranch(condition: Condition, collection: Collection, known: KnownValue): Group {
  const facts = factsOf(condition, collection, [], known);
  const [first] = [...tableCandidates(facts, [], null), ...facts.single];
  return first ?? [];
}

/** The rows of a relation: by what refers to the row, and by the condition on them. */
function existsCandidates(toMany: ToManyJoin, where: Condition, known: KnownValue): Group[] {
  const { collection, columns } = toMany;
  if (collection.kind === 'view' || collection.kind === 'foreign') return [];
  const facts = factsOf(where, collection, [], known);
  const reference = columns.map(columnKey);
  const make = (keys: readonly Key[]): Group[] =>
    isNew(keys, collection) ? [[candidate(collection, { keys, kind: 'reference', where: null })]] : [];
  return [
    ...make(reference),
    ...(facts.equal.length > 0
      ? [...make(distinct([...facts.equal, ...reference])), ...make(distinct([...reference, ...facts.equal]))]
      : []),
    ...tableCandidates(facts, [], null),
    ...facts.single,
  ];
}

type Comparison = Extract<Condition, { kind: 'compare' }>;

function collectComparison(comparison: Comparison, facts: Facts, known: KnownValue): void {
  const { operand, operator, value } = comparison;
  const { collection } = facts;
  const through = 'through' in operand ? operand.through : [];
  if (through.length > 0) {
    facts.single.push(...joinedCandidates(comparison, through, collection, known));
    return;
  }
  if (isMaskedOperand(collection, operand)) return;
  const special = specialCandidate(comparison, collection);
  if (special) facts.single.push([special]);
  const key = keyText(operand, collection, known);
  if (!key) return;
  const isComputed = operand.kind !== 'field';
  if (/^(eq|in)$/.test(operator)) {
    facts.isComputed ||= isComputed;
    facts.equal.push(key);
    const constant =
      operator === 'eq' && value?.kind === 'slot'
        ? known({ kind: 'value', ...typedValue(value) }, operand.kind === 'field' ? operand.field : null)
        : null;
    const type = operand.kind === 'field' ? operand.field.column?.data_type : undefined;
    if (constant !== null && type !== undefined)
      facts.constants.push({ text: `${key.text} = ${quoteLiteral(constant)}::${type}`, name: key.name });
  } else if (/^(lt|lte|gt|gte|between)$/.test(operator)) {
    facts.isComputed ||= isComputed;
    facts.ranges.push(key);
  } else if (operator === 'null' || operator === 'nnull')
    facts.nulls.push({ text: `${key.text} is ${operator === 'nnull' ? 'not ' : ''}null`, name: key.name });
}

/** A condition on a related row: by its own column, and from there back to the rows that refer to it. */
function joinedCandidates(
  comparison: Comparison,
  through: readonly ToOneJoin[],
  collection: Collection,
  known: KnownValue,
): Group[] {
  const [first] = through;
  if (first?.kind !== 'one' || !('through' in comparison.operand)) return [];
  const operand: OperandPlan = { ...comparison.operand, through: through.slice(1) };
  const facts = factsOf({ ...comparison, operand }, first.target, [], known);
  const inner = [...tableCandidates(facts, [], null), ...facts.single];
  const keys = first.columns.map(columnKey);
  const back: Group = isNew(keys, collection) ? [candidate(collection, { keys, kind: 'reference', where: null })] : [];
  return [...inner, ...(back.length > 0 ? [back, ...inner.map((group) => [...group, ...back])] : [])];
}

const PATTERNS = /^i?(contains|starts_with|ends_with)$/;

/** Operators that need an index of another kind. */
function specialCandidate({ operand, operator, using }: Comparison, collection: Collection): IndexCandidate | null {
  if (operand.kind !== 'field' || !operand.field.column) return null;
  const { field } = operand;
  const key = columnKey(field);
  if ((PATTERNS.test(operator) || operator === 'regex' || operator === 'similar') && isText(field))
    return trigramCandidate(collection, field);
  if (/^(contains_all|contains_any|contained_in)$/.test(operator))
    return candidate(collection, { keys: [key], kind: 'array', where: null, method: 'gin' });
  if (operator === 'json_contains' || operator === 'has_key')
    return candidate(collection, { keys: [key], kind: 'document', where: null, method: 'gin' });
  if (/^(contains_value|overlaps|adjacent)$/.test(operator))
    return candidate(collection, { keys: [key], kind: 'range', where: null, method: 'gist' });
  if (operator === 'fts' && using?.kind === 'configuration')
    return wordsCandidate(collection, field, { slot: 0, vector: { field, configuration: using.configuration } });
  return null;
}

function isText({ column }: Field): boolean {
  return column !== null && !column.is_array && /^(text|varchar|bpchar)$/.test(column.base_type);
}

function trigramCandidate(collection: Collection, field: Field): IndexCandidate {
  const { text, name } = columnKey(field);
  const keys = [{ text: `${text} gin_trgm_ops`, name }];
  return { ...candidate(collection, { keys, kind: 'trigram', where: null, method: 'gin' }), extension: 'pg_trgm' };
}

/** The expression must be that of the statement. */
function wordsCandidate(
  collection: Collection,
  field: Field,
  { slot, vector }: { readonly slot: Slot; readonly vector: Parameters<typeof matchesWords>[1] | null },
): IndexCandidate {
  const { text, name } = columnKey(field);
  const source = sourceOf(collection);
  const test =
    vector && statement(matchesWords(source.raw([], field), vector, slot)).text.split(' operator(pg_catalog.@@) ')[0];
  const expression = (test ?? text).replaceAll(ROW, '');
  return candidate(collection, {
    keys: [{ text: expression === text ? text : `(${expression})`, name }],
    kind: 'words',
    where: null,
    method: 'gin',
  });
}

const ROW = '"%t".';

function sourceOf(collection: Collection): FromClause {
  return new FromClause(alias('t'), new Scope(compileCondition), unrestrictedCollection(collection));
}

/** A value of the row as an index has it; null for values of other rows and for parameters whose value is not known. */
function keyText(operand: OperandPlan, collection: Collection, known: KnownValue): Key | null {
  const plain = operand.kind === 'key' ? columnKey(operand.field) : plainKey(operand);
  if (plain) return isIndexable(operand) ? plain : null;
  if ((operand.kind !== 'date' && operand.kind !== 'length' && operand.kind !== 'json') || operand.through.length > 0)
    return null;
  const { text, parameters } = statement(compileOperand(operand, sourceOf(collection)));
  const values = parameters.map((parameter) => known(parameter, null));
  if (values.some((value) => value === null)) return null;
  const expression = text
    .replaceAll(ROW, '')
    .replace(/\$(\d+)/g, (_, number) => quoteLiteral(values[Number(number) - 1] ?? ''));
  const name = operand.field.column?.name ?? operand.field.name;
  return { text: `(${expression})`, name: `${name}_${operand.kind === 'date' ? operand.function : operand.kind}` };
}

/** Types without an order have no usual index. */
function isIndexable(operand: OperandPlan): boolean {
  if (operand.kind !== 'field') return true;
  const { column, type } = operand.field;
  return column !== null && type !== 'json' && !type.startsWith('geometry') && column.base_type !== 'tsvector';
}

interface Wanted {
  readonly keys: readonly Key[];
  readonly kind: CandidateKind;
  readonly where: string | null;
  readonly include?: readonly string[];
  readonly method?: IndexCandidate['method'];
  /** The column that `where` is about, for the name. */
  readonly about?: string;
}

function candidate(
  { schema, table, kind: tableKind }: Collection,
  { keys, kind, where, include = [], method = 'btree', about }: Wanted,
): IndexCandidate {
  return {
    ...(method === 'gin' ? GIN : BTREE),
    kind,
    schema,
    table,
    partitioned: tableKind === 'partitioned',
    method,
    keys: distinct(keys).map(({ text }) => text),
    include,
    where,
    names: [...distinct(keys).map(({ name }) => name), ...(about === undefined ? [] : [about])],
  };
}

/** Whether no index over this column, and no unique index over some of these columns, is there already. */
function isNew(keys: readonly Key[], { key, uniqueKeys, fields }: Collection): boolean {
  const [only, ...more] = keys;
  const column =
    more.length > 0 ? undefined : [...fields.values()].find((field) => field.column?.name === only?.name)?.column;
  if (only?.text === quoteIdentifier(column?.name ?? '-') && column?.indexes.some(({ method }) => method === 'btree'))
    return false;
  const names = new Set(keys.map(({ name }) => name));
  const known = [key.map((field) => field.column?.name ?? field.name), ...uniqueKeys];
  return (
    keys.length > 0 && !known.some((columns) => columns.length > 0 && columns.every((column) => names.has(column)))
  );
}

function distinct(keys: readonly Key[]): Key[] {
  return [...new Map(keys.map((key) => [key.text, key])).values()];
}
