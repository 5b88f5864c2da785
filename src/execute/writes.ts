/**
 * Runs writes: the chain of one payload, then what is shown of the result, in one transaction. Deadlocks and serialization
 * failures are ours to retry: nothing of the attempt is left, and the client did nothing wrong.
 */
import { LRUCache } from 'lru-cache';
import { hashPassword } from '../access/passwords.js';
import { compileDelete } from '../compile/delete.js';
import { compileSort } from '../compile/sort.js';
import { compileWrite } from '../compile/write.js';
import {
  fromWrite,
  invalidPayload,
  type ServiceError,
  serviceUnavailable,
  staleness,
  unprocessable,
} from '../errors.js';
import { type Collection, collectionOf, type Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import { Secret } from '../plan/cell.js';
import { checkKey, type Key, planCreate, planUpdate, planUpsert, type WriteContext } from '../plan/payload.js';
import { servedCollection } from '../plan/read.js';
import { checkRows } from '../plan/rows.js';
import type { PlannedWrite } from '../plan/write.js';
import type { Parsed } from '../request/ast.js';
import type { Input, ParseLimits } from '../request/query.js';
import { parseReadBack, parseSelection } from '../request/rest.js';
import type { CreateBody, Selected, UpdateBody } from '../request/write.js';
import { bind, type Caller } from '../sql/parameter.js';
import type { Statement } from '../sql/statement.js';
import { verify } from '../sql/verify.js';
import { Conflict, isConflict, isRace, pause } from './conflicts.js';
import type { Database } from './database.js';
import type { WriteSession } from './import.js';
import { namesOf } from './naming.js';
import type { Reads } from './reads.js';
import type { Session } from './sessions.js';

export interface WriteLimits {
  readonly maxRows: number | null;
  readonly parse: ParseLimits;
  readonly shapes: number;
  /** As PostgreSQL reads an interval. */
  readonly receiptLifetime: string;
}

/** What is shown of the items that were written. */
export interface Shown {
  readonly queryString: string;
  readonly caller: Caller;
}

/** A request that may come again: who sent it under which key, and what it said. */
export interface Receipt {
  readonly id: string;
  readonly fingerprint: string;
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
  readonly #used = new WeakSet<Statement>();

  constructor(database: Database, mirror: Mirror, reads: Reads, limits: WriteLimits, observe: Observer) {
    this.#database = database;
    this.#mirror = mirror;
    this.#reads = reads;
    this.#limits = limits;
    this.#observe = observe;
    this.#shapes = new LRUCache({ max: limits.shapes });
    mirror.onChange(() => this.#shapes.clear());
  }

  /** With a receipt, the same request is carried out once and answered the same each time. */
  async create(name: string, body: CreateBody, shown: Shown, receipt: Receipt | null = null): Promise<Buffer | null> {
    try {
      return await this.#attempt(async (model) => {
        const collection = servedCollection(model, name);
        const planned = planCreate(collection, body.items, this.#context(model, shown.caller));
        return this.#database.transaction((session) => this.#send(planned, model, !body.many, shown, session, receipt));
      });
    } catch (error) {
      if (!receipt || !isRepeated(error)) throw error;
      return this.#answerOf(receipt);
    }
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
      return this.#run(planned, model, true, shown);
    });
  }

  updateMany(name: string, body: UpdateBody, shown: Shown): Promise<Buffer | null> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const context = this.#context(model, shown.caller);
      if (body.kind === 'each')
        return this.#run(planUpdate(collection, eachChange(collection, body.items), context), model, false, shown);
      return this.#database.transaction(async (session) => {
        const keys = await this.#keys(collection, body.selected, shown.caller, session);
        const planned = planUpdate(
          collection,
          keys.map((key) => ({ key, data: body.data })),
          context,
        );
        return this.#send(planned, model, false, shown, session);
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
      return this.#database.transaction(async (session) => {
        await lock(collection, session);
        const [key] = await this.#keys(collection, { kind: 'query', query: { limit: 1 } }, shown.caller, session);
        const planned =
          key === undefined
            ? planCreate(collection, [data], context)
            : planUpdate(collection, [{ key, data }], context);
        return this.#send(planned, model, true, shown, session);
      });
    });
  }

  delete(name: string, selected: Selected, caller: Caller): Promise<void> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const statement = this.#statement(`delete ${collection.name}`, () => compileDelete(collection), model);
      await this.#database.transaction(async (session) => {
        const keys = (await this.#keys(collection, selected, caller, session)).map((key) => checkKey(collection, key));
        checkRows(keys.length, this.#limits.maxRows);
        await session.cell(statement.text, bind(statement.parameters, [keys], caller));
      });
    });
  }

  #context(model: Model, caller: Caller): WriteContext {
    return {
      model,
      maxRows: this.#limits.maxRows,
      stamp: { now: new Date().toISOString(), user: caller.user, role: caller.role },
    };
  }

  async #keys(collection: Collection, selected: Selected, caller: Caller, session: Session): Promise<readonly Key[]> {
    if (selected.kind === 'keys') return selected.keys;
    const key = collection.primaryKey.name;
    const parsed = parseSelection(collection.name, selected.query, key, this.#limits.parse);
    const cell = await this.#read(parsed, caller, session);
    const { data } = JSON.parse(cell?.toString() ?? '{"data":[]}') as { data: Record<string, Key>[] };
    return data.map((item) => item[key] as Key);
  }

  #run(planned: PlannedWrite, model: Model, one: boolean, shown: Shown): Promise<Buffer | null> {
    return this.#database.transaction((session) => this.#send(planned, model, one, shown, session));
  }

  async #send(
    planned: PlannedWrite,
    model: Model,
    one: boolean,
    shown: Shown,
    session: Session,
    receipt: Receipt | null = null,
  ): Promise<Buffer | null> {
    const made = await this.#write(planned, model, shown.caller, session, receipt);
    const keys = planned.keys ?? made;
    const parsed = parseReadBack(planned.plan.collection.name, keys, one, shown.queryString, this.#limits.parse);
    const body = await this.#read(parsed, shown.caller, session);
    if (receipt && body)
      await session.query('update service_receipts set body = $1 where id = $2', [body.toString(), receipt.id]);
    return body;
  }

  /** The keys that the statement made. `model` is the one it was planned on, which need not be the latest any more. */
  async #write(
    planned: PlannedWrite,
    model: Model,
    caller: Caller,
    session: Session,
    receipt: Receipt | null,
  ): Promise<readonly Key[]> {
    const { plan, input } = planned;
    if (plan.nodes.length === 0) return [];
    const shape = receipt ? `${planned.shape} with a receipt` : planned.shape;
    const receipts = receipt ? collectionOf(model, 'service_receipts') : null;
    const statement = this.#statement(shape, () => compileWrite(plan, receipts), model);
    const document = JSON.stringify({ ...input, nodes: await hashSecrets(input.nodes) });
    const values = receipt ? [document, receipt.id, receipt.fingerprint, this.#limits.receiptLifetime] : [document];
    try {
      const bound = bind(statement.parameters, values, caller);
      const cell = await session.cell(statement.text, bound, this.#isKnown(statement));
      const { keys, made } = JSON.parse(String(cell)) as { keys: string[] | null; made: (string | null)[] };
      await aheadOf(planned, made, session);
      return keys ?? [];
    } catch (error) {
      if (isRace(error, planned)) throw new Conflict();
      throw error;
    }
  }

  /** One transaction in which rows are written batch by batch; what `work` throws undoes all of it. */
  session<Result>(name: string, caller: Caller, work: (session: WriteSession) => Promise<Result>): Promise<Result> {
    const { model } = this.#mirror;
    const collection = servedCollection(model, name);
    const context = this.#context(model, caller);
    return this.#database.imports.use((session) =>
      session.transaction(() =>
        work({
          session,
          write: async (rows) => {
            await this.#write(
              planUpsert(collection, rows, { ...context, maxRows: null }),
              model,
              caller,
              session,
              null,
            );
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
  sort(name: string, item: Key, to: Key, caller: Caller): Promise<void> {
    return this.#attempt(async (model) => {
      const collection = servedCollection(model, name);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      const statement = this.#statement(`sort ${name}`, () => compileSort(collection, field), model);
      await this.#database.transaction(async (session) => {
        await lock(collection, session);
        await session.cell(statement.text, bind(statement.parameters, [item, to], caller));
      });
    });
  }

  async #read(parsed: Parsed, caller: Caller, session: Session): Promise<Buffer | null> {
    const compiled = this.#reads.compile(parsed);
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
    // What belongs to a former model must neither be found nor kept among the shapes of the latest.
    const isLatest = model === this.#mirror.model;
    const known = isLatest ? this.#shapes.get(shape) : undefined;
    if (known) return known;
    const start = performance.now();
    const statement = compile();
    verify(statement.text, 'write', (schema, name) => model.collections.get(name)?.schema === schema);
    if (isLatest) this.#shapes.set(shape, statement);
    this.#observe({ kind: 'shape-compiled', shape, text: statement.text, milliseconds: performance.now() - start });
    return statement;
  }

  async #attempt<Result>(work: (model: Model) => Promise<Result>): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      const { model } = this.#mirror;
      try {
        return await work(model);
      } catch (error) {
        const stale = staleness(error);
        if (!(stale || isConflict(error))) throw finalError(error, model);
        if (attempt === ATTEMPTS) throw stale ? changing() : finalError(error, model);
        if (stale) await this.#mirror.refresh(stale === 'certain');
        else await pause(attempt);
        // A structure that did not change is not to blame; the first time a prepared statement may be.
        if (stale && model === this.#mirror.model && attempt > 1) throw finalError(error, model);
      }
    }
  }
}

