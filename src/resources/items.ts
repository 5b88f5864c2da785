/** /items: the rows of every collection. */
import type { Identities } from '../access/identity.js';
import { forbidden } from '../errors.js';
import type { Reads } from '../execute/reads.js';
import type { Exchange } from '../http/exchange.js';
import { jsonBytes, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { ParseLimits } from '../request/query.js';
import { parseRead, parseSearch } from '../request/rest.js';

export interface ItemsServices {
  readonly identities: Identities;
  readonly reads: Reads;
  readonly limits: ParseLimits;
}

export function itemsRoutes(services: ItemsServices): Route[] {
  return [
    { method: 'GET', path: '/items/:collection', handle: (exchange) => readItems(exchange, services) },
    { method: 'SEARCH', path: '/items/:collection', handle: (exchange) => readItems(exchange, services) },
    { method: 'GET', path: '/items/:collection/:key', handle: (exchange) => readItems(exchange, services) },
  ];
}

async function readItems(exchange: Exchange, { identities, reads, limits }: ItemsServices): Promise<Reply> {
  const known = identities.identify(exchange.headers.authorization);
  const identity = known instanceof Promise ? await known : known;
  if (!identity.administrator) throw forbidden();
  exchange.staged('identify');
  const [collection = '', key = null] = exchange.parameters;
  const parsed =
    exchange.method === 'SEARCH'
      ? parseSearch(collection, await exchange.json(), exchange.queryString, limits)
      : parseRead(collection, key, exchange.queryString, limits);
  exchange.staged('parse');
  const compiled = reads.compile(parsed);
  exchange.staged('compile');
  const body = await reads.run(parsed, compiled, identity);
  exchange.staged('execute');
  if (!body) throw forbidden();
  return jsonBytes(body);
}
