/** Errors of a document in the form of GraphQL: a message, the positions in the text and in the response, and a code. */
import { type ASTNode, GraphQLError, getLocation } from 'graphql';
import { type Exceeded, invalidQuery, ServiceError } from '../../base/errors.js';

/** An error in a GraphQL response. */
export interface ResponseError {
  readonly message: string;
  readonly locations?: readonly Location[];
  readonly path?: readonly (string | number)[];
  readonly extensions: Readonly<Record<string, unknown>>;
}

interface Location {
  readonly line: number;
  readonly column: number;
}

/** Where a field stands in the document and in the answer. */
export interface FieldPosition {
  readonly path: readonly (string | number)[];
  readonly locations: readonly Location[];
}

/** The document cannot be carried out at all. */
export class DocumentFailure extends Error {
  constructor(readonly errors: readonly ResponseError[]) {
    super(errors[0]?.message ?? 'the document failed');
  }

  /** Errors of the parser, of validation, or of the values of variables. */
  static of(errors: readonly GraphQLError[], hints: boolean): DocumentFailure {
    return new DocumentFailure(
      errors.map(({ message, locations, path }) => ({
        message: hints ? message : message.replace(/ Did you mean .*\?$/s, ''),
        ...(locations ? { locations: locations.map(({ line, column }) => ({ line, column })) } : {}),
        ...(path ? { path } : {}),
        extensions: { code: 'INVALID_QUERY' },
      })),
    );
  }
}

export function documentFailure(reason: string, exceeded: Exceeded | null = null): DocumentFailure {
  return new DocumentFailure([responseError(invalidQuery(reason, exceeded), null)]);
}

/** A field of the document failed: everything that is read below it says where. */
export class FieldFailure extends Error {
  override readonly cause: unknown;

  constructor(
    cause: unknown,
    readonly position: FieldPosition,
  ) {
    super('a field failed');
    this.cause = cause;
  }
}

/** Where a node of a document stands in its text. */
export type Locate = (node: ASTNode) => readonly Location[];

export const locate: Locate = ({ loc }) => (loc ? [getLocation(loc.source, loc.start)] : []);

/** Errors of the service keep their codes; errors of graphql-js are about values that do not fit. */
export function responseError(error: ServiceError, position: FieldPosition | null): ResponseError {
  return {
    message: error.message,
    ...position,
    extensions: { ...error.extensions, code: error.code },
  };
}

/** Adds the field's position to errors of the work. In nested calls, the innermost field sets the position. */
export function withPosition<Result>(position: () => FieldPosition, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (error instanceof FieldFailure) throw error;
    if (error instanceof GraphQLError)
      throw new FieldFailure(invalidQuery(error.message.replace(/\.$/, '')), position());
    if (error instanceof ServiceError) throw new FieldFailure(error, position());
    throw error;
  }
}
