/**
 * The oracle's filters and searches, by looking at one row after the other. What is unknown to SQL is false here: nothing
 * but `_none` negates, and that asks whether a row exists for which the filter is true.
 */
import {
  compareValues,
  isJson,
  isNumber,
  isText,
  type Json,
  type KindName,
  readDecimal,
  readOperand,
  type Value,
} from './kinds.js';
import {
  heldBy,
  joinKey,
  type Relation,
  type Row,
  showsKey,
  soleKey,
  type Table,
  tableNamed,
  Unknown,
  wholeOf,
} from './model.js';
import {
  anyTarget,
  childrenOf,
  columnNamed,
  evaluate,
  follow,
  isListed,
  jsonText,
  kindOf,
  Refused,
  readExpression,
  relationNamed,
  stepInto,
  type World,
} from './oracle-values.js';
import { holdsSpecially, isSpecialOperator } from './special-types.js';

type Plain = Readonly<Record<string, unknown>>;

export function matches(world: World, filter: unknown, table: Table, row: Row | null): boolean {
  return Object.entries(objectOf(filter)).every(([key, value]) => matchesEntry(world, key, value, table, row));
}

function matchesEntry(world: World, key: string, value: unknown, table: Table, row: Row | null): boolean {
  const combined = combine(world, key, value, (each) => matches(world, each, table, row));
  if (combined !== null) return combined;
  if (key.startsWith('$FOLLOW(')) return matchesFollow(world, key, value, table, row);
  if (key.includes('(')) {
    world.seen.add('filter function');
    const expression = readExpression(key);
    return matchesValue(world, value, kindOf(world, table, expression), evaluate(world, table, row, expression, null));
  }
  const found = relationNamed(table, key);
  if (found?.relation.kind === 'many') {
    const { relation } = found;
    world.seen.add(`filter ${describe(relation)}`);
    const target = tableNamed(world.model, relation.target);
    const holds = matchesMany(world, value, target, childrenOf(world, table, row, relation));
    return restrictsNothing(value) || (isListed(table, row, relation.name) && holds);
  }
  if (found?.relation.kind === 'one' || (found?.relation.kind === 'any' && found.scope !== null)) {
    world.seen.add(`filter ${describe(found.relation)}`);
    if (found.relation.many.columns.length > 1) world.seen.add('filter of several columns');
    return matchesOne(world, value, table, row, key);
  }
  return matchesValue(world, value, columnNamed(table, key).kind, row?.[key] ?? null, columnNamed(table, key).kind);
}

/** Also of a list that is hidden in the row: there is no condition. */
function restrictsNothing(filter: unknown): boolean {
  if (filter === null || typeof filter !== 'object') return false;
  return Object.entries(filter).every(([key, value]) => {
    if (!Array.isArray(value)) return false;
    return key === '_and' ? value.every(restrictsNothing) : key === '_or' && value.length === 0;
  });
}

function describe(relation: Relation): string {
  if (relation.kind === 'one') return relation.many.table === relation.target ? 'self' : 'many-to-one';
  if (relation.kind === 'any') return 'many-to-any';
  return relation.junctionField === null
    ? 'one-to-many'
    : relation.junctionField === 'item'
      ? 'blocks'
      : 'many-to-many';
}

/** Null where the key is neither `_and` nor `_or`. An empty `_or` restricts nothing. */
function combine(world: World, key: string, value: unknown, test: (each: unknown) => boolean): boolean | null {
  if (key !== '_and' && key !== '_or') return null;
  world.seen.add(`filter ${key}`);
  if (!Array.isArray(value)) throw new Refused(`"${key}" needs a list`);
  return key === '_and' ? value.every(test) : value.length === 0 || value.some(test);
}

