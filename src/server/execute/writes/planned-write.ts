/** Executes a planned write: its hooks, its statement and its read-back, in one round trip or in a transaction. */
import { forbidden } from '../../../base/errors.js';
import { parseOwnJson } from '../../../base/narrow.js';
import type { Collection } from '../../../compiler/model/model.js';
import { type PlannedRequest, planWrite, type WriteTarget } from '../../../compiler/plan/write/plan-request.js';
import { isDistributed } from '../../../compiler/plan/write/shard.js';
import { suppliesKeys } from '../../../compiler/plan/write/supplied-keys.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { collectionsOf, mayBeFlat, type WriteOption } from '../../../compiler/statements/write.js';
import { vanishedConflict } from '../../postgres/pools/conflicts.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { runInScope, settingsFor, writeSettings } from '../caller-scope.js';
import { withKeysLeft } from '../distributed.js';
import { WriteHooks } from '../hooks/write-hooks.js';
import { cellOf } from '../reads/reads.js';
import { seenBy, turnOf } from '../writer.js';
import { type FlatCall, flatBody, type WriteCall } from './compiled-write.js';
import { keepWrittenKeys, takeNewKey } from './idempotency.js';
import { hashNewSecrets } from './password-hashing.js';
import { advancePast } from './sequences.js';
import { beginFor, countPlanned, hookContext, payloadHooks, type WriteContext } from './write-context.js';
import { asDeleteFailure, asWriteFailure, rowsOf } from './write-errors.js';

/** Plans a request after hooks of users have changed it, in the transaction that `open` begins. */
export async function planChanged(
  context: WriteContext,
  request: PlannedRequest,
  target: WriteTarget,
  { call, open }: { readonly call: WriteCall; readonly open: () => Promise<Session> },
): Promise<PlannedWrite> {
  const hooks = payloadHooks(context, open, call, target);
  return planWrite(hooks ? await hooks.request(request, target.collection) : request, target);
}

/** One round trip, unless something is done between the statements: for an `Idempotency-Key`, supplied keys, or a hook. */
export async function execute(context: WriteContext, planned: PlannedWrite, call: WriteCall): Promise<Buffer | null> {
  const { services, compiler, limits } = context;
  const { database, reads } = services;
  await hashNewSecrets(planned, call.writer, (text) => database.rows(text));
  const hooks = WriteHooks.ofPlan(planned, services.hooks);
  hooks.validate();
  const begin = beginFor(planned.plan.nodes.flatMap(({ verb, collection }) => (verb === 'insert' ? [] : collection)));
  const isHooked = hooks.needTransaction || !mayBeFlat(planned);
  const flat = isHooked ? null : compiler.compileFlat(planned, call);
  if (flat) return sendFlat(context, flat, call);
  const isApart = isHooked || call.idempotencyKey || suppliesKeys(planned);
  const settings = writeSettings(services.callers, call, () => collectionsOf(planned));
  const written = isApart ? null : compiler.compileWrite(planned, call, null);
  const readBack = written && compiler.prepareReadBack(planned, call);
  if (!written || (readBack && settings === null && reads.settingsOf(readBack.read))) {
    // The role of the caller may not write to the table of idempotency keys.
    const isTaken = settings?.role ? call.idempotencyKey : null;
    const run = async (session: Session): Promise<Buffer | null> => {
      if (isTaken) await takeNewKey(isTaken, limits, database, session);
      await session.become(settings);
      return executeIn({ context, session, call }, planned, isTaken ? null : call.idempotencyKey);
    };
    return database.transaction(run, begin, turnOf(call));
  }
  call.client.staged('compile');
  const read = readBack && { ...reads.bind(readBack.read, readBack.statement), columns: 1 as const };
  const log = compiler.compileLog(collectionsOf(planned), call);
  const statements = [written, ...(log ? [log] : []), ...(read ? [read] : [])];
  const send = (session: Session): Promise<(Buffer | null)[]> =>
    reads.shapeStats.time(written, rowsOf(planned), () => session.runPipelined(statements, settings));
  const cells = await database.sessions
    .use(send, turnOf(call))
    .catch((error: unknown) => Promise.reject(asWriteFailure(error, planned)));
  return read ? (cells.at(-1) ?? null) : null;
}

