/** /items: the rows of every collection. */
import { type Identities, type Identity, onlyAdministrator } from '../access/identity.js';
import type { Reads } from '../execute/reads.js';
import type { Writes } from '../execute/writes.js';
import type { Exchange } from '../http/exchange.js';
import type { Handler, Route } from '../http/router.js';
import type { ParseLimits } from '../request/query.js';
import { readItems } from './item-reads.js';
import { createItems, deleteItem, deleteItems, updateItem, updateItems } from './item-writes.js';
import { ParsedUrls } from './urls.js';

export interface ItemsServices {
  readonly identities: Identities;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly limits: ParseLimits;
}

export function itemsRoutes(services: ItemsServices): Route[] {
  const urls = new ParsedUrls();
  const read: Handler = (exchange) => readItems(exchange, services, urls);
  return [
    { method: 'GET', path: '/items/:collection', handle: read },
    { method: 'SEARCH', path: '/items/:collection', handle: read },
    { method: 'GET', path: '/items/:collection/:key', handle: read },
    { method: 'POST', path: '/items/:collection', handle: (exchange) => createItems(exchange, services) },
    { method: 'PATCH', path: '/items/:collection', handle: (exchange) => updateItems(exchange, services) },
    { method: 'PATCH', path: '/items/:collection/:key', handle: (exchange) => updateItem(exchange, services) },
    { method: 'DELETE', path: '/items/:collection', handle: (exchange) => deleteItems(exchange, services) },
    { method: 'DELETE', path: '/items/:collection/:key', handle: (exchange) => deleteItem(exchange, services) },
  ];
}

/** Answers at once for a known token: a warm request waits for nothing but its statement. */
export function identifyAdministrator(exchange: Exchange, { identities }: ItemsServices): Identity | Promise<Identity> {
  const known = identities.identify(exchange);
  return known instanceof Promise ? known.then(onlyAdministrator) : onlyAdministrator(known);
}
