/** `items`: reads and writes over a WebSocket, by the pipelines of requests. */

import { forbidden, invalidPayload, invalidQuery } from '../../base/errors.js';
import { isObject, rowsOfAnswer, writeJson } from '../../base/exact-json.js';
import { shownKey } from '../../compiler/plan/write/key.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { quoteName } from '../../compiler/request/expression.js';
import { type Input, readObject } from '../../compiler/request/parse-context.js';
import { parseItem, parseMessageReadBack, parseSearch } from '../../compiler/request/rest.js';
import {
  type Key,
  parseCreate,
  parseUpdate,
  readKey,
  readShownKeys,
  requireObject,
  type WriteRequest,
} from '../../compiler/request/write.js';
import type { Identity } from '../../server/access/identity.js';
import type { AuthenticationServices } from '../../server/accounts/authentication.js';
import { writerFrom } from '../../server/api/items/item-writes.js';
import { refuseSystem, wholeAnswers } from '../../server/api/items/items.js';
import { type MaybePromise, read, write } from '../../server/execute/pipeline.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { SocketClient } from '../../server/http/transport.js';
import type { Socket } from '../../server/http/websocket.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { ConnectionServices } from './connection.js';
import type { OutgoingQueue } from './message-queue.js';

export interface WebsocketServices extends ConnectionServices {
  readonly mirror: Mirror;
  readonly authentication: AuthenticationServices;
}

/** A connection, as its messages and subscriptions see it. */
export interface SocketSession {
  readonly socket: Socket;
  readonly client: SocketClient;
  readonly requestClient: RequestClient;
  readonly outbox: OutgoingQueue;
  identify(): MaybePromise<Identity>;
}

/** Answers the members of the reply: `"data":...`. */
export async function runItems(
  message: Input,
  connection: SocketSession,
  services: WebsocketServices,
): Promise<string> {
  const items = new ItemsMessage(message, connection, services);
  switch (message['action']) {
    case 'read':
      return items.read();
    case 'create':
      return items.write(items.creation());
    case 'update':
      return items.write(items.update());
    case 'delete':
      return items.delete();
    default:
      throw invalidPayload('"action" must be one of create, read, update, delete');
  }
}

class ItemsMessage {
  readonly #client: RequestClient;
  readonly #collection: string;
  readonly #query: Input;

  constructor(
    private readonly message: Input,
    private readonly connection: SocketSession,
    private readonly services: WebsocketServices,
  ) {
    const { collection, query } = message;
    if (typeof collection !== 'string') throw invalidPayload('"collection" must be a string');
    refuseSystem(collection);
    if (query !== undefined && query !== null && !isObject(query)) throw invalidPayload('"query" must be an object');
    this.#client = connection.requestClient;
    this.#collection = collection;
    this.#query = readObject(query, 'query');
  }

  async read(): Promise<string> {
    const limits = wholeAnswers(this.services.limits);
    const { id, ids } = this.message;
    if (this.#query['export'] !== undefined) throw invalidQuery('"export" needs a request over HTTP');
    const keys = ids === undefined ? {} : { keys: ids };
    const parse = (): Parsed =>
      id === undefined
        ? parseSearch(this.#collection, { query: this.#query, ...keys }, '', limits)
        : parseItem(this.#collection, this.#key(), this.#query, limits);
    return membersOf(await this.#run(parse));
  }

  async #run(parse: () => Parsed): Promise<Buffer> {
    const { reads } = this.services;
    const body = await read(
      {
        client: this.#client,
        identify: () => this.connection.identify(),
        parse,
        execute: (prepared: PreparedRead<Parsed>) => reads.run(prepared, this.#client),
      },
      reads,
    );
    if (body === null) throw forbidden();
    return body;
  }

  creation(): WriteRequest {
    const create = parseCreate(this.message['data']);
    const readBack = this.#readBack(!create.many);
    return {
      kind: 'create',
      ...create,
      collection: this.#collection,
      readBack,
      idempotencyKey: null,
      onConflict: null,
    };
  }

  update(): WriteRequest {
    const { id, ids, data } = this.message;
    const collection = this.#collection;
    if (id !== undefined) {
      const changes = requireObject(data, '"data"');
      return { kind: 'update-item', key: this.#key(), data: changes, collection, readBack: this.#readBack(true) };
    }
    const body = Array.isArray(data) ? data : { data, ...(ids === undefined ? this.#selection() : { keys: ids }) };
    return { ...parseUpdate(body), collection, readBack: this.#readBack(false) };
  }

  async delete(): Promise<string> {
    const { id, ids } = this.message;
    const isOne = id !== undefined;
    const keys = isOne ? [id] : ids === undefined ? await this.#selectedKeys() : readShownKeys(ids);
    if (isOne) this.#key();
    if (keys.length > 0)
      await this.write({ kind: 'delete', collection: this.#collection, selected: { kind: 'shown', keys } });
    return `"data":${writeJson(id ?? keys)}`;
  }

  async write(request: WriteRequest): Promise<string> {
    const { writes } = this.services;
    const body = await write({
      client: this.#client,
      identify: async () => writerFrom(this.connection.client, await this.connection.identify()),
      parse: () => request,
      execute: (parsed, writer) => writes.run(parsed, writer, this.#client),
      reply: (written) => written,
    });
    // The caller may write the items, but not read them.
    return body === null ? '"data":null' : membersOf(body);
  }

  /** The answer of a delete names the keys. */
  async #selectedKeys(): Promise<unknown[]> {
    const { mirror } = this.services;
    const key = mirror.model.collections.get(this.#collection)?.key ?? [];
    const [name] = key.map((each) => each.name);
    if (name === undefined || key.length > 1) throw invalidPayload('"id" or "ids" is required');
    const { query } = this.#selection();
    const limits = wholeAnswers({ ...this.services.limits, pageSize: null });
    const selection = { limit: -1, ...query, fields: [quoteName(name)] };
    const body = await this.#run(() => parseSearch(this.#collection, { query: selection }, '', limits));
    return rowsOfAnswer(String(body)).map((item) => item[name]);
  }

  /** A selection is required: otherwise all items would be meant. */
  #selection(): { readonly query: Input } {
    const { filter, search, sort, limit, offset, page } = this.#query;
    const entries = Object.entries({ filter, search, sort, limit, offset, page }).filter(
      ([, value]) => value !== undefined,
    );
    if (entries.length === 0) throw invalidPayload('"id", "ids" or a "query" that selects items is required');
    return { query: Object.fromEntries(entries) };
  }

  #readBack(one: boolean): Parsed {
    return parseMessageReadBack(this.#collection, one, this.#query, this.services.limits);
  }

  #key(): Key {
    const { id } = this.message;
    const collection = this.services.mirror.model.collections.get(this.#collection);
    const key = collection ? shownKey(collection, id) : readKey(id);
    if (key === null) throw invalidPayload('"id" must be a key');
    return key;
  }
}

/** An answer is an object. */
function membersOf(body: Buffer): string {
  return String(body).slice(1, -1);
}
