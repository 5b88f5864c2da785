/** The plan of a write request, for a caller whose permissions are known. */
import { assertNever } from '../../../base/assert-never.js';
import { invalidPayload } from '../../../base/errors.js';
import type { Collection } from '../../model/model.js';
import type { Input } from '../../request/parse-context.js';
import type { Key, WriteRequest } from '../../request/write.js';
import type { Condition } from '../plan.js';
import { planOnConflict } from './conflict.js';
import { anyRule, Guard } from './guard.js';
import { checkKeyed, readNamedKey } from './key.js';
import { planCreate, planUpdate } from './payload.js';
import type { WritePlanContext } from './payload-row.js';
import type { PlannedWrite } from './write.js';

/** Requests whose items are known only inside of the transaction. */
export type SelectingUpdate = Extract<WriteRequest, { readonly kind: 'update-selected' | 'update-singleton' }>;
export type SelectingRequest = SelectingUpdate | Extract<WriteRequest, { readonly kind: 'delete' }>;

/** A collection, and the context in which payloads for it are planned: what the caller may write. */
export interface WriteTarget {
  readonly collection: Collection;
  readonly context: WritePlanContext;
}

export function isSelecting(request: WriteRequest): request is SelectingRequest {
  return request.kind === 'delete' || request.kind === 'update-selected' || request.kind === 'update-singleton';
}

/** Which items the caller may delete; null for all. */
export function deletionRule({ collection, context: { access, model } }: WriteTarget): Condition | null {
  const rule = access && anyRule(new Guard(access, model).grant('delete', collection).rules);
  checkKeyed(collection);
  return rule;
}

/** The caller must be allowed to change the columns that the payload names. */
export function checkChanged({ collection, context: { access, model } }: WriteTarget, data: Input): void {
  const names = Object.keys(data).filter((name) => collection.fields.get(name)?.column);
  if (access) new Guard(access, model).check('update', collection, names, 'root');
}

/** A singleton that does not exist starts from the defaults of its fields, so an operator applies to these. */
export function withOperators(
  context: WritePlanContext,
  { isLiteral = false }: { readonly isLiteral?: boolean },
  operators: 'changes' | 'all',
): WritePlanContext {
  return { ...context, operators, isLiteral };
}

/** Requests that name their items. */
export type PlannedRequest = Exclude<WriteRequest, SelectingRequest>;

export async function planWrite(request: PlannedRequest, target: WriteTarget): Promise<PlannedWrite> {
  const { collection } = target;
  const context = withOperators(target.context, request, 'changes');
  switch (request.kind) {
    case 'create':
      // The columns of a conflict are checked even if it is an error.
      if (request.onConflict) {
        const planned = await planOnConflict(collection, request.items, request.onConflict, context);
        if (!request.isNew) return planned;
      }
      return planCreate(collection, request.items, context);
    case 'update-item':
      return planUpdate(collection, [request], context);
    case 'update-each':
      return planUpdate(collection, changesByKey(collection, request.items), context);
    default:
      return assertNever(request);
  }
}

/** `any` is no condition: a write of an item that does not exist fails anyway. */
export function tagsOf(request: WriteRequest): readonly string[] | null {
  const ifMatch = 'ifMatch' in request ? (request.ifMatch ?? null) : null;
  return ifMatch === 'any' ? null : ifMatch;
}

function changesByKey(collection: Collection, items: readonly Input[]): { key: Key; data: Input }[] {
  return items.map((data) => {
    const key = readNamedKey(collection, data);
    if (key === null) throw invalidPayload('Item in update misses primary key');
    return { key, data };
  });
}