/** Operators speak of the reference, everything else of the row that it leads to. */
function matchesOne(world: World, filter: unknown, table: Table, row: Row | null, name: string): boolean {
  const relation = relationNamed(table, name)?.relation;
  const held = (given: unknown): boolean =>
    relation?.kind === 'one' && relation.many.columns.length > 1
      ? refersTo(world, given, table, row, relation)
      : matchesValue(world, given, columnNamed(table, name).kind, row?.[name] ?? null);
  if (filter === null || typeof filter !== 'object') return held(filter);
  return Object.entries(filter).every(([key, value]) => {
    const combined = combine(world, key, value, (each) => matchesOne(world, each, table, row, name));
    if (combined !== null) return combined;
    if (isOperator(key)) return held({ [key]: value });
    const next = follow(world, table, row, name);
    return matchesEntry(world, key, value, next.table, next.row);
  });
}

/** Of a reference that several columns hold, operators compare the key that they make; one of them missing, they make none. */
function refersTo(
  world: World,
  given: unknown,
  table: Table,
  row: Row | null,
  relation: Extract<Relation, { kind: 'one' }>,
): boolean {
  if (given === null || typeof given !== 'object') return refersTo(world, { _eq: given }, table, row, relation);
  const values = heldBy(table, row, relation);
  const key = values && joinKey(tableNamed(world.model, relation.target), values);
  return Object.entries(given).every(([operator, value]) => {
    world.seen.add('filter key of several columns');
    if (operator === '_null' || operator === '_nnull')
      return (key === null) === ((operator === '_null') === truth(value));
    const isNamed = [value].flat().includes(key);
    return key !== null && (operator === '_eq' || operator === '_in' ? isNamed : !isNamed);
  });
}

/** All conditions of one filter must hold of one row; quantifiers and tests for presence stand for themselves. */
function matchesMany(world: World, filter: unknown, target: Table, rows: readonly Row[]): boolean {
  if (filter === null || typeof filter !== 'object') return matchesMany(world, { _eq: filter }, target, rows);
  const conditions = flatten(objectOf(filter));
  const apart = conditions.filter(([key, value]) => isApart(key, value, target));
  const together = conditions.filter(([key, value]) => !isApart(key, value, target));
  if (!apart.every(([key, value]) => matchesApart(world, key, value, target, rows))) return false;
  const [only] = together;
  if (only === undefined) return true;
  if (together.length === 1 && only[0] === '_or' && Array.isArray(only[1])) {
    world.seen.add('filter _or');
    return only[1].length === 0 || only[1].some((each) => matchesMany(world, each, target, rows));
  }
  return rows.some((row) => together.every(([key, value]) => matchesMember(world, key, value, target, row)));
}

/** The entries of an object, with those of the `_and` below it: they are conditions of the same row. */
function flatten(filter: Plain): [string, unknown][] {
  return Object.entries(filter).flatMap(([key, value]): [string, unknown][] => {
    if (key !== '_and') return [[key, value]];
    if (!Array.isArray(value)) throw new Refused('"_and" needs a list');
    return value.flatMap((each) => flatten(objectOf(each)));
  });
}

function isApart(key: string, value: unknown, target: Table): boolean {
  return key === '_some' || key === '_none' || presence(key, value, target) !== null;
}

function matchesApart(world: World, key: string, value: unknown, target: Table, rows: readonly Row[]): boolean {
  world.seen.add(`filter ${key}`);
  if (key === '_some') return rows.some((row) => matches(world, value, target, row));
  if (key === '_none') return !rows.some((row) => matches(world, value, target, row));
  world.seen.add('filter presence of related');
  return rows.length > 0 === presence(key, value, target);
}

/** `_null` of the rows or of their key: whether there have to be any. */
function presence(key: string, value: unknown, target: Table): boolean | null {
  if (showsKey(target) && target.key.some(({ name }) => name === key)) {
    if (value === null) return false;
    const [only, more] = typeof value === 'object' ? Object.entries(value) : [];
    return only && !more && isOperator(only[0]) ? presence(only[0], only[1], target) : null;
  }
  if (key === '_null' || key === '_nnull') return (key === '_nnull') === truth(value);
  return value === null && key === '_eq' ? false : value === null && key === '_neq' ? true : null;
}

