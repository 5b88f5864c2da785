/** An operation, with the values of its variables, as plain data: what is to be read, or what is to be written, in order. */

import type { ParsedOperation, ReadRequest } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';
import type { Values } from '../sql/parameter.js';
import type { Call } from './calls.js';
import type { FieldPlace } from './failure.js';

export type ParsedDocument = ParsedQueryDocument | ParsedMutationDocument;

export interface ParsedQueryDocument {
  readonly kind: 'query';
  /** Parts stand in the order of the roots. */
  readonly parsed: ParsedOperation;
  readonly roots: readonly Root[];
  /** Parts whose JSON other routes have to say first. */
  readonly calls: readonly { readonly position: number; readonly call: Call }[];
  /** Whether the answer is known without the database. */
  readonly constant: boolean;
}

export interface Root {
  readonly name: string;
  readonly place: FieldPlace;
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
    | { readonly kind: 'update-me'; readonly data: Input; readonly shown: ReadBack | null }
    | {
        readonly kind: 'create';
        readonly collection: string;
        readonly items: readonly Input[];
        readonly many: boolean;
        readonly shown: ReadBack | null;
      }
    | {
        readonly kind: 'update';
        readonly collection: string;
        readonly keys: readonly string[];
        readonly data: Input;
        readonly many: boolean;
        readonly shown: ReadBack | null;
      }
    | {
        readonly kind: 'batch';
        readonly collection: string;
        readonly items: readonly Input[];
        readonly shown: ReadBack | null;
      }
    | {
        readonly kind: 'singleton';
        readonly collection: string;
        readonly data: Input;
        readonly shown: ReadBack | null;
      }
    | { readonly kind: 'delete'; readonly collection: string; readonly keys: readonly string[]; readonly text: string }
  );

/** What is shown of the items that were written: their keys are the first of the values. */
export interface ReadBack {
  readonly request: ReadRequest;
  readonly values: Values;
}
