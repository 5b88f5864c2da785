/** Writes as steps of a transaction: those that need nothing in between are sent together. */
import { isIntercepted } from '../../../compiler/model/write-facts.js';
import { displayWrittenKey } from '../../../compiler/plan/write/key.js';
import {
  deletionRule,
  isSelecting,
  planWrite,
  tagsOf,
  type WriteTarget,
} from '../../../compiler/plan/write/plan-request.js';
import { isDistributed } from '../../../compiler/plan/write/shard.js';
import { suppliesKeys } from '../../../compiler/plan/write/supplied-keys.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { parseCountOfKeys } from '../../../compiler/request/rest.js';
import type { Key, Selected, WriteRequest } from '../../../compiler/request/write.js';
import { CLI_IDENTITY } from '../../access/identity.js';
import { CallerSlice } from '../../node/turns.js';
import { parseWrittenKeys, WRITTEN_KEYS } from '../distributed.js';
import { WriteHooks } from '../hooks/write-hooks.js';
import { countInSession } from '../reads/session-reads.js';
import { turnOf, type WrittenBy } from '../writer.js';
import { pipelineFlat, shownKeys, type WriteCall } from './compiled-write.js';
import { callFunction } from './function-call.js';
import { answerOnce } from './idempotency.js';
import { checkDisclosure } from './key-disclosure.js';
import { hashNewSecrets } from './password-hashing.js';
import { executeIn, planChanged, type WriteInTransaction } from './planned-write.js';
import { writeSelected } from './selected-write.js';
import {
  type PipelinedWrite,
  type StepPlace,
  type TransactionOptions,
  TransactionPipeline,
  type TransactionStep,
  waitsForLock,
} from './transaction.js';
import {
  conditioned,
  countPlanned,
  countRows,
  hookContext,
  inOneTransaction,
  isChanged,
  restrict,
  type WriteContext,
} from './write-context.js';
import { asDeleteFailure, asWriteFailure, rowsOf } from './write-errors.js';

/** Runs the steps in order, in one transaction; answers the response. All of them together have the time of one statement. */
export async function transact(
  context: WriteContext,
  steps: readonly TransactionStep[],
  given: WrittenBy,
  options: TransactionOptions,
): Promise<Buffer> {
  const by = { ...given, writer: await conditioned(context, given.writer, null, given.client) };
  const { database, reads } = context.services;
  const { idempotencyLifetime } = context.limits;
  const { bodyOf, idempotencyKey: key } = options;
  const isWaiting = (processId: number): Promise<boolean> => waitsForLock(database, processId);
  return inOneTransaction(context, by, async (joined, session) => {
    const pipeline = new TransactionPipeline(session, reads, options.at, new CallerSlice(turnOf(by).caller));
    const run = async (): Promise<Buffer> => {
      const bodies = await pipeline.run(steps, {
        write: (request, place) => runStep({ context: joined, by, pipeline }, request, place),
        call: (query) => callFunction(joined, { ...by, query, idempotencyKey: null }),
      });
      return bodyOf(bodies);
    };
    try {
      const body = await session.within(database.transactionTimeout, isWaiting, () =>
        key ? answerOnce(key, { database, session, idempotencyLifetime }, run) : run(),
      );
      return body ?? bodyOf([]);
    } finally {
      pipeline.release();
    }
  });
}

interface StepContext {
  readonly context: WriteContext;
  readonly by: WrittenBy;
  readonly pipeline: TransactionPipeline;
}

/** Adds the write to the pipeline. One that needs something in between is carried out behind those that wait there. */
async function runStep(
  { context, by, pipeline }: StepContext,
  request: WriteRequest,
  { index, isReferenced, values }: StepPlace,
): Promise<void> {
  const { session } = pipeline;
  const readBack = request.kind === 'delete' ? null : request.readBack;
  const call: WriteCall = { ...by, readBack, idempotencyKey: null, tags: tagsOf(request) };
  const write = { context, session, call };
  const target = restrict(context, request.collection, call.writer, context.services.mirror.model);
  const { model } = target.context;
  await checkDisclosure(values(model), pipeline.keys, { ...hookContext(context, session, call), ...target.context });
  const isHooked = isChanged(context, request, model);
  const early = isSelecting(request) || isHooked ? null : await planWrite(request, target);
  const isChecked = isReferenced && isIntercepted(target.collection, 'insert');
  const pipelined = early
    ? !isChecked && (await pipelineWrite(write, early, isReferenced))
    : !isHooked && request.kind === 'delete' && pipelineDelete(write, request.selected, target);
  if (pipelined) {
    pipeline.add(index, pipelined);
    return;
  }
  await pipeline.flush();
  pipeline.begin(index);
  if (isSelecting(request)) {
    pipeline.receive(index, await writeSelected(context, request, target, call));
    return;
  }
  const planned = early ?? (await planChanged(context, request, target, { call, open: async () => session }));
  pipeline.receive(index, await executeIn(write, planned, null));
  if (!isReferenced) return;
  const keys = planned.keys ?? parseWrittenKeys(await session.cell(WRITTEN_KEYS.text, []));
  const isLost = isChecked && !(await areStored(write, planned, keys));
  pipeline.keys.set(index, isLost ? [] : shownKeys(planned, keys));
}

/** Whether all new items exist. A trigger may have left some of them out, or stored them elsewhere. */
async function areStored(
  { context, session, call }: WriteInTransaction,
  { plan: { collection } }: PlannedWrite,
  keys: readonly Key[],
): Promise<boolean> {
  const shown = keys.map((key) => displayWrittenKey(collection, key));
  const query = parseCountOfKeys(collection.name, shown, context.limits.parse);
  const count = await countInSession(hookContext(context, session, call), query, { caller: CLI_IDENTITY });
  return count === keys.length;
}

/** The statements of the write, or null if something is done between them or there is nothing to write. */
async function pipelineWrite(
  { context, session, call }: WriteInTransaction,
  planned: PlannedWrite,
  isReferenced: boolean,
): Promise<PipelinedWrite | null> {
  const { database, callers, hooks: all } = context.services;
  // Between its statements the service writes the log.
  if (callers?.mode === 'role') return null;
  await hashNewSecrets(planned, call.writer, (text) => session.query(database.qualified(text)));
  const hooks = WriteHooks.ofPlan(planned, all);
  if (suppliesKeys(planned) || hooks.needTransaction || isDistributed(planned)) return null;
  hooks.validate();
  const asFailure = (error: unknown): unknown => asWriteFailure(error, planned);
  const described = { isReferenced, rows: rowsOf(planned), asFailure };
  const pipelined = context.compiler.compilePipelined(planned, call, described);
  if (pipelined) countPlanned(context, planned);
  return pipelined;
}

/** The statement that deletes one item, or null for several items. */
function pipelineDelete(
  { context, call }: WriteInTransaction,
  selected: Selected,
  target: WriteTarget,
): PipelinedWrite | null {
  const { collection, context: planContext } = target;
  const { callers, hooks } = context.services;
  const rule = deletionRule(target);
  if (callers?.mode === 'role') return null;
  if (WriteHooks.ofDelete(collection, planContext.model, hooks).needTransaction) return null;
  const flat = context.compiler.compileFlatDelete({ collection, rule, selected }, planContext, call);
  if (!flat) return null;
  countRows(context, 1);
  return pipelineFlat(flat, (error) => asDeleteFailure(error, collection));
}
