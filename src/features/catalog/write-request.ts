/** The statements of a write request, as far as they do not depend on rows of the database. */
import { ServiceError } from '../../base/errors.js';
import { runSteps } from '../../base/time-slices.js';
import type { Permissions } from '../../compiler/access/permissions.js';
import type { FlatStatement } from '../../compiler/compile/write/flat.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import type { Access } from '../../compiler/plan/access.js';
import { servedCollection } from '../../compiler/plan/read.js';
import { planUpdate } from '../../compiler/plan/write/payload.js';
import {
  checkChanged,
  deletionRule,
  isSelecting,
  planWrite,
  type SelectingRequest,
  type WriteTarget,
  withOperators,
} from '../../compiler/plan/write/plan-request.js';
import { newSecrets } from '../../compiler/plan/write/secrets.js';
import { isDistributed } from '../../compiler/plan/write/shard.js';
import { suppliesKeys } from '../../compiler/plan/write/supplied-keys.js';
import type { Author, PlannedWrite } from '../../compiler/plan/write/write.js';
import { checkRows } from '../../compiler/plan/write/write-rows.js';
import type { Parsed } from '../../compiler/request/ast.js';
import type { WriteRequest } from '../../compiler/request/write.js';
import type { Statement } from '../../compiler/sql/fragment.js';
import { bind, type Caller } from '../../compiler/sql/parameter.js';
import { type CompiledReadBack, readStatement } from '../../compiler/statements/read.js';
import {
  type CompiledWrite,
  chainedWrite,
  checkedWrite,
  collectionsOf,
  deletion,
  deletionOf,
  deletionParameters,
  flatDeletion,
  flatWrite,
  givenKeys,
  mayBeFlat,
  readOfWritten,
  type WriteCall,
  type WriteHost,
} from '../../compiler/statements/write.js';
import type { StageLimits } from './limits.js';

/** The statements of a valid request cannot be known without a database, or the request has none. */
export class NoStatement extends Error {
  constructor(reason: string) {
    super(`The request has no statement that is known beforehand: ${reason}`);
    this.name = 'NoStatement';
  }
}

export interface CompilerCaller {
  readonly caller: Caller;
  readonly author: Author;
  /** The permissions of the caller, or null for all. */
  readonly access: Permissions | null;
}

export interface BoundStatement {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
}

interface Call extends WriteCall {
  readonly writer: { readonly caller: Caller; readonly author: Author };
  readonly access: Access | null;
}

/** Compiles each statement when it is asked for. */
class UnkeptStatements implements WriteHost<Call, CompiledReadBack> {
  readonly idempotencyLifetime = '1 day';

  constructor(
    private readonly model: Model,
    private readonly limits: StageLimits,
  ) {}

  accessOf({ access }: Call): Access | null {
    return access;
  }

  isLogDeferred(): boolean {
    return false;
  }

  isChained(): boolean {
    return false;
  }

  compiled(_: string, model: Model, __: Call['writer'], compile: () => Statement | FlatStatement): CompiledWrite {
    return checkedWrite(compile(), model);
  }

  compiledFlat(_: string, model: Model, __: Call['writer'], compile: () => FlatStatement | null): CompiledWrite | null {
    const flat = compile();
    return flat && checkedWrite(flat, model);
  }

  readBackOf(query: Parsed, { access }: Call): CompiledReadBack | null {
    const { model } = this;
    try {
      const context = { access, selectedFor: null, model, limits: this.limits.plan, staged: () => {} };
      const { statement, plan } = runSteps(readStatement(query, context));
      return { statement, plan, model };
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'FORBIDDEN' && access !== null) return null;
      throw error;
    }
  }
}

export class WriteStatements {
  readonly #host: UnkeptStatements;

  constructor(
    private readonly model: Model,
    private readonly limits: StageLimits,
    private readonly newUuid: () => string,
  ) {
    this.#host = new UnkeptStatements(model, limits);
  }

  /** The statements of a request, in their order. `isStep`: whether it is a part of a transaction. */
  async statementsOf(request: WriteRequest, by: CompilerCaller, isStep: boolean): Promise<readonly BoundStatement[]> {
    const { caller, author, access } = by;
    const readBack = request.kind === 'delete' ? null : request.readBack;
    const call: Call = { writer: { caller, author }, access, readBack, idempotencyKey: null, tags: null };
    const target = this.#targetOf(request, by);
    if (isSelecting(request)) return this.#selecting(request, target, call, isStep);
    const planned = await planWrite(request, target);
    const isFlat = isStep ? !suppliesKeys(planned) && !isDistributed(planned) : mayBeFlat(planned);
    return this.#ofPlan(planned, call, isFlat);
  }

  #targetOf({ collection }: WriteRequest, { caller, author, access }: CompilerCaller): WriteTarget {
    const context = {
      model: this.model,
      author,
      maxRows: this.limits.writtenItems,
      variables: { ...caller, now: new Date().toISOString() },
      newUuid: this.newUuid,
      access,
    };
    return { collection: servedCollection(this.model, collection), context };
  }

  async #selecting(
    request: SelectingRequest,
    target: WriteTarget,
    call: Call,
    isStep: boolean,
  ): Promise<readonly BoundStatement[]> {
    if (request.kind === 'update-singleton')
      throw new NoStatement('the service first looks for the item of the singleton');
    const { collection, context } = target;
    const { selected } = request;
    if (request.kind === 'delete') {
      const rule = deletionRule(target);
      const flat = flatDeletion({ collection, rule, selected }, context, call, this.#host);
      if (flat) return [sent(flat)];
      const keys = givenKeys(collection, selected);
      if (selected.kind === 'query') throw selectsRows();
      checkRows(keys.length, this.limits.writtenItems);
      const statement = deletion(deletionOf(target, rule, selected, isStep), context, call, this.#host);
      return [{ sql: statement.text, parameters: deletionParameters(statement, keys, call.writer.author, call) }];
    }
    if (selected.kind === 'query') throw selectsRows();
    const keys = givenKeys(collection, selected);
    if (keys.length === 0) checkChanged(target, request.data);
    const changes = keys.map((key) => ({ key, data: request.data }));
    const planned = await planUpdate(collection, changes, withOperators(context, request, 'changes'));
    return this.#ofPlan(planned, call, false);
  }

  #ofPlan(planned: PlannedWrite, call: Call, isFlat: boolean): readonly BoundStatement[] {
    refuseOwnTables(collectionsOf(planned));
    if (newSecrets(planned).length > 0) throw new NoStatement('the service hashes a value with a random salt');
    const flat = isFlat ? flatWrite(planned, call, this.#host) : null;
    if (flat) return [sent(flat)];
    const written = chainedWrite(planned, call, null, this.#host);
    const read = readOfWritten(planned, call, this.#host);
    return [
      ...(written ? [sent(written)] : []),
      ...(read
        ? [
            {
              sql: read.statement.text,
              parameters: bind(read.statement.parameters, read.query.values, call.writer.caller),
            },
          ]
        : []),
    ];
  }
}

function sent({ compiled, parameters }: { compiled: CompiledWrite } & Pick<BoundStatement, 'parameters'>) {
  return { sql: compiled.statement.text, parameters };
}

function selectsRows(): NoStatement {
  return new NoStatement('a query selects the items, and the next statement has their keys. Name the items by "keys"');
}

/** The service checks rows of its own tables before and after they are written. */
function refuseOwnTables(collections: readonly Collection[]): void {
  const own = collections.find(({ system }) => system);
  if (own) throw new NoStatement(`the service checks what is written to "${own.name}"`);
}
