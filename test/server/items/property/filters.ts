/** Random filters: operators that suit each type, over relations of every kind, with values that rows really have. */
import type { Draw } from './draw.js';
import { drawJson, drawOperand, drawValue, isJson, isText, type Json, type KindName, type Operand } from './kinds.js';
import { type Column, keyTextOf, type Model, type Relation, soleKey, type Table, tableNamed } from './model.js';
import { evaluate, readExpression } from './oracle-values.js';
import { drawJsonPlace, drawPath, drawScope, type Path } from './paths.js';
import { drawContained, drawSpecialTest, isSpecial } from './special-types.js';

export type Filter = { readonly [key: string]: unknown };

const PRESENCE = ['_null', '_nnull'] as const;
const EQUALITY = ['_eq', '_neq', '_in', '_nin', ...PRESENCE] as const;
const ORDERED = [...EQUALITY, '_lt', '_lte', '_gt', '_gte', '_between', '_nbetween'] as const;
const TEXT = [
  ...ORDERED,
  '_contains',
  '_ncontains',
  '_icontains',
  '_starts_with',
  '_nstarts_with',
  '_istarts_with',
  '_nistarts_with',
  '_ends_with',
  '_nends_with',
  '_iends_with',
  '_niends_with',
  '_empty',
  '_nempty',
] as const;

export function drawFilter(table: Table, model: Model, depth: number, draw: Draw): Filter {
  const most = draw.chance(35) ? 3 : 1;
  return Object.fromEntries(draw.repeat(draw.chance(4) ? 0 : 1, most, () => drawEntry(table, model, depth, draw)));
}

function drawEntry(table: Table, model: Model, depth: number, draw: Draw): [string, unknown] {
  const form = draw.integer(1, 100);
  if (depth > 0 && form <= 14) {
    return [draw.pick(['_and', '_or']), draw.repeat(1, 3, () => drawFilter(table, model, depth - 1, draw))];
  }
  if (depth > 0 && form <= 44 && table.relations.length > 0) {
    const relation = draw.pick(table.relations);
    return drawRelated(relation, table, model, depth - 1, draw);
  }
  if (depth > 0 && form <= 48) return drawFollow(table, model, depth - 1, draw) ?? drawScalar(table, draw);
  if (form <= 56) {
    const path = drawPath(table, model, { depth, many: false, calls: 100 }, draw);
    if (!path.column)
      return [path.text, drawOperators(path.kind, (name) => drawCallOperand(table, model, path, name, draw), draw)];
  }
  return drawScalar(table, draw);
}

function drawScalar(table: Table, draw: Draw): [string, unknown] {
  const column = drawColumn(table, draw);
  if (isJson(column.kind)) return [column.name, drawJsonTest(table, column, draw)];
  if (isSpecial(column.kind)) {
    const isPresence = draw.chance(10);
    return [column.name, isPresence ? { [draw.pick(PRESENCE)]: draw.chance(75) } : drawSpecialTest(column.kind, draw)];
  }
  const operand = (): Operand => drawStored(table, column, draw);
  if (draw.chance(8)) {
    const value = operand();
    if (value !== '') return [column.name, value];
  }
  const operators = drawOperators(column.kind, operand, draw);
  if (draw.chance(10)) {
    return [column.name, { [draw.pick(['_and', '_or'])]: [operators, drawOperators(column.kind, operand, draw)] }];
  }
  return [column.name, operators];
}

/** JSON values and texts have more operators than others: they come up more often. */
function drawColumn({ columns }: Table, draw: Draw): Column {
  const documents = columns.filter(({ kind }) => isJson(kind));
  if (documents.length > 0 && draw.chance(36)) return draw.pick(documents);
  const special = columns.filter(({ kind }) => isSpecial(kind));
  if (special.length > 0 && draw.chance(25)) return draw.pick(special);
  const texts = columns.filter(({ kind }) => isText(kind));
  return draw.pick(texts.length > 0 && draw.chance(20) ? texts : columns);
}

