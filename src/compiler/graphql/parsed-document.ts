/** An operation, with the values of its variables, as plain data: what is to be read, or what is to be written, in order. */

import type { Parsed, ParsedOperation } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';
import type { WriteRequest } from '../request/write.js';
import type { Call } from './calls.js';
import type { Root } from './root-fields.js';

export type ParsedDocument = ParsedQueryDocument | ParsedMutationDocument | ParsedLiveDocument | ParsedEventsDocument;

export interface ParsedQueryDocument {
  readonly kind: 'query';
  /** Parts stand in the order of the roots. */
  readonly parsed: ParsedOperation;
  readonly roots: readonly Root[];
  /** Parts whose JSON other routes have to say first. */
  readonly calls: readonly { readonly position: number; readonly call: Call }[];
}

/** A subscription to a query: its answer, and each one that differs from the one before. */
interface ParsedLiveDocument {
  readonly kind: 'live';
  readonly query: ParsedQueryDocument;
}

/** A subscription to the changes of a collection. */
export interface ParsedEventsDocument {
  readonly kind: 'events';
  readonly collection: string;
  /** The only kind of change that counts; null for all. */
  readonly change: 'create' | 'update' | 'delete' | null;
  /** The read of changed items, with a member for each name in `data`. Their keys are the first value. */
  readonly changed: Parsed;
  readonly output: EventOutput;
}

/** How an event is written: the members of its object in order, those that were read all in one place. */
export interface EventOutput {
  /** The name of the root field in the answer. */
  readonly name: string;
  readonly before: readonly EventMember[];
  readonly data: readonly string[];
  readonly after: readonly EventMember[];
}

export interface EventMember {
  readonly name: string;
  readonly value: 'key' | 'event' | { readonly text: string };
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
