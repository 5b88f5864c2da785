/** Random policies: rules about rows with relations and variables of the caller, lists of fields, presets and validations. */
import type { Draw } from '../../items/property/draw.js';
import { drawFilter } from '../../items/property/filters.js';
import { isBoxed, type KindName, type Value, writeValue } from '../../items/property/kinds.js';
import { type Column, type Model, ORDER, type Table } from '../../items/property/model.js';
import { matches } from '../../items/property/oracle-filter.js';

export interface Rule {
  readonly table: string;
  readonly action: 'create' | 'read' | 'update' | 'delete';
  /** Null for all rows. */
  readonly where: object | null;
  /** Null for all fields. */
  readonly fields: readonly string[] | null;
  readonly presets: Readonly<Record<string, unknown>> | null;
  readonly validation: object | null;
}

/** What the variables stand for. */
export interface Person {
  readonly user: string;
  readonly name: string;
}

export interface Drawn {
  readonly person: Person;
  /** By policy. */
  readonly policies: readonly (readonly Rule[])[];
}

/** The person is named like values that rows have, so that variables sometimes match. */
export function drawPolicies(model: Model, number: number, draw: Draw): Drawn {
  const values = (kinds: readonly string[]): string[] =>
    model.tables.flatMap(({ columns, rows }) =>
      columns
        .filter(({ kind }) => kinds.includes(kind))
        .flatMap(({ name, kind }) => rows.flatMap((row) => writeValue(kind, row[name] ?? null) ?? [])),
    );
  // Everybody is somebody else.
  const uuids = values(['uuid']).filter((uuid) => Number.parseInt(uuid.slice(-1), 16) === number);
  const texts = values(['text', 'string']).filter((text) => text !== '' && text.length < 200);
  const made = `0000000${number}-0000-4000-8000-00000000000${number}`;
  const person = {
    user: uuids.length > 0 && draw.chance(60) ? draw.pick(uuids) : made,
    name: texts.length > 0 ? draw.pick(texts) : 'nobody',
  };
  const policies = draw.repeat(1, 3, () =>
    model.tables.flatMap((table) => [
      ...(draw.chance(70) ? [drawRule(table, model, 'read', draw)] : []),
      ...(['create', 'update', 'delete'] as const).flatMap((action) =>
        draw.chance(60) ? [drawRule(table, model, action, draw)] : [],
      ),
    ]),
  );
  return { person, policies };
}

function drawRule(table: Table, model: Model, action: Rule['action'], draw: Draw): Rule {
  const isWrite = action === 'create' || action === 'update';
  return {
    table: table.name,
    action,
    where: draw.chance(35) ? null : drawWhere(table, model, draw),
    fields: action === 'delete' || draw.chance(30) ? null : drawFields(table, draw),
    presets: isWrite && draw.chance(30) ? drawPresets(table, draw) : null,
    validation: isWrite && draw.chance(30) ? drawValidation(table, model, draw) : null,
  };
}

function drawWhere(table: Table, model: Model, draw: Draw): object {
  const variables = table.columns.flatMap(({ name, kind }): object[] => {
    if (kind === 'uuid')
      return [{ [name]: { [draw.pick(['_eq', '_neq'])]: '$CURRENT_USER' } }, { [name]: { _in: ['$CURRENT_USER'] } }];
    return kind === 'text' || kind === 'string'
      ? [{ [name]: { [draw.pick(['_eq', '_neq'])]: '$CURRENT_USER.first_name' } }]
      : [];
  });
  const drawn = drawFilter(table, model, draw.integer(0, 2), draw);
  const filter =
    Object.keys(drawn).length === 0 || says(drawn) ? drawn : { [table.columns[0]?.name ?? '']: { _nnull: true } };
  if (variables.length === 0 || draw.chance(60)) return filter;
  const isEverything = Object.keys(filter).length === 0;
  return isEverything || draw.chance(50) ? draw.pick(variables) : { _or: [draw.pick(variables), filter] };
}

/** Whether each part restricts something: a rule with one that does not is refused. */
function says(filter: object): boolean {
  const entries = Object.entries(filter);
  return entries.length > 0 && entries.every(([key, value]) => partSays(key, value));
}

