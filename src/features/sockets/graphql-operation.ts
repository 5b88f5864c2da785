/** One operation of a GraphQL socket: a query or a mutation is answered once, a subscription until either side ends it. */

import { assertNever } from '../../base/assert-never.js';
import { forbidden, ServiceError } from '../../base/errors.js';
import { DocumentFailure } from '../../compiler/graphql/failure.js';
import type {
  EventMember,
  EventOutput,
  ParsedDocument,
  ParsedEventsDocument,
  ParsedMutationDocument,
  ParsedQueryDocument,
} from '../../compiler/graphql/parsed-document.js';
import { checkArguments } from '../../compiler/plan/call-arguments.js';
import type { Parsed, ParsedOperation } from '../../compiler/request/ast.js';
import { quoteName } from '../../compiler/request/expression.js';
import { parseSearch } from '../../compiler/request/rest.js';
import type { Identity } from '../../server/access/identity.js';
import type { Parameters } from '../../server/api/graphql/http.js';
import { runMutation } from '../../server/api/graphql/mutations.js';
import {
  constantBody,
  errorsOf,
  isConstant,
  NOT_FOUND,
  type OperationServices,
  parseAsCaller,
  type ScopedRequest,
  withoutFailed,
} from '../../server/api/graphql/operation.js';
import type { PersistedQueries } from '../../server/api/graphql/persisted.js';
import { writerFrom } from '../../server/api/items/item-writes.js';
import { wholeAnswers } from '../../server/api/items/items.js';
import { type MaybePromise, write } from '../../server/execute/pipeline.js';
import type { RequestClient } from '../../server/execute/stages.js';
import { publicError } from '../../server/http/reply.js';
import type { SocketClient } from '../../server/http/transport.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Arrival, ChangedItems, EventHandle, EventListener } from '../live/event-subscriber.js';
import { RefusedOperation, readable } from '../live/graphql-live.js';
import type { LiveStats } from '../live/live-stats.js';
import type { LiveAnswer, LiveListener, LiveSource, Rights } from '../live/subscribers.js';
import { MAX_VISIBLE_KEYS } from '../live/visible-keys.js';
import { type ConnectionServices, socketTurns } from './connection.js';

export interface GraphqlSocketServices extends ConnectionServices, OperationServices {
  readonly mirror: Mirror;
  readonly persisted: PersistedQueries;
}

/** The caller of an operation and the receiver of its answers. */
export interface OperationTarget extends FeedTarget {
  readonly client: RequestClient;
  readonly from: SocketClient;
  /** The name of its connection. */
  readonly connection: string;
  /** When the operation arrived, if it may be a subscription. */
  readonly arrival: Arrival | null;
  identify(): MaybePromise<Identity>;
  /** The last answer: nothing follows. */
  complete(): void;
}

const NOTHING: EventHandle = { close: () => {}, wake: () => {}, renew: () => {} };

/** Resolves with the handle of the operation, once it was answered or has begun. */
export async function runOperation(
  { query, extensions, operationName, variables }: Parameters,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  await services.limit?.(target.from.address);
  const caller = await target.identify();
  const text = await services.persisted.resolve(query, extensions);
  if (text === null) throw new DocumentFailure([NOT_FOUND]);
  const request: ScopedRequest = { text, operationName, variables, safe: false, scope: 'items' };
  return socketTurns.run(target.connection, () => begin(request, caller, target, services));
}

async function begin(
  request: ScopedRequest,
  caller: Identity,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  if (target.client.aborted) return NOTHING;
  const document = await parseAsCaller(request, caller, target.client, services);
  switch (document.kind) {
    case 'query':
      return answerOnce(target, () => readOnce(document, caller, target, services));
    case 'mutation':
      return answerOnce(target, () => writeOnce(document, caller, target, services));
    case 'live':
      return follow(request, target, services);
    case 'events':
      return followChanges(document, request, target, services);
    default:
      return assertNever(document);
  }
}

