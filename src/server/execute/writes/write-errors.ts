/** The errors of a write in the words of its payload; what it waits for before, and what it counts. */
import {
  changedMeanwhile,
  ErrorWithLogDetail,
  failedValidation,
  invalidPayload,
  preconditionFailed,
  ServiceError,
  serviceUnavailable,
} from '../../../base/errors.js';
import { codeOf, elementAt, onlyOf, propertiesOf } from '../../../base/narrow.js';
import {
  fromWrite,
  isMisfit,
  isRuleRefusal,
  type Naming,
  type RefusedByDomain,
  refusedByDomain,
  staleness,
} from '../../../base/sqlstate.js';
import { keyNames } from '../../../compiler/model/item-key.js';
import { type Collection, type Column, type Field, isSecretField, type Model } from '../../../compiler/model/model.js';
import type { WriteEvent } from '../../../compiler/model/write-facts.js';
import type { Access } from '../../../compiler/plan/access.js';
import { isKnownTo } from '../../../compiler/plan/access.js';
import { duplicateEntry, mismatchedKey } from '../../../compiler/plan/write/conflict.js';
import { differsFromGenerated } from '../../../compiler/plan/write/payload-fields.js';
import { changedKey, contradiction } from '../../../compiler/plan/write/resolve-conflicts.js';
import type { PlannedWrite, Validation, WriteColumn } from '../../../compiler/plan/write/write.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import { asConflict, isConflict, isMoved } from '../../postgres/pools/conflicts.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { refusedWrite } from '../distributed.js';
import { refusedInPayload } from '../reads/refused-values.js';
import { isRepeated } from './idempotency.js';

/** The error of a write, in the words of its payload. */
export function asWriteError(error: unknown, model: Model, access: Access | null): unknown {
  if (isRepeated(error)) return error;
  // If the items in between have many fields, the stack overflows before the limit on levels is reached.
  if (error instanceof RangeError) return invalidPayload('The payload is nested too deeply');
  return fromWrite(error, namingOf(model, access));
}

/** The error of an import that was not repeated, or not once more; it is that of a row if only a row is wrong. */
export function asImportError(error: unknown, model: Model): unknown {
  if (staleness(error) === 'certain' || isMoved(error))
    return serviceUnavailable('database', 'Its schema changed during the import: nothing was imported');
  return isConflict(error) ? asWriteError(error, model, null) : error;
}

/** Names that errors of the database leave out, if only one is possible and the caller may know it. */
export function namingOf(model: Model, access: Access | null): Naming {
  const find = (schema: string, table: string): Collection | undefined =>
    [...model.collections.values()].find((each) => each.table === table && each.schema === schema);
  return {
    isHidden: (schema, table) => {
      const collection = find(schema, table);
      return access !== null && (!collection || !isKnownTo(collection, access, model));
    },
    collection: (schema, table) => find(schema, table)?.name ?? table,
    constrained: (schema, table, constraint) => {
      const isOn = ({ column }: Field): boolean =>
        column !== null && [...column.foreign_keys, ...column.indexes].some(({ name }) => name === constraint);
      return onlyOf([...(find(schema, table)?.fields.values() ?? [])].filter(isOn))?.name ?? null;
    },
    shownValue: (schema, table, name, text) => {
      const field = find(schema, table)?.fields.get(name);
      if (model.synonyms === undefined || !field || isSecretField(field)) return null;
      const seen = access === null ? field : access.view(model).collections.get(field.collection)?.fields.get(name);
      if (!seen) return null;
      return field.type === 'integer' ? Number(text) : text;
    },
    holder: (type) => {
      const fields = [...model.collections.values()].flatMap((collection) => [...collection.fields.values()]);
      return onlyOf(fields.filter((field) => field.column?.data_type === type));
    },
  };
}

