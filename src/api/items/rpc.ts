/** /rpc: functions of the database. What a function returns of a collection is read as the collection is. */

import { invalidQuery, methodNotAllowed } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { type MaybePromise, read } from '../../engine/pipeline.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import type { Exchange } from '../../http/exchange.js';
import { type DEFERRED, errorReply, type Outcome, type Reply } from '../../http/reply.js';
import type { Route } from '../../http/router.js';
import { checkArguments } from '../../plan/call-arguments.js';
import type { Parsed } from '../../request/ast.js';
import { limitsOf } from '../../request/parse-context.js';
import { parseRpc, parseRpcSearch } from '../../request/rest.js';
import { UrlCache } from '../../request/url-cache.js';
import { type ItemPath, type ItemsServices, readIdempotencyKey, writerOf, writtenReply } from './item-writes.js';
import { explainPreference, ItemsRead } from './items.js';

export function functionRoutes(services: ItemsServices): Route[] {
  const urls = new UrlCache();
  const call = (exchange: Exchange): Outcome =>
    read(new FunctionRead(exchange, services, urls, pathOf(exchange)), services.reads);
  return [
    { method: 'GET', path: '/rpc/:function', handle: call },
    { method: 'POST', path: '/rpc/:function', handle: call },
    { method: 'SEARCH', path: '/rpc/:function', handle: call },
  ];
}

/** The path names the function in the place of a collection. */
function pathOf({ parameters: [name = ''] }: Exchange): ItemPath {
  return { collection: name, key: null };
}

class FunctionRead extends ItemsRead {
  #body: unknown;

  override parse(): MaybePromise<Parsed> {
    const { queryString, method } = this.client;
    const { limits } = this.services;
    if (method === 'POST' || method === 'SEARCH') return this.#parseBody(method === 'SEARCH');
    return this.urls.get(this.path.collection, queryString, (text) =>
      parseRpc(this.path.collection, undefined, text, limits),
    );
  }

  async #parseBody(isSearch: boolean): Promise<Parsed> {
    const { queryString } = this.client;
    const { limits } = this.services;
    this.#body = (await this.client.json(parseJson)) ?? {};
    return isSearch
      ? parseRpcSearch(this.path.collection, this.#body, queryString, limitsOf(limits, this.client.prefer))
      : parseRpc(this.path.collection, this.#body, queryString, limits);
  }

  override execute(prepared: PreparedRead<Parsed>): MaybePromise<Reply | typeof DEFERRED> {
    const { compiled, query, caller } = prepared;
    if (!compiled.volatile) {
      checkArguments(compiled.calls, query.values);
      return super.execute(prepared);
    }
    if (this.client.method !== 'POST') {
      const refusal = methodNotAllowed(`The function "${this.path.collection}" may write: call it with POST`);
      return { ...errorReply(refusal), headers: { Allow: 'POST' } };
    }
    if (explainPreference(this.client.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
    const idempotencyKey = readIdempotencyKey(this.client, caller, this.#body);
    const writer = writerOf(this.client, caller);
    return this.services.writes
      .call({ query, writer, client: this.client, idempotencyKey })
      .then((cell) => writtenReply(cell, query.bare));
  }
}