/** A failure of a running operation is an answer. Only an operation that cannot run is an error of the protocol. */
async function answerOnce(target: OperationTarget, run: () => Promise<Buffer | string>): Promise<EventHandle> {
  let body: Buffer | string;
  try {
    body = await run();
  } catch (error) {
    const errors = errorsOf(error);
    if (errors === null || error instanceof DocumentFailure) throw error;
    body = JSON.stringify({ errors, data: null });
  }
  target.next(body);
  target.complete();
  return NOTHING;
}

async function readOnce(
  document: ParsedQueryDocument,
  caller: Identity,
  { client }: OperationTarget,
  { reads }: GraphqlSocketServices,
): Promise<Buffer | string> {
  // Each turn has fewer parts that may fail.
  for (let query = document.parsed; ; ) {
    if (isConstant(query)) return constantBody(query);
    try {
      const compiled = await reads.prepare(query, caller, client);
      checkArguments(compiled.calls, query.values);
      const body = await reads.run({ query, compiled, caller, need: null }, client);
      if (body === null) throw forbidden();
      return body;
    } catch (error) {
      query = withoutFailed(query, document, error);
    }
  }
}

function writeOnce(
  document: ParsedMutationDocument,
  caller: Identity,
  { client, from }: OperationTarget,
  services: GraphqlSocketServices,
): Promise<Buffer> {
  return write({
    client,
    identify: () => writerFrom(from, caller),
    parse: () => document,
    execute: (_, writer) => runMutation(document, services.writes, writer, client),
    reply: (body) => body,
  });
}

async function follow(
  request: ScopedRequest,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  const { live } = services;
  const close = await live.subscribe(new QuerySource(request, target, services), new StateFeed(target, live));
  return { ...NOTHING, close };
}

class QuerySource implements LiveSource {
  constructor(
    private readonly request: ScopedRequest,
    private readonly target: OperationTarget,
    private readonly services: GraphqlSocketServices,
  ) {}

  get address(): string {
    return this.target.from.address;
  }

  identify(): MaybePromise<Identity> {
    return this.target.identify();
  }

  parse(caller: Identity): Promise<ParsedOperation> {
    const { client } = this.target;
    const parse = async (): Promise<ParsedDocument> => parseAsCaller(this.request, caller, client, this.services);
    return readable(parse, this.services.reads, caller, client);
  }
}

function followChanges(
  { collection, change, output }: ParsedEventsDocument,
  request: ScopedRequest,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  const { live, limits } = services;
  let hasBegun = false;
  const parseChanged = async (as: Identity): Promise<Parsed> => {
    try {
      const document = await parseAsCaller(request, as, target.client, services);
      if (document.kind !== 'events') throw forbidden();
      hasBegun = true;
      return document.changed;
    } catch (error) {
      if (!errorsOf(error)) throw error;
      // The schema shows what the caller may see: what was there before may be there again.
      throw hasBegun ? forbidden() : new RefusedOperation(error);
    }
  };
  const source = {
    address: target.from.address,
    arrival: target.arrival,
    collection,
    item: null,
    change,
    identify: () => target.identify(),
    parseChanged,
    parseInitial: () => null,
    parseKeys: (_: unknown, key: readonly string[]) => {
      const query = { fields: key.map(quoteName), limit: MAX_VISIBLE_KEYS };
      return parseSearch(collection, { query }, '', wholeAnswers({ ...limits, pageSize: null }));
    },
  };
  return live.events.subscribe(source, new ChangeFeed(target, output, live), (error) => target.fail(error));
}

/** The errors as the client gets them, and whether the service itself failed. */
export function failureText(error: unknown): { readonly errors: string; readonly isOurs: boolean } {
  const errors = errorsOf(error instanceof RefusedOperation ? error.cause : error);
  if (errors) return { errors: JSON.stringify(errors), isOurs: false };
  const { message, extensions, code, status } = publicError(error);
  const told = [{ message, extensions: { ...extensions, code } }];
  return { errors: JSON.stringify(told), isOurs: status >= 500 };
}

