/**
 * The error catalogue: every error that a client can get, with its public code and HTTP status. The request or the environment
 * causes a `ServiceError`. A defect of the service is a plain `Error` and becomes INTERNAL_SERVER_ERROR.
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
  PRECONDITION_FAILED: 412,
  RANGE_NOT_SATISFIABLE: 416,
  INTERNAL_SERVER_ERROR: 500,
} as const;

export type ErrorCode = keyof typeof STATUSES;

/** The response that a function asked for, by `raise sqlstate 'PT402'`. It is sent with POSTGREST_ERRORS=true. */
interface RaisedResponse {
  readonly status: number;
  readonly message: string;
  readonly details?: string;
  readonly hint?: string;
}

/** The error of a request: what a client gets over HTTP, and a program from its calls. */
export class LateralError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly extensions: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
    this.name = 'LateralError';
  }
}

/** Thrown by an extension: the request fails with this status, from 400 to 499, and nothing is written. */
export class Refused extends LateralError {
  constructor(status: number, code: string, message: string) {
    super(status, code, message);
    this.name = 'Refused';
  }
}

export class ServiceError extends LateralError {
  declare readonly code: ErrorCode;
  raised: RaisedResponse | null = null;

  /** `status` differs from that of the code only for errors of extensions and functions. */
  constructor(
    code: ErrorCode,
    message: string,
    extensions: Readonly<Record<string, unknown>> = {},
    status: number = STATUSES[code],
  ) {
    super(status, code, message, extensions);
    this.name = 'ServiceError';
  }
}

/** Codes of the statuses that functions may ask for. The others have that of an invalid request, or of an unavailable service. */
const RAISED_CODES: Readonly<Record<number, ErrorCode>> = {
  401: 'INVALID_CREDENTIALS',
  403: 'FORBIDDEN',
  404: 'ROUTE_NOT_FOUND',
  405: 'METHOD_NOT_ALLOWED',
  412: 'PRECONDITION_FAILED',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  422: 'UNPROCESSABLE_CONTENT',
  429: 'REQUESTS_EXCEEDED',
};

/** The error with the status, the message, the details and the hint that a function of the database asked for. */
export function raisedError({ status, message, ...more }: RaisedResponse, { code }: ServiceError): ServiceError {
  const known = RAISED_CODES[status] ?? (status < 500 ? code : 'SERVICE_UNAVAILABLE');
  return new ServiceError(known, message, more, status);
}

/** With the message of the database, which may name more than the caller may know: see `DatabaseRefusals` in server/execute/reads. */
export class ErrorWithLogDetail extends ServiceError {
  constructor(
    { code, message, extensions }: ServiceError,
    readonly detail: string,
  ) {
    super(code, message, extensions);
  }
}

/** Something is wrong with how the service was started: reported as one line, exit code 1. */
export class StartError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'StartError';
  }
}

/** A wrong command line, or a wrong value of an option: exit code 2. */
export class UsageError extends StartError {}

export function forbidden(reason?: string): ServiceError {
  return new ServiceError('FORBIDDEN', reason ?? "You don't have permission to access this.", reason ? { reason } : {});
}

/** `hint` must be the same for a name that does not exist and one that the caller may not see. */
export function forbiddenField(field: string, collection: string, place: string, hint = ''): ServiceError {
  return forbidden(
    `You don't have permission to access field "${field}" in collection "${collection}" or it does not exist. Queried in ${place}.${hint}`,
  );
}

export function forbiddenCollection(collection: string): ServiceError {
  return forbidden(`You don't have permission to access collection "${collection}" or it does not exist.`);
}

/** A limit that was exceeded, and the option that sets it. Texts are for clients, options are for operators. */
export interface Exceeded {
  readonly option: string;
  readonly limit?: number;
}

export function invalidQuery(reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('INVALID_QUERY', `Invalid query. ${ended(reason)}`, { reason, ...exceeded });
}

function ended(sentence: string): string {
  return sentence.endsWith('?') ? sentence : `${sentence}.`;
}

export function invalidPayload(reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('INVALID_PAYLOAD', `Invalid payload. ${reason}.`, { reason, ...exceeded });
}