function partSays(key: string, value: unknown): boolean {
  if (key === '_and' || key === '_or') return Array.isArray(value) && value.length > 0 && value.every(says);
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return true;
  if ((key === '_some' || key === '_none') && Object.keys(value).length === 0) return true;
  return says(value);
}

/** A column that can be compared at least, mostly the key. */
function drawFields(table: Table, draw: Draw): string[] {
  const comparable = table.columns.filter(({ kind }) => !isBoxed(kind)).map(({ name }) => name);
  const aliases = table.relations.filter(({ kind, many }) => kind === 'many' || many.columns.length > 1);
  const lists = aliases.map(({ name }) => name);
  // Whoever sees rows without a key has to see their order, or any would be right.
  const order = table.key.length === 0 ? [ORDER] : [];
  const names = [
    draw.pick(comparable),
    ...(draw.chance(75) ? table.key.map(({ name }) => name) : []),
    ...order,
    ...draw.some(
      table.columns.map(({ name }) => name),
      0,
      table.columns.length,
    ),
    ...draw.some(lists, 0, lists.length),
  ];
  return [...new Set(names)].filter((name) => !name.includes(','));
}

function drawPresets(table: Table, draw: Draw): Record<string, unknown> {
  const plain = table.columns.filter((column) => !table.key.includes(column) && !refers(table, column.name));
  return Object.fromEntries(
    draw.some(plain, 0, 2).flatMap(({ name, kind }): [string, unknown][] => {
      if (kind === 'uuid' && draw.chance(70)) return [[name, '$CURRENT_USER']];
      if (kind === 'text' && draw.chance(70)) return [[name, draw.pick(['$CURRENT_USER.first_name', 'preset'])]];
      const values = table.rows.map((row) => row[name] ?? null).filter((value) => value !== null);
      if (isBoxed(kind) || values.length === 0) return [];
      const value = draw.pick(values);
      const text = writeValue(kind, value);
      presetValues.set(`${kind} ${text}`, value);
      return [[name, text]];
    }),
  );
}

const presetValues = new Map<string, Value>();

/** What the text of a preset stands for: the row that it was drawn from may be gone. */
export function presetValue(kind: KindName, text: unknown): Value | undefined {
  return presetValues.get(`${kind} ${text}`);
}

/** Whether the column holds a reference, or a part of one. */
export function refers({ relations }: Table, name: string): boolean {
  return relations.some(({ kind, many }) => kind !== 'many' && many.columns.some(({ column }) => column === name));
}

/** Of single fields: a payload has nothing else to be judged by. */
function drawValidation(table: Table, model: Model, draw: Draw): object {
  const bare: Table = { ...table, relations: [], columns: table.columns.filter((column) => isJudged(table, column)) };
  return drawFilter(bare, model, 0, draw);
}

/** Columns of a reference of several are written by their alias. */
function isJudged(table: Table, { name, kind }: Column): boolean {
  const parts = table.relations.filter((each) => each.kind === 'one' && each.many.columns.length > 1);
  return !isBoxed(kind) && !parts.some(({ many }) => many.columns.some(({ column }) => column === name));
}

/** Rules of one kind about a table. */
export function rulesOf({ policies }: Drawn, action: Rule['action'], table: string): Rule[] {
  return policies.flat().filter((rule) => rule.action === action && rule.table === table);
}

/** Variables become what they stand for. */
export function resolve<Given>(given: Given, person: Person): Given {
  return JSON.parse(JSON.stringify(given), (_, value) =>
    value === '$CURRENT_USER' ? person.user : value === '$CURRENT_USER.first_name' ? person.name : value,
  ) as Given;
}

/** Whether the rule holds of the row as it is. */
export function holds(
  model: Model,
  rule: Rule,
  person: Person,
  table: Table,
  row: Table['rows'][number] | null,
): boolean {
  return rule.where === null || matches({ model, seen: new Set() }, resolve(rule.where, person), table, row);
}

export function grants(rule: Rule, field: string): boolean {
  return rule.fields?.includes(field) ?? true;
}
