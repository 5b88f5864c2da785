/**
 * Runs writes: the chain of one payload, then what is shown of the result, in one transaction. Deadlocks and serialization
 * failures are ours to retry: nothing of the attempt is left, and the client did nothing wrong.
 */
import { CLI_IDENTITY, type Identity } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import {
  checkAccess,
  checkRegistration,
  concernsAccess,
  decidesAccess,
  keepAdministrators,
} from '../accounts/administrators.js';
import { journalOf } from '../compile/activity.js';
import { compileDelete } from '../compile/delete.js';
import { compileSort } from '../compile/sort.js';
import { compileWrite } from '../compile/write.js';
import { writeJson } from '../digits.js';
import { invalidPayload } from '../errors.js';
import { type Collection, collectionOf, type Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import type { WriteAction } from '../plan/access.js';
import { anyRule, Guard } from '../plan/guard.js';
import { checkKeys, shownKey } from '../plan/key.js';
import { planCreate, planUpdate, planUpsert } from '../plan/payload.js';
import type { WritePlanContext } from '../plan/payload-row.js';
import { servedCollection } from '../plan/read.js';
import { checkRows } from '../plan/rows.js';
import type { PlannedWrite } from '../plan/write.js';
import type { Database } from '../postgres/database.js';
import type { PreparedText, Session } from '../postgres/sessions.js';
import type { Input, ParseLimits } from '../request/parse-context.js';
import { parseSelection } from '../request/rest.js';
import type { CreateBody, Key, Selected, UpdateBody } from '../request/write.js';
import { bind } from '../sql/parameter.js';
import type { Statement } from '../sql/statement.js';
import { billWriter } from './caller-budget.js';
import { type Extra, type IdempotentRequest, isRepeated, keepKeys, keysOf } from './idempotency.js';
import { hashedNodes, preparePayloads, settleSecrets } from './password-hashing.js';
import type { Reads } from './reads.js';
import { attempt } from './retry.js';
import { aheadOf, catchUp, suppliesKeys } from './sequences.js';
import { StatementCache } from './statement-cache.js';
import type { WriteContext, Writer, WriteSession } from './write-context.js';
import { eachChange, failureOf, lock, rowsOf } from './written.js';

export interface WriteLimits {
  readonly maxRows: number | null;
  readonly parse: ParseLimits;
  readonly shapes: number;
  readonly shapeMemory: number;
  /** As PostgreSQL reads an interval. */
  readonly receiptLifetime: string;
}

export interface WriteServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
}

export class Writes {
  readonly #services: WriteServices;
  readonly #observe: Observer;
  readonly #database: Database;
  readonly #mirror: Mirror;
  readonly #reads: Reads;
  readonly #policies: Policies;
  readonly #limits: WriteLimits;
  readonly #statements: StatementCache;
  readonly #listeners: (() => Promise<void>)[];
  /** Of writes that joined a transaction. */
  #session: Session | null = null;

  /** With `origin`, statements are shared with it. */
  constructor(services: WriteServices, limits: WriteLimits, observe: Observer, origin: Writes | null = null) {
    const { database, mirror, reads, policies } = services;
    this.#services = services;
    this.#observe = observe;
    this.#database = database;
    this.#mirror = mirror;
    this.#reads = reads;
    this.#policies = policies;
    this.#limits = limits;
    this.#statements = origin
      ? origin.#statements
      : new StatementCache(mirror, limits.shapes, limits.shapeMemory, observe);
    this.#listeners = origin ? origin.#listeners : [];
  }

  /** How many shapes are compiled and kept. */
  get shapes(): number {
    return this.#statements.size;
  }

  /** Calls back when a write may have changed who may do what; the write is answered after that. */
  onAccessChange(listener: () => Promise<void>): void {
    this.#listeners.push(listener);
  }

