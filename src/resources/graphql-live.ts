/** GraphQL over server-sent events: an operation that reads is sent again whenever its answer changes. */
import type { Identity } from '../access/identity.js';
import type { Reads } from '../engine/reads.js';
import { invalidQuery } from '../errors.js';
import type { ParsedDocument } from '../graphql/parsed-document.js';
import type { Exchange } from '../http/exchange.js';
import type { Reply } from '../http/reply.js';
import type { LiveQueries } from '../live/live-queries.js';
import { checkArguments } from '../plan/call-arguments.js';
import type { ParsedOperation } from '../request/ast.js';
import { type EventFormat, eventReply, eventStream, sharedEvent } from './live-reads.js';

export interface LiveOperation {
  readonly exchange: Exchange;
  readonly live: LiveQueries;
  readonly reads: Reads;
  readonly identities: Parameters<typeof eventStream>[2];
  /** The document, as far as the caller may see the schema. */
  parse(caller: Identity): Promise<ParsedDocument>;
  /** The operation without the root fields that have failed, or the error where it fails as a whole. */
  withoutFailed(operation: ParsedOperation, document: ParsedDocument, error: unknown): ParsedOperation;
  /** The body of an answer that says so. */
  failure(error: unknown): string;
}

const COMPLETE = Buffer.from('event: complete\ndata:\n\n');

/** What is wrong with the document is said in the stream, as its clients expect. */
export async function liveOperation(operation: LiveOperation, caller: Identity): Promise<Reply> {
  const { exchange, live, identities } = operation;
  const format: EventFormat = {
    opening: Buffer.from(':\n\n'),
    answer: (answer) => sharedEvent(answer, 'event: next\n'),
    failure: (error) => Buffer.from(`event: next\ndata: ${operation.failure(error)}\n\n`),
    ending: COMPLETE,
  };
  const parse = (identity: Identity): Promise<ParsedOperation> => readable(operation, identity);
  try {
    await parse(caller);
  } catch (error) {
    return eventReply(Buffer.concat([format.failure(error), COMPLETE]));
  }
  return eventStream(exchange, live, identities, parse, format);
}

async function readable(
  { parse, reads, exchange, withoutFailed }: LiveOperation,
  caller: Identity,
): Promise<ParsedOperation> {
  const document = await parse(caller);
  if (document.kind !== 'query' || document.calls.length > 0) throw invalidQuery('Only a query of items can be live');
  const { parsed } = document;
  try {
    const { calls } = await reads.prepare(parsed, caller, exchange);
    checkArguments(calls, parsed.values);
    return parsed;
  } catch (error) {
    return withoutFailed(parsed, document, error);
  }
}
