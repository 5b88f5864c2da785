/**
 * The two pipelines. Every read and write of items, by REST, SEARCH, GraphQL or the command line, passes through one of them:
 * identify → parse → restrict → plan → compile → execute → reply. `Server-Timing` carries these words.
 */

import type { ReadQuery } from '../../compiler/statements/read.js';
import { callerName, type Identity, PUBLIC } from '../access/identity.js';
import { consistencyOf, type ReadNeed, readPosition } from './consistency.js';
import type { CompiledRead } from './reads/compiled-read.js';
import type { KeptAnswer } from './reads/kept-answer.js';
import type { ReadListener, ResultMemory } from './reads/read-executor.js';
import type { PreparedRead, Reads } from './reads/reads.js';
import type { RequestClient } from './stages.js';
import type { Writer } from './writer.js';

/** A warm read needs no promise: each stage may answer at once. */
export type MaybePromise<Value> = Value | Promise<Value>;

export interface ReadStages<Query extends ReadQuery, Answer> {
  readonly client: RequestClient;
  identify(): MaybePromise<Identity>;
  parse(caller: Identity): MaybePromise<Query>;
  /** Replies that are sent as soon as the result arrives are left to a `RepliedRead`. */
  execute(read: PreparedRead<Query>): MaybePromise<Answer>;
}

export function read<Query extends ReadQuery, Answer>(
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): MaybePromise<Answer> {
  const caller = stages.identify();
  if (caller instanceof Promise) return caller.then((identity) => readAs(identity, stages, reads));
  return readAs(caller, stages, reads);
}

function readAs<Query extends ReadQuery, Answer>(
  caller: Identity,
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): MaybePromise<Answer> {
  stages.client.staged('identify');
  const query = stages.parse(caller);
  if (query instanceof Promise) return query.then((parsed) => readQuery(parsed, caller, stages, reads));
  return readQuery(query, caller, stages, reads);
}

/** A shape that is known skips the stages of `prepare`: restrict, plan, compile. */
function readQuery<Query extends ReadQuery, Answer>(
  query: Query,
  caller: Identity,
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): MaybePromise<Answer> {
  stages.client.staged('parse');
  const need = reads.needOf(stages.client, caller);
  if (need instanceof Promise) return need.then((known) => prepareRead({ query, caller, need: known }, stages, reads));
  return prepareRead({ query, caller, need }, stages, reads);
}

/** A parsed read before its statement is known. */
interface ParsedRead<Query extends ReadQuery> {
  readonly query: Query;
  readonly caller: Identity;
  readonly need: ReadNeed | null;
}

function prepareRead<Query extends ReadQuery, Answer>(
  parsed: ParsedRead<Query>,
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): MaybePromise<Answer> {
  if (reads.hasReadHooks) return prepareConditioned(parsed, stages, reads);
  const compiled = reads.prepare(parsed.query, parsed.caller, stages.client);
  if (compiled instanceof Promise) return compiled.then((done) => executeRead(parsed, done, stages, reads));
  return executeRead(parsed, compiled, stages, reads);
}

/** Extensions add conditions to the read. */
async function prepareConditioned<Query extends ReadQuery, Answer>(
  parsed: ParsedRead<Query>,
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): Promise<Answer> {
  const { query } = parsed;
  const { client } = stages;
  const caller = await reads.conditioned(query, parsed.caller, client);
  const compiled = await reads.prepare(query, caller, client);
  return executeRead({ ...parsed, caller }, compiled, stages, reads);
}

/** Whether an answer that is kept in memory is recent enough for the request. */
function mayReadMemory(client: RequestClient, caller: Identity, memory: ResultMemory): boolean {
  const seen = readPosition(client.position);
  if (client.noCache || (client.prefer !== '' && consistencyOf(client.prefer) === 'strong')) return false;
  return memory.serves(caller, client, seen);
}

function executeRead<Query extends ReadQuery, Answer>(
  { query, caller, need }: ParsedRead<Query>,
  compiled: CompiledRead,
  stages: ReadStages<Query, Answer>,
  { memory }: Reads,
): MaybePromise<Answer> {
  const { client } = stages;
  // Conditions of extensions may change at any time.
  const isKept = memory !== null && !caller.conditions && mayReadMemory(client, caller, memory);
  const fromMemory = isKept ? client : null;
  client.statement(compiled.statement.text);
  return executed(stages.execute({ query, compiled, caller, need, origin: client, fromMemory }), client);
}

/** A promise ends when the statement has run; a `RepliedRead` times other answers. */
function executed<Answer>(answer: MaybePromise<Answer>, client: RequestClient): MaybePromise<Answer> {
  if (!(answer instanceof Promise)) return answer;
  return answer.then((done) => {
    client.staged('execute');
    return done;
  });
}

interface WriteStages<Request, Result, Answer> {
  readonly client: RequestClient;
  identify(): MaybePromise<Writer>;
  parse(writer: Writer): MaybePromise<Request>;
  /** Restricts, plans, compiles and executes; all of it again if a retry helps. */
  execute(request: Request, writer: Writer): Promise<Result>;
  reply(result: Result): Answer;
}

export async function write<Request, Result, Answer>(stages: WriteStages<Request, Result, Answer>): Promise<Answer> {
  const { client } = stages;
  if (client.prefer !== '') consistencyOf(client.prefer);
  const writer = await stages.identify();
  client.staged('identify');
  const request = await stages.parse(writer);
  client.staged('parse');
  const result = await stages.execute(request, writer);
  client.staged('execute');
  return stages.reply(result);
}

/** A read that is replied to as soon as its body arrives, without a promise. */
export abstract class RepliedRead implements ReadListener {
  abstract readonly client: RequestClient;
  #identity: Identity = PUBLIC;

  /** The memory of the body is borrowed: see `WireQuery.row`. The body is null if there is no such item. */
  protected abstract reply(body: Buffer | null): void;
  abstract onError(error: unknown): void;

  /** To be passed on as the listener of the read. */
  as(identity: Identity): this {
    this.#identity = identity;
    return this;
  }

  get aborted(): boolean {
    return this.client.aborted;
  }

  get caller(): string {
    return callerName(this.#identity, this.client);
  }

  onKept(answer: KeptAnswer): void {
    this.client.staged('execute');
    this.client.cached(answer, this.#identity);
    this.reply(answer.body);
  }

  onResult(body: Buffer | null, reads: number): void {
    this.client.staged('execute');
    if (reads > 1) this.client.batched(reads);
    this.reply(body);
  }
}
