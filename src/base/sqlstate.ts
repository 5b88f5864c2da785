/**
 * The meaning of PostgreSQL's errors for the caller. They are recognised by SQLSTATE and fields, never by their words, which are in
 * the language of the server.
 */
import {
  ErrorWithLogDetail,
  failedValidation,
  forbidden,
  invalidPayload,
  invalidQuery,
  lockedByOthers,
  ranTooLong,
  ServiceError,
  serviceUnavailable,
  type ValidationType,
} from './errors.js';
import { messageOf, propertiesOf } from './narrow.js';

interface DatabaseFailure {
  /** The SQLSTATE, or what the driver and the system say of a connection. */
  readonly code: string;
  /** Where in the statement, or in one of a function's, the parser stopped. */
  readonly position?: string;
  readonly internal_position?: string;
  /** The context inside the statement. */
  readonly where?: string;
  /** The source file of PostgreSQL or of an extension. */
  readonly file?: string;
  readonly routine?: string;
  /** Not translated. */
  readonly severity?: string;
  /** Whether it is about a text that the request did not send: a policy, trigger or view failed on a value of its own. */
  readonly unsent?: boolean;
}

/** A table, column, type or schema does not exist: statements name only what the model has, so the model is out of date. */
const STALE = new Set(['42P01', '42703', '42704', '3F000']);

/** No such operator, or types that do not match: a column may have changed its type, or the request compares what cannot be. */
const PERHAPS_STALE = new Set(['42883', '42804', '42846']);
/** A type that does not fit, and one that cannot be cast to another. */
const MISTYPED = new Set(['42804', '42846']);

/**
 * Functions that show a column of one type (src/compiler/compile/output.ts), whatever was asked: where there is none for the column,
 * its type has changed. Messages may be in any language; the name stands in all of them.
 */
