/** GraphQL over server-sent events: an operation that reads is sent again whenever its answer changes. */

import { invalidQuery, ServiceError } from '../../base/errors.js';
import type { ParsedDocument, ParsedQueryDocument } from '../../compiler/graphql/parsed-document.js';
import { checkArguments } from '../../compiler/plan/call-arguments.js';
import type { ParsedOperation } from '../../compiler/request/ast.js';
import type { Identities } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import { errorsOf, withoutFailed } from '../../server/api/graphql/operation.js';
import type { LiveOperation } from '../../server/api/items/live-reads.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { Outcome } from '../../server/http/reply.js';
import { type EventFormat, eventReply, eventStream, sharedEvent } from './item-streams.js';
import type { LiveQueries } from './live-queries.js';

interface LiveServices {
  readonly live: LiveQueries;
  readonly reads: Reads;
  readonly identities: Identities;
}

const COMPLETE = Buffer.from('event: complete\ndata:\n\n');

/** Errors of the document are sent in the stream, as its clients expect. */
export async function liveOperation(
  operation: LiveOperation,
  caller: Identity,
  { live, identities, reads }: LiveServices,
): Promise<Outcome> {
  const { exchange } = operation;
  const failure = (error: unknown): string =>
    operation.failure(error instanceof RefusedOperation ? error.cause : error);
  const format: EventFormat = {
    opening: Buffer.from(':\n\n'),
    answer: (answer) => sharedEvent(answer, 'event: next\n'),
    failure: (error) => Buffer.from(`event: next\ndata: ${failure(error)}\n\n`),
    ending: COMPLETE,
  };
  const parse = (identity: Identity): Promise<ParsedOperation> =>
    readable(() => operation.parse(identity), reads, identity, exchange);
  try {
    await parse(caller);
  } catch (error) {
    return eventReply(Buffer.concat([format.failure(error), COMPLETE]));
  }
  return eventStream(exchange, { live, identities }, parse, format);
}

/** An operation that is refused stays so until the schema or the rights change: it ends a live query. */
export class RefusedOperation extends ServiceError {
  constructor(override readonly cause: unknown) {
    super('INVALID_QUERY', 'The operation cannot be live');
  }
}

/** The operation without the root fields that the caller may not read. */
export async function readable(
  parse: () => Promise<ParsedDocument>,
  reads: Reads,
  caller: Identity,
  client: RequestClient,
): Promise<ParsedOperation> {
  try {
    const document = liveQueryOf(await parse());
    const { parsed } = document;
    try {
      const { calls } = await reads.prepare(parsed, caller, client);
      checkArguments(calls, parsed.values);
      return parsed;
    } catch (error) {
      return withoutFailed(parsed, document, error);
    }
  } catch (error) {
    throw errorsOf(error) ? new RefusedOperation(error) : error;
  }
}

function liveQueryOf(document: ParsedDocument): ParsedQueryDocument {
  const query = document.kind === 'live' ? document.query : document;
  if (query.kind === 'events') throw invalidQuery('Events need a WebSocket');
  if (query.kind !== 'query' || query.calls.length > 0) throw invalidQuery('Only a query of items can be live');
  return query;
}