/** The number of rows of the collection that is written, with those nested in its own. */
export function rowsOf({ plan, input }: PlannedWrite): number {
  const counts = plan.nodes.map(({ collection }, position) =>
    collection === plan.collection ? (input.nodes[position]?.length ?? 0) : 0,
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

/** The error for a failed statement of a write: another request came first, or a value is refused. */
export function asWriteFailure(error: unknown, planned: PlannedWrite): unknown {
  if (isRefused(error) && error.message === 'changed') return changedMeanwhile();
  const refused =
    refusedWrite(error, planned) ??
    asRuleRefusal(error, writtenTables(planned)) ??
    domainRefusal(error, planned) ??
    operatorOverflow(error, planned);
  return refused ?? asConflict(error, planned) ?? asRefusedValue(error, planned) ?? fromValidation(error, planned);
}

/** The error of a write whose items must be new: another item may have the key, or the values of `on_conflict`. */
export function asExisting(error: unknown, request: WriteRequest, model: Model): unknown {
  if (request.kind !== 'create' || !request.isNew) return error;
  const { collection: name, onConflict } = request;
  const collection = model.collections.get(name);
  if (!collection || !(error instanceof ServiceError) || error.extensions['type'] !== 'unique') return error;
  const { collection: met, field } = error.extensions;
  if (met !== name && collection.kind !== 'view') return error;
  const names = String(field).split(', ').sort().join();
  const isKey = (key: readonly string[]): boolean => [...key].sort().join() === names;
  return isKey(keyNames(collection)) || isKey(onConflict?.columns ?? [])
    ? preconditionFailed('The item exists already')
    : error;
}

/** The client's error for a failed deletion. */
export function asDeleteFailure(error: unknown, collection: Collection): unknown {
  if (isRefused(error) && error.message === 'changed') return changedMeanwhile();
  if (isRefused(error) && error.message === 'skipped') return leftOut('deletion', collection, '');
  return asRuleRefusal(error, [[collection, 'delete']]) ?? error;
}

function leftOut(what: string, { name }: Collection, path: string): Error {
  return invalidPayload(
    `A trigger of the database left out the ${what} of ${path === '' ? 'an item' : `"${path}"`} of "${name}"`,
  );
}

type WrittenTable = readonly [collection: Collection, event: WriteEvent];

function writtenTables({ plan: { nodes, unlinks } }: PlannedWrite): WrittenTable[] {
  const events = { insert: ['insert'], update: ['update'], upsert: ['update', 'insert'] } as const;
  return [
    ...nodes.flatMap(({ collection, verb }) => events[verb].map((event): WrittenTable => [collection, event])),
    ...unlinks.map(({ collection, action }): WrittenTable => [collection, action === 'delete' ? 'delete' : 'update']),
  ];
}

/** PostgreSQL applies few rules to statements that return rows, and none to several statements of a chain; null for other errors. */
function asRuleRefusal(error: unknown, tables: readonly WrittenTable[]): unknown {
  if (!isRuleRefusal(error)) return null;
  const [collection] =
    tables.find(([{ rules }, event]) => rules.some((rule) => rule.event === event)) ?? tables[0] ?? [];
  if (!collection) return null;
  const reason = `"${collection.name}" cannot be written: PostgreSQL does not apply the rule of its table ("create rule") to statements that return rows. Use a trigger instead of the rule`;
  return new ErrorWithLogDetail(invalidPayload(reason), error.message);
}

/** The refusal that names the value, or null for other errors and if the value is not known. */
function asRefusedValue(error: unknown, planned: PlannedWrite): unknown {
  return isMisfit(error) ? refusedInPayload(error, planned) : null;
}

/** By `service_refuse`. */
function isRefused(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && error.code === 'LT400';
}

/** A validation that failed says its place in the plan and the number of the row. */
function fromValidation(error: unknown, planned: PlannedWrite): unknown {
  if (!isRefused(error)) return error;
  const { plan, paths } = planned;
  const [place, word, number, column] = error.message.split(' ');
  const [position, index, row] = [Number(place), Number(word), Number(number)];
  const node = plan.nodes[position];
  if (node?.conflict && (word === 'twice' || word === 'key')) {
    const entry = paths[position]?.[row] ?? '';
    return word === 'twice'
      ? duplicateEntry(entry, node.conflict)
      : mismatchedKey(entry, node.collection, node.conflict);
  }
  if (node && word === 'differs') {
    const { field, only } = elementAt(node.columns, Number(column));
    const differing = [paths[position]?.[row], field.name].filter((each) => each).join('.');
    return only === 'key' ? changedKey(differing, node.collection) : contradiction(differing, node.collection, field);
  }
  if (node && word === 'operator') {
    const operated = elementAt(node.columns, Number(column));
    const place = [paths[position]?.[row], operated.field.name].filter((each) => each).join('.');
    return mismatchedJson(place, operated);
  }
  if (node && word === 'skipped') return leftOut('change', node.collection, paths[position]?.[Number(number)] ?? '');
  if (node && word === 'lost')
    return invalidPayload(
      `A trigger of the database left out new items of "${node.collection.name}" and changed the keys of others: send one item per request`,
    );
  if (node && word === 'kept') {
    const { field } = elementAt(node.columns, Number(column));
    return differsFromGenerated([paths[position]?.[row], field.name].filter((each) => each).join('.'));
  }
  if (node && word === 'generated') {
    const names = node.collection.key.filter(({ column: made }) => made?.is_generated).map(({ name }) => `"${name}"`);
    return invalidPayload(
      `The key of "${node.collection.name}" would differ from the one in the payload: ${names.join(', ')} is generated by the database`,
    );
  }
  const validation = node?.validations[index];
  if (!node || !validation) return error;
  const path = [paths[position]?.[row], validation.field].filter((each) => each).join('.');
  const { name: collection } = node.collection;
  // Only clients of Directus read the values: rules of permissions stay hidden from the others.
  const details = planned.model.synonyms
    ? detailsOf(validation, () => sentValue(planned, position, row, validation))
    : {};
  return failedValidation({ collection, name: validation.field, details }, validation.type, path, validation.message);
}

const EXPECTED: ReadonlySet<string> = new Set(['eq', 'lt', 'lte', 'gt', 'gte', 'in', 'between']);
const REFUSED: ReadonlySet<string> = new Set(['neq', 'nin', 'nbetween']);

/** The values of the error, as Directus names them. */
function detailsOf({ type, operand }: Validation, sent: () => unknown): Readonly<Record<string, unknown>> {
  if (type === 'regex') return { invalid: sent() };
  if (operand === null) return {};
  if (EXPECTED.has(type)) return { valid: operand };
  if (REFUSED.has(type)) return { invalid: operand };
  return typeof operand === 'string' && /contains|_with$/.test(type) ? { substring: operand } : {};
}

function sentValue({ plan, input }: PlannedWrite, position: number, row: number, { field }: Validation): unknown {
  const index = plan.nodes[position]?.columns.findIndex((column) => column.field.name === field);
  return input.nodes[position]?.[row]?.[`c${index}`] ?? null;
}

/**
 * Holds an advisory lock on the collection until the transaction ends. The lock is a separate statement, so that the snapshot of the
 * next statement contains the writes of the previous holder.
 */
export async function lock(collection: Collection, session: Session): Promise<void> {
  const name = `${collection.schema}.${collection.table}`;
  await session.query(
    withCatalog("select pg_advisory_xact_lock(hashtextextended('lateral ' || $1::text, 0))"),
    [name],
    {
      prepare: true,
    },
  );
}

/** The stored JSON is of another kind than the operator needs. */
function mismatchedJson(place: string, { operators }: WriteColumn): Error {
  const needed = operators.map((each) => `"_${each}" needs ${each === 'merge' ? 'an object' : 'a list'}`).join(', ');
  return invalidPayload(`"${place}": the stored value is of another kind. ${needed}`);
}

/** SQLSTATEs of a result that its column cannot hold. */
const OVERFLOWS: Readonly<Record<string, 'out_of_range' | 'too_long'>> = {
  22001: 'too_long',
  22003: 'out_of_range',
  22008: 'out_of_range',
};

/** PostgreSQL does not name the column that cannot hold a result. The field is named if only one is possible; null for other errors. */
function operatorOverflow(error: unknown, { plan, input, paths }: PlannedWrite): ServiceError | null {
  const type = OVERFLOWS[codeOf(error)];
  // Errors of a trigger or function have a context.
  if (!type || propertiesOf(error)['where'] !== undefined) return null;
  const mayOverflow = ({ field: { column }, operators, holdsValues }: WriteColumn): boolean => {
    if (type === 'too_long') return operators.includes('append');
    // A value with more digits than the scale is rounded, and may then be too large.
    const isRounded = holdsValues && column?.base_type === 'numeric' && column.numeric_precision !== null;
    return isRounded || operators.includes('increment') || operators.includes('decrement');
  };
  const candidates = plan.nodes.flatMap(({ columns }, position) =>
    columns.filter(mayOverflow).map((column) => ({ column, position })),
  );
  if (!candidates.some(({ column }) => column.operators.length > 0)) return null;
  const only = onlyOf(candidates);
  if (!only) return failedValidation({ collection: null, name: null }, type);
  const { field } = only.column;
  const isOne = input.nodes[only.position]?.length === 1;
  const path = isOne ? [paths[only.position]?.[0], field.name].filter((each) => each).join('.') : null;
  return failedValidation(field, type, path);
}

interface Candidate {
  readonly field: Field;
  readonly path: string;
}

/**
 * The refusal of a domain, with the field: PostgreSQL names only the domain. It checks a value of the domain itself when the row is
 * written, and one inside an array or composite value when that is parsed: the routine in the error says which. Returns null for other
 * errors, and if the payload has no value of the domain.
 */
function domainRefusal(error: unknown, { plan, input, paths }: PlannedWrite): ServiceError | null {
  const refused = refusedByDomain(error);
  if (!refused) return null;
  const candidates = plan.nodes.flatMap((node, position) =>
    node.columns.flatMap(({ field, holdsValues }, index): Candidate[] => {
      if (!holdsValues || !field.column || !holds(field.column, refused)) return [];
      const rows = (input.nodes[position] ?? []).flatMap((row, number) => (row[`c${index}`] == null ? [] : [number]));
      const row = onlyOf(rows);
      return rows.length === 0
        ? []
        : [{ field, path: row === null ? '' : [paths[position]?.[row], field.name].filter((each) => each).join('.') }];
    }),
  );
  const [first] = candidates;
  if (!first) return null;
  const { type, constraint } = refused;
  const check = constraint === undefined ? {} : { constraint };
  const { collection, name } = first.field;
  if (candidates.length === 1) return failedValidation({ collection, name, ...check }, type, first.path || null);
  const names = [...new Set(candidates.map(({ field }) => `"${field.name}" of "${field.collection}"`))];
  return failedValidation(
    {
      collection: candidates.every(({ field }) => field.collection === collection) ? collection : null,
      name: null,
      ...check,
    },
    type,
    null,
    `Validation failed. A value for ${names.join(' or ')} is refused by the domain "${refused.domain}" of the database${constraint === undefined ? '' : ` (constraint "${constraint}")`}.`,
  );
}

/** Whether the domain checks values of the column in the way in which it refused one. */
function holds({ data_type, inner, composite }: Column, { domain, isInside }: RefusedByDomain): boolean {
  const own = data_type.split('.').at(-1)?.replace(/^"|"$/g, '') === domain;
  return isInside ? inner?.type === domain || composite !== null : own;
}
