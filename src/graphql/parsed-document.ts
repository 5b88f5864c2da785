/** An operation, with the values of its variables, as plain data: what is to be read, or what is to be written, in order. */

import type { Parsed, ParsedOperation } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';
import type { WriteRequest } from '../request/write.js';
import type { Call } from './calls.js';
import type { FieldPosition } from './failure.js';

export type ParsedDocument = ParsedQueryDocument | ParsedMutationDocument;

export interface ParsedQueryDocument {
  readonly kind: 'query';
  /** Parts stand in the order of the roots. */
  readonly parsed: ParsedOperation;
  readonly roots: readonly Root[];
  /** Parts whose JSON other routes have to say first. */
  readonly calls: readonly { readonly position: number; readonly call: Call }[];
}

export interface Root {
  readonly name: string;
  readonly position: FieldPosition;
  /** Whether null may stand in the place of the field. */
  readonly nullable: boolean;
}

export interface ParsedMutationDocument {
  readonly kind: 'mutation';
  readonly steps: readonly MutationStep[];
}

export type MutationStep = Root &
  (
    | { readonly kind: 'json'; readonly text: string }
    | { readonly kind: 'call'; readonly call: Call }
    /** The answer is the read-back, unless it is known beforehand: that of a deletion is. */
    | { readonly kind: 'write'; readonly request: WriteRequest; readonly text: string | null }
    /** A call of a function that may write. */
    | { readonly kind: 'function'; readonly query: Parsed }
    /** A write of the caller's account. */
    | { readonly kind: 'update-me'; readonly data: Input; readonly readBack: Parsed | null }
  );
