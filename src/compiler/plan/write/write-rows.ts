/** The rows of a write while its payload is walked: merged where a row is named twice, completed, and given their shape. */
import { failedValidation, forbidden, invalidPayload, ranTooLong } from '../../../base/errors.js';
import { now } from '../../../base/host.js';
import { forEachInSlices } from '../../../base/time-slices.js';
import { isKey, requireSingleKey, singleKey } from '../../model/item-key.js';
import { type Collection, type Field, type Model, needsValue } from '../../model/model.js';
import type { Filter, Operand } from '../../request/ast.js';
import { parseVariable } from '../../request/filter.js';
import type { Key } from '../../request/write.js';
import { resolveVariable } from '../../sql/parameter.js';
import { planCaller } from '../caller-value.js';
import { planFilter } from '../filter.js';
import type { Condition } from '../plan.js';
import { holdingFields, referencedFields } from '../resolve-names.js';
import { readValidation } from '../rules.js';
import { checkValue } from './column-value.js';
import type { Guard } from './guard.js';
import { checkKeyed, givenPart, keyEntries, keyPart } from './key.js';
import type { ColumnValue, List, Row, WritePlanContext, WriteVariables } from './payload-row.js';
import {
  changedKey,
  contradiction,
  type Dispute,
  refuseCircles,
  settleDispute,
  settleParts,
} from './resolve-conflicts.js';
import { fieldsOf, isSame, type RowChecks, shapeList, shapeOfWrite } from './row-shape.js';
import type { ConflictTarget, PlannedWrite, Unlink, Validation, Verb, WriteInput, WritePlan } from './write.js';

/** Rows that are only inserted, or only updated, need no values per verb: one object for all of them saves memory. */
const NO_VALUES_PER_VERB: Row['only'] = { insert: new Map(), update: new Map() };

export type VariableName = 'now' | 'user' | 'role';

interface Unlinks {
  readonly unlink: Unlink;
  readonly entries: Record<string, unknown>[];
}

const CREATED_FLAGS: Readonly<Record<string, VariableName>> = {
  'date-created': 'now',
  'user-created': 'user',
  'role-created': 'role',
};
const UPDATED_FLAGS: Readonly<Record<string, VariableName>> = {
  'date-updated': 'now',
  'user-updated': 'user',
  'role-updated': 'role',
};

/** The rows of a to-many relation: their collection, their reference, and the action on rows that leave. */
interface LinkedRows {
  readonly collection: Collection;
  readonly field: Field;
  readonly action: Unlink['action'];
}

