/** Runs writes: a statement, then its read-back, in one transaction. After a deadlock nothing of it is left: it is run again. */
import { CLI_IDENTITY, type Identity } from '../../access/identity.js';
import {
  checkAccess,
  checkRegistration,
  concernsAccess,
  decidesAccess,
  keepAdministrators,
} from '../../accounts/administrators.js';
import { assertNever } from '../../base/assert-never.js';
import { invalidPayload, isOutcomeUnknown } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import type { Collection, Model } from '../../mirror/model.js';
import { servedCollection } from '../../plan/read.js';
import { planImported, planOnConflict } from '../../plan/write/conflict.js';
import { anyRule, Guard } from '../../plan/write/guard.js';
import { checkKeyed, checkKeys, shownKey } from '../../plan/write/key.js';
import { planCreate, planUpdate } from '../../plan/write/payload.js';
import type { WritePlanContext } from '../../plan/write/payload-row.js';
import type { PlannedWrite } from '../../plan/write/write.js';
import { checkRows } from '../../plan/write/write-rows.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { OnConflict } from '../../request/on-conflict.js';
import type { Input } from '../../request/parse-context.js';
import type { Selected, WriteRequest } from '../../request/write.js';
import { bind } from '../../sql/parameter.js';
import { isDistributed, planForShard, withKeysLeft } from '../distributed.js';
import { isChecked, writeRecords } from '../hooks/versions.js';
import type { Reads } from '../reads/reads.js';
import { retry } from '../retry.js';
import type { RequestClient } from '../stages.js';
import { isKnownSingleton, type Writer, type WriteSession, type WrittenBy } from '../writer.js';
import {
  type WriteCall,
  WriteCompiler,
  type WriteLimits,
  type WriteOption,
  type WriteServices,
} from './compiled-write.js';
import { callFunction, type WritingCall } from './function-call.js';
import { answerRepeated, isRepeated, keepWrittenKeys, repeated, takeKey } from './idempotency.js';
import { hashNewSecrets, preparePayloads } from './password-hashing.js';
import { advancePast, advancePastTable, suppliesKeys } from './sequences.js';
import {
  asDeleteFailure,
  asImportError,
  asWriteError,
  asWriteFailure,
  changesByKey,
  lock,
  rowsOf,
} from './write-errors.js';

type UpdateInTransaction = Extract<WriteRequest, { readonly kind: 'update-selected' | 'update-singleton' }>;

export class Writes {
  readonly #services: WriteServices;
  readonly #observe: Observer;
  readonly #database: Database;
  readonly #limits: WriteLimits;
  readonly #compiler: WriteCompiler;
  readonly #stats: Reads['shapeStats'];
  readonly #listeners: (() => Promise<void>)[];
  /** Of writes that joined a transaction. */
  #session: Session | null = null;

  /** With `origin`, statements are shared with it. */
  constructor(services: WriteServices, limits: WriteLimits, observe: Observer, origin: Writes | null = null) {
    const { database, mirror, reads } = services;
    this.#services = services;
    this.#observe = observe;
    this.#database = database;
    this.#limits = limits;
    this.#stats = reads.shapeStats;
    this.#compiler = origin ? origin.#compiler : new WriteCompiler(reads, mirror, limits, observe);
    this.#listeners = origin ? origin.#listeners : [];
  }

  /** How many shapes are compiled and kept. */
  get shapes(): number {
    return this.#compiler.shapes;
  }

  /** Calls back when a write may have changed who may do what; the write is answered after that. */
  onAccessChange(listener: () => Promise<void>): void {
    this.#listeners.push(listener);
  }

