/** `tx.items(…)`: reads and writes of a program or a hook inside of an open transaction. */

import { forbidden, invalidQuery, ServiceError } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { parseOwnJson } from '../../base/narrow.js';
import { createSequence } from '../../base/time-slices.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { parseItemWrite } from '../../compiler/request/item-write.js';
import { parseRead, parseReadBack, parseSearch } from '../../compiler/request/rest.js';
import type { Identity } from '../../server/access/identity.js';
import type { As, Items } from '../../server/execute/hooks/api.js';
import type { HookTransaction } from '../../server/execute/hooks/definition.js';
import type { HookCalls, TransactionScope } from '../../server/execute/hooks/joined-writes.js';
import { isStream } from '../../server/execute/reads/compiled-read.js';
import { seenBy } from '../../server/execute/writer.js';
import { isConflict } from '../../server/postgres/pools/conflicts.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import type { BoundHook, Extensions } from './extensions.js';
import { type ItemsCall, itemsApi } from './items-api.js';

/** The transaction, and the caller that `as` names. */
interface CallScope extends TransactionScope {
  readonly callerOf: (as: As) => Promise<Identity>;
}

const SAVEPOINT = 'lateral_call';

/** The calls of one hook, or of one function of a program. They run one after the other, and none after its end. */
export class TransactionItems implements HookTransaction {
  /** The error after which the whole transaction is run again or has ended, whatever the hook makes of it. */
  fatal: { readonly error: unknown } | null = null;
  #isClosed = false;
  #isAbandoned = false;
  #scope: CallScope | null = null;
  #running: Promise<unknown> = Promise.resolve();
  /** The error of a call that was not awaited: it failed after the hook had returned. */
  #unheard: { readonly error: unknown } | null = null;
  readonly #inOrder = createSequence();

  /** `open` is called at the first call: a hook without calls needs no transaction. */
  constructor(private readonly open: () => Promise<CallScope>) {}

  items<Row extends object>(
    collection: string,
    { as = 'caller', hooks = true }: { readonly as?: As | 'caller'; readonly hooks?: boolean } = {},
  ): Items<Row> {
    const send = <Data>(call: ItemsCall): Promise<Data> => {
      if (this.#isClosed) throw ended();
      const done = this.#inOrder(() => this.#run<Data>(call, as, hooks));
      this.#running = done.catch((error: unknown) => {
        if (this.#isClosed) this.#unheard ??= { error };
      });
      return done;
    };
    return itemsApi<Row>(collection, send, true);
  }

  /**
   * Resolves when all calls have ended, also those that nobody awaits: if one of these fails, so does the hook. After a failure of the hook,
   * calls that have not begun are dropped.
   */
  async close(isFailed: boolean): Promise<void> {
    this.#isClosed = true;
    this.#isAbandoned = isFailed;
    await this.#running;
    if (this.fatal) throw this.fatal.error;
    if (!isFailed && this.#unheard) throw this.#unheard.error;
  }

  /** A failed call is undone alone: the hook may catch its error and go on. */
  async #run<Data>(call: ItemsCall, as: As | 'caller', hooks: boolean): Promise<Data> {
    if (this.#isAbandoned) throw ended();
    // The transaction begins again, or is undone.
    if (this.fatal) throw this.fatal.error;
    this.#scope ??= await this.open();
    const { session, asError, writer, callerOf } = this.#scope;
    const caller = as === 'caller' ? writer.caller : await callerOf(as);
    const dropAfterwards = session.markAfterwards();
    try {
      await session.query(`savepoint ${SAVEPOINT}`);
      const data = await this.#send<Data>(call, this.#scope, caller, hooks);
      await session.query(`release savepoint ${SAVEPOINT}`);
      return data;
    } catch (error) {
      if (session.lost || isConflict(error)) this.fatal = { error };
      else await this.#undo(session);
      dropAfterwards();
      throw error instanceof ServiceError || this.fatal ? error : asError(error);
    }
  }

  async #undo(session: Session): Promise<void> {
    try {
      await session.query(`rollback to savepoint ${SAVEPOINT}; release savepoint ${SAVEPOINT}`);
    } catch (error) {
      this.fatal = { error };
    }
  }

  async #send<Data>(call: ItemsCall, scope: TransactionScope, caller: Identity, hooks: boolean): Promise<Data> {
    const { method } = call;
    const body =
      method === 'GET' || method === 'SEARCH'
        ? await readIn(scope, call, caller)
        : await writeIn(hooks ? scope : { ...scope, writes: scope.writes.withoutHooks() }, { ...call, method }, caller);
    return parseOwnJson<{ data: Data }>(body === null ? '{"data":null}' : String(body)).data;
  }
}

/** The calls of a hook in the transaction that `open` begins. Throws if the hook is running already. */
export function callsOf(
  hook: BoundHook<never>,
  { running, scopeOf }: HookCalls,
  extensions: Extensions,
  open: () => Promise<Session>,
): TransactionItems {
  const { extension, kind, collection } = hook;
  const name = `${extension} ${kind} ${collection}`;
  if (running.includes(name)) throw extensions.failure(new Error(triggersItself(collection)), hook);
  return new TransactionItems(async () => {
    const scope = scopeOf(name, await open());
    return { ...scope, callerOf: extensions.services.callerOf };
  });
}

function triggersItself(collection: string): string {
  return `it triggers itself: use tx.items(${JSON.stringify(collection)}, { hooks: false }) for writes that call no hooks`;
}

function ended(): Error {
  return invalidQuery('The transaction of this call has ended: await each call of "tx"');
}

async function readIn(
  { session, reads, writer, client, parseLimits: limits }: TransactionScope,
  { method, collection, key, queryString, body }: ItemsCall,
  given: Identity,
): Promise<Buffer> {
  const query: Parsed =
    method === 'SEARCH'
      ? parseSearch(collection, normalized(body), queryString, limits)
      : parseRead(collection, key, queryString, limits);
  const caller = await reads.conditioned(query, given, client);
  const compiled = reads.compile(query, caller, { client });
  if (isStream(compiled)) throw invalidQuery('A transaction cannot stream a list: set a smaller "limit"');
  const cell = await reads.affordableCellIn(session, {
    query,
    compiled,
    caller,
    inDatabase: seenBy(writer),
    origin: client,
  });
  if (cell === null) throw forbidden();
  return cell;
}

function writeIn(
  { writes, writer, client, parseLimits: limits }: TransactionScope,
  {
    method,
    collection,
    key,
    queryString,
    body,
  }: Omit<ItemsCall, 'method'> & { readonly method: 'POST' | 'PATCH' | 'DELETE' },
  caller: Identity,
): Promise<Buffer | null> {
  const request = parseItemWrite(
    { method, collection, key, queryString, body: normalized(body), ifMatch: null, isNew: false },
    {
      isSingleton: writes.isSingleton(collection, caller),
      limits,
      idempotencyKey: null,
      readBackOf: (one) => parseReadBack(collection, one, queryString, limits),
    },
  );
  const author = { ...writer.author, user: caller.user };
  return writes.run(request, { caller, author, inDatabase: seenBy(writer) }, client);
}

/** The body as its JSON is read. */
function normalized(body: unknown): unknown {
  return body === undefined ? undefined : parseJson(JSON.stringify(body));
}