export class Rows {
  readonly #lists: List[] = [];
  readonly #byVerb: Readonly<Record<Verb, Map<Collection, List>>> = {
    insert: new Map(),
    update: new Map(),
    upsert: new Map(),
  };
  readonly #unlinks = new Map<string, Unlinks>();
  readonly #deleted = new Set<string>();
  readonly #disputes: Dispute[] = [];
  #count = 0;

  constructor(
    private readonly context: WritePlanContext,
    private readonly guard: Guard | null,
    private readonly conflict: ConflictTarget | null = null,
  ) {}

  add(collection: Collection, verb: Verb, key: Key | null, path: string): Row {
    checkKeyed(collection);
    const list = this.#list(collection, verb);
    if (key !== null) this.#refuseTwice(collection, verb, key, path);
    const named = key === null ? undefined : this.#existingRow(collection, verb, key);
    if (named) return named;
    this.#countRows(1);
    const only = verb === 'upsert' ? { insert: new Map(), update: new Map() } : NO_VALUES_PER_VERB;
    const number = list.rows.length;
    const row: Row = {
      collection,
      verb,
      number,
      key,
      columnValues: new Map(),
      only,
      fields: new Set(),
      writesRelated: false,
      claims: null,
      path,
    };
    list.rows.push(row);
    if (key !== null) list.byKey.set(String(key), row);
    return row;
  }

  /** An item cannot be new in one place of the payload and exist in another. */
  #refuseTwice(collection: Collection, verb: Verb, key: Key, path: string): void {
    for (const other of ['insert', 'update', 'upsert'] as const) {
      const isNamed = this.#byVerb[other].get(collection)?.byKey.has(String(key));
      if (
        ((verb === 'insert') !== (other === 'insert') && isNamed) ||
        (verb === 'insert' && this.#deleted.has(`${collection.name}/${key}`))
      ) {
        throw invalidPayload(
          `"${path || collection.name}" contradicts another part of the payload about item ${key} of "${collection.name}"`,
        );
      }
    }
  }

  /** The same item, updated in one place and made or updated in another, would be written twice by one statement. */
  #existingRow(collection: Collection, verb: Verb, key: Key): Row | undefined {
    if (verb === 'insert') return undefined;
    for (const other of ['update', 'upsert'] as const) {
      const row = this.#byVerb[other].get(collection)?.byKey.get(String(key));
      if (row) return row;
    }
    return undefined;
  }

  set(row: Row, field: Field, columnValue: ColumnValue, path: string): void {
    const isNull = columnValue.kind === 'value' && columnValue.value === null;
    if (isNull && this.#refusesNull(row, field)) throw failedValidation(field, 'nnull', path);
    const before = row.columnValues.get(field.name);
    if (!before || isSame(before, columnValue)) {
      row.columnValues.set(field.name, columnValue);
      return;
    }
    if (before.kind === 'value' && columnValue.kind === 'value') throw contradiction(path, row.collection, field);
    if (before.kind === 'operated' || columnValue.kind === 'operated')
      throw invalidPayload(`"${path}": the payload writes this field of the item twice, and an operator applies once`);
    row.columnValues.set(field.name, { kind: 'several', values: [before, columnValue] });
    this.#disputes.push({ row, field, path });
  }

  #refusesNull({ collection }: Row, field: Field): boolean {
    if (this.context.isPartial && !isKey(collection, field)) return false;
    return (field.column?.is_nullable === false && !field.column.is_filled) || isNullablePart(collection, field);
  }

  /** Checks that the value which a payload gives a part of a known key is the same. */
  claim(row: Row, field: Field, columnValue: ColumnValue, path: string): void {
    const part = row.key === null ? undefined : keyPart(row.collection, row.key, field);
    if (columnValue.kind === 'value' && String(givenPart(field, columnValue.value)) === part) return;
    // A key that the database makes is new, so it cannot be that of an item which exists.
    if (columnValue.kind !== 'reference' || !columnValue.part) throw changedKey(path, row.collection);
    row.claims ??= new Map();
    const before = row.claims.get(field.name);
    row.claims.set(field.name, before ? { kind: 'several', values: [before, columnValue] } : columnValue);
    this.#disputes.push({ row, field, path });
  }

  /** Rows listed in `keys`, or all rows that the payload does not name, leave the parent. */
  unlink(link: LinkedRows, parent: Row, keys: readonly Key[] | null): void {
    const { collection, field, action } = link;
    const name = `${action} ${collection.name} ${field.name}${this.guard && keys ? ' strict' : ''}`;
    const planned = this.#unlinks.get(name) ?? {
      unlink: this.#planUnlink(link, parent.collection, keys !== null),
      entries: [],
    };
    this.#unlinks.set(name, planned);
    if (parent.key === null) throw new Error('only rows that exist have others to unlink');
    const from = keyEntries(parent.collection, 'parent', parent.key);
    if (!keys) planned.entries.push({ ...from, child: null });
    for (const child of keys ?? []) {
      planned.entries.push({ ...from, ...keyEntries(collection, 'child', child) });
      if (action === 'delete') this.#deleted.add(`${collection.name}/${child}`);
    }
    this.#countRows(keys?.length ?? 0);
  }

  #planUnlink({ collection, field, action }: LinkedRows, from: Collection, named: boolean): Unlink {
    const guard = this.guard?.unlinked(collection, field, action) ?? null;
    const relation = field.relation?.kind === 'many-to-one' ? field.relation : null;
    return {
      collection,
      field,
      columns: relation ? holdingFields(this.context.model, relation) : [field],
      from,
      key: relation ? referencedFields(from, relation) : [requireSingleKey(from)],
      action,
      guard,
      strict: named && this.guard !== null,
    };
  }

  /** A new row of a sorted relation goes to its end, unless it says where. */
  append(child: Row, parent: Field, sortField: string, position: number): void {
    const field = child.collection.fields.get(sortField);
    if (!field?.column || isKey(child.collection, field) || child.columnValues.has(sortField)) return;
    child.columnValues.set(sortField, { kind: 'end', position, parent });
  }

  async finish(collection: Collection, root: readonly number[], keys: readonly Key[] | null): Promise<PlannedWrite> {
    const lists = this.#lists.filter((list) => list.rows.length > 0);
    for (const list of lists) {
      const fields = completedFields(list.collection);
      await forEachInSlices(list.rows, (row, position) => {
        this.#checkTime(position);
        this.#complete(row, fields);
      });
    }
    await forEachInSlices(this.#disputes, settleDispute);
    for (const list of lists)
      await forEachInSlices(list.rows, (row) => {
        const key = settleParts(row) ?? row.key;
        if (key !== null && row.verb === 'insert') this.#refuseTwice(row.collection, 'insert', key, row.path);
      });
    refuseCircles(lists);
    const shaped: Awaited<ReturnType<typeof shapeList>>[] = [];
    for (const list of lists) shaped.push(await shapeList(list, await this.#checksOf(list)));
    const unlinks = [...this.#unlinks.values()];
    const plan: WritePlan = {
      kind: 'write',
      collection,
      nodes: shaped.map(({ node }) => node),
      unlinks: unlinks.map(({ unlink }) => unlink),
      makesKeys: keys === null,
    };
    const input: WriteInput = {
      nodes: shaped.map(({ rows }) => rows),
      unlinks: unlinks.map(({ entries }) => entries),
      root,
      by: this.context.author,
    };
    const paths = lists.map((list) => list.rows.map((row) => row.path));
    return {
      model: this.context.model,
      plan,
      input,
      shape: `${this.guard?.key ?? ''}${shapeOfWrite(plan)}`,
      paths,
      keys,
    };
  }

  /** The permissions that the caller needs, and the conditions of the rows. */
  async #checksOf({ collection, verb, rows }: List): Promise<RowChecks> {
    const validations = planFieldValidations(fieldsOf(rows, collection), collection, this.context.model);
    const guard = this.guard;
    const readable = guard ? guard.readable(collection) : collection;
    const privileges = guard?.privileges(collection) ?? null;
    if (!guard) return { guard, needBits: [], validations, readable, privileges };
    if (verb !== 'update') {
      await forEachInSlices(rows, (row) => guard.check('create', collection, [...row.fields], row.path));
      const rules = guard.grant('create', collection).validations;
      validations.push(...planValidations(rules, collection, this.context.model, 'insert'));
    }
    if (verb === 'insert') return { guard: null, needBits: [], validations, readable, privileges };
    const isLink = (row: Row): boolean => verb === 'upsert' && row.fields.size === 0;
    const changedFields: (string[] | null)[] = [];
    const changed = ({ fields: names }: Row): string[] =>
      this.conflict ? changedNames([...names], collection, this.conflict) : [...names];
    const operatedFields: string[][] = [];
    await forEachInSlices(rows, (row) => {
      changedFields.push(isLink(row) ? null : changed(row));
      operatedFields.push(operatedNames(row));
    });
    if (changedFields.some((names) => names !== null)) {
      const rules = guard.grant('update', collection).validations;
      validations.push(...planValidations(rules, collection, this.context.model, 'update'));
    }
    return { ...(await guard.rows(collection, changedFields, operatedFields)), validations, readable, privileges };
  }

  /** Presets of policies for fields that the payload leaves out. */
  #applyPresets(row: Row, action: 'create' | 'update', columnValues: Map<string, ColumnValue>): void {
    if (!this.guard?.covers(action, row.collection, [])) return;
    for (const [name, value] of Object.entries(this.guard.grant(action, row.collection).presets)) {
      const field = row.collection.fields.get(name);
      if (!field?.column || row.columnValues.has(name) || columnValues.has(name)) continue;
      // An item keeps the values by which it was found.
      if (action === 'update' && this.conflict?.fields.includes(field)) continue;
      // A part of a key of several columns is given to new rows alone, like the key itself.
      if (isKey(row.collection, field) && (row.verb !== 'insert' || field === singleKey(row.collection))) continue;
      columnValues.set(name, presetValue(field, value, this.context.variables, this.context.model));
    }
  }

  /** Values by flags of the service, then required values that are missing. */
  #complete(row: Row, fields: readonly CompletedField[]): void {
    const { verb } = row;
    const inserted = verb === 'upsert' ? row.only.insert : row.columnValues;
    const changed = verb === 'upsert' ? row.only.update : row.columnValues;
    if (verb === 'upsert')
      for (const field of this.conflict?.fields ?? []) moveColumnValue(field, row.columnValues, inserted);
    if (verb === 'update' || (verb === 'upsert' && row.fields.size > 0)) this.#applyPresets(row, 'update', changed);
    if (verb !== 'update') this.#applyPresets(row, 'create', inserted);
    const touched = row.writesRelated || row.columnValues.size + changed.size > 0;
    for (const { field, first, later } of fields) {
      // The service alone says when an item was made and changed.
      if (verb === 'upsert' && (first || later)) row.columnValues.delete(field.name);
      if (first && verb !== 'update') inserted.set(field.name, { kind: 'value', value: this.context.variables[first] });
      if (later && verb !== 'insert' && touched)
        changed.set(field.name, { kind: 'value', value: this.context.variables[later] });
      if (verb === 'insert') this.#completeNew(row, field);
      // The key of an item that turns out to be new is made by the statement.
      if (verb === 'upsert' && this.conflict && !isKey(row.collection, field)) this.#makeUuid(row, field, inserted);
    }
  }

  #completeNew(row: Row, field: Field): void {
    const { column } = field;
    const isKnown = row.key !== null && isKey(row.collection, field);
    if (!column || isKnown || row.columnValues.has(field.name)) return;
    if (this.#makeUuid(row, field, row.columnValues) || this.context.isPartial) return;
    if (column.is_generated && isKey(row.collection, field)) throw unsaidKey(row.path, field);
    if (needsValue(column) || isNullablePart(row.collection, field))
      throw failedValidation(field, 'required', row.path === '' ? field.name : `${row.path}.${field.name}`);
  }

  #makeUuid(row: Row, field: Field, columnValues: Map<string, ColumnValue>): boolean {
    if (!field.special.includes('uuid') || field.column?.default_expression !== null) return false;
    if (field === singleKey(row.collection)) (row as { key: Key | null }).key ??= this.context.newUuid();
    else if (!row.columnValues.has(field.name) && !columnValues.has(field.name))
      columnValues.set(field.name, { kind: 'value', value: this.context.newUuid() });
    return true;
  }

  #list(collection: Collection, verb: Verb): List {
    const existing = this.#byVerb[verb].get(collection);
    if (existing) return existing;
    const list: List = { collection, verb, rows: [], byKey: new Map(), conflict: this.conflict };
    this.#byVerb[verb].set(collection, list);
    this.#lists.push(list);
    return list;
  }

  #countRows(rows: number): void {
    this.#count += rows;
    checkRows(this.#count, this.context.maxRows);
    this.#checkTime(this.#count);
  }

  /** To be called for each row, with its number. */
  #checkTime(row: number): void {
    const { until } = this.context;
    if (until !== undefined && row % ROWS_PER_CLOCK_CHECK === 0 && now() > until) throw ranTooLong();
  }
}