/** One or two operators, with what they are compared to. */
function drawOperators(kind: KindName, operand: (operator: string) => Operand, draw: Draw): Filter {
  const operators = isText(kind)
    ? TEXT
    : kind === 'uuid'
      ? EQUALITY
      : kind === 'boolean'
        ? ['_eq', '_neq', ...PRESENCE]
        : ORDERED;
  return Object.fromEntries(
    draw.some<string>(operators, 1, draw.chance(15) ? 2 : 1).map((name) => [name, drawComparison(name, operand, draw)]),
  );
}

function drawComparison(operator: string, operand: (operator: string) => Operand, draw: Draw): unknown {
  const given = (): Operand => operand(operator);
  switch (operator) {
    case '_null':
    case '_nnull':
    case '_empty':
    case '_nempty':
      return draw.chance(75);
    case '_in':
    case '_nin': {
      const list = draw.repeat(1, 4, given);
      return list.some((each) => each !== '') ? list : [...list, 'a'];
    }
    case '_between':
    case '_nbetween':
      return [given(), given()];
    default: {
      if ((operator === '_eq' || operator === '_neq') && draw.chance(4)) return null;
      const value = given();
      if (value === '') return 'a';
      const isPattern = (typeof value === 'string' && operator.includes('with')) || operator.includes('contains');
      return isPattern && draw.chance(60) ? drawPiece(String(value), draw) : value;
    }
  }
}

function drawPiece(text: string, draw: Draw): string {
  const characters = [...text];
  const start = draw.integer(0, characters.length - 1);
  const piece = characters.slice(start, start + draw.integer(1, 4)).join('');
  const spelt = draw.chance(30) ? piece.toUpperCase() : piece;
  // The word stands for no value.
  return /^null$/i.test(spelt) ? spelt.slice(1) : spelt;
}

/** Mostly a value that a row has. */
function drawStored(table: Table, column: Column, draw: Draw): Operand {
  if (['date', 'dateTime', 'timestamp'].includes(column.kind) && draw.chance(10)) {
    return draw.pick(['$NOW', '$NOW(-1 day)', '$NOW(+2 hours)', '$NOW(-40000 days)']);
  }
  const stored = table.rows.flatMap((row) => row[column.name] ?? []);
  const value = stored.length > 0 && draw.chance(75) ? draw.pick(stored) : drawValue(column.kind, draw);
  return drawOperand(column.kind, value, draw);
}

/** Mostly what the function gives for a row. */
function drawCallOperand(table: Table, model: Model, path: Path, operator: string, draw: Draw): Operand {
  const [row = null] = draw.some(table.rows, 1, 1);
  const found = evaluate({ model, seen: new Set() }, table, row, readExpression(path.text), null);
  const isFound = (typeof found === 'number' || typeof found === 'string') && found !== '';
  if (isFound && draw.chance(60)) return draw.chance(50) ? found : String(found);
  if (path.kind === 'text') return drawJsonOperand(operator, draw);
  return draw.chance(60) ? draw.integer(0, 12) : draw.pick([1815, 1969, 1970, 2000, 2024, 23, 30, 52, 53, 59]);
}

function drawJsonTest(table: Table, column: Column, draw: Draw): Filter {
  if (draw.chance(12)) return { [draw.pick(PRESENCE)]: draw.chance(75) };
  const stored = table.rows.flatMap((row) => (row[column.name] as Json | null) ?? []);
  if (draw.chance(10))
    return drawContained(stored.length > 0 ? draw.pick(stored).json : null, () => drawJson(draw, 2), draw);
  const test = (): [string, unknown] => {
    const { path, found } = drawJsonPlace(stored.length > 0 ? draw.pick(stored).json : null, draw);
    const name = draw.pick(TEXT);
    const operand = (): Operand => {
      const isFound =
        typeof found === 'number' || typeof found === 'boolean' || (typeof found === 'string' && found !== '');
      return isFound && draw.chance(60) ? found : drawJsonOperand(name, draw);
    };
    const comparison = drawComparison(name, operand, draw);
    return [path, draw.chance(20) && name === '_eq' && comparison !== null ? comparison : { [name]: comparison }];
  };
  const tests = Object.fromEntries(draw.repeat(1, 3, test));
  if (!draw.chance(25)) return { _json: tests };
  return { _json: { ...tests, [draw.pick(['_and', '_or'])]: draw.repeat(1, 2, () => Object.fromEntries([test()])) } };
}