const SHOWING = /\b(int[248]out|numeric_out|uuid_out|jsonb?_out|booleq|isfinite|encode|string_to_array)\(/;

/** A syntax error, a wrong or ambiguous name, or nothing by that name. */
const UNREADABLE = new Set(['42601', '42602', '42725', '42P02', '42883', ...STALE]);

/**
 * Some types read their values as names or small languages (`regclass`, `tsvector`, `jsonpath`, ...) and complain in the
 * words of statements. An error of the statement itself has a position in it. `regtype`, whose values the parser
 * reads, gives one as well, and names itself in the context.
 */
function isUnreadableValue(error: DatabaseFailure): boolean {
  const { code, position, internal_position: inner, where } = error;
  if (isRefusedByType(error)) return true;
  if (!UNREADABLE.has(code) || inner !== undefined) return false;
  return position === undefined || (code === '42601' && where !== undefined);
}

/**
 * Types that have no code of their own for values that they refuse: rasters and, before PostgreSQL 16, hstore report a fault of PostgreSQL,
 * and vectors of oids a wrong type.
 */
function isRefusedByType({ code, file, routine }: DatabaseFailure): boolean {
  if (code === 'XX000') return file !== undefined && /^(rtp|hstore)/.test(file);
  return code === '42804' && routine !== undefined && routine.startsWith('check_valid_');
}

/** PostGIS has one code for all that it cannot do, which PostgreSQL keeps for its own faults: a shape that cannot be projected, ... */
function isShapeFailure({ code, file }: DatabaseFailure): boolean {
  return code === 'XX000' && file !== undefined && /^(lwgeom|geography|gserialized)/.test(file);
}

/** "cached plan must not change result type": a type has changed since the statement was prepared. */
export function isPlanOutdated(error: unknown): boolean {
  return isDatabaseFailure(error) && error.code === '0A000' && error.routine === 'RevalidateCachedQuery';
}

/** The rewriter of PostgreSQL refuses: a table has a rule that it does not apply to such a statement. */
export function isRuleRefusal(error: unknown): error is Error {
  return (
    error instanceof Error && isDatabaseFailure(error) && error.code === '0A000' && error.routine === 'RewriteQuery'
  );
}

type Staleness = 'certain' | 'possible' | null;

/** Whether the model behind a statement that failed is out of date. */
export function staleness(error: unknown): Staleness {
  if (!isDatabaseFailure(error)) return null;
  if (isPlanOutdated(error)) return 'certain';
  if (STALE.has(error.code)) return isUnreadableValue(error) ? null : 'certain';
  if (error.code === '42883' && error instanceof Error && SHOWING.test(error.message)) return 'certain';
  // The types in a statement are those of the model; inside a trigger or function they are not.
  if (MISTYPED.has(error.code) && error.where === undefined && !isRefusedByType(error)) return 'certain';
  return PERHAPS_STALE.has(error.code) ? 'possible' : null;
}

/** An error that says that a value could not be read. */
export interface RefusedValue {
  readonly code: string;
  readonly message: string;
}

/** The error of a statement whose values are the request's, whatever the connection found among its parameters. */
export function asSent(error: unknown): unknown {
  return isDatabaseFailure(error) && error.unsent ? Object.assign(error, { unsent: false }) : error;
}

/**
 * `use` says what the values of the statement were: a key that does not fit its column names no item. `refused` may know from the words of
 * the error which value does not fit.
 */
export function fromDatabase(
  error: unknown,
  use: 'query' | 'key',
  refused: (error: RefusedValue) => ServiceError | null = () => null,
): unknown {
  if (!isDatabaseFailure(error)) return error;
  const { code } = error;
  if (endsConnection(error))
    return serviceUnavailable('database', code === '3D000' ? 'It does not exist' : 'It cannot be reached');
  const authored = authoredText(error);
  if (authored !== null) return asRaised(invalidQuery(authored.replace(/\.$/, '')), error);
  if (isOfFunction(error)) return functionFailed(error);
  if (error.unsent) return functionFailed(error, UNSENT);
  if (code === RECURSION) return functionFailed(error, 'A policy, rule or view of the database cannot be applied');
  if (code === '0A000') return invalidQuery('The database does not support this');
  // No such operator: the value of a type that has no order or no equality was sorted, grouped or compared.
  if (code === '42883' || code === '42846')
    return invalidQuery('A field of this type cannot be compared, sorted or grouped');
  if (/^22/.test(code) || isUnreadableValue(error)) {
    if (use === 'key') return isComputing(error) ? misfit(error, invalidQuery) : forbidden();
    return refused({ code, message: messageOf(error) }) ?? misfit(error, invalidQuery);
  }
  if (/^23/.test(code)) return use === 'key' && !isComputing(error) ? forbidden() : violation(error);
  // A subquery in a view or in a function of SQL has several rows where one is expected.
  if (/^21/.test(code)) return functionFailed(error, 'A view or function failed');
  if (code === '55P03' || (code === '57014' && isLockWait(error))) return lockedByOthers();
  if (code === '57014') return ranTooLong();
  if (isShapeFailure(error)) return invalidQuery('A geometry cannot be parsed, compared or projected');
  // Too many columns, too deep a nesting, too long a row: limits of PostgreSQL itself.
  if (/^54/.test(code)) return invalidQuery('The query is too large or too deep for the database');
  if (code === '42501') return new ErrorWithLogDetail(forbidden(), messageOf(error));
  if (code === '55000')
    return new ErrorWithLogDetail(
      serviceUnavailable('database', 'A materialized view that the query reads has no data yet: refresh it'),
      messageOf(error),
    );
  if (isOfAnotherServer(error))
    return new ErrorWithLogDetail(
      serviceUnavailable('database', 'A foreign server that it uses cannot be reached'),
      messageOf(error),
    );
  if (code === 'CONNECTION_SHARED')
    return serviceUnavailable('database', 'A pooler mixed up connections: it must use one connection per session');
  if (isConnectionFailure(code)) return serviceUnavailable('database', 'It cannot be reached');
  if (isMissing(error))
    return new ErrorWithLogDetail(serviceUnavailable('database', 'A table is missing'), messageOf(error));
  // Memory, disk, or a limit that its administrator has set.
  if (/^53/.test(code)) return serviceUnavailable('database', 'It is out of memory, disk space or connections');
  if (/^40/.test(code)) return serviceUnavailable('database', 'Too many requests change the same items');
  if (/^(58|XX)/.test(code))
    return new ErrorWithLogDetail(serviceUnavailable('database', 'It reports an internal error'), messageOf(error));
  return error.where === undefined ? error : functionFailed(error);
}

/** By `raise` of PL/pgSQL, with whatever code its author chose. */
export function isRaised(error: unknown): boolean {
  return isDatabaseFailure(error) && error.routine === 'exec_stmt_raise';
}

/** The classes of errors that PostgreSQL has itself, without those of PL/pgSQL. */
const OWN_CLASSES = /^(0[0-389ABFLPZ]|10|2[0-8BDF]|3[489BDF]|4[024]|5[34578]|72|F0|HV|XX)/;

/** The classes for wrong values and unsupported requests. */
const VALUE_CLASSES = /^(0A|22|23|44)/;

/** The message that a user's function raised, which is safe to show, unless the error is about a constraint of the database. */
function authoredText(error: ConstraintFailure): string | null {
  const { code, constraint_name: constraint } = error;
  const isAuthored =
    /^P0/.test(code) ||
    (isRaised(error) && constraint === undefined && (VALUE_CLASSES.test(code) || !OWN_CLASSES.test(code)));
  return isAuthored ? messageOf(error).slice(0, LONGEST_TEXT) : null;
}

/** PostgREST's code for an HTTP status: `PT` and the status. */
const RAISED_STATUS = /^PT([45]\d\d)$/;

/** Adds the response that the function asked for. */
function asRaised(refusal: ServiceError, error: ConstraintFailure): ServiceError {
  const [, status] = (isRaised(error) && RAISED_STATUS.exec(error.code)) || [];
  const { detail: details, hint } = error;
  if (status !== undefined)
    refusal.raised = {
      status: Number(status),
      message: messageOf(error).slice(0, LONGEST_TEXT),
      ...(details !== undefined && { details }),
      ...(hint !== undefined && { hint }),
    };
  return refusal;
}

/** Whether a function or trigger caused the error: it names a missing object, or raises an error with a code of PostgreSQL. The statement is correct then. */
function isOfFunction(error: DatabaseFailure): boolean {
  const { code, internal_position: inner } = error;
  if (code === '42501' || /^(0A|25|54|55)/.test(code)) return false;
  return isRaised(error) || (inner !== undefined && /^42/.test(code));
}

const UNSENT =
  'A policy, trigger, view or function of the database failed on a value that the request does not contain';

/** A policy, rule or view is defined in terms of itself. */
const RECURSION = '42P17';

function functionFailed(error: DatabaseFailure, reason = 'A function or trigger failed'): ServiceError {
  return new ErrorWithLogDetail(serviceUnavailable('database', reason), messageOf(error));
}

/** In a read: a domain refuses an argument or a value of a filter, or a function uses a value that a constraint refuses. */
function violation(error: ConstraintFailure): ServiceError {
  const { 'data type_name': domain } = error;
  if (isComputing(error)) return misfit(error, invalidQuery);
  if (domain !== undefined) return invalidQuery(`A value violates a constraint of the domain "${domain}"`);
  return new ErrorWithLogDetail(invalidQuery('A value violates a constraint of the database'), messageOf(error));
}

/** Errors of calculations in functions of the database: division by zero, logarithm, power, substring. */
const CALCULATIONS = new Set(['22012', '2201E', '2201F', '22011']);

/** Whether a function of the database was at work on a value of its own; in all languages the context names what it is written in. */
function isComputing({ code, where }: DatabaseFailure): boolean {
  return CALCULATIONS.has(code) || (where !== undefined && /\bPL\/|\bSQL\b/.test(where));
}

/** Texts about calculations name no value; others may quote one that the caller is not to see. */
function misfit(error: DatabaseFailure, refuse: (reason: string) => ServiceError): ServiceError {
  const text = messageOf(error);
  if (CALCULATIONS.has(error.code)) return refuse(text);
  if (!isComputing(error)) return refuse('A value does not fit the type of its field');
  return new ErrorWithLogDetail(refuse('A function or trigger of the database failed on a value'), text);
}

/** Whether the database, or another server that the service needs, is unavailable. */
export function isUnavailable(error: unknown): boolean {
  const mapped = error instanceof ServiceError ? error : fromDatabase(error, 'query');
  return mapped instanceof ServiceError && mapped.code === 'SERVICE_UNAVAILABLE';
}

/** A row that another transaction has written is known by its location, in any language: "while updating tuple (0,7) in ...". */
function isLockWait({ where }: DatabaseFailure): boolean {
  return where !== undefined && /\(\d+,\d+\)/.test(where);
}

/** The model is up to date when an error is reported: the table or schema was dropped a moment ago, or the whole database was replaced. */
function isMissing({ code }: DatabaseFailure): boolean {
  return code === '42P01' || code === '3F000';
}

/** Errors of a login, and those after which the server closes the connection. */
function endsConnection({ severity }: DatabaseFailure): boolean {
  return severity === 'FATAL' || severity === 'PANIC';
}

/** Connection exceptions, too many connections, an administrator's shutdown, and what the driver says of a socket. */
function isConnectionFailure(code: string): boolean {
  return (
    /^(08|25P03|53300|57P)/.test(code) ||
    /^(ECONN|ENOTFOUND|EPIPE|ETIMEDOUT|EHOSTUNREACH|CONNECT|CONNECTION_)/.test(code)
  );
}

/** The server that answered goes on: one behind it, of a foreign table, was lost. */
export function isOfAnotherServer(error: unknown): boolean {
  return (
    isDatabaseFailure(error) && error.severity === 'ERROR' && /^(08|57P0[123])/.test(error.code) && !isRaised(error)
  );
}

/** Such a server did not answer a commit. In every language the context quotes the command. */
export function isLostAtCommit(error: Error): boolean {
  return isOfAnotherServer(error) && 'where' in error && String(error.where).includes('COMMIT TRANSACTION');
}

export function isDatabaseFailure(error: unknown): error is DatabaseFailure {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}

interface ConstraintFailure extends DatabaseFailure {
  readonly schema_name?: string;
  readonly table_name?: string;
  readonly column_name?: string;
  readonly constraint_name?: string;
  /** As the driver spells it. */
  readonly 'data type_name'?: string;
  readonly detail?: string;
  readonly hint?: string;
}

/** Characters of the message of a user's function. */
const LONGEST_TEXT = 1_000;

const CONSTRAINTS: Readonly<Record<string, ValidationType>> = {
  '23505': 'unique',
  '23503': 'foreign_key',
  '23001': 'foreign_key',
  '23502': 'nnull',
  '23514': 'check',
  '23P01': 'unique',
  '44000': 'check',
  '22001': 'too_long',
  '22003': 'out_of_range',
};

/** Facts of the model that an error of the database lacks. */
export interface Naming {
  /** Whether the caller can neither see nor write anything of the table. */
  isHidden(schema: string, table: string): boolean;
  /** The name of the table's collection. */
  collection(schema: string, table: string): string;
  /** The only field that the constraint or the index is on; of a foreign key, the one that refers. */
  constrained(schema: string, table: string, constraint: string): string | null;
  /** The value of a key, by its text, or null if the caller may not see it. */
  shownValue(schema: string, table: string, field: string, text: string): string | number | null;
  /** The only field of a domain's type. */
  holder(type: string): { readonly collection: string; readonly name: string } | null;
}

/** The error of a write, in the words of the payload: the constraint's table and column are a collection and a field. */
export function fromWrite(error: unknown, naming: Naming | null = null): unknown {
  if (!isDatabaseFailure(error)) return error;
  if (error.code === 'LT403') return forbidden();
  const authored = authoredText(error);
  const type = CONSTRAINTS[error.code] ?? (error.code.startsWith('23') || authored !== null ? 'check' : undefined);
  if (type) return asRaised(fromConstraint(error, type, naming, authored), error);
  if (isOfFunction(error)) return functionFailed(error);
  if (error.unsent) return functionFailed(error, UNSENT);
  if (isMisfit(error)) return misfit(error, invalidPayload);
  if (isShapeFailure(error)) return invalidPayload('A geometry cannot be parsed or projected');
  if (error.code === '428C9') return invalidPayload('A field is generated by the database');
  if (error.code === '55000' || error.code === '42809') return forbidden('The collection cannot be written.');
  if (error.code === '25006') return serviceUnavailable('database', 'It is read-only');
  if (/^54/.test(error.code)) return invalidPayload('The payload is too large or too deep for the database');
  return fromDatabase(error, 'query');
}

/** A value that a domain refuses: `isInside` where it is an element of an array or an attribute of a composite value. */
export interface RefusedByDomain {
  readonly domain: string;
  readonly type: ValidationType;
  readonly constraint: string | undefined;
  readonly isInside: boolean;
}

export function refusedByDomain(error: unknown): RefusedByDomain | null {
  if (!isDatabaseFailure(error) || isRaised(error)) return null;
  const { code, 'data type_name': domain, constraint_name: constraint, routine }: ConstraintFailure = error;
  const type = CONSTRAINTS[code];
  if (domain === undefined || !type) return null;
  return { domain, type, constraint, isInside: routine === 'domain_check_input' };
}

/** Whether a value could not be read as one of its type. */
export function isMisfit(error: unknown): error is DatabaseFailure & RefusedValue {
  if (!isDatabaseFailure(error) || CONSTRAINTS[error.code] || authoredText(error) !== null) return false;
  return !isOfFunction(error) && !error.unsent && (/^22/.test(error.code) || isUnreadableValue(error));
}

function fromConstraint(
  error: ConstraintFailure,
  type: ValidationType,
  naming: Naming | null,
  said: string | null,
): ServiceError {
  const { schema_name: schema = '', table_name: table, constraint_name: constraint, 'data type_name': domain } = error;
  const isNamed =
    type === 'check' && constraint !== undefined && !(table !== undefined && naming?.isHidden(schema, table));
  const check = isNamed ? { constraint } : {};
  if (domain !== undefined)
    return failedValidation({ ...(naming?.holder(domain) ?? { collection: null, name: null }), ...check }, type);
  // The item that refers to a deleted one may be hidden from the caller.
  if (type === 'foreign_key' && table !== undefined && naming?.isHidden(schema, table))
    return failedValidation({ collection: null, name: columnsOf(error, true) }, type);
  const collection = table === undefined ? null : (naming?.collection(schema, table) ?? table);
  const constrained =
    table === undefined || constraint === undefined ? null : (naming?.constrained(schema, table, constraint) ?? null);
  // A change of the schema, which has no model, fails for the rows that refer and not for those that are referred to.
  const name = error.column_name ?? constrained ?? columnsOf(error, naming !== null);
  const value = keyValue(error, naming, name);
  return failedValidation(
    { collection, name, ...check, ...(value === null ? {} : { details: { value } }) },
    type,
    null,
    said === null ? null : `Validation failed. ${said}`,
  );
}

/** "Key (email)=(ada@example.com) already exists.": in every language the columns and their values are written like that. */
const KEY_DETAIL = /^([^(]*)\((.*?)\)=\((.*)\)([^)]*)$/s;

/** The value of a key of one column that the caller may see. */
function keyValue(
  { detail = '', schema_name, table_name }: ConstraintFailure,
  naming: Naming | null,
  name: string | null,
) {
  const [, , column = '', text = ''] = KEY_DETAIL.exec(detail) ?? [];
  if (name === null || table_name === undefined || unquoted(column) !== name) return null;
  return naming?.shownValue(schema_name ?? '', table_name, name, text) ?? null;
}

/** The column and the value of a key that is taken. */
export function takenKey(error: unknown): readonly [column: string, value: string] | null {
  const { code, detail } = propertiesOf(error);
  const [, , column, value] = (code === '23505' && KEY_DETAIL.exec(String(detail))) || [];
  return column === undefined || value === undefined ? null : [unquoted(column), value];
}

/** "lower(email)" or "lower((email)::text)": an index over a function of one column. */
const ONE_ARGUMENT = /^\w+\(\(?("[^"]+"|(?!true\b|false\b|null\b)[a-z_]\w*)\)?(?:::[a-z ]+)?\)$/;

/**
 * The columns of a constraint that the model does not know: over several columns or some of the rows, or of a partition. Where rows
 * still refer to what was to be deleted, the columns are those of the other table, and the detail names the one that refers.
 */
function columnsOf({ code, detail = '', table_name: table = '' }: ConstraintFailure, mayBeReferredTo: boolean) {
  const type = CONSTRAINTS[code];
  // Details of other failures are made of values, which may look like columns.
  if (type !== 'unique' && type !== 'foreign_key') return null;
  const [, before = '', columns = '', , after = ''] = KEY_DETAIL.exec(detail) ?? [];
  const ofExpression = type === 'unique' ? ONE_ARGUMENT.exec(columns)?.[1] : undefined;
  if (ofExpression !== undefined) return unquoted(ofExpression);
  if (columns === '' || /[()]/.test(columns)) return null;
  const isReferredTo = type === 'foreign_key' && mayBeReferredTo && names(`${before} ${after}`, table);
  return isReferredTo ? null : unquoted(columns);
}

/** Whether a sentence has the name in it, and not as a part of a word. */
function names(sentence: string, name: string): boolean {
  return ` ${sentence} `.split(name).some((part, position, parts) => {
    const next = parts[position + 1];
    return next !== undefined && /[^\p{L}\p{N}_]$/u.test(part) && /^[^\p{L}\p{N}_]/u.test(next);
  });
}

function unquoted(name: string): string {
  return name.replace(/^"|"$/g, '');
}