const ROWS_PER_CLOCK_CHECK = 256;

/** The statement knows the keys of new items before it makes them. */
function unsaidKey(path: string, { name }: Field): Error {
  return invalidPayload(
    `"${path === '' ? name : `${path}.${name}`}" is required: the database generates this part of the key, so the payload must contain its value`,
  );
}

/** A column of a declared composite key that the database allows to be null. */
function isNullablePart(collection: Collection, field: Field): boolean {
  const { column } = field;
  if (singleKey(collection) || collection.kind === 'view' || !column?.is_nullable || !isKey(collection, field))
    return false;
  return !column.is_filled && !column.is_generated && column.default_expression === null;
}

/** The columns that a merge sets: those by which an item is found are equal, and its key is kept. */
export function changedNames(names: readonly string[], collection: Collection, { fields }: ConflictTarget): string[] {
  const identifyingNames = new Set([...collection.key, ...fields].map(({ name }) => name));
  return names.filter((name) => {
    const { column, relation } = collection.fields.get(name) ?? { column: null, relation: null };
    if (column || relation?.kind !== 'many-to-one') return !identifyingNames.has(name);
    return !relation.columns.every((each) => identifyingNames.has(each.column));
  });
}

export function checkRows(rows: number, most: number | null): void {
  if (most !== null && rows > most)
    throw invalidPayload(`Exceeded max batch mutation limit of ${most}`, {
      option: 'MAX_BATCH_MUTATION',
      limit: most,
    });
}

