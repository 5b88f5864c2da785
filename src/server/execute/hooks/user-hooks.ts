/** The interface of hooks that users write. They are write hooks that also change payloads, before the plan of the write is made. */
import type { Collection, Model } from '../../../compiler/model/model.js';
import type { Access } from '../../../compiler/plan/access.js';
import type { Payload } from '../../../compiler/plan/write/payload-row.js';
import type { PlannedRequest } from '../../../compiler/plan/write/plan-request.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { WrittenBy } from '../writer.js';
import type { HookAction } from './definition.js';
import type { HookCalls } from './joined-writes.js';
import type { WriteHook } from './write-hook.js';

export interface UserHooks extends WriteHook {
  /** Whether hooks are called before or after writes of the collection. */
  follow(collection: Collection): boolean;
  /** Whether hooks change the payload of the request, or items nested in it. */
  change(request: WriteRequest, collection: Collection, model: Model): boolean;
  /** Whether hooks may change payloads for the collection, or items nested in them. */
  mayChange(collection: Collection, model: Model): boolean;
  /** The calls before a write. `open` begins its transaction. */
  before(write: UnplannedWrite, open: () => Promise<Session>): PayloadHooks;
  /** The plan with the order to keep the keys of new rows that hooks are called for. */
  keepingKeys(planned: PlannedWrite): PlannedWrite;
}

export interface UnplannedWrite extends WrittenBy, HookCalls {
  readonly model: Model;
  readonly access: Access | null;
  /** Rows that the request may write; null for no limit. */
  readonly maxRows: number | null;
}

export interface PayloadHooks {
  /** The request with the payloads that hooks made of its own. */
  request(request: PlannedRequest, collection: Collection): Promise<PlannedRequest>;
  /** Rows of a file: those with a key may exist. */
  rows(collection: Collection, rows: readonly Input[], isMerged: boolean): Promise<Input[]>;
  item(collection: Collection, payload: Payload, action: HookAction, keys: readonly unknown[]): Promise<Input>;
  /** Items that are deleted, or leave a list. Without keys, only the statement knows which they are. */
  removed(collection: Collection, action: 'delete' | 'unlink', keys: readonly unknown[]): Promise<void>;
}
