/**
 * The error catalogue: every error a client can meet, with its public code and HTTP status. A `ServiceError` is always the
 * caller's or the environment's doing; a broken invariant of ours is a plain `Error` and becomes INTERNAL_SERVER_ERROR.
 */
const STATUSES = {
  FAILED_VALIDATION: 400,
  FORBIDDEN: 403,
  INVALID_TOKEN: 403,
  TOKEN_EXPIRED: 401,
  INVALID_CREDENTIALS: 401,
  INVALID_IP: 401,
  INVALID_OTP: 401,
  INVALID_PAYLOAD: 400,
  INVALID_QUERY: 400,
  UNSUPPORTED_MEDIA_TYPE: 415,
  REQUESTS_EXCEEDED: 429,
  ROUTE_NOT_FOUND: 404,
  SERVICE_UNAVAILABLE: 503,
  UNPROCESSABLE_CONTENT: 422,
  METHOD_NOT_ALLOWED: 405,
  INTERNAL_SERVER_ERROR: 500,
} as const;

export type ErrorCode = keyof typeof STATUSES;

export class ServiceError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly extensions: Readonly<Record<string, unknown>>;

  constructor(code: ErrorCode, message: string, extensions: Record<string, unknown> = {}) {
    super(message);
    this.name = 'ServiceError';
    this.code = code;
    this.status = STATUSES[code];
    this.extensions = extensions;
  }
}

/** With what the database said of it, which names more than its receiver may know of: see execute/disclosure.ts. */
export class Undisclosed extends ServiceError {
  readonly detail: string;

  constructor({ code, message, extensions }: ServiceError, detail: string) {
    super(code, message, extensions);
    this.detail = detail;
  }
}

/** Something is wrong with how the service was started: reported as one line, exit code 1. */
export class StartError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'StartError';
  }
}

export function forbidden(reason?: string): ServiceError {
  return new ServiceError('FORBIDDEN', reason ?? "You don't have permission to access this.", reason ? { reason } : {});
}

export function forbiddenField(field: string, collection: string, place: string): ServiceError {
  return forbidden(
    `You don't have permission to access field "${field}" in collection "${collection}" or it does not exist. Queried in ${place}.`,
  );
}

export function forbiddenCollection(collection: string): ServiceError {
  return forbidden(`You don't have permission to access collection "${collection}" or it does not exist.`);
}

/** A limit that was exceeded, and the option that sets it: texts are those that clients know, options are for who runs the service. */
export interface Exceeded {
  readonly option: string;
  readonly limit?: number;
}

export function invalidQuery(reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('INVALID_QUERY', `Invalid query. ${reason}.`, { reason, ...exceeded });
}

export function invalidPayload(reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('INVALID_PAYLOAD', `Invalid payload. ${reason}.`, { reason, ...exceeded });
}

export function ranTooLong(): ServiceError {
  return invalidQuery('The query took too long', { option: 'DATABASE_STATEMENT_TIMEOUT' });
}

export function tooManyRelations(limit: number): ServiceError {
  return invalidQuery('Max relational depth exceeded', { option: 'MAX_RELATIONAL_DEPTH', limit });
}

export function invalidCredentials(): ServiceError {
  return new ServiceError('INVALID_CREDENTIALS', 'Invalid user credentials.');
}

export function invalidToken(): ServiceError {
  return new ServiceError('INVALID_TOKEN', 'Invalid token.');
}

export function tokenExpired(): ServiceError {
  return new ServiceError('TOKEN_EXPIRED', 'Token expired.');
}

export function invalidIp(): ServiceError {
  return new ServiceError('INVALID_IP', 'Invalid IP address.');
}

export function invalidOtp(): ServiceError {
  return new ServiceError('INVALID_OTP', 'Invalid user OTP.');
}