/** The answer is the cell of the row that was written: empty if the caller may not read it. There is none if no row was written. */
export async function sendFlat(
  { services }: WriteContext,
  { planned, statement, batchText, key, isRepeatable, rows }: FlatCall,
  call: WriteCall,
  deletedFrom: Collection | null = null,
): Promise<Buffer | null> {
  const { client, writer } = call;
  const { database, reads, callers, batcher } = services;
  client.staged('compile');
  const settings = callers && settingsFor(callers, () => 'secured', seenBy(writer), client);
  const send = async (): Promise<Buffer | null> => {
    const turn = turnOf(call);
    // A batch of others could wait for the place that the write is in.
    if (batcher && batchText !== null && settings === null && !database.sessions.turns.isInside)
      return batcher.write({ statement, batchText, key, isRepeatable, caller: turn.caller });
    const [cell = null] = await database.sessions.use((session) => session.runPipelined([statement], settings), turn);
    return cell;
  };
  const body = await reads.shapeStats.time(statement, rows, send).catch((error: unknown) => {
    throw planned ? asWriteFailure(error, planned) : deletedFrom ? asDeleteFailure(error, deletedFrom) : error;
  });
  const vanished = body === null && planned ? vanishedConflict(planned.plan, forbidden()) : null;
  if (vanished) throw vanished;
  return flatBody(body);
}

/** A write in an open transaction. */
export interface WriteInTransaction {
  readonly context: WriteContext;
  readonly session: Session;
  readonly call: WriteCall;
}

/** The rows of a payload may belong to other tables than those that the transaction began with. */
function inScopeOf<Result>(
  { context, session, call: { writer, client } }: WriteInTransaction,
  planned: PlannedWrite,
  work: () => Promise<Result>,
): Promise<Result> {
  const collections = collectionsOf(planned);
  return runInScope(session, context.services.callers, { writer, client, collections }, work);
}

/** Writes, then reads back what was written. */
export function executeIn(
  write: WriteInTransaction,
  planned: PlannedWrite,
  option: WriteOption,
): Promise<Buffer | null> {
  return inScopeOf(write, planned, async () => {
    const { context, session, call } = write;
    const { compiler, services } = context;
    if (context.session) countPlanned(context, planned);
    await writeRows(write, planned, option);
    const readBack = compiler.prepareReadBack(await withKeysLeft(planned, session), call);
    const body = readBack && (await services.reads.cellIn(session, readBack.read, readBack.statement));
    if (call.idempotencyKey) await keepWrittenKeys(call.idempotencyKey, planned.keys, services.database, session);
    return body;
  });
}

/** Writes without a read-back. Returns the number of rows that triggers left out. */
export function writeCounted(write: WriteInTransaction, planned: PlannedWrite): Promise<number> {
  return inScopeOf(write, planned, () => writeRows(write, planned, 'count'));
}

/** Writes with hooks. Returns the number of rows that triggers left out, if the option is to count them. */
async function writeRows(write: WriteInTransaction, given: PlannedWrite, option: WriteOption): Promise<number> {
  const { context, session, call } = write;
  call.client.staged('plan');
  const { database, userHooks, hooks: all } = context.services;
  const planned = userHooks === null ? given : userHooks.keepingKeys(given);
  const isLimited = option !== 'count' && !call.writer.caller.administrator;
  const query = (text: string) => session.asService(() => session.query(database.qualified(text)));
  await hashNewSecrets(planned, call.writer, query, isLimited);
  const hooks = WriteHooks.ofPlan(planned, all);
  hooks.validate();
  return hooks.around(hookContext(context, session, call), () => sendRows(write, planned, option));
}

async function sendRows(
  { context, session, call }: WriteInTransaction,
  planned: PlannedWrite,
  option: WriteOption,
): Promise<number> {
  const { compiler, services } = context;
  const isNew = planned.plan.nodes.every(({ verb }) => verb === 'insert');
  const flat =
    option === 'count' && isNew && !planned.plan.keptKeys && !isDistributed(planned)
      ? compiler.compileFlat(planned, call)
      : null;
  const statement = flat?.statement ?? compiler.compileWrite(planned, call, option);
  if (!statement) return 0;
  call.client.staged('compile');
  try {
    if (isDistributed(planned)) await session.setPlanMode('force_custom_plan');
    const cell = await services.reads.shapeStats.time(statement, rowsOf(planned), () => cellOf(statement, session));
    // No trigger leaves out new rows of a flat write, and its statement advances the sequence.
    if (flat) return 0;
    await compiler.writeLog(session, collectionsOf(planned), call);
    const maxKeys = parseOwnJson<(string | null)[]>(String(cell));
    await session.asService(() => advancePast(planned, maxKeys, session));
    return option === 'count' ? rowsOf(planned) - Number(maxKeys.at(-1)) : 0;
  } catch (error) {
    throw asWriteFailure(error, planned);
  } finally {
    call.client.staged('execute');
  }
}