  /** With a receipt, the same request is carried out once, and shows each time what may be read of its items by then. */
  async create(
    name: string,
    body: CreateBody,
    shown: WriteContext,
    receipt: IdempotentRequest | null = null,
  ): Promise<Buffer | null> {
    try {
      return await this.#attempt(shown.caller, async (model) => {
        const collection = servedCollection(model, name);
        const planned = await planCreate(collection, body.items, this.#context(model, shown));
        return this.#run(planned, !body.many, shown, receipt);
      });
    } catch (error) {
      if (!receipt || !isRepeated(error)) throw error;
      return this.#repeat(receipt, name, !body.many, shown);
    }
  }

  async #repeat(receipt: IdempotentRequest, name: string, one: boolean, shown: WriteContext): Promise<Buffer | null> {
    const collection = servedCollection(this.#mirror.model, name);
    const keys = (await keysOf(receipt, this.#database))?.map((key) => shownKey(collection, key)) ?? null;
    const parsed = keys && shown.read(name, keys, one);
    const compiled = parsed && this.#reads.compileVisible(parsed, shown);
    return compiled && this.#reads.run(parsed, compiled, shown.caller, { aborted: false });
  }

  /** Several writes in one transaction: those that `work` makes with what it is given. */
  together<Result>(caller: Identity, work: (writes: Writes) => Promise<Result>): Promise<Result> {
    return this.#attempt(caller, () =>
      this.#database.transaction((session) => {
        const joined = new Writes(this.#services, this.#limits, this.#observe, this);
        joined.#session = session;
        return work(joined);
      }),
    );
  }

  /** Payloads of a write that is planned inside its transaction: what takes time is done before it begins. */
  async prepare(name: string, items: readonly Input[], writer: Writer): Promise<readonly Input[]> {
    const { model } = this.#mirror;
    const collection = model.collections.get(name);
    if (!collection) return items;
    return preparePayloads(collection, items, this.#context(model, writer), (text) => this.#database.rows(text));
  }

  /** A transaction of its own, or the one that was joined. */
  #transaction<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    return this.#session ? work(this.#session) : this.#database.transaction(work);
  }

  updateOne(name: string, key: string, data: Input, shown: WriteContext): Promise<Buffer | null> {
    return this.#attempt(shown.caller, async (model) => {
      const collection = servedCollection(model, name);
      const planned = await planUpdate(collection, [{ key, data }], this.#context(model, shown));
      return this.#run(planned, true, shown);
    });
  }

  updateMany(name: string, body: UpdateBody, shown: WriteContext): Promise<Buffer | null> {
    return this.#attempt(shown.caller, async (model) => {
      const collection = servedCollection(model, name);
      const context = this.#context(model, shown);
      if (body.kind === 'each')
        return this.#run(await planUpdate(collection, eachChange(collection, body.items), context), false, shown);
      const [data = body.data] = await this.prepare(name, [body.data], shown);
      return this.#transaction(async (session) => {
        const keys = await this.#keys(collection, body.selected, shown, session, 'update');
        const planned = await planUpdate(
          collection,
          keys.map((key) => ({ key, data })),
          context,
        );
        return this.#send(planned, false, shown, session);
      });
    });
  }

  /** As far as the caller may know: of what they can neither see nor write there is nothing to say. */
  isSingleton(name: string, caller: Identity): boolean {
    const { model } = this.#mirror;
    const collection = model.collections.get(name);
    if (!collection?.singleton) return false;
    const access = this.#policies.accessOf(caller);
    if (!access || access.view(model).collections.has(name)) return true;
    return (['create', 'update'] as const).some((action) => access.grant(action, collection, model));
  }

  /** The only item of a singleton is changed, or made. */
  updateSingleton(name: string, given: Input, shown: WriteContext): Promise<Buffer | null> {
    return this.#attempt(shown.caller, async (model) => {
      const collection = servedCollection(model, name);
      const context = this.#context(model, shown);
      const [data = given] = await this.prepare(name, [given], shown);
      return this.#transaction(async (session) => {
        await lock(collection, session);
        // Whether there is an item is no matter of permissions: whether it may be changed is.
        const anyone = { ...shown, caller: CLI_IDENTITY };
        const [key] = await this.#keys(collection, { kind: 'query', query: { limit: 1 } }, anyone, session, 'update');
        const planned =
          key === undefined
            ? await planCreate(collection, [data], context)
            : await planUpdate(collection, [{ key, data }], context);
        return this.#send(planned, true, shown, session);
      });
    });
  }

  delete(name: string, selected: Selected, writer: Writer): Promise<void> {
    const { caller, author } = writer;
    return this.#attempt(caller, async (model) => {
      const collection = servedCollection(model, name);
      const access = this.#policies.accessOf(caller);
      const rule = access && anyRule(new Guard(access, model).grant('delete', collection).rules);
      const shape = `${access?.key ?? ''}delete ${collection.name}`;
      const statement = this.#statements.get(shape, model, () => compileDelete(collection, rule, journalOf(model)));
      await this.#transaction(async (session) => {
        const found = await this.#keys(collection, selected, writer, session, 'delete');
        await checkKeys(collection, found);
        checkRows(found.length, this.#limits.maxRows);
        const send = (): Promise<unknown> =>
          session.cell(statement.text, bind(statement.parameters, [found, JSON.stringify(author)], caller));
        if (!decidesAccess(name)) return void (await send());
        await keepAdministrators(this.#database, session, caller, send);
        session.afterwards(this.#changedAccess);
      });
    });
  }

  #context(model: Model, { caller, author, access }: Writer): WritePlanContext {
    return {
      model,
      author,
      maxRows: this.#limits.maxRows,
      stamp: { ...caller, now: new Date().toISOString() },
      access: access ?? this.#policies.accessOf(caller),
    };
  }

  async #keys(
    collection: Collection,
    selected: Selected,
    writer: Writer,
    session: Session,
    action: WriteAction,
  ): Promise<readonly Key[]> {
    if (selected.kind === 'keys') return selected.keys;
    const key = collection.primaryKey.name;
    const parsed = parseSelection(collection.name, selected.query, key, this.#limits.parse);
    const compiled = this.#reads.compile(parsed, writer.caller, action, billWriter(writer));
    const { text, parameters } = compiled.statement;
    const bound = bind(parameters, parsed.values, writer.caller);
    const cell = await session.cell(text, bound, this.#reads.isKnown(compiled));
    const { data } = JSON.parse(cell?.toString() ?? '{"data":[]}') as { data: Record<string, Key>[] };
    return data.map((item) => item[key] as Key);
  }

  /** In one round trip where the connection knows both statements and nothing depends on their answers. */
  async #run(
    planned: PlannedWrite,
    one: boolean,
    shown: WriteContext,
    receipt: IdempotentRequest | null = null,
  ): Promise<Buffer | null> {
    if (this.#session) return this.#send(planned, one, shown, this.#session, receipt);
    await settleSecrets(planned, (text) => this.#database.rows(text));
    return this.#database.sessions.use(async (session) => {
      const apart = receipt || suppliesKeys(planned) || concernsAccess(planned);
      const written = apart ? null : this.#chain(planned, shown, null);
      const read = written && this.#readBack(planned, one, shown);
      if (!written) return session.transaction(() => this.#send(planned, one, shown, session, receipt));
      const [, body = null] = await session.together(read ? [written, read] : [written]).catch((error: unknown) => {
        throw failureOf(error, planned);
      });
      return body;
    });
  }

  async #send(
    planned: PlannedWrite,
    one: boolean,
    shown: WriteContext,
    session: Session,
    receipt: IdempotentRequest | null = null,
  ): Promise<Buffer | null> {
    await this.#carryOut(planned, shown, session, receipt);
    const read = this.#readBack(planned, one, shown);
    const body = read && (await session.cell(read.text, read.parameters, read.prepare));
    if (receipt) await keepKeys(receipt, planned.keys, this.#database, session);
    return body;
  }

  /** The one door of every write that may be about users, roles and policies. Answers how many rows were left out, where they are counted. */
  async #carryOut(planned: PlannedWrite, writer: Writer, session: Session, extra: Extra): Promise<number> {
    const write = (): Promise<number> => this.#write(planned, writer, session, extra);
    await settleSecrets(planned, (text) => session.query(this.#database.qualified(text)));
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

  /** Items that the write makes are read by the keys that it leaves. Null where the caller may not see them. */
  #readBack({ plan, keys: known }: PlannedWrite, one: boolean, shown: WriteContext): PreparedText | null {
    const keys = plan.nodes.length === 0 ? (known ?? []) : known;
    const parsed = shown.read(plan.collection.name, keys, one);
    const compiled = parsed && this.#reads.compileVisible(parsed, shown);
    if (!compiled) return null;
    const { text, parameters } = keys ? compiled.statement : compiled.readBack();
    const bound = bind(parameters, parsed.values, shown.caller);
    return { text, parameters: bound, prepare: this.#reads.isKnown(compiled), columns: 1 };
  }

  async #write(planned: PlannedWrite, writer: Writer, session: Session, extra: Extra): Promise<number> {
    const chain = this.#chain(planned, writer, extra);
    if (!chain) return 0;
    try {
      const cell = await session.cell(chain.text, chain.parameters, chain.prepare);
      const made = JSON.parse(String(cell)) as (string | null)[];
      await aheadOf(planned, made, session);
      return extra === 'counted' ? rowsOf(planned) - Number(made.at(-1)) : 0;
    } catch (error) {
      throw failureOf(error, planned);
    }
  }

  /** Null when there is nothing to write. */
  #chain(planned: PlannedWrite, writer: Writer, extra: Extra): PreparedText | null {
    const { plan, input, model } = planned;
    if (plan.nodes.length === 0) return null;
    const counted = extra === 'counted';
    const receipt = counted ? null : extra;
    const shape = extra ? `${planned.shape} ${counted ? 'counted' : 'with a receipt'}` : planned.shape;
    const receipts = receipt ? collectionOf(model, 'service_receipts') : null;
    const compile = (): Statement => compileWrite(plan, { receipts, journal: journalOf(model), counted });
    const statement = this.#statements.get(shape, model, compile, (work) =>
      this.#reads.budgets.run(billWriter(writer), work),
    );
    const document = writeJson({ ...input, nodes: hashedNodes(planned) });
    const values = receipt ? [document, receipt.id, receipt.fingerprint, this.#limits.receiptLifetime] : [document];
    const parameters = bind(statement.parameters, values, writer.caller);
    return { text: statement.text, parameters, prepare: this.#statements.isKnown(statement), columns: null };
  }

  /** One transaction in which rows are written batch by batch; what `work` throws undoes all of it. */
  session<Result>(name: string, writer: Writer, work: (session: WriteSession) => Promise<Result>): Promise<Result> {
    const { model } = this.#mirror;
    const collection = servedCollection(model, name);
    const context = this.#context(model, writer);
    const guard = context.access && new Guard(context.access, model);
    if (guard && !guard.covers('update', collection, [])) guard.grant('create', collection);
    return this.#database.imports.use((session) =>
      session.transaction(() =>
        work({
          session,
          model,
          collection,
          write: async (rows) => {
            const planned = await planUpsert(collection, rows, { ...context, maxRows: null });
            return this.#carryOut(planned, writer, session, 'counted');
          },
        }),
      ),
    );
  }

  /** Moves an item of a sorted collection to the place of another. */
  sort(name: string, item: Key, to: Key, caller: Identity): Promise<void> {
    return this.#attempt(caller, async (model) => {
      const collection = servedCollection(model, name);
      const access = this.#policies.accessOf(caller);
      if (access) new Guard(access, model).checkOrder(collection);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      const statement = this.#statements.get(`sort ${name}`, model, () => compileSort(collection, field));
      await this.#transaction(async (session) => {
        await lock(collection, session);
        await session.cell(statement.text, bind(statement.parameters, [item, to], caller));
      });
    });
  }

  /** Whoever began a transaction tries all of it again. */
  #attempt<Result>(caller: Identity, work: (model: Model) => Promise<Result>): Promise<Result> {
    if (this.#session) return work(this.#mirror.model);
    const told = (error: unknown): unknown => this.#reads.refusals.to(caller, error);
    return attempt(this.#mirror, work, told, ({ collection }) =>
      this.#database.transaction((session) => catchUp(collection, session)),
    );
  }
}
