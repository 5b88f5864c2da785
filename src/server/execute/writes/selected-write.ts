/** Updates and deletes the items that a request selects. */
import { preconditionFailed } from '../../../base/errors.js';
import type { Tags } from '../../../compiler/compile/write/write-input.js';
import type { Collection } from '../../../compiler/model/model.js';
import { checkKeys } from '../../../compiler/plan/write/key.js';
import { planCreate, planUpdate } from '../../../compiler/plan/write/payload.js';
import {
  checkChanged,
  deletionRule,
  type SelectingRequest,
  type SelectingUpdate,
  type WriteTarget,
  withOperators,
} from '../../../compiler/plan/write/plan-request.js';
import type { Key } from '../../../compiler/request/write.js';
import { type Deletion, deletionOf, deletionParameters } from '../../../compiler/statements/write.js';
import { CLI_IDENTITY } from '../../access/identity.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { planForShard } from '../distributed.js';
import { WriteHooks } from '../hooks/write-hooks.js';
import { seenBy } from '../writer.js';
import type { WriteCall } from './compiled-write.js';
import { prepareSecrets } from './password-hashing.js';
import { executeIn, sendFlat } from './planned-write.js';
import { deleteUnlocked } from './unlocked-delete.js';
import {
  BEGIN,
  BEGIN_UNLOCKED,
  countRows,
  hookContext,
  inTransaction,
  isChanged,
  isFollowed,
  payloadHooks,
  type WriteContext,
} from './write-context.js';
import { asDeleteFailure, lock } from './write-errors.js';

type DeleteRequest = Exclude<SelectingRequest, SelectingUpdate>;

export function writeSelected(
  context: WriteContext,
  request: SelectingRequest,
  target: WriteTarget,
  call: WriteCall,
): Promise<Buffer | null> {
  return request.kind === 'delete'
    ? deleteSelected(context, request, target, call)
    : updateSelected(context, request, target, call);
}

async function updateSelected(
  context: WriteContext,
  request: SelectingUpdate,
  target: WriteTarget,
  call: WriteCall,
): Promise<Buffer | null> {
  const { collection } = target;
  const { compiler } = context;
  const { data: given } = await prepareSecrets(context, request, call.writer);
  return inTransaction(context, { ...call, collection }, async (session) => {
    const keys =
      request.kind === 'update-singleton'
        ? await singletonKeys(context, collection, call, session)
        : await compiler.selectKeys({ ...call, session }, collection, request.selected, 'update');
    const isNew = request.kind === 'update-singleton' && keys.length === 0;
    // Without items, nothing else checks the fields.
    if (keys.length === 0 && !isNew) checkChanged(target, given);
    const hooks = keys.length > 0 || isNew ? payloadHooks(context, async () => session, call, target) : null;
    const data = hooks ? await hooks.item(collection, given, isNew ? 'create' : 'update', keys) : given;
    const operators = withOperators(target.context, request, isNew ? 'all' : 'changes');
    const planned = await (isNew
      ? planCreate(collection, [data], operators)
      : planUpdate(
          collection,
          keys.map((key) => ({ key, data })),
          operators,
        ));
    if (isNew && request.ifMatch) throw preconditionFailed('The item does not exist yet');
    return executeIn({ context, session, call }, planned, null);
  });
}

/** The key of the only item, or none. The service looks for it: permissions apply to the update. */
async function singletonKeys(
  { compiler }: WriteContext,
  collection: Collection,
  call: WriteCall,
  session: Session,
): Promise<readonly Key[]> {
  await lock(collection, session);
  const writer = { ...call.writer, caller: CLI_IDENTITY, inDatabase: seenBy(call.writer) };
  const first = { kind: 'query', query: { limit: 1 } } as const;
  return compiler.selectKeys({ ...call, writer, session }, collection, first, 'update');
}

async function deleteSelected(
  context: WriteContext,
  request: DeleteRequest,
  target: WriteTarget,
  call: WriteCall,
): Promise<Buffer | null> {
  const { services, compiler } = context;
  const { collection, context: planContext } = target;
  const { selected } = request;
  const rule = deletionRule(target);
  call.client.staged('plan');
  const hooks = WriteHooks.ofDelete(collection, planContext.model, services.hooks);
  const isApart = context.session || hooks.needTransaction || isChanged(context, request, planContext.model);
  const flat = isApart ? null : compiler.compileFlatDelete({ collection, rule, selected }, planContext, call);
  if (flat) return sendFlat(context, flat, call, collection);
  const deletion = deletionOf(target, rule, selected, context.session !== null);
  const remove = removalOf(context, deletion, target, call);
  const begin = deletion.locks ? BEGIN : BEGIN_UNLOCKED;
  await inTransaction(context, { ...call, collection, begin }, async (session) => {
    const select = () => compiler.selectItems({ ...call, session }, collection, selected, 'delete');
    const items = await select();
    const keys = items.map(({ key }) => key);
    await checkKeys(collection, keys);
    countRows(context, keys.length);
    await payloadHooks(context, async () => session, call, target)?.removed(collection, 'delete', keys);
    if (collection.distributed) await planForShard(collection, keys, session);
    const deleted = keyMap(keys);
    await hooks.around({ ...hookContext(context, session, call), deleted }, async () => {
      if (deletion.leavesChanged) {
        const removeIn = (removed: readonly Key[], tags: Tags) => remove(session, removed, tags);
        const gone = keyMap(await deleteUnlocked(items, { session, collection, select, remove: removeIn }));
        for (const key of deleted.keys()) if (!gone.has(key)) deleted.delete(key);
        return;
      }
      await remove(session, keys, call.tags);
      if (!deletion.leavesKept || !isFollowed(context, collection.name, planContext.model)) return;
      for (const { key } of await select()) deleted.delete(JSON.stringify(key));
    });
  });
  return null;
}

/** Deletes items by their keys, and writes the log. Returns the cell of the statement. */
type Removal = (session: Session, keys: readonly Key[], tags: Tags) => Promise<Buffer | null>;

function removalOf(
  { compiler }: WriteContext,
  deletion: Deletion,
  { collection, context }: WriteTarget,
  call: WriteCall,
): Removal {
  const { writer, client } = call;
  const statement = compiler.compileDelete(deletion, context, call);
  client.statement(statement.text);
  client.staged('compile');
  return async (session, keys, tags) => {
    const values = deletionParameters(statement, keys, writer.author, { writer, tags });
    const cell = await session.cell(statement.text, values).catch((error: unknown) => {
      throw asDeleteFailure(error, collection);
    });
    await compiler.writeLog(session, [collection], call);
    return cell;
  };
}

function keyMap(keys: readonly Key[]): Map<string, Key> {
  return new Map(keys.map((key) => [JSON.stringify(key), key]));
}