/** The fields whose stored values the row reads. */
function operatedNames({ columnValues }: Row): string[] {
  const names: string[] = [];
  for (const [name, { kind }] of columnValues) if (kind === 'operated') names.push(name);
  return names;
}

function moveColumnValue({ name }: Field, from: Map<string, ColumnValue>, to: Map<string, ColumnValue>): void {
  const value = from.get(name);
  if (value) to.set(name, value);
  from.delete(name);
}

/** A field that the service fills, or that the database would miss. */
interface CompletedField {
  readonly field: Field;
  readonly first: VariableName | null;
  readonly later: VariableName | null;
}

function completedFields(collection: Collection): CompletedField[] {
  return [...collection.fields.values()].flatMap((field) => {
    const { column, special } = field;
    const [first, later] = [flaggedVariable(field, CREATED_FLAGS), flaggedVariable(field, UPDATED_FLAGS)];
    const isGeneratedKey = column?.is_generated === true && isKey(collection, field);
    const isMissed = column !== null && (isGeneratedKey || needsValue(column) || isNullablePart(collection, field));
    return column && (first || later || isMissed || special.includes('uuid')) ? [{ field, first, later }] : [];
  });
}

/** The variable that a flag of the field puts into a row, whatever the payload says. */
export function filledVariable(field: Field, verb: Verb): VariableName | null {
  return flaggedVariable(field, verb === 'insert' ? CREATED_FLAGS : UPDATED_FLAGS);
}