  /** Answers the body of the read-back; null where there is none, or the caller may not read it. */
  async run(request: WriteRequest, writer: Writer, client: RequestClient): Promise<Buffer | null> {
    const { idempotencyKey = null } = request;
    const readBack = request.kind === 'delete' ? null : request.readBack;
    const call: WriteCall = { writer, client, readBack, idempotencyKey };
    try {
      return await this.#retry(call, (model) => this.#attempt(request, call, model));
    } catch (error) {
      if (!idempotencyKey || !isRepeated(error)) throw error;
      return answerRepeated(idempotencyKey, request.collection, call, this.#services);
    } finally {
      client.staged('execute');
    }
  }

  /** Restricts, plans, compiles and executes. */
  async #attempt(request: WriteRequest, call: WriteCall, model: Model): Promise<Buffer | null> {
    const collection = servedCollection(model, request.collection);
    const context = this.#planContext(model, call.writer);
    call.client.staged('restrict');
    switch (request.kind) {
      case 'create':
        return this.#execute(
          await (request.onConflict
            ? planOnConflict(collection, request.items, request.onConflict, context)
            : planCreate(collection, request.items, context)),
          call,
        );
      case 'update-item':
        return this.#execute(await planUpdate(collection, [request], context), call);
      case 'update-each':
        return this.#execute(await planUpdate(collection, changesByKey(collection, request.items), context), call);
      case 'update-selected':
      case 'update-singleton':
        return this.#updateSelected(request, collection, context, call);
      case 'delete':
        return this.#delete(collection, request.selected, context, call);
      default:
        return assertNever(request);
    }
  }

  /** Calls a function that may write; answers its result. */
  call(call: WritingCall): Promise<Buffer | null> {
    return this.#retry(call, () => callFunction(call, { ...this.#services, ...this.#limits, session: this.#session }));
  }

  /** Several writes in one transaction: those that `work` makes with what it is given. */
  inOneTransaction<Result>(
    by: WrittenBy,
    work: (writes: Writes, session: Session) => Promise<Result>,
  ): Promise<Result> {
    return this.#retry(by, () =>
      this.#database.transaction((session) => {
        const joined = new Writes(this.#services, this.#limits, this.#observe, this);
        joined.#session = session;
        return work(joined, session);
      }),
    );
  }

  /** For a write that is planned inside its transaction: passwords are hashed before it begins. */
  async prepare<Request extends WriteRequest>(request: Request, writer: Writer): Promise<Request> {
    if ('items' in request) return { ...request, items: await this.#prepareItems(request, request.items, writer) };
    if (!('data' in request)) return request;
    const [data = request.data] = await this.#prepareItems(request, [request.data], writer);
    return { ...request, data };
  }

  async #prepareItems(request: WriteRequest, items: readonly Input[], writer: Writer) {
    const { model } = this.#services.mirror;
    const collection = model.collections.get(request.collection);
    if (!collection) return items;
    // A query that cannot be read is refused before anything is done for it.
    if ('selected' in request) this.#compiler.parseSelected(collection, request.selected);
    return preparePayloads(collection, items, this.#planContext(model, writer), (text) => this.#database.rows(text));
  }

  /** A new transaction, or the one that was joined. */
  #transaction<Result>(work: (session: Session) => Promise<Result>, call: WriteCall | null): Promise<Result> {
    if (this.#session) return work(this.#session);
    const key = call?.idempotencyKey;
    return this.#database.transaction(async (session) => {
      if (key && !(await takeKey(key, this.#limits.idempotencyLifetime, this.#database, session))) throw repeated();
      return work(session);
    });
  }

  /** Which items are changed is known inside the transaction. */
  async #updateSelected(
    request: UpdateInTransaction,
    collection: Collection,
    context: WritePlanContext,
    call: WriteCall,
  ): Promise<Buffer | null> {
    const { data } = await this.prepare(request, call.writer);
    return this.#transaction(async (session) => {
      const planned =
        request.kind === 'update-singleton'
          ? await this.#planSingleton(collection, data, context, call, session)
          : await planUpdate(
              collection,
              (await this.#compiler.selectKeys(collection, request.selected, call, session, 'update')).map((key) => ({
                key,
                data,
              })),
              context,
            );
      return this.#send(planned, call, session, null);
    }, call);
  }

  async #planSingleton(
    collection: Collection,
    data: Input,
    context: WritePlanContext,
    call: WriteCall,
    session: Session,
  ): Promise<PlannedWrite> {
    await lock(collection, session);
    // Whether there is an item is no matter of permissions: whether it may be changed is.
    const anyone = { ...call, writer: { ...call.writer, caller: CLI_IDENTITY } };
    const first = { kind: 'query', query: { limit: 1 } } as const;
    const [key] = await this.#compiler.selectKeys(collection, first, anyone, session, 'update');
    return key === undefined
      ? planCreate(collection, [data], context)
      : planUpdate(collection, [{ key, data }], context);
  }

  isSingleton(name: string, caller: Identity): boolean {
    return isKnownSingleton(name, caller, this.#services);
  }

  async #delete(collection: Collection, selected: Selected, context: WritePlanContext, call: WriteCall): Promise<null> {
    const { writer, client } = call;
    const { model, access } = context;
    const rule = access && anyRule(new Guard(access, model).grant('delete', collection).rules);
    checkKeyed(collection);
    client.staged('plan');
    const { text, parameters } = this.#compiler.compileDelete(collection, rule, context, writer);
    client.statement(text);
    client.staged('compile');
    await this.#transaction(async (session) => {
      const keys = await this.#compiler.selectKeys(collection, selected, call, session, 'delete');
      await checkKeys(collection, keys);
      checkRows(keys.length, this.#limits.maxRows);
      if (collection.distributed) await planForShard(collection, keys, session);
      const values = [keys, JSON.stringify(writer.author)];
      const send = (): Promise<unknown> =>
        session.cell(text, bind(parameters, values, writer.caller)).catch((error: unknown) => {
          throw asDeleteFailure(error, collection);
        });
      if (!decidesAccess(collection.name, model)) return void (await send());
      await keepAdministrators(this.#database, session, writer.caller, send);
      session.afterwards(this.#changedAccess);
    }, call);
    return null;
  }

  #planContext(model: Model, { caller, author, access }: Writer): WritePlanContext {
    return {
      model,
      author,
      maxRows: this.#limits.maxRows,
      variables: { ...caller, now: new Date().toISOString() },
      access: access ?? this.#services.policies.accessOf(caller),
    };
  }

  /** In one round trip, unless something is done between the statements: for an `Idempotency-Key`, supplied keys, or rights. */
  async #execute(planned: PlannedWrite, call: WriteCall): Promise<Buffer | null> {
    if (this.#session) return this.#send(planned, call, this.#session);
    call.client.staged('plan');
    await hashNewSecrets(planned, call.writer, (text) => this.#database.rows(text));
    const isApart = call.idempotencyKey || suppliesKeys(planned) || isChecked(planned) || isDistributed(planned);
    const written = isApart ? null : this.#compiler.compileWrite(planned, call, null);
    if (!written) return this.#database.transaction((session) => this.#send(planned, call, session));
    const read = this.#compiler.bindReadBack(planned, call);
    call.client.staged('compile');
    const statements = read ? [written, read] : [written];
    const [, body = null] = await this.#database.sessions
      .use((session) => this.#stats.time(written, rowsOf(planned), () => session.runPipelined(statements)))
      .catch((error: unknown) => Promise.reject(asWriteFailure(error, planned)));
    return body;
  }

  async #send(
    planned: PlannedWrite,
    call: WriteCall,
    session: Session,
    option: WriteOption = call.idempotencyKey,
  ): Promise<Buffer | null> {
    await this.#write(planned, call, session, option);
    const read = this.#compiler.bindReadBack(await withKeysLeft(planned, session), call);
    const body = read && (await session.cell(read.text, read.parameters, read.prepare));
    const { idempotencyKey } = call;
    if (idempotencyKey) await keepWrittenKeys(idempotencyKey, planned.keys, this.#database, session);
    return body;
  }

  /** Every write that may be about users, roles and policies. Answers how many rows were left out, where they are counted. */
  async #write(planned: PlannedWrite, call: WriteCall, session: Session, option: WriteOption): Promise<number> {
    const { writer, client } = call;
    client.staged('plan');
    const services = { ...this.#services, limits: this.#limits };
    const send = (): Promise<number> => this.#sendWrite(planned, call, session, option);
    const write = (): Promise<number> => writeRecords(planned, writer, services, session, send);
    const isLimited = option !== 'count' && !writer.caller.administrator;
    await hashNewSecrets(planned, writer, (text) => session.query(this.#database.qualified(text)), isLimited);
    if (!concernsAccess(planned)) return write();
    checkAccess(planned);
    const skipped = await keepAdministrators(this.#database, session, writer.caller, write);
    await checkRegistration(planned, this.#database, session);
    session.afterwards(this.#changedAccess);
    return skipped;
  }

  readonly #changedAccess = async (): Promise<void> => {
    await Promise.all(this.#listeners.map((listener) => listener()));
  };

  async #sendWrite(planned: PlannedWrite, call: WriteCall, session: Session, option: WriteOption): Promise<number> {
    const statement = this.#compiler.compileWrite(planned, call, option);
    if (!statement) return 0;
    call.client.staged('compile');
    try {
      if (isDistributed(planned)) await session.setPlanMode('force_custom_plan');
      const { text, parameters, prepare } = statement;
      const cell = await this.#stats.time(statement, rowsOf(planned), () => session.cell(text, parameters, prepare));
      const maxKeys = parseOwnJson<(string | null)[]>(String(cell));
      await advancePast(planned, maxKeys, session);
      return option === 'count' ? rowsOf(planned) - Number(maxKeys.at(-1)) : 0;
    } catch (error) {
      throw asWriteFailure(error, planned);
    } finally {
      call.client.staged('execute');
    }
  }

  /** One transaction in which rows are written batch by batch; what `work` throws undoes all of it. */
  session<Result>(
    name: string,
    by: WrittenBy,
    { onConflict, mayRepeat }: { readonly onConflict: OnConflict | null; readonly mayRepeat: () => boolean },
    work: (session: WriteSession) => Promise<Result>,
  ): Promise<Result> {
    const call: WriteCall = { ...by, readBack: null, idempotencyKey: null };
    const attempt = (model: Model): Promise<Result> => {
      const collection = servedCollection(model, name);
      const context = this.#planContext(model, by.writer);
      const guard = context.access && new Guard(context.access, model);
      if (guard && !guard.covers('update', collection, [])) guard.grant('create', collection);
      by.client.staged('restrict');
      const write = async (session: Session, planned: PlannedWrite, rows: number): Promise<number> => {
        const skipped = await this.#write(planned, call, session, 'count');
        // Nested items of the same collection cannot be distinguished from those of the file.
        return rowsOf(planned) === rows ? skipped : 0;
      };
      const plan: WriteSession['plan'] = (rows) =>
        planImported(collection, rows, onConflict, { ...context, maxRows: null });
      const { access } = context;
      return this.#database.imports.use((session) =>
        session.transaction(() =>
          work({ session, model, collection, access, plan, write: (...batch) => write(session, ...batch) }),
        ),
      );
    };
    return this.#committed(retry(this.#services.mirror, attempt, { asError: asImportError, mayRepeat }), by);
  }

  /** Moves an item of a sorted collection to the place of another. */
  sort(name: string, item: unknown, to: unknown, by: WrittenBy): Promise<void> {
    const { writer } = by;
    return this.#retry(by, async (model) => {
      const collection = servedCollection(model, name);
      const { access } = this.#planContext(model, writer);
      if (access) new Guard(access, model).checkOrder(collection);
      checkKeyed(collection);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      const keys = [item, to].map((key) => shownKey(collection, key));
      if (keys.includes(null)) throw invalidPayload('"item" and "to" must be keys');
      const { text, parameters } = this.#compiler.compileSort(collection, field, model, writer);
      await this.#transaction(async (session) => {
        await lock(collection, session);
        await session.cell(text, bind(parameters, keys, writer.caller));
      }, null);
    });
  }

  /** Writes that joined a transaction are retried with it. */
  #retry<Result>(by: WrittenBy, work: (model: Model) => Promise<Result>): Promise<Result> {
    if (this.#session) return work(this.#services.mirror.model);
    const written = retry(this.#services.mirror, work, {
      asError: (error, model) =>
        this.#services.reads.refusals.to(
          by.writer.caller,
          asWriteError(error, model, this.#planContext(model, by.writer).access),
        ),
      onCollision: ({ collection }) => this.#database.transaction((session) => advancePastTable(collection, session)),
    });
    return this.#committed(written, by);
  }

  /** Where there are replicas, the caller is to see it there. */
  async #committed<Result>(written: Promise<Result>, { writer, client }: WrittenBy): Promise<Result> {
    const { consistency } = this.#services;
    try {
      const result = await written;
      await consistency?.committed(client, writer.caller);
      return result;
    } catch (error) {
      if (isOutcomeUnknown(error)) consistency?.mayHaveCommitted(client, writer.caller);
      throw error;
    }
  }
}