/** Below a relation to several rows an operator speaks of their key. */
function matchesMember(world: World, key: string, value: unknown, target: Table, row: Row): boolean {
  const combined = combine(world, key, value, (each) =>
    Object.entries(objectOf(each)).every(([name, given]) => matchesMember(world, name, given, target, row)),
  );
  if (combined !== null) return combined;
  if (key === '_some' || key === '_none') throw new Refused('a quantifier beside conditions of a row');
  if (!isOperator(key)) return matchesEntry(world, key, value, target, row);
  world.seen.add('filter key of related');
  const sole = soleKey(target);
  if (!sole) throw new Refused(`"${target.name}" has no key of one column`);
  columnNamed(target, sole.name);
  return matchesValue(world, { [key]: value }, sole.kind, row[sole.name] ?? null);
}

function matchesFollow(world: World, key: string, value: unknown, table: Table, row: Row | null): boolean {
  world.seen.add('filter $FOLLOW');
  const [name = '', field = '', collectionField] = key
    .slice('$FOLLOW('.length, -1)
    .split(',')
    .map((each) => each.trim());
  const target = tableNamed(world.model, name);
  const relation = target.relations.find((one) => one.name === field);
  if ((relation?.many.columns.length ?? 1) === 1) columnNamed(target, field);
  else world.seen.add('filter $FOLLOW of several columns');
  const rows = target.rows.filter((each) => {
    if (!row || !relation) return false;
    if (collectionField !== undefined)
      return relation.kind === 'any' && anyTarget(target, each, relation, table) === row;
    const held = heldBy(target, each, relation);
    const { columns } = relation.many;
    return columns.every(({ referenced }, at) => held?.[at] === wholeOf(table, row)[referenced]);
  });
  return matchesMany(world, value, target, rows);
}

function matchesValue(world: World, filter: unknown, kind: KindName, value: Value, counted?: KindName): boolean {
  if (filter === null || typeof filter !== 'object') return matchesValue(world, { _eq: filter }, kind, value, counted);
  return Object.entries(filter).every(([key, given]) => {
    const combined = combine(world, key, given, (each) => matchesValue(world, each, kind, value, counted));
    if (combined !== null) return combined;
    if (key === '_json') {
      if (!isJson(kind)) throw new Refused('"_json" needs a JSON value');
      world.seen.add('filter _json');
      return matchesJson(world, given, value === null ? undefined : (value as Json).json, kind === 'jsonb');
    }
    if (key === '_length') {
      world.seen.add('filter _length');
      return matchesValue(world, given, 'integer', value === null ? null : ((value as Json).json as unknown[]).length);
    }
    if (isSpecialOperator(key)) {
      world.seen.add(`filter ${key}`);
      if (counted) world.seen.add(`filter ${counted}`);
      if (key === '_fts' && (given as { query?: string }).query === undefined) throw new Refused('no query');
      return value !== null && holdsSpecially(key, given, value as Json);
    }
    if (!isOperator(key))
      throw key.startsWith('_') ? new Refused(`"${key}" is no operator`) : new Unknown(`"${key}" leads nowhere`);
    world.seen.add(`filter ${key}`);
    if (counted) world.seen.add(`filter ${counted}`);
    return compare(key, given, kind, value);
  });
}

function matchesJson(world: World, filter: unknown, value: unknown, binary: boolean): boolean {
  return Object.entries(objectOf(filter)).every(([key, given]) => {
    const combined = combine(world, key, given, (each) => matchesJson(world, each, value, binary));
    if (combined !== null) return combined;
    const steps = key.split(/[.[\]]+/).filter((step) => step !== '');
    const text = jsonText(stepInto(value, steps), binary);
    const tests = given !== null && typeof given === 'object' && !Array.isArray(given) ? given : { _eq: given };
    for (const operator of Object.keys(tests)) world.seen.add(`json path ${operator}`);
    return Object.entries(tests).every(([operator, operand]) => {
      return comparesAsNumber(operator, operand)
        ? compare(
            operator,
            operand,
            'decimal',
            text !== null && /^-?\d+(\.\d+)?$/.test(text) ? readDecimal(text) : null,
          )
        : compare(operator, operand, 'text', text);
    });
  });
}