function flaggedVariable(field: Field, flags: Readonly<Record<string, VariableName>>): VariableName | null {
  const flag = field.special.find((each) => each in flags);
  return flag === undefined ? null : (flags[flag] ?? null);
}

type PresetValue = Extract<ColumnValue, { kind: 'value' | 'caller' }>;

/** The preset of a policy for a field that the payload leaves out: a value, or a variable of the caller. */
function presetValue(field: Field, value: unknown, variables: WriteVariables, model: Model): PresetValue {
  try {
    const variable = typeof value === 'string' ? parseVariable(value) : null;
    if (variable?.kind === 'path') return { kind: 'caller', plan: planCaller(variable.name, variable.path, model) };
    const resolved = variable ? resolveVariable(variable.text, variables) : value;
    return { kind: 'value', value: checkValue(field, resolved, field.name) };
  } catch {
    // A preset that is not valid must not be dropped: the write is refused.
    throw forbidden();
  }
}

/**
 * Validations: filters of policies and fields that written values must meet. They are planned like any other filter, each
 * condition apart, so that an error can name the field and the operator that failed.
 */
function planValidations(
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
function planFieldValidations(fields: readonly Field[], collection: Collection, model: Model): Validation[] {
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
      const described = describeFilter(each);
      return { ...described, on, condition: plan(each, collection, model), message };
    });
  } catch {
    return null;
  }
}

function plan(filter: Filter, collection: Collection, model: Model): Condition {
  return planFilter(filter, collection, { model, maxNodes: Number.MAX_SAFE_INTEGER, nodes: 0 }, 'validation');
}

/** The separate conditions of a filter. Conditions on one list of related rows stay together, because they apply to the same row. */
function conditionsOf(filter: Filter, collection: Collection): Filter[] {
  if (filter.kind === 'and') return filter.filters.flatMap((each) => conditionsOf(each, collection));
  if (filter.kind !== 'field' || filter.filter.kind !== 'and') return [filter];
  if (collection.fields.get(filter.name)?.relation?.kind === 'one-to-many') return [filter];
  return filter.filter.filters.flatMap((each) => conditionsOf({ ...filter, filter: each }, collection));
}

/** The first of several alternatives: all of them failed. */
function describeFilter(filter: Filter): Pick<Validation, 'field' | 'type' | 'operand'> {
  switch (filter.kind) {
    case 'and':
    case 'or': {
      const [first] = filter.filters;
      return first ? describeFilter(first) : CHECK;
    }
    case 'field':
      return { ...describeFilter(filter.filter), field: filter.name };
    case 'function':
      return { ...describeFilter(filter.filter), field: filter.expression.path[0] ?? null };
    case 'compare':
      return { field: null, type: filter.operator, operand: constantOf(filter.value) };
    case 'json':
      return CHECK;
    default:
      return { ...describeFilter(filter.filter), field: null };
  }
}

const CHECK = { field: null, type: 'check', operand: null };

function constantOf(value: Operand): unknown {
  return value?.kind === 'slot' && typeof value.slot === 'object' ? value.slot.constant : null;
}