/** A list holds either numbers or texts, as one that compares would. */
function drawJsonOperand(operator: string, draw: Draw): Operand {
  const isList = ['_in', '_nin', '_between', '_nbetween'].includes(operator);
  if (!isList && draw.chance(20)) return draw.pick([true, false]);
  return (isList ? operator.startsWith('_n') : draw.chance(50))
    ? draw.pick(['x', 'X', 'ünï', 'o"k', '100%', 'a_b'])
    : draw.pick([0, 1, 2, -5, 2.5, 42, 100]);
}

function drawRelated(relation: Relation, table: Table, model: Model, depth: number, draw: Draw): [string, unknown] {
  if (relation.kind === 'many') {
    const key = relation.name;
    return [key, drawMany(tableNamed(model, relation.target), model, depth, draw)];
  }
  if (relation.kind === 'any') {
    const { name, target } = drawScope(relation, draw);
    return [name, drawFilter(tableNamed(model, target), model, depth, draw)];
  }
  const target = tableNamed(model, relation.target);
  if (relation.many.columns.length > 1)
    return [relation.name, draw.chance(30) ? drawReference(target, draw) : drawFilter(target, model, depth, draw)];
  const column = table.columns.find(({ name }) => name === relation.name);
  const direct = (): Filter =>
    column ? drawOperators(column.kind, () => drawStored(table, column, draw), draw) : { _nnull: true };
  const form = draw.integer(1, 100);
  if (form <= 20) return [relation.name, direct()];
  const inner = drawFilter(target, model, depth, draw);
  if (form <= 28) return [relation.name, { ...direct(), ...inner }];
  if (form <= 36) return [relation.name, { [draw.pick(['_and', '_or'])]: [direct(), inner] }];
  return [relation.name, inner];
}

/** Operators of a reference that several columns hold take keys of its target. */
function drawReference(target: Table, draw: Draw): Filter {
  const keys = target.rows.map((row) => keyTextOf(target, row)).filter((key) => !key.includes(','));
  const operator = keys.length > 0 ? draw.pick(EQUALITY) : draw.pick(PRESENCE);
  if (operator === '_null' || operator === '_nnull') return { [operator]: draw.chance(75) };
  return { [operator]: operator === '_in' || operator === '_nin' ? draw.some(keys, 1, 3) : draw.pick(keys) };
}

function drawMany(target: Table, model: Model, depth: number, draw: Draw): Filter {
  const form = draw.integer(1, 100);
  const inner = (): Filter => drawFilter(target, model, depth, draw);
  const quantified = (): Filter => ({ [draw.pick(['_some', '_none'])]: inner() });
  const sole = soleKey(target);
  const ofKey = (): Filter => (sole ? drawOperators(sole.kind, () => drawStored(target, sole, draw), draw) : inner());
  if (form <= 30) return quantified();
  if (form <= 36) return { _some: inner(), _none: inner() };
  if (form <= 42) return { ...quantified(), ...inner() };
  if (form <= 48) return { [draw.pick(PRESENCE)]: draw.chance(75) };
  if (form <= 52 && target.key.length > 0)
    return { [draw.pick(target.key).name]: { [draw.pick(PRESENCE)]: draw.chance(75) } };
  if (form <= 60) return ofKey();
  if (form <= 65) return { ...ofKey(), ...inner() };
  if (form <= 72) return { _or: [inner(), draw.chance(50) ? quantified() : inner()] };
  if (form <= 76) return { ...inner(), _or: [ofKey(), inner()] };
  return inner();
}

/** Rows elsewhere that refer to this one, whether or not a field of this table lists them. */
function drawFollow(table: Table, model: Model, depth: number, draw: Draw): [string, unknown] | null {
  const ways = model.tables.flatMap((each) =>
    each.relations.flatMap((relation): [string, Table][] => {
      const separator = draw.pick([', ', ',']);
      if (relation.kind === 'one' && relation.target === table.name) {
        return [[[each.name, relation.name].join(separator), each]];
      }
      if (relation.kind !== 'any' || !relation.targets.includes(table.name)) return [];
      return [[[each.name, relation.name, relation.collectionField].join(separator), each]];
    }),
  );
  if (ways.length === 0) return null;
  const [names, target] = draw.pick(ways);
  return [`$FOLLOW(${names})`, drawMany(target, model, depth, draw)];
}
