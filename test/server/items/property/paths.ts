/** Random paths to values: columns of a row and of the rows related to it, and functions of them. */
import type { Draw } from './draw.js';
import { isBoxed, isJson, JSON_STEPS, type KindName } from './kinds.js';
import { type Column, type Model, type Relation, type Table, tableNamed } from './model.js';

/** What a path leads to: a column, or a function whose values are of a kind of their own. */
export interface Path {
  readonly text: string;
  /** The key under which answers show it. */
  readonly output: string;
  readonly kind: KindName;
  readonly table: Table;
  /** Null for functions. */
  readonly column: Column | null;
}

export interface PathOptions {
  /** How many relations may be followed. */
  readonly depth: number;
  /** Whether the path may lead through relations to several rows. */
  readonly many: boolean;
  /** In percent, how often the path ends with a function. */
  readonly calls: number;
}

export function drawPath(table: Table, model: Model, options: PathOptions, draw: Draw): Path {
  const steps: string[] = [];
  let at = table;
  while (steps.length < options.depth && draw.chance(45)) {
    const step = drawStep(at, options.many, draw);
    if (!step) break;
    steps.push(step.name);
    at = tableNamed(model, step.target);
  }
  const call = draw.chance(options.calls) ? drawCall(at, draw) : null;
  if (call) return { ...call, text: spellCall(steps, call, draw), table: at, column: null };
  const column = draw.pick(at.columns.filter(({ kind }) => !isBoxed(kind)));
  return { text: [...steps, column.name].join('.'), output: column.name, kind: column.kind, table: at, column };
}

function drawStep(table: Table, many: boolean, draw: Draw): { name: string; target: string } | null {
  const relations = table.relations.filter(({ kind }) => many || kind !== 'many');
  if (relations.length === 0) return null;
  const relation = draw.pick(relations);
  return relation.kind === 'any' ? drawScope(relation, draw) : { name: relation.name, target: relation.target };
}

export function drawScope(relation: Relation & { kind: 'any' }, draw: Draw): { name: string; target: string } {
  const target = draw.pick(relation.targets);
  return { name: `${relation.name}:${target}`, target };
}

export interface DrawnCall {
  readonly name: string;
  readonly field: string;
  /** The path into a JSON value. */
  readonly inside: string | null;
  readonly output: string;
  readonly kind: KindName;
}

const DATE_FUNCTIONS = ['year', 'month', 'week', 'day', 'weekday'] as const;
const TIME_FUNCTIONS = ['hour', 'minute', 'second'] as const;

/** A function of a field of the table; null where it has no field for one. */
export function drawCall(table: Table, draw: Draw): DrawnCall | null {
  const calls: (() => DrawnCall)[] = [];
  const whole = (name: string, field: string): DrawnCall => {
    return { name, field, inside: null, output: `${field}_${name}`, kind: 'integer' };
  };
  for (const { name, kind } of table.columns) {
    if (kind === 'date') calls.push(() => whole(draw.pick(DATE_FUNCTIONS), name));
    if (kind === 'time') calls.push(() => whole(draw.pick(TIME_FUNCTIONS), name));
    if (kind === 'dateTime' || kind === 'timestamp') {
      calls.push(() => whole(draw.pick([...DATE_FUNCTIONS, ...TIME_FUNCTIONS]), name));
    }
    if (!isJson(kind)) continue;
    calls.push(() => (draw.chance(35) ? whole('count', name) : drawJsonCall(name, draw)));
  }
  for (const { name, kind } of table.relations) if (kind === 'many') calls.push(() => whole('count', name));
  return calls.length === 0 ? null : draw.pick(calls)();
}

function drawJsonCall(field: string, draw: Draw): DrawnCall {
  const inside = drawJsonPath(draw);
  const output = `${field}.${inside}`
    .replace(/[.[\] ]+/g, '_')
    .replace(/_$/, '')
    .concat('_json');
  return { name: 'json', field, inside, output, kind: 'text' };
}

export function drawJsonPath(draw: Draw): string {
  const steps = draw.repeat(1, 3, () => (draw.chance(30) ? `[${draw.integer(0, 2)}]` : draw.pick(JSON_STEPS)));
  return steps.reduce((path, step) => (step.startsWith('[') ? `${path}${step}` : `${path}.${step}`));
}

/** A path into the value, mostly one that exists, and what is there. */
export function drawJsonPlace(value: unknown, draw: Draw): { path: string; found: unknown } {
  let path = '';
  let found = value;
  while (found !== null && typeof found === 'object' && Object.keys(found).length > 0) {
    if (path !== '' && draw.chance(20)) break;
    const [key, inner] = draw.pick(Object.entries(found));
    path += Array.isArray(found) ? `[${key}]` : path === '' ? key : `.${key}`;
    found = inner;
  }
  return path === '' || draw.chance(15) ? { path: drawJsonPath(draw), found: null } : { path, found };
}

/** `author.year(born)` and `year(author.born)` are the same. */
export function spellCall(steps: readonly string[], call: DrawnCall, draw: Draw): string {
  const rest = call.inside === null ? '' : `${draw.pick([', ', ','])}${call.inside}`;
  return draw.chance(50)
    ? [...steps, `${call.name}(${call.field}${rest})`].join('.')
    : `${call.name}(${[...steps, call.field].join('.')}${rest})`;
}
