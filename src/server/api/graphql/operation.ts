/** An operation and its failures, over HTTP and WebSockets. */

import { ServiceError } from '../../../base/errors.js';
import { schemaAccessOf } from '../../../compiler/access/graphql-access.js';
import {
  DocumentFailure,
  FieldFailure,
  type FieldPosition,
  type ResponseError,
  responseError,
} from '../../../compiler/graphql/failure.js';
import type { GraphqlRequest, Operations } from '../../../compiler/graphql/operations.js';
import type { ParsedDocument, ParsedQueryDocument } from '../../../compiler/graphql/parsed-document.js';
import type { RootScope } from '../../../compiler/graphql/schema-access.js';
import { FailedParts } from '../../../compiler/plan/operation.js';
import type { ParsedOperation } from '../../../compiler/request/ast.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import type { MaybePromise } from '../../execute/pipeline.js';
import type { Reads } from '../../execute/reads/reads.js';
import type { RequestClient } from '../../execute/stages.js';
import type { Mirror } from '../../postgres/catalog/watch.js';

export interface OperationServices {
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly operations: Operations;
}

/** Clients know this message: they send the text along with its digest then. */
export const NOT_FOUND = { message: 'PersistedQueryNotFound', extensions: { code: 'INVALID_QUERY' } };

/** A request to `/graphql` or `/graphql/system`. */
export interface ScopedRequest extends GraphqlRequest {
  readonly scope: RootScope;
}

/** Parses the document with the schema that the caller may see. */
export function parseAsCaller(
  { scope, ...request }: ScopedRequest,
  caller: Identity,
  client: RequestClient,
  { operations, policies, mirror, reads }: OperationServices,
): MaybePromise<ParsedDocument> {
  const access = schemaAccessOf(policies.accessOf(caller), mirror.model);
  return operations.parse(request, access, scope, (size, work) =>
    reads.budgets.inTurn({ caller, from: client }, size, work),
  );
}

/** Root fields that may be null fail alone: the others are read without them. */
export function withoutFailed(
  operation: ParsedOperation,
  { roots }: ParsedQueryDocument,
  error: unknown,
): ParsedOperation {
  if (!(error instanceof FailedParts)) {
    const [only, ...others] = roots;
    throw error instanceof ServiceError && only && others.length === 0 ? new FieldFailure(error, only.position) : error;
  }
  let rest = operation;
  for (const { position, cause } of error.parts) {
    const root = roots[position];
    if (!(cause instanceof ServiceError) || !root) throw cause;
    if (!root.nullable) throw new FieldFailure(cause, root.position);
    rest = withoutPart(rest, position, cause, root.position);
  }
  return rest;
}

export function isConstant({ request }: ParsedOperation): boolean {
  return request.parts.every((part) => part.kind === 'json');
}

/** A field that may be null gives way to its error; the others are read all the same. */
export function withoutPart(
  parsed: ParsedOperation,
  position: number,
  error: ServiceError,
  place: FieldPosition,
): ParsedOperation {
  const values = [...parsed.values, 'null', JSON.stringify(responseError(error, place))];
  const parts = parsed.request.parts.map((part, index) =>
    index === position
      ? ({ kind: 'json', name: part.name, value: values.length - 2, error: values.length - 1 } as const)
      : part,
  );
  const request = { kind: 'operation', parts } as const;
  return { request, values, shape: JSON.stringify(request) };
}

/** An answer that needs no statement. */
export function constantBody({ request, values }: ParsedOperation): string {
  const entries: string[] = [];
  const errors: string[] = [];
  for (const part of request.parts) {
    if (part.kind !== 'json') throw new Error('the answer is not known beforehand');
    entries.push(`${JSON.stringify(part.name)}:${values[part.value]}`);
    if (part.error !== null) errors.push(String(values[part.error]));
  }
  return `{"data":{${entries.join(',')}}${errors.length > 0 ? `,"errors":[${errors.join(',')}]` : ''}}`;
}

/** The errors of the operation for its sender, or null if the service itself failed. */
export function errorsOf(error: unknown): readonly ResponseError[] | null {
  if (error instanceof DocumentFailure) return error.errors;
  const [cause, place] = error instanceof FieldFailure ? [error.cause, error.position] : [error, null];
  return cause instanceof ServiceError && cause.status < 500 ? [responseError(cause, place)] : null;
}
