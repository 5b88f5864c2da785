/** /items: the rows of every collection. */
import { forbiddenCollection } from '../../base/errors.js';
import type { Exchange } from '../../http/exchange.js';
import type { Handler, Route } from '../../http/router.js';
import { systemTables } from '../../postgres/catalog/system-tables.js';
import { UrlCache } from '../../request/url-cache.js';
import { type ItemPath, type ItemsServices, readItems } from './item-reads.js';
import { createItems, deleteItem, deleteItems, updateItem, updateItems } from './item-writes.js';

export function itemsRoutes(services: ItemsServices): Route[] {
  return resourceRoutes('/items/:collection', services, ({ parameters: [collection = '', key = null] }) => {
    refuseSystem(collection);
    return { collection, key };
  });
}

/** Reads and writes below a path, for the collection that it names. */
export function resourceRoutes(
  path: string,
  services: ItemsServices,
  itemPathOf: (exchange: Exchange) => ItemPath,
): Route[] {
  return [
    ...readRoutes(path, services, itemPathOf),
    { method: 'POST', path, handle: (exchange) => createItems(exchange, services, itemPathOf(exchange)) },
    { method: 'PATCH', path, handle: (exchange) => updateItems(exchange, services, itemPathOf(exchange)) },
    {
      method: 'PATCH',
      path: `${path}/:key`,
      handle: (exchange) => updateItem(exchange, services, itemPathOf(exchange)),
    },
    { method: 'DELETE', path, handle: (exchange) => deleteItems(exchange, services, itemPathOf(exchange)) },
    {
      method: 'DELETE',
      path: `${path}/:key`,
      handle: (exchange) => deleteItem(exchange, services, itemPathOf(exchange)),
    },
  ];
}

export function readRoutes(
  path: string,
  services: ItemsServices,
  itemPathOf: (exchange: Exchange) => ItemPath,
): Route[] {
  const urls = new UrlCache();
  const read: Handler = (exchange) => readItems(exchange, services, urls, itemPathOf(exchange));
  return [
    { method: 'GET', path, handle: read },
    { method: 'SEARCH', path, handle: read },
    { method: 'GET', path: `${path}/:key`, handle: read },
  ];
}

/** Tables of the service itself have separate resources. */
export function refuseSystem(collection: string): void {
  if (systemTables().has(collection)) throw forbiddenCollection(collection);
}