/** Numbers compare as numbers where an operator compares at all; patterns are of texts. */
function comparesAsNumber(operator: string, operand: unknown): boolean {
  const list = Array.isArray(operand) ? operand : [operand];
  return /^_(eq|neq|in|nin|lte?|gte?|n?between)$/.test(operator) && list.every((each) => typeof each === 'number');
}

function isOperator(key: string): boolean {
  return OPERATORS.test(key);
}

const OPERATORS = /^_(n?eq|n?in|lte?|gte?|n?between|n?null|n?empty|n?contains|icontains|n?i?(starts|ends)_with)$/;

function compare(operator: string, given: unknown, kind: KindName, value: Value): boolean {
  switch (operator) {
    case '_null':
      return (value === null) === truth(given);
    case '_nnull':
      return (value !== null) === truth(given);
    case '_empty':
      return (value === null || value === '') === truth(given);
    case '_nempty':
      return (value !== null && value !== '') === truth(given);
  }
  if (given === null && operator === '_eq') return value === null;
  if (given === null && operator === '_neq') return value !== null;
  const list = (Array.isArray(given) ? given : [given]).map((each) => {
    if (each === null || (typeof each === 'object' && !Array.isArray(each))) throw new Refused('no value');
    return readOperand(kind, each);
  });
  if (list.length === 0 || (list.length === 1 && list[0] === '')) throw new Refused('no value');
  if (value === null) return false;
  const order = (position: number): number => compareValues(value, list[position] ?? 0);
  switch (operator) {
    case '_eq':
      return order(0) === 0;
    case '_neq':
      return order(0) !== 0;
    case '_lt':
      return order(0) < 0;
    case '_lte':
      return order(0) <= 0;
    case '_gt':
      return order(0) > 0;
    case '_gte':
      return order(0) >= 0;
    case '_in':
      return list.some((_, position) => order(position) === 0);
    case '_nin':
      return list.every((_, position) => order(position) !== 0);
    case '_between':
    case '_nbetween':
      if (list.length !== 2) throw new Refused('two values');
      return (order(0) >= 0 && order(1) <= 0) === (operator === '_between');
  }
  return comparePattern(operator, String(value), String(list[0]));
}

function comparePattern(operator: string, value: string, pattern: string): boolean {
  const [, negated, insensitive, name] = /^_(n?)(i?)(contains|starts_with|ends_with)$/.exec(operator) ?? [];
  const fold = (text: string): string => (insensitive ? text.toLowerCase() : text);
  const [text, part] = [fold(value), fold(pattern)];
  const found =
    name === 'contains' ? text.includes(part) : name === 'starts_with' ? text.startsWith(part) : text.endsWith(part);
  return negated ? !found : found;
}

/** A term in any text, or the same number or key. */
export function isFound(world: World, term: string, table: Table, row: Row): boolean {
  const wanted = term.trim();
  if (wanted === '') return true;
  const words = table.columns.find(({ name }) => name === table.searchField);
  if (words) {
    world.seen.add('search in words');
    const value = row[words.name] ?? null;
    return value !== null && holdsSpecially('_fts', { query: wanted }, value as Json);
  }
  world.seen.add('search');
  return table.columns.some(({ name, kind }) => {
    const value = row[name] ?? null;
    if (value === null) return false;
    if (kind === 'label')
      return String((value as Json).json)
        .toLowerCase()
        .includes(wanted.toLowerCase());
    if (isText(kind)) return String(value).toLowerCase().includes(wanted.toLowerCase());
    if (kind === 'uuid') return value === wanted.toLowerCase();
    if (!isNumber(kind)) return false;
    const isWhole = /^-?\d+$/.test(wanted);
    if (kind === 'integer' || kind === 'bigInteger')
      return isWhole && BigInt(wanted) === BigInt(value as number | bigint);
    if (!isWhole && !/^-?\d*\.\d{1,3}$/.test(wanted)) return false;
    return kind === 'decimal' ? readDecimal(wanted.replace(/^(-?)\./, '$10.')) === value : Number(wanted) === value;
  });
}

function truth(given: unknown): boolean {
  return given !== false && given !== 'false';
}

function objectOf(value: unknown): Plain {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Refused('an object is needed');
  return value as Plain;
}
