/** Calls functions of the database that may write. */
import { checkArguments } from '../../../compiler/plan/call-arguments.js';
import { callBefore } from '../../../compiler/statements/read.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { factOf } from '../reads/compiled-read.js';
import { cellOf } from '../reads/reads.js';
import { compileInSession } from '../reads/session-reads.js';
import { turnOf, type WritingCall } from '../writer.js';
import { answerOnce } from './idempotency.js';
import { BEGIN, type WriteContext } from './write-context.js';

const statementBefore = factOf((compiled) => callBefore(compiled, compiled.model));

/**
 * Calls a function that may write, and reads what it returned in the same transaction: that of the session if there is one. With an
 * Idempotency-Key the function is called once, and answered as the first time.
 */
export async function callFunction(
  { session: joined, services: { reads, database }, limits: { idempotencyLifetime } }: WriteContext,
  call: WritingCall,
): Promise<Buffer | null> {
  const { query, writer, client, idempotencyKey } = call;
  const turn = turnOf(call);
  const compiled = compileInSession({ reads, writer, client }, query);
  client.statement(compiled.statement.text);
  checkArguments(compiled.calls, query.values);
  const read = { query, compiled, caller: writer.caller };
  const before = statementBefore(compiled);
  const statements = [...(before ? [reads.bind(read, before)] : []), reads.bind(read)];
  const settings = reads.settingsOf({ ...read, origin: client });
  const callIn = async (session: Session): Promise<Buffer | null> => {
    let body: Buffer | null = null;
    const run = async (): Promise<Buffer | null> => {
      for (const statement of statements) body = await cellOf(statement, session);
      return body;
    };
    return settings === null ? session.calling(run) : session.asCaller(settings, () => session.calling(run));
  };
  try {
    if (joined) return await callIn(joined);
    if (idempotencyKey)
      return await database.transaction(
        (session) => answerOnce(idempotencyKey, { database, session, idempotencyLifetime }, () => callIn(session)),
        BEGIN,
        turn,
      );
    // Each transaction may have another session of the pooler: the session is restored before the commit.
    if (database.pooler === 'transaction') return await database.transaction(callIn, BEGIN, turn);
    const pipelined = statements.map((statement) => ({ ...statement, columns: 1 as const }));
    const cells = await database.sessions.use((session) => session.callPipelined(pipelined, settings), turn);
    return cells.at(-1) ?? null;
  } finally {
    client.staged('execute');
  }
}
