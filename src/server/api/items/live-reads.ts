/** Reads that are answered again whenever their result changes. */
import type { ParsedDocument } from '../../../compiler/graphql/parsed-document.js';
import type { ReadQuery } from '../../../compiler/statements/read.js';
import type { Identity } from '../../access/identity.js';
import type { MaybePromise } from '../../execute/pipeline.js';
import type { Exchange } from '../../http/exchange.js';
import type { Outcome, Reply } from '../../http/reply.js';

/** Parses the query of a live read, again after each change of the rights of its caller. */
type ParseRead = (caller: Identity) => MaybePromise<ReadQuery>;

/** An operation of GraphQL that is sent again whenever its result changes. */
export interface LiveOperation {
  readonly exchange: Exchange;
  /** Parses the document with the schema that the caller may see. */
  parse(caller: Identity): Promise<ParsedDocument>;
  /** The body of an answer with the error. */
  failure(error: unknown): string;
}

export interface LiveReads {
  /** The reason why there are none at present, or null. */
  obstacle(): Promise<string | null>;
  /** Sends the result, and each new one, as events. */
  stream(exchange: Exchange, parse: ParseRead): Outcome;
  /** Answers when the result differs from the one that the client has, or with 304 after the given time. */
  wait(exchange: Exchange, parse: ParseRead, seconds: number): Promise<Reply>;
  run(operation: LiveOperation, caller: Identity): Promise<Outcome>;
}

/** Longest wait, in seconds. */
const MAX_WAIT_S = 120;

/** Seconds that a client wants to wait for a new answer, or 0. */
export function preferredWait({ method, headers: { ifNoneMatch, prefer } }: Exchange): number {
  if (ifNoneMatch === '' || method !== 'GET') return 0;
  return Math.min(Number(/(?:^|[\s,;])wait\s*=\s*"?(\d+)"?(?:$|[\s,;])/i.exec(prefer)?.[1] ?? 0), MAX_WAIT_S);
}
