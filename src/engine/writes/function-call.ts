/**
 * Calls a function that may write, in a new transaction or one that was begun: the call, then the read of what it returned. A
 * call with an Idempotency-Key is carried out once; each time it comes again it is answered as the first time.
 */
import { checkArguments } from '../../plan/call-arguments.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session, TransactionStatement } from '../../postgres/pools/sessions.js';
import type { BoundStatement } from '../../postgres/wire/wire-query.js';
import type { Parsed } from '../../request/ast.js';
import type { IdempotencyKey } from '../../request/write.js';
import type { Reads } from '../reads/reads.js';
import { compileInSession } from '../reads/session-reads.js';
import type { RequestClient } from '../stages.js';
import type { Writer } from '../writer.js';
import { answerOnce } from './idempotency.js';

export interface WritingCall {
  readonly query: Parsed;
  readonly writer: Writer;
  readonly client: RequestClient;
  readonly idempotencyKey: IdempotencyKey | null;
}

interface CallServices {
  readonly reads: Reads;
  readonly database: Database;
  /** The transaction that the call joins, or null for a new one. */
  readonly session: Session | null;
  /** As PostgreSQL reads an interval. */
  readonly idempotencyLifetime: string;
}

export async function callFunction(call: WritingCall, services: CallServices): Promise<Buffer | null> {
  const { reads, database, session } = services;
  const { query, writer, client, idempotencyKey } = call;
  const { caller } = writer;
  const compiled = compileInSession({ reads, writer, client }, query);
  client.statement(compiled.statement.text);
  checkArguments(compiled.calls, query.values);
  const read = { query, compiled, caller };
  const statements = [...(compiled.before ? [reads.bind(read, compiled.before)] : []), reads.bind(read)];
  try {
    if (session) return await callInside(statements, session);
    if (idempotencyKey)
      return await database.transaction((begun) =>
        answerOnce(idempotencyKey, { ...services, session: begun }, () => callInside(statements, begun)),
      );
    const cells = await database.sessions.use((each) => each.runPipelined(statements.map(withOneColumn)));
    return cells.at(-1) ?? null;
  } finally {
    client.staged('execute');
  }
}

function withOneColumn(statement: BoundStatement): TransactionStatement {
  return { ...statement, columns: 1 };
}

async function callInside(statements: readonly BoundStatement[], session: Session): Promise<Buffer | null> {
  let body: Buffer | null = null;
  for (const { text, parameters, prepare } of statements) body = await session.cell(text, parameters, prepare);
  return body;
}