const STATEMENT_TIMEOUT = 'DATABASE_STATEMENT_TIMEOUT';

export function ranTooLong(): ServiceError {
  return invalidQuery('The query took too long', { option: STATEMENT_TIMEOUT });
}

/** A statement has waited for other transactions. */
export function lockedByOthers(): ServiceError {
  return serviceUnavailable('database', 'Another session holds a lock on the requested rows or tables');
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
export function requestsExceeded(exceeded: Partial<Exceeded>, wait: number): ServiceError {
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

/** As HTTP wants it: the size of the file lets a client ask again. */
export function rangeNotSatisfiable(range: string, size: number): ServiceError {
  return new ServiceError('RANGE_NOT_SATISFIABLE', `Range "${range}" is invalid or the file's size doesn't match it.`, {
    range,
    size,
  });
}

/** The item is not the one that the client knows. */
export function preconditionFailed(reason: string): ServiceError {
  return new ServiceError('PRECONDITION_FAILED', `Precondition failed. ${reason}.`, { reason });
}

export function changedMeanwhile(): ServiceError {
  return preconditionFailed('The item has changed: read it again');
}

export function unprocessable(reason: string): ServiceError {
  return new ServiceError('UNPROCESSABLE_CONTENT', `Can't process content. ${reason}.`, { reason });
}

/** A write was sent, and the connection was lost before the answer: nobody knows what became of it. */
export function outcomeUnknown(): ServiceError {
  const reason = 'The connection was lost before the response: the write may or may not have been committed';
  const { message, extensions } = serviceUnavailable('database', reason);
  return new ServiceError('SERVICE_UNAVAILABLE', message, { ...extensions, outcome: 'unknown' });
}

export function isOutcomeUnknown(error: unknown): boolean {
  return error instanceof ServiceError && error.extensions['outcome'] === 'unknown';
}

export function serviceUnavailable(service: string, reason: string, exceeded: Exceeded | null = null): ServiceError {
  return new ServiceError('SERVICE_UNAVAILABLE', `Service "${service}" is unavailable. ${reason}.`, {
    service,
    reason,
    ...exceeded,
  });
}

export type ValidationType = 'unique' | 'foreign_key' | 'nnull' | 'required' | 'too_long' | 'out_of_range' | 'check';

const COMPLAINTS: Readonly<Record<string, string>> = {
  unique: 'has to be unique',
  foreign_key: 'refers to an item that does not exist, or is still referenced',
  nnull: "can't be null",
  required: 'is required',
  too_long: 'is too long',
  out_of_range: 'is out of range',
  check: 'violates a check constraint of the database',
} satisfies Record<ValidationType, string>;

/** The field of a refused value, and the check constraint if one refused it. */
interface RefusedField {
  readonly collection: string | null;
  readonly name: string | null;
  readonly constraint?: string;
  /** The values of the error: what is expected, and what was sent. */
  readonly details?: Readonly<Record<string, unknown>>;
}

/** `path` leads to the value inside the payload, where it is known. */
export function failedValidation(
  field: RefusedField,
  type: ValidationType | string,
  path: string | null = null,
  message: string | null = null,
): ServiceError {
  const name = field.name === null ? 'A value' : `Value for field "${field.name}"`;
  const location = field.collection === null ? '' : ` in collection "${field.collection}"`;
  const extensions = {
    collection: field.collection,
    field: field.name,
    type,
    path: path === null ? [] : path.split('.'),
    ...(field.constraint === undefined ? {} : { constraint: field.constraint }),
    ...field.details,
  };
  const check = field.constraint === undefined ? null : `violates the check constraint "${field.constraint}"`;
  const complaint = check ?? COMPLAINTS[type] ?? `does not pass its validation (_${type})`;
  return new ServiceError(
    'FAILED_VALIDATION',
    message ?? `Validation failed. ${name}${location} ${complaint}.`,
    extensions,
  );
}

/** Whether a retry may succeed: the service failed or was overloaded, and the request itself may be right. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof ServiceError)) return true;
  return error.status >= 500 || error.status === 429 || error.extensions['option'] === STATEMENT_TIMEOUT;
}

/** Whether the caller lacks the permission. */
export function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && (error.status === 401 || error.status === 403);
}