/** `wait` in milliseconds. */
export function requestsExceeded(exceeded: Exceeded, wait: number): ServiceError {
  const reset = new Date(Date.now() + wait).toISOString();
  return new ServiceError('REQUESTS_EXCEEDED', `Too many requests, retry after ${Math.ceil(wait)}ms.`, {
    ...exceeded,
    reset,
  });
}

export function routeNotFound(path: string): ServiceError {
  return new ServiceError('ROUTE_NOT_FOUND', `Route ${path} doesn't exist.`, { path });
}

export function unsupportedMediaType(mediaType: string, where: string): ServiceError {
  return new ServiceError('UNSUPPORTED_MEDIA_TYPE', `Unsupported media type "${mediaType}" in ${where}.`, {
    mediaType,
    where,
  });
}

export function methodNotAllowed(reason: string): ServiceError {
  return new ServiceError('METHOD_NOT_ALLOWED', `Method not allowed. ${reason}.`, { reason });
}

export function unprocessable(reason: string): ServiceError {
  return new ServiceError('UNPROCESSABLE_CONTENT', `Can't process content. ${reason}.`, { reason });
}

/** A write was sent, and the connection was lost before the answer: nobody knows what became of it. */
export function outcomeUnknown(): ServiceError {
  const reason = 'The connection was lost before the answer: what was to be written may be written or not';
  const { message, extensions } = serviceUnavailable('database', reason);
  return new ServiceError('SERVICE_UNAVAILABLE', message, { ...extensions, outcome: 'unknown' });
}

/** Whether what the service stands on is to blame, for now. */
export function isUnavailable(error: unknown): boolean {
  const mapped = error instanceof ServiceError ? error : fromDatabase(error, 'query');
  return mapped instanceof ServiceError && mapped.code === 'SERVICE_UNAVAILABLE';
}

export function serviceUnavailable(service: string, reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('SERVICE_UNAVAILABLE', `Service "${service}" is unavailable. ${reason}.`, {
    service,
    reason,
    ...exceeded,
  });
}

interface DatabaseFailure {
  readonly code: string;
  /** Where in the statement, or in one of a function's, the parser stopped. */
  readonly position?: string;
  readonly internal_position?: string;
  /** What was going on inside the statement. */
  readonly where?: string;
  /** Of the source of PostgreSQL, or of an extension. */
  readonly file?: string;
}

/** A table, column, type or schema is gone: statements name only what the model has, so the model is out of date. */
const STALE = new Set(['42P01', '42703', '42704', '3F000']);

/** No such operator, or types that do not match: a column may have changed its type, or the request compares what cannot be. */
const PERHAPS_STALE = new Set(['42883', '42804']);

/**
 * Functions that show a column of one type (src/compile/output.ts), whatever was asked: where there is none for the column,
 * its type has changed. Messages may be in any language; the name stands in all of them.
 */
