/**
 * Runs writes: the chain of one payload, then what is shown of the result, in one transaction. Deadlocks and serialization
 * failures are ours to retry: nothing of the attempt is left, and the client did nothing wrong.
 */
import { LRUCache } from 'lru-cache';
import type { Identity } from '../access/identity.js';
import { compileDelete } from '../compile/delete.js';
import { compileSort } from '../compile/sort.js';
import { compileWrite } from '../compile/write.js';
import { fromWrite, invalidPayload, serviceUnavailable, staleness, unprocessable } from '../errors.js';
import { type Collection, collectionOf, type Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import { checkKey, type Key, planCreate, planUpdate, planUpsert, type WriteContext } from '../plan/payload.js';
import { servedCollection } from '../plan/read.js';
import { checkRows } from '../plan/rows.js';
import type { PlannedWrite } from '../plan/write.js';
import type { Parsed } from '../request/ast.js';
import type { Input, ParseLimits } from '../request/query.js';
import { parseSelection } from '../request/rest.js';
import type { CreateBody, Selected, UpdateBody } from '../request/write.js';
import { bind } from '../sql/parameter.js';
import type { Statement } from '../sql/statement.js';
import { verify } from '../sql/verify.js';
import { Conflict, isConflict, isRace, pause } from './conflicts.js';
import type { Database } from './database.js';
import type { WriteSession } from './import.js';
import type { Reads } from './reads.js';
import { aheadOf, suppliesKeys } from './sequences.js';
import type { Session } from './sessions.js';
import { hashSecrets, namesOf } from './written.js';

export interface WriteLimits {
  readonly maxRows: number | null;
  readonly parse: ParseLimits;
  readonly shapes: number;
  /** As PostgreSQL reads an interval. */
  readonly receiptLifetime: string;
}

/** What is shown of the items that were written. */
export interface Shown {
  /** What to read of the items with these keys, or of those that the write leaves; null for nothing. */
  readonly read: (collection: string, keys: readonly Key[] | null, one: boolean) => Parsed | null;
  readonly caller: Identity;
}

/** A request that may come again: who sent it under which key, and what it said. */
export interface Receipt {
  readonly id: string;
  readonly fingerprint: string;
}

/** A statement with its values. */
interface Bound {
  readonly text: string;
  readonly parameters: (string | null)[];
  readonly prepare: boolean;
}

const ATTEMPTS = 10;

/** What a statement says that found the receipt of an earlier one. */
const REPEATED = 'repeated';

export class Writes {
  readonly #database: Database;
  readonly #mirror: Mirror;
  readonly #reads: Reads;
  readonly #limits: WriteLimits;
  readonly #observe: Observer;
  readonly #shapes: LRUCache<string, Statement>;
  /** Statements that were used before: from then on they are prepared. */
  readonly #used: WeakSet<Statement>;

  /** Of writes that joined a transaction. */
  #session: Session | null = null;

  /** With `origin`, statements are shared with it. */
  constructor(
    database: Database,
    mirror: Mirror,
    reads: Reads,
    limits: WriteLimits,
    observe: Observer,
    origin: Writes | null = null,
  ) {
    this.#database = database;
    this.#mirror = mirror;
    this.#reads = reads;
    this.#limits = limits;
    this.#observe = observe;
    this.#shapes = origin ? origin.#shapes : new LRUCache({ max: limits.shapes });
    this.#used = origin ? origin.#used : new WeakSet();
    if (!origin) mirror.onChange(() => this.#shapes.clear());
  }

  /** With a receipt, the same request is carried out once and answered the same each time. */
  async create(name: string, body: CreateBody, shown: Shown, receipt: Receipt | null = null): Promise<Buffer | null> {
    try {
      return await this.#attempt(async (model) => {
        const collection = servedCollection(model, name);
        const planned = planCreate(collection, body.items, this.#context(model, shown.caller));
        return this.#run(planned, !body.many, shown, receipt);
      });
    } catch (error) {
      if (!receipt || !isRepeated(error)) throw error;
      return this.#answerOf(receipt);
    }
  }

  /** Several writes in one transaction: those that `work` makes with what it is given. */
  together<Result>(work: (writes: Writes) => Promise<Result>): Promise<Result> {
    return this.#attempt(() =>
      this.#database.transaction((session) => {
        const joined = new Writes(this.#database, this.#mirror, this.#reads, this.#limits, this.#observe, this);
        joined.#session = session;
        return work(joined);
      }),
    );
  }

  /** A transaction of its own, or the one that was joined. */
  #transaction<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    return this.#session ? work(this.#session) : this.#database.transaction(work);
  }

  async #answerOf(receipt: Receipt): Promise<Buffer | null> {
    const [row] = await this.#database.rows<{ fingerprint: string; body: string | null }>(
      'select fingerprint, body from service_receipts where id = $1',
      [receipt.id],
    );
    if (row?.fingerprint !== receipt.fingerprint)
      throw unprocessable('The Idempotency-Key was used for another request');
    return row.body === null ? null : Buffer.from(row.body);
  }

  updateOne(name: string, key: string, data: Input, shown: Shown): Promise<Buffer | null> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const planned = planUpdate(collection, [{ key, data }], this.#context(model, shown.caller));
      return this.#run(planned, true, shown);
    });
  }

  updateMany(name: string, body: UpdateBody, shown: Shown): Promise<Buffer | null> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const context = this.#context(model, shown.caller);
      if (body.kind === 'each')
        return this.#run(planUpdate(collection, eachChange(collection, body.items), context), false, shown);
      return this.#transaction(async (session) => {
        const keys = await this.#keys(collection, body.selected, shown.caller, session);
        const planned = planUpdate(
          collection,
          keys.map((key) => ({ key, data: body.data })),
          context,
        );
        return this.#send(planned, false, shown, session);
      });
    });
  }

  isSingleton(name: string): boolean {
    return this.#mirror.model.collections.get(name)?.singleton ?? false;
  }

  /** The only item of a singleton is changed, or made. */
  updateSingleton(name: string, data: Input, shown: Shown): Promise<Buffer | null> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const context = this.#context(model, shown.caller);
      return this.#transaction(async (session) => {
        await lock(collection, session);
        const [key] = await this.#keys(collection, { kind: 'query', query: { limit: 1 } }, shown.caller, session);
        const planned =
          key === undefined
            ? planCreate(collection, [data], context)
            : planUpdate(collection, [{ key, data }], context);
        return this.#send(planned, true, shown, session);
      });
    });
  }

  delete(name: string, selected: Selected, caller: Identity): Promise<void> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const statement = this.#statement(`delete ${collection.name}`, () => compileDelete(collection), model);
      await this.#transaction(async (session) => {
        const keys = (await this.#keys(collection, selected, caller, session)).map((key) => checkKey(collection, key));
        checkRows(keys.length, this.#limits.maxRows);
        await session.cell(statement.text, bind(statement.parameters, [keys], caller));
      });
    });
  }

  #context(model: Model, caller: Identity): WriteContext {
    return {
      model,
      maxRows: this.#limits.maxRows,
      stamp: { now: new Date().toISOString(), user: caller.user, role: caller.role },
    };
  }

  async #keys(collection: Collection, selected: Selected, caller: Identity, session: Session): Promise<readonly Key[]> {
    if (selected.kind === 'keys') return selected.keys;
    const key = collection.primaryKey.name;
    const parsed = parseSelection(collection.name, selected.query, key, this.#limits.parse);
    const cell = await this.#read(parsed, caller, session);
    const { data } = JSON.parse(cell?.toString() ?? '{"data":[]}') as { data: Record<string, Key>[] };
    return data.map((item) => item[key] as Key);
  }

  /** In one round trip where the connection knows both statements and nothing depends on their answers. */
  #run(planned: PlannedWrite, one: boolean, shown: Shown, receipt: Receipt | null = null): Promise<Buffer | null> {
    if (this.#session) return this.#send(planned, one, shown, this.#session, receipt);
    return this.#database.sessions.use(async (session) => {
      const written = receipt || suppliesKeys(planned) ? null : await this.#chain(planned, shown.caller, null);
      const readBack = written && this.#readBack(planned, one, shown);
      const cells = readBack && session.together([written, readBack]);
      if (!cells) return session.transaction(() => this.#send(planned, one, shown, session, receipt));
      const [, body = null] = await cells.catch((error: unknown) => {
        throw isRace(error, planned) ? new Conflict() : error;
      });
      return body;
    });
  }

  async #send(
    planned: PlannedWrite,
    one: boolean,
    shown: Shown,
    session: Session,
    receipt: Receipt | null = null,
  ): Promise<Buffer | null> {
    await this.#write(planned, shown.caller, session, receipt);
    const readBack = this.#readBack(planned, one, shown);
    const body = readBack && (await session.cell(readBack.text, readBack.parameters, readBack.prepare));
    if (receipt && body)
      await session.query('update service_receipts set body = $1 where id = $2', [body.toString(), receipt.id]);
    return body;
  }

  /** Items that the write makes are read by the keys that it leaves. */
  #readBack({ plan, keys: known }: PlannedWrite, one: boolean, shown: Shown): Bound | null {
    const keys = plan.nodes.length === 0 ? (known ?? []) : known;
    const parsed = shown.read(plan.collection.name, keys, one);
    if (!parsed) return null;
    const compiled = this.#reads.compile(parsed, shown.caller);
    const { text, parameters } = keys ? compiled.statement : compiled.readBack();
    return { text, parameters: bind(parameters, parsed.values, shown.caller), prepare: this.#reads.isKnown(compiled) };
  }

  async #write(planned: PlannedWrite, caller: Identity, session: Session, receipt: Receipt | null): Promise<void> {
    const chain = await this.#chain(planned, caller, receipt);
    if (!chain) return;
    try {
      const cell = await session.cell(chain.text, chain.parameters, chain.prepare);
      await aheadOf(planned, JSON.parse(String(cell)) as (string | null)[], session);
    } catch (error) {
      if (isRace(error, planned)) throw new Conflict();
      throw error;
    }
  }

  /** Null when there is nothing to write. */
  async #chain(planned: PlannedWrite, caller: Identity, receipt: Receipt | null): Promise<Bound | null> {
    const { plan, input } = planned;
    if (plan.nodes.length === 0) return null;
    const shape = receipt ? `${planned.shape} with a receipt` : planned.shape;
    const { model } = this.#mirror;
    const receipts = receipt ? collectionOf(model, 'service_receipts') : null;
    const statement = this.#statement(shape, () => compileWrite(plan, receipts), model);
    const document = JSON.stringify({ ...input, nodes: await hashSecrets(input.nodes) });
    const values = receipt ? [document, receipt.id, receipt.fingerprint, this.#limits.receiptLifetime] : [document];
    const parameters = bind(statement.parameters, values, caller);
    return { text: statement.text, parameters, prepare: this.#isKnown(statement) };
  }

  /** One transaction in which rows are written batch by batch; what `work` throws undoes all of it. */
  session<Result>(name: string, caller: Identity, work: (session: WriteSession) => Promise<Result>): Promise<Result> {
    const { model } = this.#mirror;
    const collection = servedCollection(model, name);
    const context = this.#context(model, caller);
    return this.#database.imports.use((session) =>
      session.transaction(() =>
        work({
          session,
          write: async (rows) => {
            await this.#write(planUpsert(collection, rows, { ...context, maxRows: null }), caller, session, null);
          },
        }),
      ),
    );
  }

  /** Receipts whose time has passed are of no use to anybody. */
  async forgetReceipts(): Promise<void> {
    await this.#database.rows('delete from service_receipts where expires < now()');
  }

  /** Moves an item of a sorted collection to the place of another. */
  sort(name: string, item: Key, to: Key, caller: Identity): Promise<void> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      const statement = this.#statement(`sort ${name}`, () => compileSort(collection, field), model);
      await this.#transaction(async (session) => {
        await lock(collection, session);
        await session.cell(statement.text, bind(statement.parameters, [item, to], caller));
      });
    });
  }

  async #read(parsed: Parsed, caller: Identity, session: Session): Promise<Buffer | null> {
    const compiled = this.#reads.compile(parsed, caller);
    const { statement } = compiled;
    return session.cell(
      statement.text,
      bind(statement.parameters, parsed.values, caller),
      this.#reads.isKnown(compiled),
    );
  }

  #isKnown(statement: Statement): boolean {
    if (this.#used.has(statement)) return true;
    this.#used.add(statement);
    return false;
  }

  #statement(shape: string, compile: () => Statement, model: Model): Statement {
    const known = this.#shapes.get(shape);
    if (known) return known;
    const start = performance.now();
    const statement = compile();
    verify(statement.text, 'write', (schema, name) => model.collections.get(name)?.schema === schema);
    this.#shapes.set(shape, statement);
    this.#observe({ kind: 'shape-compiled', shape, text: statement.text, milliseconds: performance.now() - start });
    return statement;
  }

  async #attempt<Result>(work: (model: Model) => Promise<Result>): Promise<Result> {
    // Whoever began the transaction tries all of it again.
    if (this.#session) return work(this.#mirror.model);
    for (let attempt = 1; ; attempt++) {
      try {
        return await work(this.#mirror.model);
      } catch (error) {
        const stale = staleness(error);
        if (!(stale ? attempt === 1 : isConflict(error) && attempt < ATTEMPTS))
          throw finalError(error, this.#mirror.model);
        if (stale) await this.#mirror.refresh(stale === 'certain');
        else await pause(attempt);
      }
    }
  }
}

/** One at a time: a statement of its own, so that the next one sees what the one before has done. */
async function lock(collection: Collection, session: Session): Promise<void> {
  const name = `${collection.schema}.${collection.name}`;
  await session.query("select pg_advisory_xact_lock(hashtextextended('lateral ' || $1::text, 0))", [name], {
    prepare: true,
  });
}

function eachChange(collection: Collection, items: readonly Input[]): { key: Key; data: Input }[] {
  return items.map((data) => {
    const key = data[collection.primaryKey.name];
    if (typeof key !== 'string' && typeof key !== 'number') throw invalidPayload('Item in update misses primary key');
    return { key, data };
  });
}

function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

function finalError(error: unknown, model: Model): unknown {
  if (isRepeated(error)) return error;
  // The stack ends before the limit on levels where the items in between have much to say.
  if (error instanceof RangeError) return invalidPayload('The payload nests too deep');
  if (isConflict(error)) return serviceUnavailable('database', 'Too many requests change the same items');
  return fromWrite(error, namesOf(model));
}