function changing(): ServiceError {
  return serviceUnavailable('database', 'Its structure keeps changing');
}

const AHEAD = `
  select setval($1::regclass, $2::int8)
  from (select pg_advisory_xact_lock($1::regclass::oid::int8)) as locked, pg_catalog.pg_sequence
  where seqrelid = $1::regclass and seqincrement > 0 and $2::int8 < seqmax
    and $2::int8 > coalesce(pg_sequence_last_value($1::regclass), 0)`;

/** A sequence that keys were supplied past is put ahead of them, once it is certain that they were written. */
async function aheadOf(
  { plan, input }: PlannedWrite,
  made: readonly (string | null)[],
  session: Session,
): Promise<void> {
  for (const [position, node] of plan.nodes.entries()) {
    const sequence = node.collection.primaryKey.column?.sequence;
    const highest = made[position];
    const supplied = input.nodes[position]?.some((row) => row.k !== undefined) ?? false;
    if (sequence && highest && supplied) await session.query(AHEAD, [sequence, highest], { prepare: true });
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

/** Hashing takes its time by design, so it happens here and not while the payload is walked. */
async function hashSecrets(nodes: PlannedWrite['input']['nodes']): Promise<PlannedWrite['input']['nodes']> {
  return Promise.all(nodes.map((rows) => Promise.all(rows.map((row) => hashRow(row)))));
}

async function hashRow(row: Readonly<Record<string, unknown>>): Promise<Readonly<Record<string, unknown>>> {
  const secrets = Object.entries(row).filter(([, value]) => value instanceof Secret) as [string, Secret][];
  if (secrets.length === 0) return row;
  const hashed = await Promise.all(secrets.map(async ([name, { text }]) => [name, await hashPassword(text)]));
  return { ...row, ...Object.fromEntries(hashed) };
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
