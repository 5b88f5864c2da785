/**
 * The two pipelines. Every read and write of items, by REST, SEARCH, GraphQL or the command line, passes through one of them:
 * identify → parse → restrict → plan → compile → execute → reply. `Server-Timing` carries these words.
 */

import type { ReadQuery } from '../../compiler/statements/read.js';
import type { Identity } from '../access/identity.js';
import { consistencyOf } from './consistency.js';
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

/** A read of a known shape skips the stages of `prepared`: restrict, plan, compile. */
export function read<Query extends ReadQuery, Answer>(
  stages: ReadStages<Query, Answer>,
  reads: Reads,
): MaybePromise<Answer> {
  const { client } = stages;
  return andThen(stages.identify(), (caller) => {
    client.staged('identify');
    return andThen(stages.parse(caller), (query) => {
      client.staged('parse');
      return andThen(reads.prepared(query, caller, client), (prepared) => {
        client.statement(prepared.compiled.statement.text);
        const answer = stages.execute(prepared);
        // Other answers are timed by a `RepliedRead`.
        return answer instanceof Promise ? answer.then((done) => executed(client, done)) : answer;
      });
    });
  });
}

function andThen<Value, Result>(
  value: MaybePromise<Value>,
  next: (value: Value) => MaybePromise<Result>,
): MaybePromise<Result> {
  return value instanceof Promise ? value.then(next) : next(value);
}

function executed<Answer>(client: RequestClient, answer: Answer): Answer {
  client.staged('execute');
  return answer;
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