const SHOWING = /\b(int[248]out|numeric_out|uuid_out|jsonb?_out|booleq|isfinite|encode|string_to_array)\(/;

/** A syntax error, a wrong or ambiguous name, or nothing by that name. */
const UNREADABLE = new Set(['42601', '42602', '42725', '42P02', '42883', ...STALE]);

/**
 * Some types read their values as names or small languages (`regclass`, `tsvector`, `jsonpath`, ...) and complain in the
 * words of statements. What is wrong with a statement itself has a position in it; `regtype`, which has its values read
 * by the parser, gives one as well, and says that it was at it.
 */
function isUnreadableValue({ code, position, internal_position: inner, where }: DatabaseFailure): boolean {
  if (!UNREADABLE.has(code) || inner !== undefined) return false;
  return position === undefined || (code === '42601' && where !== undefined);
}

/** PostGIS has one code for all that it cannot do, which PostgreSQL keeps for its own faults: a shape that cannot be projected, ... */
function isShapeFailure({ code, file }: DatabaseFailure): boolean {
  return code === 'XX000' && file !== undefined && /^(lwgeom|geography|gserialized)/.test(file);
}

export type Staleness = 'certain' | 'possible' | null;

/** Whether the model behind a statement that failed is out of date. */
export function staleness(error: unknown): Staleness {
  if (!isDatabaseFailure(error)) return null;
  const replanned = error.code === '0A000' && error instanceof Error && error.message.startsWith('cached plan');
  if (replanned) return 'certain';
  if (STALE.has(error.code)) return isUnreadableValue(error) ? null : 'certain';
  if (error.code === '42883' && error instanceof Error && SHOWING.test(error.message)) return 'certain';
  // The types in a statement are those of the model; inside of a trigger or function they are somebody else's.
  if (error.code === '42804' && error.where === undefined) return 'certain';
  return PERHAPS_STALE.has(error.code) ? 'possible' : null;
}

/** `use` says what the values of the statement were: a key that does not fit its column names no item. */
export function fromDatabase(error: unknown, use: 'query' | 'key'): unknown {
  if (!isDatabaseFailure(error)) return error;
  const { code } = error;
  if (code === '0A000') return invalidQuery('The database does not support this');
  // No such operator: the value of a type that has no order or no equality was sorted, grouped or compared.
  if (code === '42883') return invalidQuery('A field of this type cannot be compared, sorted or grouped');
  if (/^22/.test(code) || isUnreadableValue(error))
    return use === 'key' ? forbidden() : invalidQuery('A value does not fit the type of its field');
  if (code === '55P03' || (code === '57014' && isLockWait(error)))
    return serviceUnavailable('database', 'Another session holds a lock on what is asked for');
  if (code === '57014') return ranTooLong();
  if (isShapeFailure(error)) return invalidQuery('A shape cannot be read, compared or projected');
  // Too many columns, too deep a nesting, too long a row: limits of PostgreSQL itself.
  if (/^54/.test(code)) return invalidQuery('The query is too large or too deep for the database');
  if (code === '42501') return new Undisclosed(forbidden(), messageOf(error));
  if (code === '55000')
    return new Undisclosed(
      serviceUnavailable('database', 'A view that the query reads has not been filled yet: it has to be refreshed'),
      messageOf(error),
    );
  if (code === 'CONNECTION_SHARED')
    return serviceUnavailable('database', 'A pooler mixes its connections up: it has to keep one for each session');
  if (isConnectionFailure(code)) return serviceUnavailable('database', 'It cannot be reached');
  // Memory, disk, or a limit that its administrator has set.
  if (/^53/.test(code)) return serviceUnavailable('database', 'It is short of resources');
  return error;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A row that another transaction has written is told by its place, in any language: "while updating tuple (0,7) in ...". */
function isLockWait({ where }: DatabaseFailure): boolean {
  return where !== undefined && /\(\d+,\d+\)/.test(where);
}

/** Connection exceptions, too many connections, an administrator's shutdown, and what the driver says of a socket. */
function isConnectionFailure(code: string): boolean {
  return (
    /^(08|53300|57P)/.test(code) || /^(ECONN|ENOTFOUND|EPIPE|ETIMEDOUT|EHOSTUNREACH|CONNECT|CONNECTION_)/.test(code)
  );
}

function isDatabaseFailure(error: unknown): error is DatabaseFailure {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}

export type ValidationType = 'unique' | 'foreign_key' | 'nnull' | 'required' | 'too_long' | 'out_of_range' | 'check';

const COMPLAINTS: Readonly<Record<ValidationType, string>> = {
  unique: 'has to be unique',
  foreign_key: 'refers to an item that does not exist, or is referred to',
  nnull: "can't be null",
  required: 'is required',
  too_long: 'is too long',
  out_of_range: 'is out of range',
  check: 'does not meet a condition of the database',
};

/** `path` leads to the value inside the payload, where it is known. */
export function failedValidation(
  field: { readonly collection: string | null; readonly name: string | null },
  type: ValidationType | string,
  path: string | null = null,
  message: string | null = null,
): ServiceError {
  const name = field.name === null ? 'A value' : `Value for field "${field.name}"`;
  const place = field.collection === null ? '' : ` in collection "${field.collection}"`;
  const extensions = {
    collection: field.collection,
    field: field.name,
    type,
    path: path === null ? [] : path.split('.'),
  };
  const complaint = COMPLAINTS[type as ValidationType] ?? `does not pass its validation (_${type})`;
  return new ServiceError(
    'FAILED_VALIDATION',
    message ?? `Validation failed. ${name}${place} ${complaint}.`,
    extensions,
  );
}

interface ConstraintFailure extends DatabaseFailure {
  readonly schema_name?: string;
  readonly table_name?: string;
  readonly column_name?: string;
  /** As the driver spells it. */
  readonly 'data type_name'?: string;
  readonly detail?: string;
}

/** `raise exception` of a function of the database, without a code of its own: its text was written for who reads the answer. */
const RAISED = 'P0001';

/** Characters of such a text. */
const LONGEST_TEXT = 1_000;

const CONSTRAINTS: Readonly<Record<string, ValidationType>> = {
  '23505': 'unique',
  '23503': 'foreign_key',
  '23001': 'foreign_key',
  '23502': 'nnull',
  '23514': 'check',
  '23P01': 'unique',
  '44000': 'check',
  [RAISED]: 'check',
  '22001': 'too_long',
  '22003': 'out_of_range',
};

/** What the model knows and an error of the database does not say. */
export interface Naming {
  /** What the table is called as a collection. */
  collection(schema: string, table: string): string;
  /** The field of a collection that refers to another one. */
  referrer(collection: string, one: string): string | null;
  /** The only field of a domain's type. */
  holder(type: string): { readonly collection: string; readonly name: string } | null;
}

const NO_NAMES: Naming = { collection: (_, table) => table, referrer: () => null, holder: () => null };

/** What went wrong with a write, in the words of the payload: the constraint's table and column are a collection and a field. */
export function fromWrite(error: unknown, naming: Naming = NO_NAMES): unknown {
  if (!isDatabaseFailure(error)) return error;
  if (error.code === 'LT403') return forbidden();
  const type = CONSTRAINTS[error.code] ?? (error.code.startsWith('23') ? 'check' : undefined);
  if (type) {
    const { schema_name: schema = '', table_name: table, column_name: column, detail } = error as ConstraintFailure;
    const collection = table === undefined ? null : naming.collection(schema, table);
    // "update or delete on table "authors" violates foreign key constraint ..." tells of the other side.
    const blocked = /^update or delete on table "(.+?)" violates (?:RESTRICT setting of )?foreign key/.exec(
      error instanceof Error ? error.message : '',
    )?.[1];
    if (blocked !== undefined)
      return failedValidation(
        { collection, name: naming.referrer(collection ?? '', naming.collection(schema, blocked)) },
        type,
      );
    const { 'data type_name': domain } = error as ConstraintFailure;
    if (domain !== undefined) return failedValidation(naming.holder(domain) ?? { collection: null, name: null }, type);
    // "Key (email)=(ada@example.com) already exists."
    const key = /^Key \(([^()]+)\)=/.exec(detail ?? '')?.[1]?.replace(/^"|"$/g, '');
    const said = error.code === RAISED ? `Validation failed. ${messageOf(error).slice(0, LONGEST_TEXT)}` : null;
    return failedValidation({ collection, name: column ?? key ?? null }, type, null, said);
  }
  if (/^22/.test(error.code) || isUnreadableValue(error))
    return invalidPayload('A value does not fit the type of its field');
  if (isShapeFailure(error)) return invalidPayload('A shape cannot be read or projected');
  if (error.code === '428C9') return invalidPayload('A field is generated by the database');
  if (error.code === '55000' || error.code === '42809') return forbidden('The collection cannot be written.');
  if (error.code === '25006') return serviceUnavailable('database', 'It is read-only');
  if (/^54/.test(error.code)) return invalidPayload('The payload is too large or too deep for the database');
  return fromDatabase(error, 'query');
}