/** Whether the token was refused. */
export function isUnauthorized(error: unknown): boolean {
  return error instanceof ServiceError && error.status === 401;
}

/** The receiver of an operation's messages. */
interface FeedTarget {
  /** Whether the client reads as fast as it is sent to. */
  readonly isReady: boolean;
  next(payload: Buffer | string): void;
  /** `flush` is to be called when the client has caught up. */
  wait(feed: Feed): void;
  fail(error: unknown): void;
}

export interface Feed {
  /** Sends what waits, unless rights have changed since: then it is withdrawn soon. Returns false if the client is too slow. */
  flush(): boolean;
}

class StateFeed implements LiveListener, Feed {
  #newest: LiveAnswer | null = null;
  #generation = 0;

  constructor(
    private readonly target: FeedTarget,
    private readonly live: Rights & { readonly stats: LiveStats },
  ) {}

  answer(answer: LiveAnswer): void {
    if (this.#newest !== null) this.live.stats.dropped++;
    this.#newest = answer;
    this.#generation = this.live.generation;
    if (!this.flush()) this.target.wait(this);
  }

  flush(): boolean {
    if (this.#newest === null || this.#generation !== this.live.generation) return true;
    if (!this.target.isReady) return false;
    this.target.next(this.#newest.body);
    this.#newest = null;
    return true;
  }

  withdraw(isSame: boolean): boolean {
    if (isSame || this.#newest === null) return false;
    this.#newest = null;
    return true;
  }

  /** When the service stops, its connections end too. */
  end(error: unknown): void {
    if (error !== null) this.target.fail(error);
  }

  ping(): void {}
}

/** Takes no more events while some wait, so at most those of one round wait. */
class ChangeFeed implements EventListener, Feed {
  readonly #waiting: { readonly items: ChangedItems; sent: number }[] = [];
  /** The generation of rights with which the waiting items were read. */
  #generation = 0;

  constructor(
    private readonly target: FeedTarget,
    private readonly output: EventOutput,
    private readonly rights: Rights,
  ) {}

  isReady(): boolean {
    return this.#waiting.length === 0 && this.target.isReady;
  }

  /** Sends a resync if changes may have been missed. There is no first state. */
  initial(_: Buffer | null, isResync: boolean): void {
    if (!isResync) return;
    this.target.next(`{"data":{${JSON.stringify(this.output.name)}:null},"extensions":{"resync":true}}`);
  }

  changed(items: ChangedItems): void {
    this.#waiting.push({ items, sent: 0 });
    this.#generation = this.rights.generation;
    if (!this.flush()) this.target.wait(this);
  }

  withdraw(isSame: boolean): boolean {
    return !isSame && this.#waiting.splice(0).length > 0;
  }

  flush(): boolean {
    if (this.#generation !== this.rights.generation) return true;
    for (let first = this.#waiting[0]; first; first = this.#waiting[0]) {
      const { change, keys, items } = first.items;
      for (let key = keys[first.sent]; key !== undefined; key = keys[++first.sent]) {
        if (!this.target.isReady) return false;
        this.target.next(eventText(this.output, change, key, items[first.sent] ?? null));
      }
      this.#waiting.shift();
    }
    return true;
  }
}

/** `item`: an object with a member for each name of `data`; null for one that was deleted. */
function eventText(
  { name, before, data, after }: EventOutput,
  change: string,
  key: string,
  item: Buffer | null,
): string {
  const write = ({ name: member, value }: EventMember): string => {
    const text = value === 'key' ? key : value === 'event' ? change : value.text;
    return `${JSON.stringify(member)}:${JSON.stringify(text)}`;
  };
  const nulls = data.map((member) => `${JSON.stringify(member)}:null`);
  const read = item === null || data.length === 0 ? nulls : [String(item).slice(1, -1)];
  const members = [...before.map(write), ...read, ...after.map(write)];
  return `{"data":{${JSON.stringify(name)}:{${members.join(',')}}}}`;
}
